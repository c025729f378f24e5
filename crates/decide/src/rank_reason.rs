//! Reasons why a compatible candidate ranks below the selected one.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::naming::NamedSize;
use crate::quantization::NumberFormat;
use crate::reason::RenderedReason;
use crate::size::DisplayCount;

/// Code of every compatible candidate that ranks below the selected one.
pub const OUTRANKED: &str = "Outranked";

/// Distance between a runtime's size range and the model's size; variants are ordered from closest to furthest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SizeFit {
    /// The range has both bounds; the value is |model − min| + |max − model|.
    TwoSided(u64),
    /// The range has one bound; the value is the distance to it.
    OneSided(u64),
    /// The runtime has no size range; its name may indicate a size.
    Unbounded(NamedSize),
    /// The runtime has a size range that does not contain the size in the model's name; the value is the distance to it.
    Outside(u64),
    /// The runtime has a size range, and the size of the model is unknown.
    Unknown,
}

/// Why a runtime ranks below the selected one: the first key that differs.
#[derive(Clone, Debug, PartialEq)]
pub enum RuntimeRankReason {
    /// Runtimes of the namespace rank before cluster runtimes.
    Scope,
    /// The matching format entry sets no architecture.
    ArchitectureUnset,
    /// The service has a router, and the runtime sets no `routerConfig`.
    RouterConfigMissing,
    /// The flags of the engine select another task than the model's.
    OtherTask,
    /// The size range is further from the model's size.
    Size {
        /// Distance of this runtime.
        candidate: SizeFit,
        /// Distance of the selected runtime.
        selected: SizeFit,
    },
    /// The priority is lower.
    Priority {
        /// Priority of this runtime.
        candidate: Option<i32>,
        /// Priority of the selected runtime.
        selected: Option<i32>,
    },
    /// The best class of a component has too few free accelerators.
    NoFreeCapacity,
    /// The runtime was created earlier.
    CreationTime {
        /// Creation timestamp of this runtime.
        candidate: Option<String>,
        /// Creation timestamp of the selected runtime.
        selected: Option<String>,
    },
    /// The name of the selected runtime contains the model's name.
    NotNamesake,
    /// All keys are equal; the name orders the runtimes.
    Name,
    /// The runtime ranks higher, but the current selection is retained.
    CurrentRetained,
}

/// Why a class ranks below the selected one: the first key that differs.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassRankReason {
    /// The model does not fit; the class is eligible because a script of the service states the number of accelerators.
    ModelDoesNotFit,
    /// The runtime prefers other classes for requests of some size.
    RequestSize,
    /// The price exceeds the cost threshold of the service.
    CostThreshold {
        /// US dollars per replica and hour.
        threshold: f64,
    },
    /// Both prices exceed the threshold, and this one is higher. US dollars per replica and hour.
    Price {
        /// Price of this class.
        candidate: f64,
        /// Price of the selected class.
        selected: f64,
    },
    /// The class comes later in `preferredClasses`. Positions start at 1.
    PreferredPosition {
        /// Position of this class.
        candidate: usize,
        /// Position of the selected class.
        selected: usize,
    },
    /// The score in the runtime's `preferenceOrder` is lower.
    PreferenceScore {
        /// Score of this class.
        candidate: i32,
        /// Score of the selected class.
        selected: i32,
    },
    /// Too few accelerators are free.
    Capacity {
        /// Free accelerators; `None` if the nodes are unknown.
        free: Option<u32>,
    },
    /// The class comes later in the runtime's list of classes.
    ListPosition,
    /// The class has no units for the number format of the model.
    FormatEmulated(NumberFormat),
    /// The class does not compute a precision that comes earlier in `preferredPrecisions`.
    PreferredPrecision,
    /// The class declares no price.
    Unpriced,
    /// The class declares another kind of price.
    OtherPriceKind,
    /// The class does not declare compute, bandwidth or memory.
    FiguresMissing,
    /// The score is lower.
    Score {
        /// Ranking policy that computed the scores.
        ranking: &'static str,
        /// Score of this class.
        candidate: f64,
        /// Score of the selected class.
        selected: f64,
    },
    /// All keys are equal; the name orders the classes.
    Name,
    /// The class ranks higher, but the current selection is retained.
    CurrentRetained,
}

// === impl SizeFit ===

