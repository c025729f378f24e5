//! `x-kubernetes-validations`, evaluated by kube-cel.
//!
//! Definitions are untrusted input: rules that are too long, too deep or too expensive are rejected before parsing or
//! evaluation. Parsing and evaluation are recursive, so they run on a thread with a stack that is large enough for the
//! deepest allowed rule.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use kube_cel::cel::Program;
use kube_cel::{CompiledSchema, ValidationError, Validator};
use serde_json::Value;

use super::cost::{self, ValueSize};
use super::openapi::VALIDATION_RULES;
use super::optionals::{self, OldSelf};
use super::paths::join;
use super::rule_check;
use super::violation::{Constraint, RuleReason, SchemaViolation};

/// Maximum length of a rule in bytes; the longest rules of the Gateway API have about 2000 bytes.
const MAX_RULE_BYTES: usize = 8 * 1024;

/// Maximum nesting of brackets, and maximum number of conditionals in a rule.
const MAX_NESTING: usize = 64;

/// Maximum depth of an expression.
const MAX_EXPRESSION_DEPTH: usize = 128;
/// Depth up to which the default stack of a thread suffices.
const SHALLOW_EXPRESSION_DEPTH: usize = 24;

/// Error of kube-apiserver for an object whose rules exceed the cost budget.
const COST_BUDGET_EXCEEDED: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Stack size that suffices to parse and evaluate any rule within the limits above, in bytes.
const STACK_SIZE: usize = 64 * 1024 * 1024;

/// The compiled rules of a schema, if it has any.
#[derive(Clone, Debug)]
pub(super) struct Rules(Option<Arc<CompiledRules>>);

#[derive(Debug)]
struct CompiledRules {
    schema: CompiledSchema,
    /// Depth of the deepest expression.
    depth: usize,
}

// === impl Rules ===

impl Rules {
    /// Compiles the rules of `schema`.
    pub(super) fn compile(schema: &Value) -> Result<Self, String> {
        if !has_rules(schema) {
            return Ok(Self(None));
        }
        check_rule_sizes(schema, "")?;
        let compiled = with_large_stack(|| {
            let compiled = kube_cel::compile_schema(&optionals::rewrite_rules(schema));
            if let Some(error) = first_error(&compiled, "") {
                return Err(error);
            }
            let depth = max_depth(&compiled);
            if depth > MAX_EXPRESSION_DEPTH {
                return Err(format!(
                    "expression has {depth} levels: expression recursion limit exceeded: {MAX_EXPRESSION_DEPTH}"
                ));
            }
            if constructs_message(&compiled) {
                return Err("expression constructs a message: undeclared reference to a type".to_owned());
            }
            Ok(CompiledRules { schema: compiled, depth })
        });
        compiled
            .unwrap_or_else(|| Err("a rule could not be compiled".to_owned()))
            .map(|compiled| Self(Some(Arc::new(compiled))))
    }

    /// Evaluates the rules on `new` and returns the violations, sorted by field.
    pub(super) fn check(&self, new: &Value, old: Option<&Value>) -> Vec<SchemaViolation> {
        let Some(compiled) = &self.0 else { return Vec::new() };
        let size = old.map(ValueSize::of).unwrap_or_default().combine(ValueSize::of(new));
        if total_cost(&compiled.schema, new, size) > cost::COST_BUDGET {
            return vec![not_evaluated(COST_BUDGET_EXCEEDED)];
        }
        let check = || Validator::new().validate_compiled(&compiled.schema, new, old);
        let outcome = if compiled.depth <= SHALLOW_EXPRESSION_DEPTH {
            std::panic::catch_unwind(AssertUnwindSafe(check)).ok()
        } else {
            with_large_stack(check)
        };
        let errors = match outcome {
            Some(Ok(())) => return Vec::new(),
            Some(Err(errors)) => errors,
            None => return vec![not_evaluated("internal error while evaluating a rule")],
        };
        let mut violations: Vec<_> = errors.into_vec().into_iter().map(|error| violation(error, new)).collect();
        // kube-cel iterates over a hash map, so its order is not deterministic.
        violations.sort_by_cached_key(|violation| (violation.field.clone(), violation.cause().message));
        violations
    }
}

/// Reports whether a rule on a value of `schema` uses `oldSelf`.
///
/// # Errors
/// Fails if the rule does not compile or fails the static checks.
pub(super) fn uses_old_self(rule: &Value, schema: &Value, is_root: bool) -> Result<bool, String> {
    let text = rule.get("rule").and_then(Value::as_str).unwrap_or_default();
    check_size(text).map_err(|error| format!("compilation failed: {error}"))?;
    let result = with_large_stack(|| {
        let lowered = optionals::rewrite(text, OldSelf::from_rule(rule));
        let program = Program::compile(&lowered).map_err(|error| format!("compilation failed: {error}"))?;
        match rule_check::check_rule(&program.expression().expr, schema, is_root) {
            Some(error) => Err(error),
            None => Ok(program.references().has_variable("oldSelf")),
        }
    });
    result.unwrap_or_else(|| Err("compilation failed: internal error".to_owned()))
}

