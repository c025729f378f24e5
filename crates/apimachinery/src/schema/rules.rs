//! `x-kubernetes-validations`, evaluated by kube-cel.
//!
//! Definitions come from anybody: a rule that is too long, too deep or too dear is refused before it is read or
//! evaluated. Both recurse, so both have a thread with a stack that is large enough for the deepest rule allowed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use kube_cel::cel::Program;
use kube_cel::{CompiledSchema, ValidationError, Validator};
use serde_json::Value;

use super::cost::{self, Size};
use super::optionals::{self, OldSelf};
use super::rule_types;
use crate::status::Cause;

/// Largest rule in bytes; those of the Gateway API have two thousand.
const LONGEST: usize = 8 * 1024;

/// How deep brackets may stand in each other, and how many alternatives a rule may have.
const DEEPEST: usize = 64;

/// Levels of an expression that may be evaluated, and those for which any stack is large enough.
const LEVELS: usize = 128;
const FEW_LEVELS: usize = 24;

/// Enough to read and to evaluate what the bounds above allow.
const STACK: usize = 64 * 1024 * 1024;

/// The compiled rules of a schema, if it has any.
#[derive(Clone, Debug)]
pub(super) struct Rules(Option<Arc<Compiled>>);

#[derive(Debug)]
struct Compiled {
    schema: CompiledSchema,
    /// Levels of the deepest rule.
    levels: usize,
}

impl Rules {
    pub(super) fn compile(schema: &Value) -> Result<Self, String> {
        if !has_rules(schema) {
            return Ok(Self(None));
        }
        readable(schema, "")?;
        let compiled = on_a_large_stack(|| {
            let compiled = kube_cel::compile_schema(&optionals::lower(schema));
            if let Some(error) = first_error(&compiled, "") {
                return Err(error);
            }
            let levels = levels(&compiled);
            if levels > LEVELS {
                return Err(format!("a rule has {levels} levels: expression recursion limit exceeded: {LEVELS}"));
            }
            if makes_messages(&compiled) {
                return Err("a rule makes a message of a type: undeclared reference".to_owned());
            }
            Ok(Compiled { schema: compiled, levels })
        });
        compiled
            .unwrap_or_else(|| Err("a rule cannot be read".to_owned()))
            .map(|compiled| Self(Some(Arc::new(compiled))))
    }

    pub(super) fn check(&self, new: &Value, old: Option<&Value>) -> Vec<Cause> {
        let Some(compiled) = &self.0 else { return Vec::new() };
        let size = old.map(Size::of).unwrap_or_default().and(Size::of(new));
        if spent(&compiled.schema, new, size) > cost::BUDGET {
            return vec![exhausted()];
        }
        let check = || Validator::new().validate_compiled(&compiled.schema, new, old);
        let outcome = if compiled.levels <= FEW_LEVELS {
            std::panic::catch_unwind(AssertUnwindSafe(check)).ok()
        } else {
            on_a_large_stack(check)
        };
        let errors = match outcome {
            Some(Ok(())) => return Vec::new(),
            Some(Err(errors)) => errors,
            None => {
                return vec![Cause::new(
                    "",
                    "FieldValueInvalid",
                    "Invalid value: a rule failed inside while it was evaluated",
                )];
            }
        };
        let mut causes: Vec<Cause> = errors.into_vec().into_iter().map(|error| cause(&error, new)).collect();
        // kube-cel walks a hash map.
        causes.sort_by(|a, b| (&a.field, &a.message).cmp(&(&b.field, &b.message)));
        causes
    }
}

/// Whether a rule about a value of `schema` looks at `oldSelf`.
///
/// # Errors
/// It cannot be read or cannot be right, and why.
pub(super) fn reads_the_past(rule: &Value, schema: &Value, is_root: bool) -> Result<bool, String> {
    let text = rule.get("rule").and_then(Value::as_str).unwrap_or_default();
    short_enough(text).map_err(|why| format!("compilation failed: {why}"))?;
    let read = on_a_large_stack(|| {
        let lowered = optionals::rewrite(text, OldSelf::of(rule));
        let program = Program::compile(&lowered).map_err(|error| format!("compilation failed: {error}"))?;
        match rule_types::refuse(&program.expression().expr, schema, is_root) {
            Some(why) => Err(why),
            None => Ok(program.references().has_variable("oldSelf")),
        }
    });
    read.unwrap_or_else(|| Err("compilation failed: it cannot be read".to_owned()))
}

/// What kube-apiserver says of an object on which its rules cost too much.
fn exhausted() -> Cause {
    let why = "validation failed due to running out of cost budget, no further validation rules will be run";
    Cause::new("", "FieldValueInvalid", format!("Invalid value: {why}"))
}

/// `None` when it failed inside.
fn on_a_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work).ok()?;
        thread.join().ok()
    })
}

