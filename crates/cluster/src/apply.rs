//! Makes an owner's objects be as desired: applies differences in order, deletes what is no longer desired.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};

pub use crate::managed::{already_applied, spec_already_applied};
use crate::managed::{applied_but_for_more, manages};
use crate::object::{controller, controller_uid, describe, meta, owner_reference, terminating};
use crate::prune::{self, Doomed};
use crate::stores::{Key, Stores};
use crate::{Error, Kind, direct};

/// What an owner wants of one of its objects.
#[derive(Clone, Debug, PartialEq)]
pub enum Desired {
    /// It is to be exactly so.
    Exactly(Value),
    /// Likewise, and nothing that comes after it is made or changed before it is in place.
    First(Value),
    /// It stays as it is, if it exists: its turn comes later.
    Later(Value),
}

/// What became of one desired object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was as desired; nothing was sent.
    Unchanged,
    /// It did not exist.
    Created,
    /// It differed.
    Updated,
    /// An earlier object of this name is still being deleted; its end will wake the owner again.
    Terminating,
    /// It belongs to somebody else and was not touched; the text says to whom.
    Foreign(String),
    /// The cluster does not serve this kind.
    KindMissing,
    /// The API server does not take it; the text says why.
    Refused(String),
    /// It was left as it is: its turn comes later, or what must be there before it is not in place.
    Held,
}

/// One object and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// `Kind namespace/name`.
    pub object: String,
    /// `Kind` alone.
    pub kind: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// The result of one convergence.
#[derive(Debug, Default)]
pub struct Convergence {
    /// One entry per desired object, in the order given.
    pub applied: Vec<Applied>,
    /// `Kind namespace/name` of what was deleted.
    pub pruned: Vec<String>,
    /// The first refusal: worth another try later, since quota, rights or a webhook may change.
    pub refusal: Option<Error>,
}

/// The one writer of objects.
#[derive(Clone)]
pub struct Applier {
    pub(crate) client: Client,
    pub(crate) stores: Stores,
    /// Every kind that is ever made; pruning looks through these.
    makes: &'static [Kind],
    pub(crate) manager: &'static str,
}

// === impl Desired ===

impl Desired {
    /// The object as it is to be.
    #[must_use]
    pub fn object(&self) -> &Value {
        let (Desired::Exactly(object) | Desired::First(object) | Desired::Later(object)) = self;
        object
    }
}

impl From<Value> for Desired {
    fn from(object: Value) -> Desired {
        Desired::Exactly(object)
    }
}

// === impl Outcome ===

impl Outcome {
    /// Whether the object is there as desired.
    #[must_use]
    pub fn in_place(&self) -> bool {
        matches!(self, Outcome::Unchanged | Outcome::Created | Outcome::Updated)
    }
}

// === impl Convergence ===

impl Convergence {
    /// Whether anything was sent.
    #[must_use]
    pub fn changed(&self) -> bool {
        !self.pruned.is_empty()
            || self.applied.iter().any(|one| matches!(one.outcome, Outcome::Created | Outcome::Updated))
    }
}

// === impl Applied ===

impl Applied {
    fn of(object: &Value, outcome: Outcome) -> Applied {
        Applied { object: describe(object), kind: object["kind"].as_str().unwrap_or_default().to_owned(), outcome }
    }
}

// === impl Applier ===

impl Applier {
    /// An applier of the kinds `makes` under the field manager `manager`.
    #[must_use]
    pub fn new(client: Client, stores: Stores, makes: &'static [Kind], manager: &'static str) -> Applier {
        Applier { client, stores, makes, manager }
    }

    /// Makes the objects that `owner` controls be exactly `desired`, applying in the order given.
    ///
    /// # Errors
    /// The first request that found the server away or the state changed; what came before it stays done, and
    /// repeating continues. What the server refuses is an outcome of that object and stops nothing but what comes after a
    /// [`Desired::First`].
    pub async fn converge<D: Into<Desired>>(&self, owner: &Value, desired: Vec<D>) -> Result<Convergence, Error> {
        let mut result = Convergence::default();
        let (mut wanted, mut blocked) = (BTreeSet::new(), None);
        for desired in desired.into_iter().map(Into::into) {
            let kind = self.kind_of(desired.object());
            wanted.extend(kind.map(|kind| (kind, Key::of(desired.object()))));
            let applied = match blocked {
                None => self.settle(kind, owner, &desired, &mut result).await?,
                // What is missing anyway is told at once, and not when its turn comes.
                Some(_) if !kind.is_some_and(|kind| self.stores.synced(kind)) => {
                    Applied::of(desired.object(), Outcome::KindMissing)
                }
                Some(_) => Applied::of(desired.object(), Outcome::Held),
            };
            if matches!(desired, Desired::First(_)) && !applied.outcome.in_place() {
                blocked.get_or_insert(applied.outcome.clone());
            }
            result.applied.push(applied);
        }
        // What still counts with the others must have shrunk before they go.
        if matches!(blocked, Some(Outcome::Refused(_))) {
            return Ok(result);
        }
        for doomed in prune::doomed(&self.stores, self.makes, meta(owner, "uid"), &wanted) {
            self.delete(&doomed).await?;
            result.pruned.push(doomed.what);
        }
        Ok(result)
    }

    fn kind_of(&self, object: &Value) -> Option<Kind> {
        let is = |kind: &&Kind| object["kind"] == kind.kind && object["apiVersion"] == kind.api_version();
        self.makes.iter().find(is).copied()
    }

