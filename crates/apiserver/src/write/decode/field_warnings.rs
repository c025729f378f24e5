//! Warnings and errors for duplicate and unknown fields.

use std::collections::BTreeSet;

use bytes::Bytes;

use super::{json_members, yaml_keys};

/// Duplicate fields of a request body, which are detected without knowledge of the object's type.
#[derive(Debug, Clone, Default)]
pub(crate) struct FieldWarnings {
    /// Paths of duplicate JSON members.
    duplicates: Vec<String>,
    /// Messages for duplicate YAML keys.
    yaml_messages: Vec<String>,
    /// JSON document; the messages are in the order of its members.
    document: Bytes,
}

// === impl FieldWarnings ===

impl FieldWarnings {
    /// Finds the duplicate members of a JSON document.
    pub(crate) fn json(document: &Bytes) -> Self {
        Self {
            duplicates: json_members::duplicate_paths(document),
            yaml_messages: Vec::new(),
            document: document.clone(),
        }
    }

    /// Finds the duplicate members of a JSON patch. Their messages precede those for the patched object.
    pub(crate) fn from_patch(document: &[u8]) -> Self {
        Self { duplicates: json_members::duplicate_paths(document), ..Self::default() }
    }

    /// Finds the duplicate keys of a YAML document.
    pub(crate) fn from_yaml(document: &[u8]) -> Self {
        // Fast path for clients that send JSON with a YAML content type: if the JSON has no duplicates, the YAML parser
        // is not needed.
        let is_json =
            document.trim_ascii_start().starts_with(b"{") && json_members::duplicate_paths(document).is_empty();
        let text = std::str::from_utf8(document).unwrap_or_default();
        Self { yaml_messages: if is_json { Vec::new() } else { yaml_keys::duplicate_keys(text) }, ..Self::default() }
    }

    /// Returns the error for duplicate YAML keys, or `None`.
    pub(crate) fn yaml_error(&self) -> Option<String> {
        let lines: String = self.yaml_messages.iter().map(|line| format!("\n  {line}")).collect();
        (!lines.is_empty()).then(|| format!("yaml: unmarshal errors:{lines}"))
    }

    /// Returns a warning for each duplicate field and each unknown field.
    pub(in crate::write) fn warnings(&self, is_typed: bool, unknown: &[String]) -> Vec<String> {
        self.yaml_messages.iter().cloned().chain(self.field_messages(is_typed, unknown)).collect()
    }

    /// Returns a single error that lists all duplicate and unknown fields, or `None`.
    pub(in crate::write) fn error(&self, is_typed: bool, unknown: &[String]) -> Option<String> {
        let messages: Vec<String> =
            self.yaml_error().into_iter().chain(self.field_messages(is_typed, unknown)).collect();
        (!messages.is_empty()).then(|| messages.join(", "))
    }

    fn field_messages(&self, is_typed: bool, unknown: &[String]) -> Vec<String> {
        let unknown_message = |path: &String| format!("unknown field \"{path}\"");
        let duplicate_message = |path: &String| format!("duplicate field \"{path}\"");
        if !is_typed || self.document.is_empty() || self.duplicates.len() + unknown.len() < 2 {
            return self.duplicates.iter().map(duplicate_message).chain(unknown.iter().map(unknown_message)).collect();
        }
        let mut remaining: BTreeSet<&String> = unknown.iter().collect();
        let mut messages = Vec::new();
        for member in json_members::members(&self.document) {
            if remaining.remove(&member.path) {
                messages.push(unknown_message(&member.path));
            } else if member.is_duplicate && !unknown.iter().any(|path| is_within(&member.path, path)) {
                messages.push(duplicate_message(&member.path));
            }
        }
        messages.extend(remaining.into_iter().map(unknown_message));
        messages
    }
}

fn is_within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|remaining| remaining.is_empty() || remaining.starts_with(['.', '[']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_fields_in_document_order() {
        let text = r#"{"zeta":1,"spec":{"bogus":{"a":1,"a":2},"port":1,"port":2},"alpha":1,"zeta":2}"#;
        let field_warnings = FieldWarnings::json(&Bytes::from_static(text.as_bytes()));
        let unknown = ["alpha", "spec.bogus", "zeta"].map(str::to_owned);
        let expected = [
            "unknown field \"zeta\"",
            "unknown field \"spec.bogus\"",
            "duplicate field \"spec.port\"",
            "unknown field \"alpha\"",
        ];
        assert_eq!(field_warnings.warnings(true, &unknown), expected);
    }
}
