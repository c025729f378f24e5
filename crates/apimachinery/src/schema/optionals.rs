//! Optionals of CEL in rules, written in what the evaluator reads.
//!
//! kube-cel binds null to `oldSelf` where `optionalOldSelf` asks for an optional, and reads neither `.?` nor `optMap`.
//! The text of such a rule is rewritten before it is compiled: `oldSelf` becomes
//! `(oldSelf == null ? optional.none() : optional.of(oldSelf))`, and `self.?a` asks `has(self.a)` first. Only paths of
//! names are rewritten; `f().?a` stays what it is, and is refused.

use std::borrow::Cow;

use serde_json::{Value, json};

/// Longest path that is rewritten; what it becomes grows with the square of it.
const LONGEST: usize = 32;

/// What `oldSelf` is in a rule.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OldSelf {
    Value,
    Optional,
}

impl OldSelf {
    /// As a rule says.
    pub(super) fn of(rule: &Value) -> Self {
        if rule.get("optionalOldSelf") == Some(&json!(true)) { Self::Optional } else { Self::Value }
    }
}

/// The schema with its rules as the evaluator reads them, saying of a broken one what its author wrote.
pub(super) fn lower(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let lowered = members.iter().map(|(name, value)| match (name.as_str(), value) {
                ("x-kubernetes-validations", Value::Array(rules)) => {
                    (name.clone(), rules.iter().map(lower_rule).collect())
                }
                _ => (name.clone(), lower(value)),
            });
            Value::Object(lowered.collect())
        }
        Value::Array(items) => items.iter().map(lower).collect(),
        other => other.clone(),
    }
}

fn lower_rule(rule: &Value) -> Value {
    let mut lowered = rule.clone();
    let old = OldSelf::of(rule);
    let Some(text) = rule.get("rule").and_then(Value::as_str) else { return lowered };
    for field in ["rule", "messageExpression"] {
        if let Some(Cow::Owned(rewritten)) = rule.get(field).and_then(Value::as_str).map(|text| rewrite(text, old)) {
            lowered[field] = json!(rewritten);
        }
    }
    if rule.get("message").and_then(Value::as_str).is_none() {
        lowered["message"] = json!(format!("failed rule: {text}"));
    }
    lowered
}

/// The text of a rule without what the evaluator does not read.
pub(super) fn rewrite(text: &str, old: OldSelf) -> Cow<'_, str> {
    if !text.contains(".?") && (old == OldSelf::Value || !text.contains("oldSelf")) {
        return Cow::Borrowed(text);
    }
    let mut writer = Writer { rest: text, done: String::new(), old, open: Vec::new() };
    while writer.step() {}
    Cow::Owned(writer.done)
}

struct Writer<'t> {
    rest: &'t str,
    done: String,
    old: OldSelf,
    /// What follows the bracket that closes each open one.
    open: Vec<&'static str>,
}

impl<'t> Writer<'t> {
    /// Writes the next token; false at the end.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else { return false };
        if matches!(first, '"' | '\'') {
            let is_raw = self.done.ends_with(['r', 'R']);
            let length = quoted(self.rest, is_raw);
            self.copy(length);
        } else if is_start(first) && !self.done.ends_with(|last| last == '.' || is_part(last)) {
            self.path();
        } else {
            self.copy(first.len_utf8());
            match first {
                '(' | '[' | '{' => self.open.push(""),
                ')' | ']' | '}' => self.done.push_str(self.open.pop().unwrap_or_default()),
                _ => {}
            }
        }
        true
    }

    fn copy(&mut self, length: usize) {
        let (taken, rest) = self.rest.split_at(length);
        self.done.push_str(taken);
        self.rest = rest;
    }

    fn path(&mut self) {
        let path = Path::read(self.rest, self.old);
        let is_prefix = path.rest.starts_with(['"', '\'']) || path.text.ends_with('.');
        if path.guards.is_empty() || path.guards.len() > LONGEST || is_prefix {
            let length = name(self.rest).len();
            return self.copy(length);
        }
        let none = path.guards.join(" || ");
        let found = &path.text;
        self.rest = path.rest;
        if let Some(rest) = self.rest.strip_prefix(".optMap(") {
            self.done.push_str(&format!("({none} ? [] : [{found}]).map("));
            self.open.push(".first()");
            self.rest = rest;
            return;
        }
        self.done.push_str(&format!("({none} ? optional.none() : optional.of({found}))"));
    }
}

/// Names that lead to a value which may not be there.
struct Path<'t> {
    text: String,
    /// When there is none.
    guards: Vec<String>,
    rest: &'t str,
}

impl<'t> Path<'t> {
    fn read(text: &'t str, old: OldSelf) -> Self {
        let root = name(text);
        let mut path = Self { text: root.to_owned(), guards: Vec::new(), rest: &text[root.len()..] };
        if root == "oldSelf" && old == OldSelf::Optional {
            path.guards.push("oldSelf == null".to_owned());
        }
        while let Some((is_optional, step, rest)) = path.next() {
            path.text = format!("{}.{step}", path.text);
            path.rest = rest;
            // A field of an optional is an optional.
            if is_optional || !path.guards.is_empty() {
                path.guards.push(format!("!has({})", path.text));
            }
            if path.guards.len() > LONGEST {
                break;
            }
        }
        path
    }

