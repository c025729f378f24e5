//! The decision in the status of an `ome.io` InferenceService. `status.decision` contains what was selected, what came
//! closest, and counts of the rest; `status.components` contains the selected classes.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use decide::{ComponentDecision, RuntimeCandidate, RuntimeRef, Scope, Variant, Warning};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

/// Maximum number of recorded candidates.
const MAX_NEAREST: usize = 3;
const MAX_WARNINGS: usize = 20;
/// Maximum number of characters of a message.
const MAX_MESSAGE: usize = 512;
/// Name of [`DecisionRecord::inputs`] in `fingerprints`.
const INPUTS: &str = "inputs";
/// Name of [`DecisionRecord::served_fields`] in `fingerprints`.
const SERVED_FIELDS: &str = "servedFields";

/// `status.decision`. `ostler explain` decides again for the details that it omits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionRecord {
    /// Whether the service can run. Omitted if true.
    #[serde(default = "default_feasible", skip_serializing_if = "is_true")]
    pub feasible: bool,
    /// Reason code: `Selected`, `Kept`, or the reason why the service cannot run.
    pub reason: String,
    /// Human-readable message that includes the compared values.
    pub message: String,
    /// The selected runtime; `None` if nothing is selected or the service runs its own engine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RecordedRuntime>,
    /// The candidates that were not selected.
    #[serde(flatten)]
    pub candidates: CandidateSummary,
    /// Findings that do not prevent the service from running.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// The value of the annotation `ome.io/redecide` that the decision observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redecided: Option<String>,
    /// Fingerprint of the fields of the service that selection reads, if the service was ready with this selection. While it is
    /// unchanged, an edit such as scaling retains the selection. Recorded in `fingerprints`.
    #[serde(default, skip_serializing)]
    pub served_fields: Option<String>,
    /// Fingerprint of the objects that the status describes. Recorded in `fingerprints`.
    #[serde(skip)]
    pub inputs: Option<String>,
}

/// The candidates that were not selected, in short.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CandidateSummary {
    /// Those that came closest to being selected: outranked runtimes by rank, then the rejected ones that passed the most
    /// checks, of which there is one at least.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nearest: Vec<NearestRuntime>,
    /// Number of rejected runtimes by code.
    #[serde(default, skip_serializing_if = "RejectedCounts::is_empty")]
    pub rejected: RejectedCounts,
}

/// A selected runtime; of cluster scope unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedRuntime {
    /// Name of the runtime.
    pub name: String,
    /// Whether the runtime is namespaced.
    #[serde(default = "default_scope", skip_serializing_if = "is_default_scope")]
    pub scope: Scope,
}

/// A runtime that was not selected, with the reason. Serialized as text: `vllm-a: Outranked: priority 1 < 2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearestRuntime {
    /// Name of the runtime.
    pub runtime: String,
    /// Code of the reason.
    pub code: String,
    /// Message with the compared values.
    pub message: String,
}

/// Numbers of rejected runtimes by code. Serialized as text, most frequent codes first: `SizeOutOfRange 20, Disabled 2`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RejectedCounts(BTreeMap<String, usize>);

/// Text that is not a [`NearestRuntime`] or [`RejectedCounts`].
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not an entry of a recorded decision")]
pub struct InvalidEntry(String);

// === impl DecisionRecord ===

impl DecisionRecord {
    /// Reads `status.decision`; `None` if there is none or it is malformed.
    pub fn from_status(status: &Value) -> Option<Self> {
        let decision = &status["decision"];
        let record = Self::deserialize(decision).ok()?;
        let fingerprints = decision["fingerprints"].as_str().unwrap_or_default();
        let fingerprint = |name: &str| {
            let mut entries = fingerprints.split(", ").filter_map(|entry| entry.split_once(' '));
            entries.find(|(entry, _)| *entry == name).map(|(_, fingerprint)| fingerprint.to_owned())
        };
        // Earlier releases recorded the fingerprint beside a flag, or in a field of its own.
        let earlier_fields = || decision["selectionFields"].as_str().filter(|_| decision["served"] == true);
        let served_fields = fingerprint(SERVED_FIELDS).or(record.served_fields);
        let served_fields = served_fields.or_else(|| earlier_fields().map(str::to_owned));
        Some(Self { served_fields, inputs: fingerprint(INPUTS), ..record })
    }