/// Returns the violation of an object whose rules could not be evaluated.
fn not_evaluated(message: &str) -> SchemaViolation {
    let constraint = Constraint::Rule { reason: RuleReason::Invalid, message: message.to_owned() };
    SchemaViolation::new("", Value::Null, constraint)
}

/// Runs `work` on a thread with [`STACK_SIZE`]; returns `None` if it panics.
fn with_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_SIZE).spawn_scoped(scope, work).ok()?;
        thread.join().ok()
    })
}

/// Rejects rules that are too large to parse.
fn check_rule_sizes(schema: &Value, path: &str) -> Result<(), String> {
    match schema {
        Value::Object(map) => {
            let rules = map.get(VALIDATION_RULES).and_then(Value::as_array).into_iter().flatten().enumerate();
            for (index, rule) in rules {
                for field in ["rule", "messageExpression"] {
                    let text = rule.get(field).and_then(Value::as_str).unwrap_or_default();
                    let path = || join(path, &format!("{VALIDATION_RULES}[{index}].{field}"));
                    check_size(text).map_err(|error| format!("{}: Too long: {error}", path()))?;
                }
            }
            map.iter().try_for_each(|(name, nested)| check_rule_sizes(nested, &join(path, name)))
        }
        Value::Array(list) => list.iter().try_for_each(|nested| check_rule_sizes(nested, path)),
        _ => Ok(()),
    }
}

fn check_size(rule: &str) -> Result<(), String> {
    if rule.len() > MAX_RULE_BYTES {
        return Err(format!("may not be more than {MAX_RULE_BYTES} bytes"));
    }
    let (mut depth, mut max_depth) = (0_usize, 0);
    for c in rule.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        max_depth = max_depth.max(depth);
    }
    let conditionals = rule.matches('?').count();
    if max_depth > MAX_NESTING || conditionals > MAX_NESTING {
        return Err(format!("expression recursion limit exceeded: {MAX_NESTING}"));
    }
    Ok(())
}

/// Returns the compiled programs of a schema, without those of nested schemas.
fn programs(schema: &CompiledSchema) -> impl Iterator<Item = &Program> {
    let rules = schema.validations.iter().filter_map(|rule| rule.as_ref().ok());
    rules.flat_map(|rule| std::iter::once(&rule.program).chain(&rule.message_program))
}

/// Returns the schemas directly nested in a schema.
fn nested_schemas(schema: &CompiledSchema) -> impl Iterator<Item = &CompiledSchema> {
    let single_schemas = [&schema.items, &schema.additional_properties];
    let schema_lists = [&schema.all_of, &schema.one_of, &schema.any_of];
    let children = schema.properties.values().chain(single_schemas.into_iter().filter_map(|child| child.as_deref()));
    children.chain(schema_lists.into_iter().flatten())
}

fn max_depth(schema: &CompiledSchema) -> usize {
    let own_depth = programs(schema).map(|program| cost::depth(&program.expression().expr)).max().unwrap_or_default();
    nested_schemas(schema).map(max_depth).fold(own_depth, usize::max)
}

fn constructs_message(schema: &CompiledSchema) -> bool {
    programs(schema).any(|program| cost::constructs_message(&program.expression().expr))
        || nested_schemas(schema).any(constructs_message)
}

/// Returns the maximum cost of the rules on `value`, a part of an object of this size. Each rule runs once per value of
/// its schema.
fn total_cost(schema: &CompiledSchema, value: &Value, size: ValueSize) -> u64 {
    let own_cost = programs(schema)
        .map(|program| cost::max_cost(&program.expression().expr, size))
        .fold(0_u64, u64::saturating_add);
    let junctors = [&schema.all_of, &schema.one_of, &schema.any_of].into_iter().flatten();
    let with_junctors = junctors.map(|schema| total_cost(schema, value, size)).fold(own_cost, u64::saturating_add);
    let nested: Vec<u64> = match value {
        Value::Array(items) => {
            schema.items.iter().flat_map(|schema| items.iter().map(|item| total_cost(schema, item, size))).collect()
        }
        Value::Object(fields) => fields
            .iter()
            .filter_map(|(name, value)| {
                let schema = schema.properties.get(name).or(schema.additional_properties.as_deref())?;
                Some(total_cost(schema, value, size))
            })
            .collect(),
        _ => Vec::new(),
    };
    nested.into_iter().fold(with_junctors, u64::saturating_add)
}

