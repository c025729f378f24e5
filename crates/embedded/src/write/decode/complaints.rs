//! What a client is told of members that it gave twice and of fields that nobody declared.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{json_members, yaml_keys};

/// What is wrong with the text of a body, before anybody looks at its type.
#[derive(Debug, Clone, Default)]
pub struct Complaints {
    /// Of JSON, by their paths.
    doubled: Vec<String>,
    /// Of YAML, in whole sentences.
    keys: Vec<String>,
    /// The JSON, in whose order things are told.
    document: Bytes,
}

// === impl Complaints ===

impl Complaints {
    pub(crate) fn json(document: &Bytes) -> Self {
        Self { doubled: json_members::find(document), keys: Vec::new(), document: document.clone() }
    }

    /// Of a patch, which is told of before the object that it makes.
    pub(crate) fn patch(document: &[u8]) -> Self {
        Self { doubled: json_members::find(document), ..Self::default() }
    }

    pub(crate) fn yaml(document: &[u8]) -> Self {
        // Most clients send JSON under the name of YAML; that has no doubled keys, mostly.
        let is_plain = document.trim_ascii_start().starts_with(b"{") && json_members::find(document).is_empty();
        let text = std::str::from_utf8(document).unwrap_or_default();
        Self { keys: if is_plain { Vec::new() } else { yaml_keys::find(text) }, ..Self::default() }
    }

    /// One sentence of all doubled keys of YAML.
    pub(crate) fn of_keys(&self) -> Option<String> {
        let lines: String = self.keys.iter().map(|line| format!("\n  {line}")).collect();
        (!lines.is_empty()).then(|| format!("yaml: unmarshal errors:{lines}"))
    }

    /// One sentence for each, with those of `unknown` fields.
    pub(in crate::write) fn warnings(&self, is_typed: bool, unknown: &[String]) -> Vec<String> {
        self.keys.iter().cloned().chain(self.fields(is_typed, unknown)).collect()
    }

    /// All in one sentence, if there is anything.
    pub(in crate::write) fn refusal(&self, is_typed: bool, unknown: &[String]) -> Option<String> {
        let all: Vec<String> = self.of_keys().into_iter().chain(self.fields(is_typed, unknown)).collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    fn fields(&self, is_typed: bool, unknown: &[String]) -> Vec<String> {
        let said_unknown = |path: &String| format!("unknown field \"{path}\"");
        let said_doubled = |path: &String| format!("duplicate field \"{path}\"");
        if !is_typed || self.document.is_empty() || self.doubled.len() + unknown.len() < 2 {
            return self.doubled.iter().map(said_doubled).chain(unknown.iter().map(said_unknown)).collect();
        }
        let mut rest: BTreeSet<&String> = unknown.iter().collect();
        let mut told = Vec::new();
        for member in json_members::members(&self.document) {
            if rest.remove(&member.path) {
                told.push(said_unknown(&member.path));
            } else if member.again && !unknown.iter().any(|path| is_within(&member.path, path)) {
                told.push(said_doubled(&member.path));
            }
        }
        told.extend(rest.into_iter().map(said_unknown));
        told
    }
}

fn is_within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typed_object_is_told_of_in_the_order_of_its_document() {
        let text = r#"{"zeta":1,"spec":{"bogus":{"a":1,"a":2},"port":1,"port":2},"alpha":1,"zeta":2}"#;
        let complaints = Complaints::json(&Bytes::from_static(text.as_bytes()));
        let unknown = ["alpha", "spec.bogus", "zeta"].map(str::to_owned);
        let expected = [
            "unknown field \"zeta\"",
            "unknown field \"spec.bogus\"",
            "duplicate field \"spec.port\"",
            "unknown field \"alpha\"",
        ];
        assert_eq!(complaints.warnings(true, &unknown), expected);
    }
}