    /// Returns the record as JSON.
    pub fn to_json(&self) -> Value {
        // Serialization fails only for maps with keys that are not strings, which a record does not contain.
        let record = serde_json::to_value(self);
        let mut record = record.unwrap_or_else(|_| json!({"feasible": false, "reason": self.reason}));
        // One text, so that `kubectl describe` stays readable.
        let fingerprints = [(INPUTS, &self.inputs), (SERVED_FIELDS, &self.served_fields)];
        let fingerprints =
            fingerprints.into_iter().filter_map(|(name, value)| Some(format!("{name} {}", value.as_ref()?)));
        let fingerprints: Vec<String> = fingerprints.collect();
        if !fingerprints.is_empty() {
            record["fingerprints"] = json!(fingerprints.join(", "));
        }
        record
    }
}

// === impl CandidateSummary ===

impl CandidateSummary {
    /// Summarizes the candidates of a decision, which are sorted by rank and by the checks that they passed.
    pub(crate) fn new(candidates: &[RuntimeCandidate]) -> Self {
        let unselected = candidates.iter().filter(|candidate| !candidate.selected);
        let (rejected, outranked): (Vec<_>, Vec<_>) = unselected.partition(|candidate| candidate.rejected.is_some());
        let outranked = outranked.iter().take(MAX_NEAREST - usize::from(!rejected.is_empty()));
        let nearest = outranked.chain(&rejected).filter_map(|candidate| nearest(candidate)).take(MAX_NEAREST);
        let mut counts = BTreeMap::new();
        for rejection in rejected.iter().filter_map(|candidate| candidate.rejected.as_ref()) {
            *counts.entry(rejection.code().into()).or_default() += 1;
        }
        Self { nearest: nearest.collect(), rejected: RejectedCounts(counts) }
    }
}

fn nearest(candidate: &RuntimeCandidate) -> Option<NearestRuntime> {
    let (code, message) = match (&candidate.rejected, &candidate.outranked) {
        (Some(rejection), _) => (rejection.code().into(), rejection.to_string()),
        (None, Some(reason)) => (decide::OUTRANKED.to_owned(), reason.to_string()),
        (None, None) => return None,
    };
    Some(NearestRuntime { runtime: candidate.runtime.clone(), code, message: truncate(&message) })
}

/// Returns the first warnings with bounded messages.
pub(crate) fn bounded_warnings(warnings: &[Warning]) -> Vec<Warning> {
    let mut bounded: Vec<Warning> = warnings.iter().take(MAX_WARNINGS).cloned().collect();
    bounded.iter_mut().for_each(|warning| warning.message = truncate(&warning.message));
    bounded
}

/// Returns the first characters of a message.
pub(crate) fn truncate(message: &str) -> String {
    match message.char_indices().nth(MAX_MESSAGE) {
        None => message.to_owned(),
        Some((end, _)) => format!("{}…", message.get(..end).unwrap_or_default()),
    }
}

// === impl RecordedRuntime ===

impl From<&RuntimeRef> for RecordedRuntime {
    fn from(runtime: &RuntimeRef) -> Self {
        Self { name: runtime.name.clone(), scope: runtime.scope }
    }
}

impl From<RecordedRuntime> for RuntimeRef {
    fn from(runtime: RecordedRuntime) -> Self {
        Self { name: runtime.name, scope: runtime.scope }
    }
}

// === impl NearestRuntime ===

impl NearestRuntime {
    /// Returns whether the runtime could serve, but another one ranks higher.
    pub fn is_outranked(&self) -> bool {
        self.code == decide::OUTRANKED
    }
}

impl fmt::Display for NearestRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.runtime, self.code, self.message)
    }
}

impl FromStr for NearestRuntime {
    type Err = InvalidEntry;

