//! What was decided: the winner, every candidate with its rank or its reason, and warnings. The same record goes to
//! `plan -o json`, to status and to events.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::code;
use crate::lazy_list::LazyList;
use crate::rank_reason::{ClassRankReason, RuntimeRankReason};
use crate::reason::{ClassRejection, RecordedReason, RuntimeRejection, Warning};
use crate::shape::ReplicaShape;
use crate::size::{DisplayCount, SizeRange};
use crate::supply::Scope;
use crate::variants::Variant;

/// The outcome for one service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    pub feasible: bool,
    /// `Selected`, `Kept`, or why nothing was chosen.
    pub reason: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<RuntimeRef>,
    #[serde(default)]
    pub components: BTreeMap<String, ComponentDecision>,
    /// Ranked ones first, then rejected ones, the nearest first.
    #[serde(default)]
    pub candidates: Vec<RuntimeCandidate>,
    #[serde(default)]
    pub warnings: Vec<Warning>,
    /// What was left out to keep the record small; only in status.
    #[serde(default, skip_serializing_if = "OmittedCounts::is_empty")]
    pub omitted: OmittedCounts,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeRef {
    pub name: String,
    pub scope: Scope,
}

/// Counts of what the status form leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OmittedCounts {
    #[serde(default, skip_serializing_if = "is_zero")]
    pub runners_up: usize,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rejections: usize,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub classes: usize,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub warnings: usize,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl OmittedCounts {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What one component gets. Without a class the component runs as runtime and service say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ComponentDecision {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator_class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    #[serde(default)]
    pub accelerators_per_node: u32,
    pub nodes: u32,
    pub replicas: u32,
    /// Dollars for one replica.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_per_hour: Option<f64>,
    /// Replica sets by request size, the best class first; empty where one serves requests of any size.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
}

/// One runtime that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuntimeCandidate {
    pub runtime: String,
    pub scope: Scope,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub selected: bool,
    #[serde(default, skip_serializing_if = "AcceleratorCandidates::is_empty")]
    pub accelerators: AcceleratorCandidates,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejected: Option<RuntimeRejection>,
    /// What its rank rests on, such as `size 3.2B in 2B–4B, priority 2`; none for a rejected one.
    #[serde(default, rename = "standing", skip_serializing_if = "Option::is_none")]
    pub rank_basis: Option<RankBasis>,
    /// The step by which a compatible runtime lost to the selected one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outranked: Option<RuntimeRankReason>,
}

/// What the rank of a compatible runtime rests on.
#[derive(Clone, Debug, PartialEq)]
pub enum RankBasis {
    /// The model's parameters within the runtime's range, and the priority of the matching entry.
    Ranked { size: Option<(u64, SizeRange)>, priority: Option<i32> },
    /// Read back from JSON.
    Recorded(String),
}

/// Classes that were looked at for a candidate, component by component: best first, then those that the service names, then
/// the nearest.
pub type AcceleratorCandidates = LazyList<AcceleratorCandidate>;

fn is_false(value: &bool) -> bool {
    !value
}

/// One class that was looked at for one component of a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AcceleratorCandidate {
    pub component: String,
    pub class: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<usize>,
    /// Between 0 and 1, by the ranking in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    #[serde(flatten)]
    pub evaluation: ClassEvaluation,
    /// The step by which an eligible class lost to the one in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outranked: Option<ClassRankReason>,
}

/// Why a class stands where it stands.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassEvaluation {
    Eligible(Eligibility),
    Rejected(ClassRejection),
    /// Read back from JSON.
    Recorded(RecordedReason),
}

/// The numbers of an eligible class.
#[derive(Clone, Debug, PartialEq)]
pub struct Eligibility {
    pub shape: ReplicaShape,
    pub ranking: &'static str,
    pub score: f64,
    pub cost_score: Option<f64>,
    pub performance_score: f64,
    /// Dollars for one replica.
    pub price_per_hour: Option<f64>,
    /// That the service starts with, at least 1.
    pub replicas: u32,
    /// Free and total accelerators on nodes that the component may use.
    pub free_and_total: Option<(u32, u32)>,
    pub has_capacity: bool,
}

impl ClassEvaluation {
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Eligible(_) => code::class::ELIGIBLE.as_str(),
            Self::Rejected(rejection) => rejection.code().as_str(),
            Self::Recorded(told) => &told.code,
        }
    }
}

impl std::fmt::Display for ClassEvaluation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Eligible(eligibility) => eligibility.fmt(f),
            Self::Rejected(rejection) => rejection.fmt(f),
            Self::Recorded(told) => f.write_str(&told.message),
        }
    }
}

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
            Some((free, _)) => {
                let needed = self.shape.accelerators().saturating_mul(self.replicas);
                let scattered = if free >= needed { ", but not so many on one node" } else { "" };
                write!(f, ", no free capacity: needs {needed}, free {free}{scattered}")
            }
        }
    }
}

impl std::fmt::Display for RankBasis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (size, priority) = match self {
            Self::Ranked { size, priority } => (size, priority),
            Self::Recorded(text) => return f.write_str(text),
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

impl<'de> Deserialize<'de> for RankBasis {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::Recorded)
    }
}

impl Serialize for ClassEvaluation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RecordedReason { code: self.code().to_owned(), message: self.to_string() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ClassEvaluation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RecordedReason::deserialize(deserializer).map(Self::Recorded)
    }
}

/// The choice in force, read from status or from the workload.
#[derive(Clone, Debug, PartialEq)]
pub struct CurrentSelection {
    /// `None`: the service's own engine.
    pub runtime: Option<RuntimeRef>,
    /// What each component runs on, as it was recorded.
    pub components: BTreeMap<String, ComponentDecision>,
}

impl CurrentSelection {
    /// What a recorded decision chose; `None` if it chose nothing.
    #[must_use]
    pub fn from_decision(decision: &Decision) -> Option<Self> {
        let chosen = || Self { runtime: decision.runtime.clone(), components: decision.components.clone() };
        decision.feasible.then(chosen)
    }
}
