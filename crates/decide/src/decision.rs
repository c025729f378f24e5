//! The record of a decision: the selection, every candidate with its rank or rejection, and warnings. `plan -o json`, status
//! and events use the same record.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use crate::code;
use crate::compute_request::ComputeRequest;
use crate::lazy_list::LazyList;
use crate::memory_budget::MemoryBudget;
use crate::nodes::UnschedulableNodes;
use crate::rank_reason::{ClassRankReason, RuntimeRankReason};
use crate::reason::{ClassRejection, RenderedReason, RuntimeRejection, Warning};
use crate::shape::ReplicaShape;
use crate::size::{DisplayCount, SizeRange};
use crate::supply::{Runtime, Scope};
use crate::variants::Variant;

/// The decision for one service.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// Whether the service can run.
    pub feasible: bool,
    /// Reason code: `Selected`, `Kept`, or the reason why the service cannot run.
    pub reason: String,
    /// Human-readable message that includes the compared values.
    pub message: String,
    /// The message without the classes that it lists, for readers who see the candidates; `None` if it lists none.
    #[serde(skip)]
    pub message_without_classes: Option<String>,
    /// The selected runtime; `None` if nothing is selected or the service runs its own engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeRef>,
    /// Shape of each component, by name.
    pub components: BTreeMap<String, ComponentDecision>,
    /// Compatible runtimes by rank, then rejected ones, the closest to compatible first.
    pub candidates: RuntimeCandidates,
    /// Findings that do not prevent the service from running.
    pub warnings: Vec<Warning>,
}

/// Reference to a ServingRuntime or ClusterServingRuntime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeRef {
    /// Name of the runtime.
    pub name: String,
    /// Whether the runtime is namespaced.
    pub scope: Scope,
}

/// The shape of one component. Without a class the component runs as runtime and service define it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComponentDecision {
    /// The selected class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator_class: Option<String>,
    /// Name of the resource that Pods request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// Accelerators per node of a replica.
    #[serde(default)]
    pub accelerators_per_node: u32,
    /// Nodes per replica.
    pub nodes: u32,
    /// Initial number of replicas.
    pub replicas: u32,
    /// US dollars per replica and hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_per_hour: Option<f64>,
    /// Replica sets by request size, best class first; empty if one replica set serves requests of any size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
}

/// The runtimes that were considered. Those that do not decide the selection are assessed when the list is first read.
pub type RuntimeCandidates = LazyList<RuntimeCandidate>;

/// A runtime that was considered.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeCandidate {
    /// Name of the runtime.
    pub runtime: String,
    /// Whether the runtime is namespaced.
    pub scope: Scope,
    /// Rank, starting at 1; `None` if the runtime is rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    /// Whether the runtime is selected.
    #[serde(skip_serializing_if = "is_false")]
    pub selected: bool,
    /// The classes that were evaluated for the runtime.
    #[serde(skip_serializing_if = "AcceleratorCandidates::is_empty")]
    pub accelerators: AcceleratorCandidates,
    /// Why the runtime cannot serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<RuntimeRejection>,
    /// Values that the rank is based on, such as `size 3.2B in 2B–4B, priority 2`.
    #[serde(rename = "standing", skip_serializing_if = "Option::is_none")]
    pub rank_basis: Option<RankBasis>,
    /// Why a compatible runtime ranks below the selected one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outranked: Option<RuntimeRankReason>,
}

/// Values that the rank of a compatible runtime is based on.
#[derive(Clone, Debug, PartialEq)]
pub enum RankBasis {
    /// Values of the model and the runtime.
    Ranked {
        /// Number of parameters of the model, and the size range of the runtime.
        size: Option<(u64, SizeRange)>,
        /// Priority of the matching format entry.
        priority: Option<i32>,
    },
}

/// Classes that were evaluated for a runtime, by component: eligible ones by rank, then rejected ones that the service names,
/// then those that passed the most checks.
pub type AcceleratorCandidates = LazyList<AcceleratorCandidate>;

/// A class that was evaluated for one component of a runtime.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AcceleratorCandidate {
    /// `engine` or `decoder`.
    pub component: String,
    /// Name of the class.
    pub class: String,
    /// Rank, starting at 1; `None` if the class is rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    /// Score between 0 and 1, computed by the ranking policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// Result of the checks.
    #[serde(flatten)]
    pub evaluation: ClassEvaluation,
    /// Why an eligible class ranks below the selected one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outranked: Option<ClassRankReason>,
}

/// Result of the checks of a class.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassEvaluation {
    /// Every check passed.
    Eligible(Eligibility),
    /// A check failed.
    Rejected(ClassRejection),
}

/// Shape, score and capacity of an eligible class.
#[derive(Clone, Debug, PartialEq)]
pub struct Eligibility {
    /// Accelerators and nodes of one replica.
    pub shape: ReplicaShape,
    /// Ranking policy that computed the score.
    pub ranking: &'static str,
    /// Score between 0 and 1.
    pub score: f64,
    /// Cost term of the score; `None` if the class declares no price.
    pub cost_score: Option<f64>,
    /// Performance term of the score.
    pub performance_score: f64,
    /// Memory of one accelerator; `None` if the memory of the model or the class is unknown.
    pub memory: Option<MemoryBudget>,
    /// CPU and memory that a Pod requests.
    pub compute: ComputeRequest,
    /// Whether enough accelerators are free, but not the CPU or memory of their nodes.
    pub lacks_only_compute: bool,
    /// US dollars per replica and hour.
    pub price_per_hour: Option<f64>,
    /// Initial number of replicas, at least 1.
    pub replicas: u32,
    /// Free and total accelerators on eligible nodes; `None` if the nodes are unknown.
    pub free_and_total: Option<(u32, u32)>,
    /// Whether enough accelerators are free for all replicas; true if the nodes are unknown.
    pub has_capacity: bool,
    /// Whether the free accelerators suffice together with those that running Pods of the service use although new Pods could
    /// not: on cordoned nodes, and on nodes that have lost accelerators.
    pub has_capacity_with_running_pods: bool,
    /// Pods of all replicas for which the eligible nodes have no room, even if no accelerator is in use; 0 if the nodes are
    /// unknown.
    pub pods_without_room: u32,
    /// The eligible nodes that accept no new Pods, if the free accelerators do not suffice and more of them are on these nodes.
    pub unschedulable: Option<UnschedulableNodes>,
}

