//! Rules between fields that CEL in a CRD cannot say, because the values are quantities in text.

use std::collections::BTreeMap;

use crate::manifest::Document;
use crate::ome::{self, ServingRuntimeSpec, SupportedModelFormat};
use crate::version::Version;

use super::Finding;

/// Findings about a runtime or class whose parts contradict each other.
pub(super) fn check(document: &Document) -> Vec<Finding> {
    if document.api_version() != ome::API_VERSION {
        return Vec::new();
    }
    match document.kind() {
        "ServingRuntime" => typed::<ome::ServingRuntime>(document, |runtime| check_runtime(&runtime.spec)),
        "ClusterServingRuntime" => {
            typed::<ome::ClusterServingRuntime>(document, |runtime| check_runtime(&runtime.spec))
        }
        "AcceleratorClass" => typed::<ome::AcceleratorClass>(document, |_| Vec::new()),
        "BaseModel" => typed::<ome::BaseModel>(document, |_| Vec::new()),
        "ClusterBaseModel" => typed::<ome::ClusterBaseModel>(document, |_| Vec::new()),
        "InferenceService" => typed::<ome::InferenceService>(document, |_| Vec::new()),
        _ => Vec::new(),
    }
}

/// Findings about the typed resource, or why the document is none: sizes and memory are checked by parsing.
fn typed<T: serde::de::DeserializeOwned>(document: &Document, rules: impl FnOnce(T) -> Vec<Finding>) -> Vec<Finding> {
    match document.parse::<T>() {
        Ok(resource) => rules(resource),
        Err(error) => {
            let finding = Finding::error(error.path.unwrap_or_default(), error.cause);
            vec![Finding { hint: error.hint, ..finding }]
        }
    }
}

fn check_runtime(runtime: &ServingRuntimeSpec) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(size_range(runtime));
    findings.extend(versions(runtime));
    findings.extend(priorities(&runtime.supported_model_formats));
    findings.extend(preferences(runtime));
    findings
}

fn size_range(runtime: &ServingRuntimeSpec) -> Option<Finding> {
    let range = runtime.model_size_range?;
    let (min, max) = (range.min?, range.max?);
    let message = format!("min {min} is above max {max}, so no model fits");
    (min > max).then(|| Finding::error("spec.modelSizeRange", message).hint("swap the two bounds"))
}

fn versions(runtime: &ServingRuntimeSpec) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, entry) in runtime.supported_model_formats.iter().enumerate() {
        let stated = [("modelFormat", &entry.model_format), ("modelFramework", &entry.model_framework)];
        for (field, name) in stated {
            let version = name.as_ref().and_then(|name| name.version.as_deref());
            if let Some(Err(error)) = version.map(str::parse::<Version>) {
                let path = format!("spec.supportedModelFormats[{index}].{field}.version");
                findings.push(Finding::error(path, error.to_string()));
            }
        }
    }
    findings
}

/// Seed 001: a runtime that supports several versions of a model has one priority for all of them.
fn priorities(entries: &[SupportedModelFormat]) -> Vec<Finding> {
    let mut first = BTreeMap::new();
    let mut findings = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let name = |of: Option<ome::VersionedName>| of.map(|of| of.name);
        let key = (
            name(entry.format()),
            name(entry.model_framework.clone()),
            entry.model_architecture.clone(),
            entry.quantization.clone(),
        );
        let earlier = *first.entry(key).or_insert(index);
        if entries[earlier].priority != entry.priority {
            let path = format!("spec.supportedModelFormats[{index}].priority");
            let message = format!("differs from that of entry {earlier}, which is another version of the same model");
            findings.push(Finding::error(path, message).hint("give all versions of one model the same priority"));
        }
    }
    findings
}

/// Preferences only know two conditions; a misspelt one would otherwise never hold.
fn preferences(runtime: &ServingRuntimeSpec) -> Vec<Finding> {
    const KNOWN: [&str; 2] = ["modelSize", "requestSize"];
    let preferences = runtime.accelerator_requirements.iter().flat_map(|need| &need.preference_order);
    let mut findings = Vec::new();
    for (index, preference) in preferences.enumerate() {
        for (item, condition) in preference.conditions.iter().enumerate() {
            for key in condition.keys().filter(|key| !KNOWN.contains(&key.as_str())) {
                let path = format!("spec.acceleratorRequirements.preferenceOrder[{index}].conditions[{item}].{key}");
                findings
                    .push(Finding::error(path, "unknown condition").hint("conditions are modelSize and requestSize"));
            }
        }
    }
    findings
}
