//! By which step of the ranking a compatible candidate lost, and by how much.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::reason::{Count, Told};

/// The one code of a candidate that may serve and that another one came before.
pub const OUTRANKED: &str = "Outranked";

/// How close a runtime's size range is to the model, closest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SizeFit {
    /// |model − min| + |max − model|.
    TwoSided(u64),
    /// Distance to the one bound.
    OneSided(u64),
    Unbounded,
    /// The model states no size: all are equal.
    Unknown,
}

/// Why a runtime comes after the selected one: the first difference.
#[derive(Clone, Debug, PartialEq)]
pub enum RuntimeStep {
    Scope,
    ArchitectureUnstated,
    Size {
        own: SizeFit,
        winner: SizeFit,
    },
    Priority {
        own: Option<i32>,
        winner: Option<i32>,
    },
    NoFreeCapacity,
    Older {
        own: Option<String>,
        winner: Option<String>,
    },
    /// The selected one carries the model's name.
    Stranger,
    Name,
    /// It would come first, but the service keeps what it has.
    Kept,
    Recorded(Told),
}

/// Why a class comes after the one in use: the first difference.
#[derive(Clone, Debug, PartialEq)]
pub enum ClassStep {
    /// The runtime prefers the others for requests of some size.
    RequestSize,
    /// Dollars per hour and replica.
    CostThreshold {
        threshold: f64,
    },
    Price {
        own: f64,
        winner: f64,
    },
    /// Positions in `preferredClasses`, from 1.
    Preferred {
        own: usize,
        winner: usize,
    },
    /// Scores in the runtime's `preferenceOrder`.
    Preference {
        own: i32,
        winner: i32,
    },
    Capacity {
        free: Option<u32>,
    },
    /// Later in the runtime's list of classes.
    Listed,
    Unpriced,
    Score {
        ranking: &'static str,
        own: f64,
        winner: f64,
    },
    Name,
    Kept,
    Recorded(Told),
}

impl fmt::Display for SizeFit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TwoSided(distance) => write!(f, "a range at distance {}", Count(*distance)),
            Self::OneSided(distance) => write!(f, "one bound at distance {}", Count(*distance)),
            Self::Unbounded => f.write_str("no size range"),
            Self::Unknown => f.write_str("any size"),
        }
    }
}

impl fmt::Display for RuntimeStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scope => f.write_str("a runtime of the namespace comes first"),
            Self::ArchitectureUnstated => f.write_str("states no architecture, the selected one does"),
            Self::Size { own: SizeFit::TwoSided(own), winner: SizeFit::TwoSided(winner) }
            | Self::Size { own: SizeFit::OneSided(own), winner: SizeFit::OneSided(winner) } => {
                write!(f, "size distance {} > {}", Count(*own), Count(*winner))
            }
            Self::Size { own, winner } => write!(f, "{own}, the selected one has {winner}"),
            Self::Priority { own: Some(own), winner } => write!(f, "priority {own} < {}", winner.unwrap_or_default()),
            Self::Priority { own: None, winner } => {
                write!(f, "no priority, the selected one has {}", winner.unwrap_or_default())
            }
            Self::NoFreeCapacity => f.write_str("its best class has no free capacity, the selected one's has"),
            Self::Older { own: Some(own), winner: Some(winner) } => {
                write!(f, "created {own}, the selected one {winner}")
            }
            Self::Older { .. } => f.write_str("not created yet, the selected one is"),
            Self::Stranger => f.write_str("the selected one carries the model's name"),
            Self::Name => f.write_str("equal in everything but the name, which comes later"),
            Self::Kept => f.write_str("would come first; the service keeps its choice"),
            Self::Recorded(told) => f.write_str(&told.message),
        }
    }
}

impl fmt::Display for ClassStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RequestSize => f.write_str("the runtime prefers other classes for requests of some size"),
            Self::CostThreshold { threshold } => write!(f, "beyond the threshold of ${threshold}/h"),
            Self::Price { own, winner } => write!(f, "${own:.2}/h > ${winner:.2}/h"),
            Self::Preferred { own, winner } => write!(f, "preferred {own}., the one in use {winner}."),
            Self::Preference { own, winner } => write!(f, "preferenceOrder {own} < {winner}"),
            Self::Capacity { free: Some(free) } => write!(f, "too few free ({free})"),
            Self::Capacity { free: None } => f.write_str("nothing is known of its nodes"),
            Self::Listed => f.write_str("later in the runtime's list of classes"),
            Self::Unpriced => f.write_str("states no price"),
            Self::Score { ranking, own, winner } => write!(f, "{ranking} {own:.2} < {winner:.2}"),
            Self::Name => f.write_str("equal in everything but the name, which comes later"),
            Self::Kept => f.write_str("would come first; the service keeps its choice"),
            Self::Recorded(told) => f.write_str(&told.message),
        }
    }
}

impl Serialize for RuntimeStep {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Told { code: OUTRANKED.to_owned(), message: self.to_string() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RuntimeStep {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Told::deserialize(deserializer).map(Self::Recorded)
    }
}

impl Serialize for ClassStep {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Told { code: OUTRANKED.to_owned(), message: self.to_string() }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ClassStep {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Told::deserialize(deserializer).map(Self::Recorded)
    }
}