    async fn settle(
        &self,
        kind: Option<Kind>,
        owner: &Value,
        desired: &Desired,
        result: &mut Convergence,
    ) -> Result<Applied, Error> {
        let mut object = desired.object().clone();
        object["metadata"]["ownerReferences"] = json!([owner_reference(owner)]);
        let outcome = match (kind, desired) {
            (None, _) => Outcome::KindMissing,
            (_, Desired::Later(_)) => Outcome::Held,
            (Some(kind), _) => self.apply(kind, owner, &object).await.or_else(|error| refused(error, result))?,
        };
        Ok(Applied::of(&object, outcome))
    }

    async fn apply(&self, kind: Kind, owner: &Value, object: &Value) -> Result<Outcome, Error> {
        if !self.stores.synced(kind) {
            return Ok(Outcome::KindMissing);
        }
        let live = match self.stores.get(kind, &Key::of(object)) {
            None => self.unseen(kind, object).await?,
            seen => seen,
        };
        if let Some(settled) = live.as_deref().and_then(|live| self.settled(live, owner, object)) {
            return Ok(settled);
        }
        let api = kind.api(self.client.clone(), meta(object, "namespace"));
        let params = PatchParams::apply(self.manager).force();
        let sent = api.patch(meta(object, "name"), &params, &Patch::Apply(object)).await;
        let answer = sent.map_err(|source| Error::Request {
            action: "apply",
            what: describe(object),
            source: Box::new(source),
        })?;
        let answer = serde_json::to_value(answer).unwrap_or_default();
        let outcome = match live.as_deref() {
            Some(live) if meta(live, "resourceVersion") == meta(&answer, "resourceVersion") => Outcome::Unchanged,
            Some(_) => Outcome::Updated,
            None => Outcome::Created,
        };
        self.heard(kind, answer, object);
        Ok(outcome)
    }

    /// An object of the same name that the store does not hold because it has other labels: it may be somebody else's.
    async fn unseen(&self, kind: Kind, object: &Value) -> Result<Option<Arc<Value>>, Error> {
        if kind.labels.is_empty() {
            return Ok(None);
        }
        let found = direct::read(&self.client, kind, meta(object, "namespace"), meta(object, "name")).await?;
        Ok(found.map(Arc::new))
    }

    /// What is known without a request, or `None` if the object must be sent.
    fn settled(&self, live: &Value, owner: &Value, object: &Value) -> Option<Outcome> {
        if let Some(holder) = foreign(live, owner, self.manager) {
            return Some(Outcome::Foreign(holder));
        }
        if terminating(live) {
            return Some(Outcome::Terminating);
        }
        self.holds(live, object).then_some(Outcome::Unchanged)
    }

    /// Takes in what the server made of `wish`.
    pub(crate) fn heard(&self, kind: Kind, answer: Value, wish: &Value) {
        if !already_applied(&answer, wish, self.manager) {
            self.stores.answered().remember(&answer, wish);
        }
        self.stores.observe(kind, answer);
    }

    /// Whether `live` is already what the server makes of `wish`.
    pub(crate) fn holds(&self, live: &Value, wish: &Value) -> bool {
        already_applied(live, wish, self.manager)
            || (applied_but_for_more(live, wish, self.manager) && self.stores.answered().knows(live, wish))
    }

    pub(crate) async fn delete(&self, doomed: &Doomed) -> Result<(), Error> {
        let preconditions =
            Preconditions { uid: Some(doomed.uid.clone()), resource_version: Some(doomed.resource_version.clone()) };
        let params = DeleteParams::background().preconditions(preconditions);
        let sent = doomed.kind.api(self.client.clone(), &doomed.key.namespace).delete(&doomed.key.name, &params).await;
        match sent.map_err(|source| Error::Request {
            action: "delete",
            what: doomed.what.clone(),
            source: Box::new(source),
        }) {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}

fn refused(error: Error, result: &mut Convergence) -> Result<Outcome, Error> {
    let reason = error.refusal().ok_or(()).map(str::to_owned);
    match reason {
        Ok(reason) => {
            result.refusal.get_or_insert(error);
            Ok(Outcome::Refused(reason))
        }
        Err(()) => Err(error),
    }
}

/// Who holds `live` if it is not ours to touch. An object without a controller is ours only if we wrote it before
/// (its owner was deleted with `--cascade=orphan` and made again).
fn foreign(live: &Value, owner: &Value, manager: &str) -> Option<String> {
    match controller(live) {
        Some(_) if controller_uid(live) == Some(meta(owner, "uid")) => None,
        Some(holder) => Some(format!(
            "{} {}",
            holder["kind"].as_str().unwrap_or_default(),
            holder["name"].as_str().unwrap_or_default()
        )),
        None if manages(live, manager) => None,
        None => Some("somebody else; it has no controller".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn owned_by(uid: &str) -> Value {
        json!({"metadata": {"ownerReferences": [{"controller": true, "kind": "Job", "name": "j", "uid": uid}]}})
    }

    #[rstest]
    #[case::ours(owned_by("me"), None)]
    #[case::theirs(owned_by("them"), Some("Job j"))]
    #[case::nobodys(json!({"metadata": {}}), Some("somebody else; it has no controller"))]
    #[case::orphan_of_ours(json!({"metadata": {"managedFields": [{"manager": "us", "operation": "Apply"}]}}), None)]
    fn only_our_own_objects_are_touched(#[case] live: Value, #[case] holder: Option<&str>) {
        let owner = json!({"metadata": {"uid": "me"}});
        assert_eq!(foreign(&live, &owner, "us").as_deref(), holder);
    }
}