/// Refuses rules that are too large to be read at all.
fn readable(schema: &Value, path: &str) -> Result<(), String> {
    match schema {
        Value::Object(map) => {
            let rules = map.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten().enumerate();
            for (index, rule) in rules {
                for field in ["rule", "messageExpression"] {
                    let text = rule.get(field).and_then(Value::as_str).unwrap_or_default();
                    let at = || super::join(path, &format!("x-kubernetes-validations[{index}].{field}"));
                    short_enough(text).map_err(|why| format!("{}: Too long: {why}", at()))?;
                }
            }
            map.iter().try_for_each(|(name, inner)| readable(inner, &super::join(path, name)))
        }
        Value::Array(list) => list.iter().try_for_each(|inner| readable(inner, path)),
        _ => Ok(()),
    }
}

fn short_enough(rule: &str) -> Result<(), String> {
    if rule.len() > LONGEST {
        return Err(format!("may not be more than {LONGEST} bytes"));
    }
    let (mut depth, mut deepest) = (0_usize, 0);
    for letter in rule.chars() {
        match letter {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    let alternatives = rule.matches('?').count();
    if deepest > DEEPEST || alternatives > DEEPEST {
        return Err(format!("expression recursion limit exceeded: {DEEPEST}"));
    }
    Ok(())
}

/// Every program of one node of a schema.
fn programs(schema: &CompiledSchema) -> impl Iterator<Item = &Program> {
    let rules = schema.validations.iter().filter_map(|rule| rule.as_ref().ok());
    rules.flat_map(|rule| std::iter::once(&rule.program).chain(&rule.message_program))
}

/// The nodes inside a node.
fn inner(schema: &CompiledSchema) -> impl Iterator<Item = &CompiledSchema> {
    let boxed = [&schema.items, &schema.additional_properties];
    let lists = [&schema.all_of, &schema.one_of, &schema.any_of];
    let children = schema.properties.values().chain(boxed.into_iter().filter_map(|child| child.as_deref()));
    children.chain(lists.into_iter().flatten())
}

fn levels(schema: &CompiledSchema) -> usize {
    let own = programs(schema).map(|program| cost::depth(&program.expression().expr)).max().unwrap_or_default();
    inner(schema).map(levels).fold(own, usize::max)
}

fn makes_messages(schema: &CompiledSchema) -> bool {
    programs(schema).any(|program| cost::makes_messages(&program.expression().expr))
        || inner(schema).any(makes_messages)
}

/// What the rules may cost on `value`, a part of an object of this size; each rule runs once for each value of its node.
fn spent(schema: &CompiledSchema, value: &Value, size: Size) -> u64 {
    let own =
        programs(schema).map(|program| cost::most(&program.expression().expr, size)).fold(0_u64, u64::saturating_add);
    let combined = [&schema.all_of, &schema.one_of, &schema.any_of].into_iter().flatten();
    let combined = combined.map(|schema| spent(schema, value, size)).fold(own, u64::saturating_add);
    let within: Vec<u64> = match value {
        Value::Array(items) => {
            schema.items.iter().flat_map(|inner| items.iter().map(|item| spent(inner, item, size))).collect()
        }
        Value::Object(members) => members
            .iter()
            .filter_map(|(name, value)| {
                let inner = schema.properties.get(name).or(schema.additional_properties.as_deref())?;
                Some(spent(inner, value, size))
            })
            .collect(),
        _ => Vec::new(),
    };
    within.into_iter().fold(combined, u64::saturating_add)
}

fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.contains_key("x-kubernetes-validations") || map.values().any(has_rules),
        Value::Array(list) => list.iter().any(has_rules),
        _ => false,
    }
}

fn first_error(schema: &CompiledSchema, path: &str) -> Option<String> {
    let here = schema.validations.iter().enumerate().find_map(|(index, rule)| {
        let error = rule.as_ref().err()?;
        Some(format!("{}: {error}", super::join(path, &format!("x-kubernetes-validations[{index}].rule"))))
    });
    let mut properties: Vec<_> = schema.properties.iter().collect();
    properties.sort_by_key(|(name, _)| name.as_str());
    here.or_else(|| {
        properties
            .iter()
            .find_map(|(name, child)| first_error(child, &super::join(path, &format!("properties[{name}]"))))
    })
    .or_else(|| first_error(schema.items.as_deref()?, &super::join(path, "items")))
    .or_else(|| first_error(schema.additional_properties.as_deref()?, &super::join(path, "additionalProperties")))
}

