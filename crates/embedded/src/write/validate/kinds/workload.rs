//! What makes Pods of a template: Deployments, ReplicaSets, StatefulSets and Jobs.

use apimachinery::selector::LabelSelector;
use apimachinery::status::Cause;
use serde_json::{Value, json};

use super::{NOT_NEGATIVE, pod};

pub(super) fn causes(object: &Value) -> Vec<Cause> {
    let mut causes = not_negative(object, "spec.replicas");
    causes.extend(required_selector(object));
    causes.extend(selector_matches_template(object));
    causes.extend(template(object));
    let policy = object.pointer("/spec/template/spec/restartPolicy").unwrap_or(&Value::Null);
    if *policy != "Always" {
        causes.push(Cause::not_supported("spec.template.spec.restartPolicy", policy, &[json!("Always")]));
    }
    causes.extend(not_negative(object, "spec.minReadySeconds"));
    causes
}

/// What is wrong with the Pods that it would make.
pub(super) fn template(object: &Value) -> Vec<Cause> {
    pod::causes(object.pointer("/spec/template/spec").unwrap_or(&Value::Null), "spec.template.spec")
}

fn required_selector(object: &Value) -> Option<Cause> {
    let selector = object.pointer("/spec/selector").filter(|selector| !selector.is_null());
    selector.is_none().then(|| Cause::required("spec.selector", ""))
}

/// A workload that does not select its own pods would create them forever.
fn selector_matches_template(object: &Value) -> Option<Cause> {
    let selector = object.pointer("/spec/selector").filter(|selector| !selector.is_null());
    let selector = selector.map(LabelSelector::from_json).transpose().ok()?;
    let template = object.pointer("/spec/template").unwrap_or(&Value::Null);
    let labels = template.pointer("/metadata/labels").cloned().unwrap_or_default();
    // None selects nothing.
    (!selector.is_some_and(|selector| selector.matches_object(template))).then(|| {
        Cause::invalid("spec.template.metadata.labels", &labels, "`selector` does not match template `labels`")
    })
}

fn not_negative(object: &Value, field: &str) -> Vec<Cause> {
    let value = object.pointer(&format!("/{}", field.replace('.', "/"))).and_then(Value::as_i64);
    let negative = value.filter(|value| *value < 0);
    negative.map(|value| Cause::invalid(field, &json!(value), NOT_NEGATIVE)).into_iter().collect()
}