impl fmt::Display for SizeFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TwoSided(distance) => write!(f, "a size range at distance {}", DisplayCount(*distance)),
            Self::OneSided(distance) => write!(f, "a one-sided size range at distance {}", DisplayCount(*distance)),
            Self::Unbounded(NamedSize::Same) => f.write_str("the model's size in its name"),
            Self::Unbounded(NamedSize::Unstated) => f.write_str("no size range"),
            Self::Unbounded(NamedSize::Different { size, .. }) => {
                write!(f, "the size {} in its name", DisplayCount(*size))
            }
            Self::Outside(distance) => {
                write!(f, "a size range at distance {} from the size in the model's name", DisplayCount(*distance))
            }
            Self::Unknown => f.write_str("a size range that may not contain the model's size"),
        }
    }
}

// === impl RuntimeRankReason ===

impl fmt::Display for RuntimeRankReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scope => f.write_str("runtimes of the namespace rank before cluster runtimes"),
            Self::RouterConfigMissing => f.write_str("no routerConfig for the router of the service"),
            Self::OtherTask => f.write_str(
                "starts its engine for another task; the selected runtime serves modelCapabilities of the model",
            ),
            Self::ArchitectureUnset => f.write_str("sets no modelArchitecture; the selected runtime does"),
            Self::Size { candidate: SizeFit::TwoSided(candidate), selected: SizeFit::TwoSided(selected) }
            | Self::Size { candidate: SizeFit::OneSided(candidate), selected: SizeFit::OneSided(selected) } => {
                write!(f, "size distance {} > {}", DisplayCount(*candidate), DisplayCount(*selected))
            }
            Self::Size { candidate, selected } => write!(f, "has {candidate}; the selected runtime has {selected}"),
            Self::Priority { candidate: Some(candidate), selected } => {
                write!(f, "priority {candidate} < {}", selected.unwrap_or_default())
            }
            Self::Priority { candidate: None, selected } => {
                write!(f, "has no priority; the selected runtime has {}", selected.unwrap_or_default())
            }
            Self::NoFreeCapacity => {
                f.write_str("its best class has no free capacity; the best class of the selected runtime has")
            }
            Self::CreationTime { candidate: Some(candidate), selected: Some(selected) } => {
                write!(f, "created {candidate}; the selected runtime was created {selected}")
            }
            Self::CreationTime { .. } => f.write_str("is not created yet; the selected runtime is"),
            Self::NotNamesake => f.write_str("the name of the selected runtime contains the model's name"),
            Self::Name => f.write_str("equal in all criteria; ordered by name"),
            Self::CurrentRetained => f.write_str("ranks higher, but the current selection is retained"),
        }
    }
}

impl Serialize for RuntimeRankReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RenderedReason { code: OUTRANKED, message: self.to_string() }.serialize(serializer)
    }
}

// === impl ClassRankReason ===

impl fmt::Display for ClassRankReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ModelDoesNotFit => f.write_str("the model does not fit on the accelerators that its nodes have"),
            Self::RequestSize => f.write_str("the runtime prefers other classes for requests of some size"),
            Self::CostThreshold { threshold } => write!(f, "exceeds the cost threshold of ${threshold}/h"),
            Self::Price { candidate, selected } => write!(f, "${candidate:.2}/h > ${selected:.2}/h"),
            Self::PreferredPosition { candidate, selected } => {
                write!(f, "position {candidate} in preferredClasses; the selected class has position {selected}")
            }
            Self::PreferenceScore { candidate, selected } => write!(f, "preferenceOrder {candidate} < {selected}"),
            Self::Capacity { free: Some(free) } => write!(f, "too few free accelerators ({free})"),
            Self::Capacity { free: None } => f.write_str("the availability of its nodes is unknown"),
            Self::ListPosition => f.write_str("later in the runtime's list of classes"),
            Self::FormatEmulated(format) => write!(f, "has no units for {format}"),
            Self::PreferredPrecision => f.write_str("lacks a precision that preferredPrecisions lists earlier"),
            Self::Unpriced => f.write_str("declares no price"),
            Self::OtherPriceKind => f.write_str("declares another kind of price"),
            Self::FiguresMissing => f.write_str("does not declare all of compute, bandwidth and memory"),
            Self::Score { ranking, candidate, selected } => write!(f, "{ranking} {candidate:.2} < {selected:.2}"),
            Self::Name => f.write_str("equal in all criteria; ordered by name"),
            Self::CurrentRetained => f.write_str("ranks higher, but the current selection is retained"),
        }
    }
}

impl Serialize for ClassRankReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RenderedReason { code: OUTRANKED, message: self.to_string() }.serialize(serializer)
    }
}