fn cause(error: &ValidationError, object: &Value) -> Cause {
    let field = error.field_path.trim_start_matches('.');
    let value = value_at(object, field).unwrap_or(&Value::Null);
    match error.reason.as_deref() {
        Some("FieldValueRequired") => Cause::required(field, &error.message),
        Some("FieldValueForbidden") => Cause::forbidden(field, &error.message),
        Some("FieldValueDuplicate") => Cause::duplicate(field, value),
        // What is no single value would hide the message.
        _ if value.is_object() || value.is_array() || value.is_null() => {
            Cause::new(field, "FieldValueInvalid", format!("Invalid value: {}", error.message))
        }
        _ => Cause::invalid(field, value, &error.message),
    }
}

/// The value at `a.b[0].c`.
fn value_at<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    let steps = path.split(['.', '[']).filter(|step| !step.is_empty());
    steps.map(|step| step.trim_end_matches(']')).try_fold(object, |value, step| match value {
        Value::Array(list) => list.get(step.parse::<usize>().ok()?),
        other => other.get(step.trim_matches('"')),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use crate::schema::Schema;

    fn schema() -> Schema {
        Schema::from_json(&json!({"type": "object", "properties": {"spec": {"type": "object",
            "x-kubernetes-validations": [
                {"rule": "self.min <= self.max", "message": "min must not exceed max"},
                {"rule": "self.min >= oldSelf.min", "messageExpression": "'min was ' + string(oldSelf.min)"},
            ],
            "properties": {
                "min": {"type": "integer"}, "max": {"type": "integer"},
                "name": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "name is immutable", "reason": "FieldValueForbidden"}]},
            }}}}))
        .unwrap()
    }

    fn texts(new: serde_json::Value, old: Option<serde_json::Value>) -> Vec<String> {
        schema().check_rules(&new, old.as_ref()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn rule_and_message() {
        let broken = json!({"spec": {"min": 2, "max": 1, "name": "a"}});
        assert_eq!(texts(broken, None), [r#"spec: Invalid value: min must not exceed max"#]);
        assert!(texts(json!({"spec": {"min": 1, "max": 1, "name": "a"}}), None).is_empty());
    }

    #[test]
    fn transition_rules_need_the_old_object() {
        let old = json!({"spec": {"min": 5, "max": 9, "name": "a"}});
        let new = json!({"spec": {"min": 4, "max": 9, "name": "b"}});
        assert_eq!(
            texts(new, Some(old)),
            [r#"spec: Invalid value: min was 5"#, "spec.name: Forbidden: name is immutable"],
        );
    }

    #[rstest]
    #[case::brackets(format!("{}1{} == 1", "(".repeat(5000), ")".repeat(5000)))]
    #[case::lists(format!("{}{} == []", "[".repeat(5000), "]".repeat(5000)))]
    #[case::sum(format!("{}1 > 0", "1+".repeat(3000)))]
    #[case::path(format!("self{} == 1", ".a".repeat(3000)))]
    #[case::calls(format!("'a'{} == 'a'", ".trim()".repeat(1000)))]
    #[case::alternatives(format!("{}true", "true?true:".repeat(500)))]
    #[case::message("a.b.C{}.d == 1".to_owned())]
    #[case::long(format!("self.name != '{}'", "x".repeat(1_000_000)))]
    fn a_rule_that_would_break_the_reader_is_refused(#[case] rule: String) {
        let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}]});
        let error = Schema::from_json(&schema).unwrap_err();
        assert!(["limit exceeded", "Too long", "message of a type"].iter().any(|why| error.contains(why)), "{error}");
    }

    /// As deep as is allowed, on the stack of a thread of a server.
    #[rstest]
    #[case::brackets(format!("{}1{} == 1", "(".repeat(60), ")".repeat(60)))]
    #[case::sum(format!("{}1 > 0", "1+".repeat(120)))]
    #[case::all(format!("{}true", "true && ".repeat(900)))]
    fn a_rule_that_is_allowed_is_evaluated(#[case] rule: String) {
        let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}]});
        assert!(Schema::from_json(&schema).unwrap().check_rules(&json!({}), None).is_empty());
    }

    #[test]
    fn a_rule_that_would_never_end_is_refused_on_large_objects_only() {
        let rule = "self.l.all(a, self.l.all(b, self.l.all(c, self.l.all(d, a + b + c + d >= 0))))";
        let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}],
            "properties": {"l": {"type": "array", "items": {"type": "integer"}}}});
        let schema = Schema::from_json(&schema).unwrap();
        let list = |count: usize| json!({"l": vec![1; count]});
        assert!(schema.check_rules(&list(5), None).is_empty());
        let refused = schema.check_rules(&list(5000), None);
        assert!(refused[0].message.contains("running out of cost budget"), "{refused:?}");
    }

    #[test]
    fn a_broken_rule_is_refused_with_its_place() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string", "x-kubernetes-validations": [{"rule": "self =="}]}}});
        let error = Schema::from_json(&schema).unwrap_err();
        assert!(error.starts_with("properties[a].x-kubernetes-validations[0].rule: "), "{error}");
    }
}
