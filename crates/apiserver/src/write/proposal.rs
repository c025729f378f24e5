//! New objects that clients propose.

use apimachinery::Status;
use serde_json::Value;

use crate::transaction::Transaction;

/// New object that a client proposes.
#[derive(Debug, Clone)]
pub(crate) enum Proposal {
    /// Result of POST, PUT or a patch. Its field manager owns the fields that differ from the current object.
    Update(Value),
    /// Result of server-side apply, in which `managedFields` are already updated.
    Apply(Value),
}

/// Computes the new object from the current one, which is `None` if the object does not exist. It is called again after
/// each conflict.
pub(crate) type ProposeFn<'a> = &'a dyn Fn(Option<&Value>) -> Result<Proposal, Status>;

/// Like [`ProposeFn`], for a new object that depends on other objects.
pub(crate) type ProposeWithReadsFn<'a> = &'a dyn Fn(&Transaction<'_>, Option<&Value>) -> Result<Proposal, Status>;

// === impl Proposal ===

impl Proposal {
    /// Returns the object and whether server-side apply computed it.
    pub(crate) fn into_parts(self) -> (Value, bool) {
        match self {
            Self::Update(object) => (object, false),
            Self::Apply(object) => (object, true),
        }
    }
}
