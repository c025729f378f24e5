//! Labels and annotations of a component's pods, as upstream sets them.

use api::ome::Component;
use decide::reason::Warning;
use serde_json::{Value, json};

use super::{Decided, ReplicaSet};
use crate::code;
use crate::labels::{self, Labels};
use crate::names;

/// User's labels and annotations below ours: ours are how pods are found.
pub(super) fn of(
    decided: &Decided<'_>,
    runtime: &Component,
    service: &Component,
    set: &ReplicaSet,
    selector: &Labels,
) -> Value {
    let mut labels: Labels = runtime.labels.clone();
    labels.extend(service.labels.clone());
    let mut annotations: Labels = runtime.annotations.clone();
    annotations.extend(service.annotations.clone());
    if let Some(runtime) = decided.runtime {
        labels.insert("serving-runtime".to_owned(), names::label_value(runtime.name));
        annotations.insert("ome.io/serving-runtime".to_owned(), runtime.name.to_owned());
    }
    describe_model(decided, &mut labels, &mut annotations);
    if let Some(accelerators) = &set.accelerators {
        labels.insert(labels::ACCELERATOR_CLASS.to_owned(), names::label_value(&accelerators.class.name));
    }
    if let Some(tokens) = set.request_tokens {
        let bounds = [(labels::PROMPT_TOKENS_MIN, tokens.min), (labels::PROMPT_TOKENS_MAX, tokens.max)];
        annotations.extend(bounds.into_iter().filter_map(|(key, bound)| Some((key.to_owned(), bound?.to_string()))));
    }
    labels.extend(selector.clone());
    let mut metadata = json!({"labels": labels});
    if !annotations.is_empty() {
        metadata["annotations"] = json!(annotations);
    }
    metadata
}

/// Labels of the service that mean something else here, so that they are not as it says.
pub(super) fn taken(service: &Component, component: &str, metadata: &Value) -> Option<Warning> {
    let ours = |(key, value): &(&String, &String)| metadata["labels"][key.as_str()] != **value;
    let keys: Vec<&str> = service.labels.iter().filter(ours).map(|(key, _)| key.as_str()).collect();
    (!keys.is_empty()).then(|| {
        let message = format!(
            "{component}.labels: {} are how Pods are found and stay as they are; use other keys",
            keys.join(", ")
        );
        Warning::new(code::warning::FIELD_IGNORED, message)
    })
}

fn describe_model(decided: &Decided<'_>, labels: &mut Labels, annotations: &mut Labels) {
    let Some(model) = &decided.model else { return };
    let vendor = model.spec.vendor.as_deref();
    labels.insert("base-model-name".to_owned(), names::label_value(model.name));
    labels.insert("base-model-size".to_owned(), names::label_value(model.category.unwrap_or("SMALL")));
    labels.insert("base-model-type".to_owned(), "Serving".to_owned());
    labels.extend(vendor.map(|vendor| ("base-model-vendor".to_owned(), names::label_value(vendor))));
    let format = model.spec.model_format.as_ref();
    let facts = [
        ("name", Some(model.name.to_owned())),
        ("vendor", vendor.map(str::to_owned)),
        ("format", format.map(|format| format.name.clone())),
        ("format-version", format.and_then(|format| format.version.clone())),
    ];
    annotations.extend(facts.into_iter().filter_map(|(key, value)| Some((format!("ome.io/base-model-{key}"), value?))));
}
