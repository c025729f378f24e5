//! Detects conflicts between runtimes that serve the same models: the selection between two runtimes of one scope must
//! not be ambiguous.

use std::collections::{BTreeMap, BTreeSet};

use api::Finding;
use api::ome::{ModelSizeRange, SupportedModelFormat, VersionOperator, VersionedName};
use serde::Deserialize;
use serde_json::Value;

/// Auto-selected format entries of enabled runtimes, by scope and model.
#[derive(Clone, Debug, Default)]
pub(super) struct RuntimeFormats(BTreeMap<(RuntimeScope, ModelRequirements), Vec<FormatEntry>>);

/// Kind and namespace. Runtimes of different scopes do not conflict because the namespaced one takes precedence.
type RuntimeScope = (String, String);

/// Model requirements of an entry, excluding versions; the last element is the diffusion pipeline.
type ModelRequirements = [Option<String>; 5];

/// A format entry of a runtime.
#[derive(Clone, Debug)]
struct FormatEntry {
    runtime: String,
    index: usize,
    /// Versions of format and framework.
    versions: [VersionRequirement; 2],
    size_range: SizeRange,
    protocols: BTreeSet<String>,
    priority: Option<i32>,
}

type VersionRequirement = (Option<String>, VersionOperator);
/// Model size in parameters, inclusive.
type SizeRange = (Option<u64>, Option<u64>);

/// Fields of a runtime that the comparison uses.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RuntimeSpec {
    disabled: Option<bool>,
    supported_model_formats: Vec<SupportedModelFormat>,
    model_size_range: Option<ModelSizeRange>,
    protocol_versions: Vec<String>,
}

/// Conflict between two entries.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Conflict {
    /// Equal entries with the same explicit priority.
    Equal(i32),
    /// Some models match both entries equally well.
    Overlap,
}

// === impl RuntimeFormats ===

impl RuntimeFormats {
    pub(super) fn add(&mut self, runtime: &Value) {
        for (key, entry) in format_entries(runtime) {
            self.0.entry(key).or_default().push(entry);
        }
    }

    /// Returns the most severe conflict of each entry of a runtime.
    pub(super) fn validate(&self, runtime: &Value) -> Vec<Finding> {
        let mut findings = Vec::new();
        for (key, entry) in format_entries(runtime) {
            let others = self.0.get(&key).into_iter().flatten().filter(|other| other.runtime != entry.runtime);
            let conflicts: Vec<(&FormatEntry, Conflict)> =
                others.filter_map(|other| Some((other, conflict_between(&entry, other)?))).collect();
            let most_severe =
                conflicts.iter().find(|(_, conflict)| *conflict != Conflict::Overlap).or(conflicts.first());
            findings.extend(most_severe.map(|(other, conflict)| {
                conflict_finding(&entry, other, *conflict, conflicts.len().saturating_sub(1))
            }));
        }
        findings
    }
}

/// Returns the entries of a runtime. A disabled or invalid runtime has none; invalid ones are reported elsewhere.
fn format_entries(runtime: &Value) -> Vec<((RuntimeScope, ModelRequirements), FormatEntry)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = text(&runtime["kind"]);
    if !["ServingRuntime", "ClusterServingRuntime"].contains(&kind.as_str()) {
        return Vec::new();
    }
    let spec = RuntimeSpec::deserialize(&runtime["spec"]).unwrap_or_default();
    if spec.disabled == Some(true) {
        return Vec::new();
    }
    let scope = (kind, text(&runtime["metadata"]["namespace"]));
    let size_range = spec.model_size_range.unwrap_or_default();
    let size_range = (size_range.min.map(|size| size.0), size_range.max.map(|size| size.0));
    let mut protocols: BTreeSet<String> = spec.protocol_versions.into_iter().collect();
    if protocols.is_empty() {
        protocols.insert("openAI".to_owned());
    }
    let auto_selected =
        spec.supported_model_formats.iter().enumerate().filter(|(_, format)| format.auto_select == Some(true));
    let entry = |(index, format): (usize, &SupportedModelFormat)| {
        let entry = FormatEntry {
            runtime: text(&runtime["metadata"]["name"]),
            index,
            versions: [
                version_requirement(format.format().as_ref()),
                version_requirement(format.model_framework.as_ref()),
            ],
            size_range,
            protocols: protocols.clone(),
            priority: format.priority,
        };
        ((scope.clone(), model_requirements(format)), entry)
    };
    auto_selected.map(entry).collect()
}

