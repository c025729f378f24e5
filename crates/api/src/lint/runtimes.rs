//! Runtimes whose parts contradict each other.

use std::collections::BTreeMap;

use super::{Finding, models};
use crate::ome::{BaseModelSpec, Component, ServingRuntimeSpec, SupportedModelFormat, VersionedName};
use crate::version::Version;

/// Findings about one runtime.
pub(super) fn check(runtime: &ServingRuntimeSpec) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(size_range(runtime));
    let range = runtime.model_size_range.unwrap_or_default();
    for (bound, size) in [("min", range.min), ("max", range.max)] {
        findings.extend(size.and_then(|size| models::without_unit(&format!("spec.modelSizeRange.{bound}"), size)));
    }
    for (index, entry) in runtime.supported_model_formats.iter().enumerate() {
        let path = format!("spec.supportedModelFormats[{index}]");
        findings.extend(version(&entry.model_format, &format!("{path}.modelFormat")));
        findings.extend(version(&entry.model_framework, &format!("{path}.modelFramework")));
    }
    findings.extend(entries(&runtime.supported_model_formats));
    findings.extend(multi_node(runtime));
    findings.extend(preferences(runtime));
    findings.extend(nothing_to_run(runtime));
    findings
}

/// Versions of a model that are none.
pub(super) fn versions(model: &BaseModelSpec) -> Vec<Finding> {
    let format = version(&model.model_format, "spec.modelFormat");
    format.into_iter().chain(version(&model.model_framework, "spec.modelFramework")).collect()
}

fn version(name: &Option<VersionedName>, path: &str) -> Option<Finding> {
    let stated = name.as_ref()?.version.as_deref()?;
    stated.parse::<Version>().is_err().then(|| {
        let finding = Finding::error(format!("{path}.version"), format!("`{stated}` is not a version"));
        finding.hint("write major[.minor[.patch]], such as `4.36.2`")
    })
}

fn size_range(runtime: &ServingRuntimeSpec) -> Option<Finding> {
    let range = runtime.model_size_range?;
    if range.max.is_some_and(|max| max.0 == 0) {
        let finding = Finding::error("spec.modelSizeRange.max", "max 0, so no model fits");
        return Some(finding.hint("write the largest size that the runtime is for, or leave it out"));
    }
    let (min, max) = (range.min?, range.max?);
    let message = format!("min {min} is above max {max}, so no model fits");
    (min > max).then(|| Finding::error("spec.modelSizeRange", message).hint("swap the two bounds"))
}

/// What makes two entries versions of one model.
type ModelKey = (Option<String>, Option<String>, Option<String>, Option<String>);

/// Seed 001: a runtime that supports several versions of a model has one priority for all of them. An entry that
/// stands twice is told once, however often it does.
fn entries(entries: &[SupportedModelFormat]) -> Vec<Finding> {
    let mut priorities: BTreeMap<ModelKey, (usize, i32)> = BTreeMap::new();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let (mut findings, mut repeated) = (Vec::new(), Vec::new());
    for (index, entry) in entries.iter().enumerate() {
        let text = serde_json::to_string(entry).unwrap_or_default();
        if let Some(first) = seen.get(&text) {
            repeated.push((index, *first));
            continue;
        }
        seen.insert(text, index);
        let Some(priority) = entry.priority else { continue };
        let (first, stated) = *priorities.entry(model(entry)).or_insert((index, priority));
        if stated != priority {
            let message = format!(
                "priority {priority} differs from the {stated} of entry {first}, which is another version of the same model"
            );
            let finding = Finding::error(format!("spec.supportedModelFormats[{index}].priority"), message);
            findings.push(finding.hint("give all versions of one model the same priority"));
        }
    }
    if let Some((index, first)) = repeated.first() {
        let more = repeated.len() - 1;
        let others = if more == 0 { String::new() } else { format!(", and {more} more entries repeat others") };
        let finding =
            Finding::warning(format!("spec.supportedModelFormats[{index}]"), format!("repeats entry {first}{others}"));
        findings.push(finding.hint("leave one of each"));
    }
    findings
}

fn model(entry: &SupportedModelFormat) -> ModelKey {
    let name = |of: Option<VersionedName>| of.map(|of| of.name);
    (
        name(entry.format()),
        name(entry.model_framework.clone()),
        entry.model_architecture.clone(),
        entry.quantization.clone(),
    )
}

/// A replica over several nodes has a leader and workers.
fn multi_node(runtime: &ServingRuntimeSpec) -> Vec<Finding> {
    let parts = [("engineConfig", &runtime.engine_config), ("decoderConfig", &runtime.decoder_config)];
    let lonely = |(name, component): (&str, &Option<Component>)| {
        let component = component.as_ref()?;
        let (there, missing) = match (&component.leader, &component.worker) {
            (Some(_), None) => ("leader", "worker"),
            (None, Some(_)) => ("worker", "leader"),
            _ => return None,
        };
        let finding = Finding::error(format!("spec.{name}.{there}"), format!("a {there} without a {missing}"));
        Some(finding.hint(format!("add `{missing}:`, or move the container to `runner:` for a single node")))
    };
    parts.into_iter().filter_map(lonely).collect()
}

/// A preference for a class that the runtime excludes can never count.
fn preferences(runtime: &ServingRuntimeSpec) -> Vec<Finding> {
    let Some(need) = &runtime.accelerator_requirements else { return Vec::new() };
    let supported: Vec<&str> = need.classes().collect();
    let preferred = need.preference_order.iter().enumerate();
    let lost = preferred.filter(|(_, one)| !supported.is_empty() && !supported.contains(&one.class.as_str()));
    let finding = |(index, _)| {
        let path = format!("spec.acceleratorRequirements.preferenceOrder[{index}].class");
        let message = "prefers a class that supportedClasses leaves out, so it is never used";
        Finding::warning(path, message).hint("add the class to supportedClasses, or drop the preference")
    };
    lost.map(finding).collect()
}

/// An enabled runtime that can be chosen must bring a container.
fn nothing_to_run(runtime: &ServingRuntimeSpec) -> Option<Finding> {
    let chosen = runtime.supported_model_formats.iter().any(|entry| entry.auto_select == Some(true));
    let runs = |component: &Component| {
        component.runner.is_some() || component.leader.is_some() || component.pod.contains_key("containers")
    };
    let idle = runtime.containers.is_empty() && !runtime.engine_config.as_ref().is_some_and(runs);
    let finding =
        || Finding::warning("spec.engineConfig", "no container to run, so every service that selects it stays unready");
    (chosen && idle && runtime.disabled != Some(true))
        .then(|| finding().hint("add `engineConfig.runner` with an image"))
}
