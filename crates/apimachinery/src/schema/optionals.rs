//! Rewrites CEL optionals in rules into expressions that kube-cel supports.
//!
//! With `optionalOldSelf`, kube-cel binds `oldSelf` to null instead of an optional, and it parses neither `.?` nor
//! `optMap`. The text of such rules is rewritten before compilation: `oldSelf` becomes
//! `(oldSelf == null ? optional.none() : optional.of(oldSelf))`, and `self.?a` is guarded by `has(self.a)`. Only field
//! paths are rewritten; `f().?a` remains unchanged and fails to compile.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::openapi::VALIDATION_RULES;

/// Maximum length of a rewritten path; the result grows quadratically with it.
const MAX_PATH_LENGTH: usize = 32;

/// The type of `oldSelf` in a rule.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OldSelf {
    /// The old value; a rule that uses it is evaluated only if there is one.
    Value,
    /// An optional that is empty if there is no old value (`optionalOldSelf`).
    Optional,
}

struct Rewriter<'t> {
    /// Text not yet rewritten.
    input: &'t str,
    output: String,
    old_self: OldSelf,
    /// Text to insert after the closing bracket of each open bracket.
    closing_suffixes: Vec<&'static str>,
}

/// A field path whose value may be absent.
struct OptionalPath<'t> {
    text: String,
    /// Conditions under which the value is absent.
    guards: Vec<String>,
    rest: &'t str,
}

/// Returns the schema with its rules rewritten; default messages still quote the original rule.
pub(super) fn rewrite_rules(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            let lowered = fields.iter().map(|(name, value)| match (name.as_str(), value) {
                (VALIDATION_RULES, Value::Array(rules)) => (name.clone(), rules.iter().map(rewrite_rule).collect()),
                _ => (name.clone(), rewrite_rules(value)),
            });
            Value::Object(lowered.collect())
        }
        Value::Array(items) => items.iter().map(rewrite_rules).collect(),
        scalar => scalar.clone(),
    }
}

/// Rewrites the optionals in the text of a rule.
pub(super) fn rewrite(text: &str, old_self: OldSelf) -> Cow<'_, str> {
    if !text.contains(".?") && (old_self == OldSelf::Value || !text.contains("oldSelf")) {
        return Cow::Borrowed(text);
    }
    let mut rewriter = Rewriter { input: text, output: String::new(), old_self, closing_suffixes: Vec::new() };
    while rewriter.rewrite_token() {}
    Cow::Owned(rewriter.output)
}

// === impl OldSelf ===

impl OldSelf {
    /// Returns the type that `optionalOldSelf` of a rule specifies.
    pub(super) fn from_rule(rule: &Value) -> Self {
        if rule.get("optionalOldSelf") == Some(&json!(true)) { Self::Optional } else { Self::Value }
    }
}

// === impl Rewriter ===

impl<'t> Rewriter<'t> {
    /// Rewrites the next token; returns false at the end of the input.
    fn rewrite_token(&mut self) -> bool {
        let Some(first) = self.input.chars().next() else { return false };
        if matches!(first, '"' | '\'') {
            let is_raw = self.output.ends_with(['r', 'R']);
            let length = string_literal_length(self.input, is_raw);
            self.copy(length);
        } else if is_identifier_start(first) && !self.output.ends_with(|last| last == '.' || is_identifier_part(last)) {
            self.rewrite_path();
        } else {
            self.copy(first.len_utf8());
            match first {
                '(' | '[' | '{' => self.closing_suffixes.push(""),
                ')' | ']' | '}' => self.output.push_str(self.closing_suffixes.pop().unwrap_or_default()),
                _ => {}
            }
        }
        true
    }

    fn copy(&mut self, length: usize) {
        let (token, rest) = self.input.split_at(length);
        self.output.push_str(token);
        self.input = rest;
    }

    fn rewrite_path(&mut self) {
        let path = OptionalPath::parse(self.input, self.old_self);
        let is_prefix = path.rest.starts_with(['"', '\'']) || path.text.ends_with('.');
        if path.guards.is_empty() || path.guards.len() > MAX_PATH_LENGTH || is_prefix {
            let length = leading_identifier(self.input).len();
            return self.copy(length);
        }
        let is_absent = path.guards.join(" || ");
        let value = &path.text;
        self.input = path.rest;
        if let Some(rest) = self.input.strip_prefix(".optMap(") {
            self.output.push_str(&format!("({is_absent} ? [] : [{value}]).map("));
            self.closing_suffixes.push(".first()");
            self.input = rest;
            return;
        }
        self.output.push_str(&format!("({is_absent} ? optional.none() : optional.of({value}))"));
    }
}

// === impl OptionalPath ===

impl<'t> OptionalPath<'t> {
    fn parse(text: &'t str, old_self: OldSelf) -> Self {
        let root = leading_identifier(text);
        let mut path = Self { text: root.to_owned(), guards: Vec::new(), rest: &text[root.len()..] };
        if root == "oldSelf" && old_self == OldSelf::Optional {
            path.guards.push("oldSelf == null".to_owned());
        }
        while let Some((is_optional, field, rest)) = path.next_field() {
            path.text = format!("{}.{field}", path.text);
            path.rest = rest;
            // A field of an optional is itself optional.
            if is_optional || !path.guards.is_empty() {
                path.guards.push(format!("!has({})", path.text));
            }
            if path.guards.len() > MAX_PATH_LENGTH {
                break;
            }
        }
        path
    }