fn model_requirements(format: &SupportedModelFormat) -> ModelRequirements {
    [
        // Formats are compared without case.
        format.format().map(|format| format.name.to_lowercase()),
        format.model_framework.as_ref().map(|framework| framework.name.clone()),
        format.model_architecture.clone(),
        format.quantization.clone(),
        format.diffusion_pipeline.as_ref().map(Value::to_string),
    ]
}

/// Normalizes a version: `v1.0.0` and `1.0.0` are equal.
fn version_requirement(required: Option<&VersionedName>) -> VersionRequirement {
    let text = required.and_then(|required| required.version.as_deref());
    let parsed = text.map(|text| text.parse::<api::Version>().map_or(text.to_owned(), |version| version.to_string()));
    (parsed, required.and_then(|required| required.operator).unwrap_or_default())
}

fn conflict_between(left: &FormatEntry, right: &FormatEntry) -> Option<Conflict> {
    if left.priority != right.priority {
        return None;
    }
    let is_equal =
        left.versions == right.versions && left.size_range == right.size_range && left.protocols == right.protocols;
    match left.priority {
        Some(priority) if is_equal => Some(Conflict::Equal(priority)),
        _ => {
            let do_versions_overlap =
                left.versions.iter().zip(&right.versions).all(|(left, right)| versions_overlap(left, right));
            let is_overlap = do_versions_overlap
                && sizes_match_equally(left.size_range, right.size_range)
                && !left.protocols.is_disjoint(&right.protocols);
            is_overlap.then_some(Conflict::Overlap)
        }
    }
}

/// Returns whether a model version may match both requirements; operators other than `Equal` may always overlap.
fn versions_overlap(
    (left_version, left_operator): &VersionRequirement,
    (right_version, right_operator): &VersionRequirement,
) -> bool {
    let is_exact = [left_operator, right_operator].iter().all(|operator| **operator == VersionOperator::Equal);
    !is_exact || left_version.is_none() || right_version.is_none() || left_version == right_version
}

/// Returns whether some model size matches both ranges equally well, that is, with equal distance. The distance
/// |model − min| + |max − model| equals the width of a range with two bounds; with one bound, it is the distance to that
/// bound.
fn sizes_match_equally(left: SizeRange, right: SizeRange) -> bool {
    match (left, right) {
        ((Some(min), Some(max)), (Some(other_min), Some(other_max))) => {
            max.saturating_sub(min) == other_max.saturating_sub(other_min) && min.max(other_min) <= max.min(other_max)
        }
        _ => left == right,
    }
}

fn conflict_finding(entry: &FormatEntry, other: &FormatEntry, conflict: Conflict, more_conflicts: usize) -> Finding {
    let (own_name, other_name) = (&entry.runtime, &other.runtime);
    let names = match more_conflicts {
        0 => format!("`{own_name}` and `{other_name}`"),
        _ => format!("`{own_name}`, `{other_name}` and {more_conflicts} more"),
    };
    let path = format!("spec.supportedModelFormats[{}]", entry.index);
    let finding = match conflict {
        Conflict::Equal(priority) => Finding::error(
            format!("{path}.priority"),
            format!("{names} are selected for the same models with the same priority {priority}"),
        ),
        Conflict::Overlap => {
            let priority = entry
                .priority
                .map_or("have no priority".to_owned(), |priority| format!("have the same priority {priority}"));
            Finding::warning(
                path,
                format!(
                    "AmbiguousRuntimes: {names} match the same models equally well and {priority}, so the newest is selected"
                ),
            )
        }
    };
    finding.with_hint("give them different priorities, or set autoSelect: false")
}