/// The current selection of a service, read from its status or its workload.
#[derive(Clone, Debug, PartialEq)]
pub struct CurrentSelection {
    /// `None` if the service runs its own engine.
    pub runtime: Option<RuntimeRef>,
    /// Recorded shape of each component, by name.
    pub components: BTreeMap<String, ComponentDecision>,
}

/// JSON representation of an evaluation.
#[derive(Serialize)]
struct EvaluationRecord<'a> {
    #[serde(flatten)]
    reason: RenderedReason<'a>,
    /// Memory of one accelerator.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Vec<MemoryPart>>,
}

/// JSON representation of a part of a [`MemoryBudget`].
#[derive(Serialize)]
struct MemoryPart {
    bytes: u64,
    purpose: String,
}

fn memory_parts(budget: &MemoryBudget) -> Vec<MemoryPart> {
    budget.parts().into_iter().map(|(bytes, purpose)| MemoryPart { bytes, purpose }).collect()
}

// === impl ClassEvaluation ===

impl ClassEvaluation {
    /// Returns the published code.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Eligible(_) => code::class::ELIGIBLE.as_str(),
            Self::Rejected(rejection) => rejection.code().as_str(),
        }
    }
}

impl std::fmt::Display for ClassEvaluation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Eligible(eligibility) => eligibility.fmt(f),
            Self::Rejected(rejection) => rejection.fmt(f),
        }
    }
}

impl Serialize for ClassEvaluation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let memory = match self {
            Self::Eligible(eligibility) => eligibility.memory.as_ref().map(memory_parts),
            Self::Rejected(_) => None,
        };
        let reason = RenderedReason { code: self.code(), message: self.to_string() };
        EvaluationRecord { reason, memory }.serialize(serializer)
    }
}

// === impl Eligibility ===

impl std::fmt::Display for Eligibility {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:.2}", self.ranking, self.score)?;
        match self.cost_score {
            Some(cost) => write!(f, " (cost {cost:.2}, performance {:.2})", self.performance_score)?,
            None => write!(f, " (performance {:.2})", self.performance_score)?,
        }
        write!(f, ", ×{}", self.shape.per_node)?;
        if self.shape.nodes > 1 {
            write!(f, " on {} nodes", self.shape.nodes)?;
        }
        if let Some(hourly) = self.price_per_hour {
            write!(f, ", ${hourly:.2}/h")?;
        }
        match self.free_and_total {
            None => f.write_str(", availability unknown"),
            Some((free, total)) if self.has_capacity => write!(f, ", {free} of {total} free"),
            Some(_) if self.lacks_only_compute => {
                write!(f, ", no free capacity: {} per Pod required on the nodes with free accelerators", self.compute)
            }
            Some((free, _)) => {
                let required = self.shape.accelerators().saturating_mul(self.replicas);
                let fragmented = if free >= required { ", but not enough on one node" } else { "" };
                write!(f, ", no free capacity: {required} required, {free} free{fragmented}")
            }
        }
    }
}

// === impl RankBasis ===

impl std::fmt::Display for RankBasis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (size, priority) = match self {
            Self::Ranked { size, priority } => (size, priority),
        };
        if let Some((size, range)) = size {
            write!(f, "size {} in {range}", DisplayCount(*size))?;
        }
        let separator = if size.is_some() { ", " } else { "" };
        priority.map_or(Ok(()), |priority| write!(f, "{separator}priority {priority}"))
    }
}

impl Serialize for RankBasis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

// === impl ComponentDecision ===

impl ComponentDecision {
    /// Returns the recorded shape of a replica on `class`; `None` if the component does not use the class.
    pub(crate) fn shape_on(&self, class: &str) -> Option<ReplicaShape> {
        let variant = self.variants.iter().find(|variant| variant.accelerator_class == class);
        let variant =
            variant.map(|variant| ReplicaShape { per_node: variant.accelerators_per_node, nodes: variant.nodes });
        let is_recorded = self.accelerator_class.as_deref() == Some(class);
        variant.or(is_recorded.then_some(ReplicaShape { per_node: self.accelerators_per_node, nodes: self.nodes }))
    }
}

// === impl CurrentSelection ===

impl CurrentSelection {
    /// Returns whether the service uses `runtime`.
    pub(crate) fn uses(&self, runtime: &Runtime) -> bool {
        match &self.runtime {
            None => runtime.is_custom_engine(),
            Some(current) => runtime.name == current.name && runtime.scope == current.scope,
        }
    }

    /// Returns the selection of a decision; `None` if it is infeasible.
    #[cfg(test)]
    pub(crate) fn from_decision(decision: &Decision) -> Option<Self> {
        let selection = || Self { runtime: decision.runtime.clone(), components: decision.components.clone() };
        decision.feasible.then(selection)
    }
}

fn is_false(value: &bool) -> bool {
    !value
}
