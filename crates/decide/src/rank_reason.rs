//! Reasons why a compatible candidate ranks below the selected one.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::reason::RecordedReason;
use crate::size::DisplayCount;

/// Code of every candidate that can serve and ranks below the selected one.
pub const OUTRANKED: &str = "Outranked";

/// Distance between a runtime's size range and the model's size, closest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SizeFit {
    /// The range has both bounds: |model − min| + |max − model|.
    TwoSided(u64),
    /// The range has one bound: the distance to it.
    OneSided(u64),
    /// The runtime has no size range.
    Unbounded,
    /// The model's size is unknown.
    Unknown,
}

/// Why a runtime ranks below the selected one: the first key that differs.
#[derive(Clone, Debug, PartialEq)]
pub enum RuntimeRankReason {
    /// Runtimes of the namespace rank before cluster runtimes.
    Scope,
    /// The matching format entry sets no architecture.
    ArchitectureUnset,
    /// The size range is further from the model's size.
    Size {
        /// Distance of this runtime.
        own: SizeFit,
        /// Distance of the selected runtime.
        winner: SizeFit,
    },
    /// The priority is lower.
    Priority {
        /// Priority of this runtime.
        own: Option<i32>,
        /// Priority of the selected runtime.
        winner: Option<i32>,
    },
    /// The best class of a component has too few free accelerators.
    NoFreeCapacity,
    /// The runtime was created earlier.
    Older {
        /// Creation timestamp of this runtime.
        own: Option<String>,
        /// Creation timestamp of the selected runtime.
        winner: Option<String>,
    },
    /// The name of the selected runtime contains the model's name.
    NotNamesake,
    /// All keys are equal; the name orders the runtimes.
    Name,
    /// The runtime ranks higher, but the current selection is retained.
    CurrentRetained,
    /// Read from JSON.
    Recorded(RecordedReason),
}

/// Why a class ranks below the selected one: the first key that differs.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassRankReason {
    /// The runtime prefers other classes for requests of some size.
    RequestSize,
    /// The price exceeds the cost threshold of the service.
    CostThreshold {
        /// Dollars per hour and replica.
        threshold: f64,
    },
    /// Both prices exceed the threshold, and this one is higher. Dollars per hour and replica.
    Price {
        /// Price of this class.
        own: f64,
        /// Price of the selected class.
        winner: f64,
    },
    /// The class comes later in `preferredClasses`. Positions start at 1.
    Preferred {
        /// Position of this class.
        own: usize,
        /// Position of the selected class.
        winner: usize,
    },
    /// The score in the runtime's `preferenceOrder` is lower.
    Preference {
        /// Score of this class.
        own: i32,
        /// Score of the selected class.
        winner: i32,
    },
    /// Too few accelerators are free.
    Capacity {
        /// Free accelerators; `None` if the nodes are unknown.
        free: Option<u32>,
    },
    /// The class comes later in the runtime's list of classes.
    Listed,
    /// The class declares no price.
    Unpriced,
    /// The score is lower.
    Score {
        /// Ranking policy that computed the scores.
        ranking: &'static str,
        /// Score of this class.
        own: f64,
        /// Score of the selected class.
        winner: f64,
    },
    /// All keys are equal; the name orders the classes.
    Name,
    /// The class ranks higher, but the current selection is retained.
    CurrentRetained,
    /// Read from JSON.
    Recorded(RecordedReason),
}

impl fmt::Display for SizeFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TwoSided(distance) => write!(f, "a size range at distance {}", DisplayCount(*distance)),
            Self::OneSided(distance) => write!(f, "a one-sided size range at distance {}", DisplayCount(*distance)),
            Self::Unbounded => f.write_str("no size range"),
            Self::Unknown => f.write_str("any size"),
        }
    }
}

impl fmt::Display for RuntimeRankReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scope => f.write_str("runtimes of the namespace rank before cluster runtimes"),
            Self::ArchitectureUnset => f.write_str("sets no modelArchitecture; the selected runtime does"),
            Self::Size { own: SizeFit::TwoSided(own), winner: SizeFit::TwoSided(winner) }
            | Self::Size { own: SizeFit::OneSided(own), winner: SizeFit::OneSided(winner) } => {
                write!(f, "size distance {} > {}", DisplayCount(*own), DisplayCount(*winner))
            }
            Self::Size { own, winner } => write!(f, "has {own}; the selected runtime has {winner}"),
            Self::Priority { own: Some(own), winner } => write!(f, "priority {own} < {}", winner.unwrap_or_default()),
            Self::Priority { own: None, winner } => {
                write!(f, "has no priority; the selected runtime has {}", winner.unwrap_or_default())
            }
            Self::NoFreeCapacity => {
                f.write_str("its best class has no free capacity; the best class of the selected runtime has")
            }
            Self::Older { own: Some(own), winner: Some(winner) } => {
                write!(f, "created {own}; the selected runtime was created {winner}")
            }
            Self::Older { .. } => f.write_str("is not created yet; the selected runtime is"),
            Self::NotNamesake => f.write_str("the name of the selected runtime contains the model's name"),
            Self::Name => f.write_str("equal in all criteria; ordered by name"),
            Self::CurrentRetained => f.write_str("ranks higher, but the current selection is retained"),
            Self::Recorded(recorded) => f.write_str(&recorded.message),
        }
    }
}

impl fmt::Display for ClassRankReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RequestSize => f.write_str("the runtime prefers other classes for requests of some size"),
            Self::CostThreshold { threshold } => write!(f, "exceeds the cost threshold of ${threshold}/h"),
            Self::Price { own, winner } => write!(f, "${own:.2}/h > ${winner:.2}/h"),
            Self::Preferred { own, winner } => {
                write!(f, "position {own} in preferredClasses; the selected class has position {winner}")
            }
            Self::Preference { own, winner } => write!(f, "preferenceOrder {own} < {winner}"),
            Self::Capacity { free: Some(free) } => write!(f, "too few free accelerators ({free})"),
            Self::Capacity { free: None } => f.write_str("the availability of its nodes is unknown"),
            Self::Listed => f.write_str("later in the runtime's list of classes"),
            Self::Unpriced => f.write_str("declares no price"),
            Self::Score { ranking, own, winner } => write!(f, "{ranking} {own:.2} < {winner:.2}"),
            Self::Name => f.write_str("equal in all criteria; ordered by name"),
            Self::CurrentRetained => f.write_str("ranks higher, but the current selection is retained"),
            Self::Recorded(recorded) => f.write_str(&recorded.message),
        }
    }
}

impl Serialize for RuntimeRankReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RecordedReason { code: OUTRANKED.to_owned(), message: self.to_string() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RuntimeRankReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RecordedReason::deserialize(deserializer).map(Self::Recorded)
    }
}

impl Serialize for ClassRankReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RecordedReason { code: OUTRANKED.to_owned(), message: self.to_string() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ClassRankReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RecordedReason::deserialize(deserializer).map(Self::Recorded)
    }
}
