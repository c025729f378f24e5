//! `x-kubernetes-validations`, evaluated by kube-cel.

use std::sync::Arc;

use kube_cel::{CompiledSchema, ValidationError, Validator};
use serde_json::Value;

use crate::status::Cause;

/// The compiled rules of a schema, if it has any.
#[derive(Clone, Debug)]
pub(super) struct Rules(Option<Arc<CompiledSchema>>);

impl Rules {
    pub(super) fn compile(schema: &Value) -> Result<Self, String> {
        if !has_rules(schema) {
            return Ok(Self(None));
        }
        let compiled = kube_cel::compile_schema(schema);
        match first_error(&compiled, "") {
            Some(error) => Err(error),
            None => Ok(Self(Some(Arc::new(compiled)))),
        }
    }

    pub(super) fn check(&self, new: &Value, old: Option<&Value>) -> Vec<Cause> {
        let Some(compiled) = &self.0 else { return Vec::new() };
        let Err(errors) = Validator::new().validate_compiled(compiled, new, old) else { return Vec::new() };
        let mut causes: Vec<Cause> = errors.into_vec().into_iter().map(|error| cause(&error, new)).collect();
        // kube-cel walks a hash map.
        causes.sort_by(|a, b| (&a.field, &a.message).cmp(&(&b.field, &b.message)));
        causes
    }
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

    #[test]
    fn a_broken_rule_is_refused_with_its_place() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "string", "x-kubernetes-validations": [{"rule": "self =="}]}}});
        let error = Schema::from_json(&schema).unwrap_err();
        assert!(error.starts_with("properties[a].x-kubernetes-validations[0].rule: "), "{error}");
    }
}