    fn from_str(text: &str) -> Result<Self, InvalidEntry> {
        let mut parts = text.splitn(3, ": ").map(str::to_owned);
        let (Some(runtime), Some(code), Some(message)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(InvalidEntry(text.to_owned()));
        };
        Ok(Self { runtime, code, message })
    }
}

// === impl RejectedCounts ===

impl RejectedCounts {
    /// Returns the number of rejected runtimes.
    pub fn total(&self) -> usize {
        self.0.values().copied().fold(0, usize::saturating_add)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for RejectedCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts: Vec<(&String, &usize)> = self.0.iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (index, (code, count)) in counts.into_iter().enumerate() {
            write!(f, "{}{code} {count}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

impl FromStr for RejectedCounts {
    type Err = InvalidEntry;

    fn from_str(text: &str) -> Result<Self, InvalidEntry> {
        let count = |entry: &str| {
            let (code, count) = entry.split_once(' ')?;
            Some((code.to_owned(), count.parse().ok()?))
        };
        let counts = text.split(", ").map(|entry| count(entry).ok_or_else(|| InvalidEntry(entry.to_owned())));
        counts.collect::<Result<_, _>>().map(Self)
    }
}

/// Serializes the types as their text.
macro_rules! serialize_as_text {
    ($($type:ty),+) => {$(
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    )+};
}

serialize_as_text!(NearestRuntime, RejectedCounts);

/// Returns the shape of each component in `status.components`: its class, accelerators, nodes, replicas and variants.
pub fn recorded_components(status: &Value) -> BTreeMap<String, ComponentDecision> {
    // Earlier releases recorded the components in the decision.
    if let Ok(components) = BTreeMap::deserialize(&status["decision"]["components"]) {
        return components;
    }
    let components = status["components"].as_object().into_iter().flatten();
    components.map(|(name, component)| (name.clone(), recorded_component(component))).collect()
}

fn recorded_component(component: &Value) -> ComponentDecision {
    let count = |value: &Value| value.as_u64().and_then(|count| u32::try_from(count).ok());
    let accelerator = &component["selectedAccelerator"];
    let mut requests = accelerator["resourceRequests"].as_object().into_iter().flatten();
    let request = requests.next().and_then(|(resource, count)| Some((resource.clone(), count.as_str()?.parse().ok()?)));
    let (resource, accelerators_per_node) = request.unzip();
    ComponentDecision {
        accelerator_class: accelerator["acceleratorClass"].as_str().map(str::to_owned),
        resource,
        accelerators_per_node: accelerators_per_node.unwrap_or_default(),
        nodes: count(&component["nodes"]).unwrap_or(1),
        replicas: count(&component["replicas"]).unwrap_or_default(),
        cost_per_hour: None,
        variants: Vec::<Variant>::deserialize(&component["variants"]).unwrap_or_default(),
    }
}

/// Returns what [`recorded_components`] reads from the status of a service with these components, without replica counts,
/// which scaling changes.
pub fn component_shapes(components: &BTreeMap<String, ComponentDecision>) -> BTreeMap<String, ComponentDecision> {
    let shape = |component: &ComponentDecision| {
        let resource = component.resource.clone().filter(|_| component.accelerator_class.is_some());
        ComponentDecision {
            accelerator_class: component.accelerator_class.clone(),
            accelerators_per_node: if resource.is_some() { component.accelerators_per_node } else { 0 },
            resource,
            nodes: component.nodes.max(1),
            replicas: 0,
            cost_per_hour: None,
            variants: component.variants.iter().map(|variant| Variant { replicas: 0, ..variant.clone() }).collect(),
        }
    };
    components.iter().map(|(name, component)| (name.clone(), shape(component))).collect()
}

fn default_feasible() -> bool {
    true
}

fn is_true(value: &bool) -> bool {
    *value
}

fn default_scope() -> Scope {
    Scope::Cluster
}

fn is_default_scope(scope: &Scope) -> bool {
    *scope == Scope::Cluster
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::service_plan::ServicePlan;

    #[test]
    fn record_is_read_as_it_was_written() {
        let text = json!({
            "reason": "Selected", "message": "a on 1 × h100", "runtime": {"name": "a", "scope": "Namespace"},
            "nearest": ["b: Outranked: priority 1 < 2", "c: SizeOutOfRange: the model has 3B: the runtime supports 7B"],
            "rejected": "SizeOutOfRange 2, Disabled 1", "warnings": [{"code": "W", "message": "m"}],
            "redecided": "t", "fingerprints": "inputs i, servedFields f",
        });
        let record = DecisionRecord::from_status(&json!({"decision": text})).unwrap();
        assert_eq!(record.to_json(), text);
        assert_eq!((record.inputs.as_deref(), record.served_fields.as_deref()), (Some("i"), Some("f")));
        let [outranked, rejected] = record.candidates.nearest.as_slice() else { panic!("{record:?}") };
        assert!(outranked.is_outranked() && !rejected.is_outranked());
        assert_eq!((rejected.code.as_str(), record.candidates.rejected.total()), ("SizeOutOfRange", 3));
    }

    #[rstest]
    #[case::counts(json!({"rejected": "Disabled"}))]
    #[case::nearest(json!({"nearest": ["a"]}))]
    #[case::reason(json!({"reason": 7}))]
    fn malformed_record_is_ignored(#[case] fields: Value) {
        let mut record = json!({"reason": "Selected", "message": ""});
        record.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        assert_eq!(DecisionRecord::from_status(&json!({"decision": record})), None);
    }

    #[test]
    fn components_of_the_status_have_the_shapes_of_the_decision() {
        let engine = ComponentDecision {
            accelerator_class: Some("h100".to_owned()),
            resource: Some("nvidia.com/gpu".to_owned()),
            accelerators_per_node: 8,
            nodes: 2,
            replicas: 3,
            cost_per_hour: Some(1.0),
            variants: Vec::new(),
        };
        let status = json!({"components": {"engine": {"replicas": 5, "nodes": 2, "selectedAccelerator":
            {"acceleratorClass": "h100", "resourceRequests": {"nvidia.com/gpu": "8"}}}}});
        let recorded = recorded_components(&status);
        assert_eq!(recorded["engine"].replicas, 5);
        assert_eq!(component_shapes(&recorded), component_shapes(&[("engine".to_owned(), engine)].into()));
    }

    #[test]
    fn record_is_bounded() {
        let candidate = |index: usize| RuntimeCandidate {
            runtime: format!("r{index}"),
            scope: Scope::Cluster,
            rank: (index < 5).then_some(index + 1),
            selected: index == 0,
            accelerators: decide::AcceleratorCandidates::default(),
            rejected: (index >= 5).then_some(decide::RuntimeRejection::Disabled),
            rank_basis: None,
            outranked: (1..5).contains(&index).then_some(decide::RuntimeRankReason::Name),
        };
        let plan = ServicePlan {
            feasible: true,
            message: "m".repeat(2 * MAX_MESSAGE),
            candidates: (0..100).map(candidate).collect(),
            warnings: vec![Warning::new(decide::code::warning::NO_FREE_CAPACITY, "w".repeat(2 * MAX_MESSAGE)); 50],
            ..ServicePlan::default()
        };
        let record = plan.record();
        let nearest: Vec<&str> = record.candidates.nearest.iter().map(|nearest| nearest.runtime.as_str()).collect();
        assert_eq!(
            (nearest, record.candidates.rejected.to_string()),
            (vec!["r1", "r2", "r5"], "Disabled 95".to_owned())
        );
        let lengths = record.warnings.iter().map(|warning| warning.message.chars().count());
        assert_eq!(lengths.collect::<Vec<_>>(), [MAX_MESSAGE + 1; MAX_WARNINGS]);
        assert_eq!(record.message.chars().count(), MAX_MESSAGE + 1);
        assert_eq!(plan.without_candidates().record(), record);
    }

    #[test]
    fn arbitrary_counts_saturate() {
        let counts: RejectedCounts = format!("A {}, B 1", usize::MAX).parse().unwrap();
        assert_eq!(counts.total(), usize::MAX);
    }
}