    /// Returns the next field name, unless it is a method call.
    fn next_field(&self) -> Option<(bool, &'t str, &'t str)> {
        let (is_optional, remainder) = match self.rest.strip_prefix(".?") {
            Some(remainder) => (true, remainder),
            None => (false, self.rest.strip_prefix('.')?),
        };
        let field = leading_identifier(remainder);
        let rest = &remainder[field.len()..];
        (!field.is_empty() && !rest.trim_start().starts_with('(')).then_some((is_optional, field, rest))
    }
}

fn rewrite_rule(rule: &Value) -> Value {
    let mut lowered = rule.clone();
    let old_self = OldSelf::from_rule(rule);
    let Some(text) = rule.get("rule").and_then(Value::as_str) else { return lowered };
    for field in ["rule", "messageExpression"] {
        if let Some(Cow::Owned(rewritten)) = rule.get(field).and_then(Value::as_str).map(|text| rewrite(text, old_self))
        {
            lowered[field] = json!(rewritten);
        }
    }
    if rule.get("message").and_then(Value::as_str).is_none() {
        lowered["message"] = json!(format!("failed rule: {text}"));
    }
    lowered
}

fn is_identifier_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn is_identifier_part(c: char) -> bool {
    is_identifier_start(c) || c.is_ascii_digit()
}

/// Returns the identifier at the start of `text`, or the empty string.
fn leading_identifier(text: &str) -> &str {
    if !text.starts_with(is_identifier_start) {
        return "";
    }
    text.split_once(|c| !is_identifier_part(c)).map_or(text, |(identifier, _)| identifier)
}

/// Returns the length in bytes of the string literal at the start of `text`.
fn string_literal_length(text: &str, is_raw: bool) -> usize {
    let quote = &text[..1];
    let triple = quote.repeat(3);
    let terminator = if text.starts_with(&triple) { triple.as_str() } else { quote };
    let mut position = terminator.len();
    while let Some(c) = text[position..].chars().next() {
        if text[position..].starts_with(terminator) {
            return position + terminator.len();
        }
        position += c.len_utf8();
        if c == '\\' && !is_raw {
            position += text[position..].chars().next().map_or(0, char::len_utf8);
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

    /// Expected results of the rule on create, and on updates from n=1 and n=3 to n=2.
    #[rstest]
    #[case::has("!oldSelf.hasValue() || oldSelf.value().n <= self.n", [true, true, false])]
    #[case::create_condition("oldSelf.hasValue() || self.n == 2", [true, true, true])]
    #[case::not_on_create("oldSelf.hasValue()", [false, true, true])]
    #[case::or_value("oldSelf.orValue(self).n <= self.n", [true, true, false])]
    #[case::field("oldSelf.?n.orValue(0) <= self.n", [true, true, false])]
    #[case::absent("oldSelf.?name.hasValue() == false", [true, true, true])]
    #[case::mapped("oldSelf.optMap(o, o.n <= self.n).orValue(true)", [true, true, false])]
    #[case::in_string_literal("oldSelf.hasValue() || 'oldSelf.?n' != \"\"", [true, true, true])]
    fn supports_optional_old_self(#[case] rule: &str, #[case] expected: [bool; 3]) {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object",
            "x-kubernetes-validations": [{"rule": rule, "optionalOldSelf": true}],
            "properties": {"n": {"type": "integer"}, "name": {"type": "string"}}}}});
        let schema = Schema::from_json(&schema).unwrap();
        let new = json!({"spec": {"n": 2}});
        for (n, is_valid) in [None, Some(1), Some(3)].into_iter().zip(expected) {
            let old = n.map(|n| json!({"spec": {"n": n}}));
            let causes: Vec<String> = schema.check_rules(&new, old.as_ref()).iter().map(ToString::to_string).collect();
            let violation = format!("spec: Invalid value: failed rule: {rule}");
            assert_eq!(causes, if is_valid { Vec::new() } else { vec![violation] }, "from {n:?}");
        }
    }

    #[rstest]
    #[case::present("self.?name.orValue('x') == 'a'", json!({"name": "a"}), true)]
    #[case::missing("self.?name.orValue('x') == 'a'", json!({}), false)]
    #[case::nested_missing("self.?inner.?name.hasValue()", json!({"inner": {}}), false)]
    #[case::nested_present("self.?inner.?name.hasValue()", json!({"inner": {"name": ""}}), true)]
    #[case::mapped("self.?inner.optMap(i, size(i.name) > 1).orValue(true)", json!({"inner": {"name": "a"}}), false)]
    fn supports_optional_fields(#[case] rule: &str, #[case] value: Value, #[case] is_valid: bool) {
        let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}], "properties": {
            "name": {"type": "string"}, "inner": {"type": "object", "properties": {"name": {"type": "string"}}}}});
        let causes = Schema::from_json(&schema).unwrap().check_rules(&value, None);
        assert_eq!(causes.is_empty(), is_valid, "{causes:?}");
    }

    #[rstest]
    #[case::plain("self.a == oldSelf.a", OldSelf::Value)]
    #[case::text(r#"'it\'s oldSelf' == """oldSelf.?a""" "#, OldSelf::Optional)]
    #[case::call("f().?a", OldSelf::Value)]
    #[case::unclosed("'oldSelf.?a", OldSelf::Optional)]
    #[case::operator_alone(".?", OldSelf::Optional)]
    fn leaves_other_expressions_unchanged(#[case] rule: &str, #[case] old_self: OldSelf) {
        assert_eq!(rewrite(rule, old_self), rule);
    }
}
