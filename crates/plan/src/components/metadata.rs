//! Labels and annotations of a component's Pods, as in upstream OME.

use api::ome::Component;
use decide::Warning;
use serde_json::{Value, json};

use super::layout_input::{LayoutInput, ReplicaSet};
use crate::code;
use crate::labels::{self, Labels};
use crate::names;
use crate::owner::Owner;

/// Returns the metadata of a Pod template. Selector labels take precedence over those of runtime and service.
pub(super) fn pod_metadata(
    input: &LayoutInput<'_>,
    runtime: &Component,
    service: &Component,
    set: &ReplicaSet,
    selector: &Labels,
) -> Value {
    let mut labels: Labels = runtime.labels.clone();
    labels.extend(service.labels.clone());
    let mut annotations: Labels = runtime.annotations.clone();
    annotations.extend(service.annotations.clone());
    if let Some(runtime) = input.runtime {
        labels.insert("serving-runtime".to_owned(), names::label_value(runtime.name));
        annotations.insert("ome.io/serving-runtime".to_owned(), runtime.name.to_owned());
    }
    add_model_metadata(input, &mut labels, &mut annotations);
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

/// Returns a warning if labels of the service are overridden by the operator's labels.
pub(super) fn overridden_labels_warning(service: &Component, component: &str, metadata: &Value) -> Option<Warning> {
    let is_overridden = |(key, value): &(&String, &String)| metadata["labels"][key.as_str()] != **value;
    let keys: Vec<&str> = service.labels.iter().filter(is_overridden).map(|(key, _)| key.as_str()).collect();
    (!keys.is_empty()).then(|| {
        let message = format!(
            "{component}.labels: {} {} managed by the operator and cannot be overridden; use other keys",
            keys.join(", "),
            if keys.len() == 1 { "is" } else { "are" }
        );
        Warning::new(code::warning::FIELD_IGNORED, message)
    })
}

/// Adds the labels and annotations that describe the model.
fn add_model_metadata(input: &LayoutInput<'_>, labels: &mut Labels, annotations: &mut Labels) {
    let Some(model) = &input.model else { return };
    let vendor = model.spec.vendor.as_deref();
    labels.insert("base-model-name".to_owned(), names::label_value(model.name));
    labels.insert("base-model-size".to_owned(), names::label_value(model.category.unwrap_or("SMALL")));
    labels.insert("base-model-type".to_owned(), "Serving".to_owned());
    labels.extend(vendor.map(|vendor| ("base-model-vendor".to_owned(), names::label_value(vendor))));
    let format = model.spec.model_format.as_ref();
    let fields = [
        ("name", Some(model.name.to_owned())),
        ("vendor", vendor.map(str::to_owned)),
        ("format", format.map(|format| format.name.clone())),
        ("format-version", format.and_then(|format| format.version.clone())),
    ];
    annotations
        .extend(fields.into_iter().filter_map(|(key, value)| Some((format!("ome.io/base-model-{key}"), value?))));
}

/// Returns the labels that select the Pods of a component.
pub(super) fn selector(owner: &Owner, component: &str) -> Labels {
    labels::from_pairs([
        (labels::OME_SERVICE, names::label_value(&owner.name).as_str()),
        (labels::COMPONENT, component),
    ])
}