    /// The next name, if it is that of a field and not of a function.
    fn next(&self) -> Option<(bool, &'t str, &'t str)> {
        let (is_optional, after) = match self.rest.strip_prefix(".?") {
            Some(after) => (true, after),
            None => (false, self.rest.strip_prefix('.')?),
        };
        let step = name(after);
        let rest = &after[step.len()..];
        (!step.is_empty() && !rest.trim_start().starts_with('(')).then_some((is_optional, step, rest))
    }
}

fn is_start(letter: char) -> bool {
    letter.is_ascii_alphabetic() || letter == '_'
}

fn is_part(letter: char) -> bool {
    is_start(letter) || letter.is_ascii_digit()
}

/// The name at the start of `text`, or nothing.
fn name(text: &str) -> &str {
    if !text.starts_with(is_start) {
        return "";
    }
    text.split_once(|letter| !is_part(letter)).map_or(text, |(name, _)| name)
}

/// How long the quotation at the start of `text` is.
fn quoted(text: &str, is_raw: bool) -> usize {
    let quote = &text[..1];
    let triple = quote.repeat(3);
    let end = if text.starts_with(&triple) { triple.as_str() } else { quote };
    let mut at = end.len();
    while let Some(letter) = text[at..].chars().next() {
        if text[at..].starts_with(end) {
            return at + end.len();
        }
        at += letter.len_utf8();
        if letter == '\\' && !is_raw {
            at += text[at..].chars().next().map_or(0, char::len_utf8);
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::{OldSelf, rewrite};
    use crate::schema::Schema;

    /// What the rule of `spec` says: on create and on updates from `before`, on to `after`.
    #[rstest]
    #[case::has("!oldSelf.hasValue() || oldSelf.value().n <= self.n", [true, true, false])]
    #[case::only_on_create("oldSelf.hasValue() || self.n == 2", [true, true, true])]
    #[case::not_on_create("oldSelf.hasValue()", [false, true, true])]
    #[case::or_value("oldSelf.orValue(self).n <= self.n", [true, true, false])]
    #[case::field("oldSelf.?n.orValue(0) <= self.n", [true, true, false])]
    #[case::absent("oldSelf.?name.hasValue() == false", [true, true, true])]
    #[case::mapped("oldSelf.optMap(o, o.n <= self.n).orValue(true)", [true, true, false])]
    #[case::in_a_text("oldSelf.hasValue() || 'oldSelf.?n' != \"\"", [true, true, true])]
    fn old_self_is_an_optional(#[case] rule: &str, #[case] holds: [bool; 3]) {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
            "x-kubernetes-validations": [{"rule": rule, "optionalOldSelf": true}],
            "properties": {"n": {"type": "integer"}, "name": {"type": "string"}}}}});
        let schema = Schema::from_json(&schema).unwrap();
        let new = json!({"spec": {"n": 2}});
        for (n, holds) in [None, Some(1), Some(3)].into_iter().zip(holds) {
            let old = n.map(|n| json!({"spec": {"n": n}}));
            let found: Vec<String> = schema.check_rules(&new, old.as_ref()).iter().map(ToString::to_string).collect();
            let refused = format!("spec: Invalid value: failed rule: {rule}");
            assert_eq!(found, if holds { Vec::new() } else { vec![refused] }, "from {n:?}");
        }
    }

    #[rstest]
    #[case::there("self.?name.orValue('x') == 'a'", json!({"name": "a"}), true)]
    #[case::not_there("self.?name.orValue('x') == 'a'", json!({}), false)]
    #[case::deep("self.?inner.?name.hasValue()", json!({"inner": {}}), false)]
    #[case::deeper("self.?inner.?name.hasValue()", json!({"inner": {"name": ""}}), true)]
    #[case::mapped("self.?inner.optMap(i, size(i.name) > 1).orValue(true)", json!({"inner": {"name": "a"}}), false)]
    fn a_field_that_may_be_absent(#[case] rule: &str, #[case] value: Value, #[case] holds: bool) {
        let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}], "properties": {
            "name": {"type": "string"}, "inner": {"type": "object", "properties": {"name": {"type": "string"}}}}});
        let found = Schema::from_json(&schema).unwrap().check_rules(&value, None);
        assert_eq!(found.is_empty(), holds, "{found:?}");
    }

    #[rstest]
    #[case::plain("self.a == oldSelf.a", OldSelf::Value)]
    #[case::text(r#"'it\'s oldSelf' == """oldSelf.?a""" "#, OldSelf::Optional)]
    #[case::call("f().?a", OldSelf::Value)]
    #[case::unclosed("'oldSelf.?a", OldSelf::Optional)]
    #[case::nothing(".?", OldSelf::Optional)]
    fn what_is_no_optional_stays(#[case] rule: &str, #[case] old: OldSelf) {
        assert_eq!(rewrite(rule, old), rule);
    }
}
