//! How an object gets written: one file or folder for each stage, in this order.
//!
//! | stage | does |
//! |---|---|
//! | [`decode`] | reads the body of a request; what it gives twice becomes a complaint |
//! | [`preconditions`] | compares name, uid and revision with what is there (on a change) |
//! | [`prune`] | drops fields that nobody declared, and says so |
//! | [`default`] | fills in what the client left out |
//! | [`typed`] | gives the object the form that its Go type has in JSON |
//! | [`owners`] | notes in `managedFields` who wrote what |
//! | [`prepare`] | writes what belongs to the server: uid, times, generation, first status |
//! | [`validate`] | refuses what is wrong, with every cause |
//! | [`warnings`] | says what is accepted and hardly meant |
//! | [`cel`] | asks the rules of custom resources |
//! | [`allocate`] | hands out the addresses of Services |
//! | [`admit`] | asks the plugins of every kube-apiserver, then the caller |
//! | [`commit`] | stores it, and does what follows |
//!
//! [`pipeline`] runs them. Up to [`commit`] nothing is stored: a stage looks at the resource, the old object and the new
//! one, and those that have to ask what else there is (addresses that are taken, classes, namespaces) only read.

pub mod decode;

pub(crate) mod preconditions;

pub mod prune;

pub mod default;

pub mod typed;

mod owners;

mod prepare;

pub mod validate;

mod warnings;

pub mod cel;

mod allocate;

pub mod admit;

mod commit;

mod pipeline;

use std::sync::Arc;

use apimachinery::status::{Cause, Status};
use serde_json::Value;

use crate::resources::Resource;

pub use decode::Complaints;

/// What a client asks of a write beyond the object.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// `fieldManager`; who owns the fields written.
    pub manager: String,
    pub field_validation: FieldValidation,
    /// Through which face other than [`Face`] the object is written; for `managedFields`.
    pub subresource: Option<&'static str>,
    /// What was wrong with the body already: members given twice.
    pub complaints: Complaints,
    /// What the client sent.
    pub body: Body,
    /// The version that was written, where it is not the one that is kept: owners are noted under its names.
    pub written_as: Option<Arc<Resource>>,
    /// The whole way without the last step.
    pub dry_run: bool,
}

/// What a client sends: it is told otherwise when the result does not fit the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Body {
    /// A bad request.
    #[default]
    Object,
    /// The patch is invalid.
    Patch,
}

/// What happens to fields that the schema does not know, which are dropped in any case, and to doubled ones, of which
/// the last counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FieldValidation {
    Ignore,
    /// Said in a `Warning:` header.
    #[default]
    Warn,
    /// 400.
    Strict,
}

/// Which part of an object a write may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Face {
    /// All but the status, where the resource has a status face.
    Main,
    /// `/status`.
    Status,
}

/// The object a client wants.
#[derive(Debug, Clone)]
pub enum Proposal {
    /// By POST, PUT or a patch; who owns what follows from the difference.
    Written(Value),
    /// By server-side apply, which has settled the owners already.
    Applied(Value),
}

/// What a write did.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub object: Arc<Value>,
    pub warnings: Vec<String>,
    pub created: bool,
}

/// Computes what the object should become from what it is; run again when another write came between.
pub type Propose<'a> = &'a dyn Fn(Option<&Value>) -> Result<Proposal, Status>;

// === impl Body ===

impl Body {
    /// The refusal of an object that does not fit its type.
    fn unfit(self, status: Status) -> Status {
        if self == Self::Object || status.code != 400 {
            return status;
        }
        let why = status.message.split_once(" cannot be handled as a ").and_then(|(_, rest)| rest.split_once(": "));
        let why = why.map_or(status.message.as_str(), |(_, why)| why);
        Status::invalid("", "", vec![Cause::invalid("patch", &"object".into(), why)])
    }
}

// === impl Face ===

impl Face {
    /// The name in `managedFields`.
    #[must_use]
    pub fn subresource(self) -> Option<String> {
        match self {
            Self::Main => None,
            Self::Status => Some("status".to_owned()),
        }
    }
}

// === impl Proposal ===

impl Proposal {
    pub(crate) fn into_parts(self) -> (Value, bool) {
        match self {
            Self::Written(object) => (object, false),
            Self::Applied(object) => (object, true),
        }
    }
}
