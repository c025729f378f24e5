//! Runtimes with inconsistent fields.

use std::collections::BTreeMap;

use super::finding::Finding;
use super::{model_size, version};
use crate::ome::{AcceleratorPreference, Component, ServingRuntimeSpec, SupportedModelFormat, VersionedName};

/// Identifies a model independently of versions: format, framework, architecture and quantization.
type ModelKey = (Option<String>, Option<String>, Option<String>, Option<String>);

/// Returns the findings about a runtime.
pub(super) fn check(runtime: &ServingRuntimeSpec) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(size_range(runtime));
    let range = runtime.model_size_range.unwrap_or_default();
    for (bound, size) in [("min", range.min), ("max", range.max)] {
        findings.extend(size.and_then(|size| model_size::check_unit(&format!("spec.modelSizeRange.{bound}"), size)));
    }
    for (index, entry) in runtime.supported_model_formats.iter().enumerate() {
        let path = format!("spec.supportedModelFormats[{index}]");
        findings.extend(version::check(&entry.model_format, &format!("{path}.modelFormat")));
        findings.extend(version::check(&entry.model_framework, &format!("{path}.modelFramework")));
    }
    findings.extend(model_formats(&runtime.supported_model_formats));
    findings.extend(incomplete_node_groups(runtime));
    findings.extend(ineffective_preferences(runtime));
    findings.extend(missing_container(runtime));
    findings
}

fn size_range(runtime: &ServingRuntimeSpec) -> Option<Finding> {
    let range = runtime.model_size_range?;
    if range.max.is_some_and(|max| max.0 == 0) {
        let finding = Finding::error("spec.modelSizeRange.max", "max is 0, so no model is in the range");
        return Some(finding.with_hint("set it to the largest size that the runtime supports, or omit it"));
    }
    let (min, max) = (range.min?, range.max?);
    let message = format!("min {min} is greater than max {max}, so no model is in the range");
    (min > max).then(|| Finding::error("spec.modelSizeRange", message).with_hint("swap min and max"))
}

/// Reports versions of one model with different priorities (seed 001) and, in a single finding, duplicate entries.
fn model_formats(entries: &[SupportedModelFormat]) -> Vec<Finding> {
    let mut priorities: BTreeMap<ModelKey, (usize, i32)> = BTreeMap::new();
    let mut first_indices: BTreeMap<String, usize> = BTreeMap::new();
    let (mut findings, mut duplicates) = (Vec::new(), Vec::new());
    for (index, entry) in entries.iter().enumerate() {
        let text = serde_json::to_string(entry).unwrap_or_default();
        if let Some(first) = first_indices.get(&text) {
            duplicates.push((index, *first));
            continue;
        }
        first_indices.insert(text, index);
        let Some(priority) = entry.priority else { continue };
        let (first, first_priority) = *priorities.entry(model_key(entry)).or_insert((index, priority));
        if first_priority != priority {
            let message = format!(
                "priority {priority} differs from priority {first_priority} of entry {first}, another version of the same model"
            );
            let finding = Finding::error(format!("spec.supportedModelFormats[{index}].priority"), message);
            findings.push(finding.with_hint("set the same priority for all versions of a model"));
        }
    }
    if let Some((index, first)) = duplicates.first() {
        let more_duplicates = match duplicates.len() - 1 {
            0 => String::new(),
            1 => "; 1 more entry is a duplicate".to_owned(),
            count => format!("; {count} more entries are duplicates"),
        };
        let finding = Finding::warning(
            format!("spec.supportedModelFormats[{index}]"),
            format!("duplicate of entry {first}{more_duplicates}"),
        );
        findings.push(finding.with_hint("remove the duplicates"));
    }
    findings
}

fn model_key(entry: &SupportedModelFormat) -> ModelKey {
    let name = |versioned: Option<VersionedName>| versioned.map(|versioned| versioned.name);
    (
        // Formats are compared without case.
        name(entry.format()).map(|name| name.to_lowercase()),
        name(entry.model_framework.clone()),
        entry.model_architecture.clone(),
        entry.quantization.clone(),
    )
}

/// Reports components with a leader but no workers, or workers but no leader.
fn incomplete_node_groups(runtime: &ServingRuntimeSpec) -> Vec<Finding> {
    let components = [("engineConfig", &runtime.engine_config), ("decoderConfig", &runtime.decoder_config)];
    let finding = |(name, component): (&str, &Option<Component>)| {
        let component = component.as_ref()?;
        let (present, missing) = match (&component.leader, &component.worker) {
            (Some(_), None) => ("leader", "worker"),
            (None, Some(_)) => ("worker", "leader"),
            _ => return None,
        };
        let finding = Finding::error(format!("spec.{name}.{present}"), format!("{present} is set without {missing}"));
        Some(
            finding
                .with_hint(format!("add `{missing}:`, or move the container to `runner:` for a single-node replica")),
        )
    };
    components.into_iter().filter_map(finding).collect()
}

/// Warns about preferences for classes that the runtime does not support.
fn ineffective_preferences(runtime: &ServingRuntimeSpec) -> Vec<Finding> {
    let Some(requirements) = &runtime.accelerator_requirements else { return Vec::new() };
    let supported: Vec<&str> = requirements.all_supported_classes().collect();
    let preferences = requirements.preference_order.iter().enumerate();
    let ineffective =
        preferences.filter(|(_, preference)| !supported.is_empty() && !supported.contains(&preference.class.as_str()));
    let finding = |(index, preference): (usize, &AcceleratorPreference)| {
        let path = format!("spec.acceleratorRequirements.preferenceOrder[{index}].class");
        let message = format!("class {} is not in supportedClasses, so the preference has no effect", preference.class);
        Finding::warning(path, message).with_hint("add the class to supportedClasses, or remove the preference")
    };
    ineffective.map(finding).collect()
}

/// Warns about an enabled runtime with `autoSelect` that has no container.
fn missing_container(runtime: &ServingRuntimeSpec) -> Option<Finding> {
    let is_selectable = runtime.supported_model_formats.iter().any(|entry| entry.auto_select == Some(true));
    let has_container = |component: &Component| {
        component.runner.is_some() || component.leader.is_some() || component.pod.contains_key("containers")
    };
    let is_empty = runtime.containers.is_empty() && !runtime.engine_config.as_ref().is_some_and(has_container);
    let finding = || {
        Finding::warning(
            "spec.engineConfig",
            "the runtime has no container, so services that select it never become ready",
        )
    };
    (is_selectable && is_empty && runtime.disabled != Some(true))
        .then(|| finding().with_hint("add `engineConfig.runner` with an image"))
}