fn has_rules(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => map.contains_key(VALIDATION_RULES) || map.values().any(has_rules),
        Value::Array(list) => list.iter().any(has_rules),
        _ => false,
    }
}

fn first_error(schema: &CompiledSchema, path: &str) -> Option<String> {
    let own_error = schema.validations.iter().enumerate().find_map(|(index, rule)| {
        let error = rule.as_ref().err()?;
        Some(format!("{}: {error}", join(path, &format!("{VALIDATION_RULES}[{index}].rule"))))
    });
    let mut properties: Vec<_> = schema.properties.iter().collect();
    properties.sort_by_key(|(name, _)| name.as_str());
    own_error
        .or_else(|| {
            properties.iter().find_map(|(name, child)| first_error(child, &join(path, &format!("properties[{name}]"))))
        })
        .or_else(|| first_error(schema.items.as_deref()?, &join(path, "items")))
        .or_else(|| first_error(schema.additional_properties.as_deref()?, &join(path, "additionalProperties")))
}

fn violation(error: ValidationError, object: &Value) -> SchemaViolation {
    let field = error.field_path.trim_start_matches('.');
    let value = value_at(object, field).cloned().unwrap_or_default();
    let reason = match error.reason.as_deref() {
        Some("FieldValueRequired") => RuleReason::Required,
        Some("FieldValueForbidden") => RuleReason::Forbidden,
        Some("FieldValueDuplicate") => RuleReason::Duplicate,
        _ => RuleReason::Invalid,
    };
    SchemaViolation::new(field, value, Constraint::Rule { reason, message: error.message })
}

/// Returns the value at a path such as `a.b[0].c`.
fn value_at<'v>(object: &'v Value, path: &str) -> Option<&'v Value> {
    let steps = path.split(['.', '[']).filter(|step| !step.is_empty());
    steps.map(|step| step.trim_end_matches(']')).try_fold(object, |value, step| match value {
        Value::Array(list) => list.get(step.parse::<usize>().ok()?),
        object => object.get(step.trim_matches('"')),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
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

    fn messages(new: serde_json::Value, old: Option<serde_json::Value>) -> Vec<String> {
        schema().check_rules(&new, old.as_ref()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn reports_message_of_violated_rule() {
        let broken = json!({"spec": {"min": 2, "max": 1, "name": "a"}});
        assert_eq!(messages(broken, None), [r#"spec: Invalid value: min must not exceed max"#]);
        assert!(messages(json!({"spec": {"min": 1, "max": 1, "name": "a"}}), None).is_empty());
    }

    #[test]
    fn transition_rules_compare_with_the_old_object() {
        let old = json!({"spec": {"min": 5, "max": 9, "name": "a"}});
        let new = json!({"spec": {"min": 4, "max": 9, "name": "b"}});
        assert_eq!(
            messages(new, Some(old)),
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
    fn rejects_rules_too_large_to_parse(#[case] rule: String) {
        let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}]});
        let error = Schema::from_json(&schema).unwrap_err();
        assert!(
            ["limit exceeded", "Too long", "constructs a message"].iter().any(|expected| error.contains(expected)),
            "{error}"
        );
    }

    /// Rules of the maximum depth must not overflow the stack of a server thread.
    #[rstest]
    #[case::brackets(format!("{}1{} == 1", "(".repeat(60), ")".repeat(60)))]
    #[case::sum(format!("{}1 > 0", "1+".repeat(120)))]
    #[case::all(format!("{}true", "true && ".repeat(900)))]
    fn evaluates_rules_of_maximum_depth(#[case] rule: String) {
        let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}]});
        assert!(Schema::from_json(&schema).unwrap().check_rules(&json!({}), None).is_empty());
    }

    #[test]
    fn rejects_expensive_rule_on_large_objects_only() {
        let rule = "self.l.all(a, self.l.all(b, self.l.all(c, self.l.all(d, a + b + c + d >= 0))))";
        let schema = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}],
            "properties": {"l": {"type": "array", "items": {"type": "integer"}}}});
        let schema = Schema::from_json(&schema).unwrap();
        let list = |count: usize| json!({"l": vec![1; count]});
        assert!(schema.check_rules(&list(5), None).is_empty());
        let violations = schema.check_rules(&list(5000), None);
        assert_eq!(violations, [not_evaluated(COST_BUDGET_EXCEEDED)]);
    }

    #[test]
    fn compile_error_has_the_path_of_the_rule() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string", "x-kubernetes-validations": [{"rule": "self =="}]}}});
        let error = Schema::from_json(&schema).unwrap_err();
        assert!(error.starts_with("properties[a].x-kubernetes-validations[0].rule: "), "{error}");
    }
}
