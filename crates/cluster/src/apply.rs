//! Server-side apply of an owner's objects: applies differences in order and prunes objects that are no longer desired.
//!
//! Caches may be outdated, so every write names the version of the object that it was decided for. The API server rejects it
//! with a conflict if another object or another version exists; the object is then read and the decision repeated. Objects are
//! created only after a read of their owner, which the caches may contain although it was deleted.

use std::collections::BTreeSet;
use std::sync::Arc;

use kube::Client;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};

use crate::cached_object::CachedFields;
use crate::integrations::{ListState, list_state};
use crate::managed_fields::{is_applied, is_applied_ignoring_extra_fields};
use crate::namespaced_name::NamespacedName;
use crate::object::{controller_reference, is_terminating, kind_and_name, metadata_field};
use crate::owner::{ObjectOwner, other_owner, with_identity};
use crate::precondition::with_precondition;
use crate::prune::{PruneCandidate, obsolete_objects};
use crate::single_object::read_object;
use crate::stores::Stores;
use crate::transform::drop_unused_fields;
use crate::{Error, Kind};

/// Maximum number of attempts to apply an object that other clients change concurrently.
const MAX_ATTEMPTS: usize = 3;

/// A desired object of an owner, and when to apply it.
#[derive(Clone, Debug, PartialEq)]
pub enum DesiredObject {
    /// Apply the object.
    Apply(Value),
    /// Apply the object, and apply the objects that follow only after this one is in place.
    ApplyFirst(Value),
    /// Leave the live object unchanged, and do not prune it.
    Defer(Value),
    /// Prune the live object even if its identity is not recorded: its name shows that it is not a copy.
    Obsolete(Value),
}

/// Outcome of applying one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyOutcome {
    /// The live object already matched the desired object; no request was sent, or the request changed nothing.
    Unchanged,
    /// The object was created.
    Created,
    /// The object was updated.
    Updated,
    /// A previous object of this name is still being deleted; its deletion triggers the next reconcile.
    Terminating,
    /// The object belongs to another owner and was not modified.
    NotOwned(ObjectOwner),
    /// The cluster does not serve this kind.
    KindNotServed,
    /// The first list of this kind is not complete. Contains the error of the last attempt if it failed, for example
    /// because the operator may not list the kind.
    KindNotListed(Option<String>),
    /// The API server rejected the object. Contains the message from the API server.
    Rejected(String),
    /// The object was left unchanged: it is deferred, or an object that must be applied first is not in place.
    Deferred,
}

/// Outcome of applying one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyResult {
    /// Kind of the object.
    pub kind: String,
    /// Namespace and name of the object.
    pub key: NamespacedName,
    /// Outcome of the apply.
    pub outcome: ApplyOutcome,
}

/// Result of applying and pruning the objects of one owner.
#[derive(Debug, Default)]
pub struct Convergence {
    /// One result per desired object that is not obsolete, in the given order.
    pub results: Vec<ApplyResult>,
    /// `Kind namespace/name` of the deleted objects.
    pub pruned: Vec<String>,
    /// The objects that are not desired and were retained, because they have no recorded identity.
    pub unrecorded: Vec<(Kind, NamespacedName)>,
    /// The first rejection. A later retry may succeed, since quotas, permissions and webhooks change.
    pub rejection: Option<Error>,
}

/// Applies and deletes objects with one field manager.
#[derive(Clone)]
pub struct Applier {
    /// Client for the requests.
    pub(crate) client: Client,
    /// Caches of the live objects.
    pub(crate) stores: Stores,
    /// All kinds that are applied; pruning searches these kinds.
    pub(crate) managed_kinds: &'static [Kind],
    /// Field manager.
    pub(crate) manager: &'static str,
}

// === impl DesiredObject ===

impl DesiredObject {
    /// Returns the desired object.
    #[must_use]
    pub fn object(&self) -> &Value {
        match self {
            DesiredObject::Apply(object)
            | DesiredObject::ApplyFirst(object)
            | DesiredObject::Defer(object)
            | DesiredObject::Obsolete(object) => object,
        }
    }
}

impl From<Value> for DesiredObject {
    fn from(object: Value) -> DesiredObject {
        DesiredObject::Apply(object)
    }
}

// === impl ApplyOutcome ===

impl ApplyOutcome {
    /// Returns whether the live object matches the desired object.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        matches!(self, ApplyOutcome::Unchanged | ApplyOutcome::Created | ApplyOutcome::Updated)
    }
}

// === impl Convergence ===

impl Convergence {
    /// Returns whether any object was created, updated or deleted.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !self.pruned.is_empty()
            || self.results.iter().any(|result| matches!(result.outcome, ApplyOutcome::Created | ApplyOutcome::Updated))
    }
}

// === impl ApplyResult ===

impl ApplyResult {
    fn new(object: &Value, outcome: ApplyOutcome) -> ApplyResult {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        ApplyResult { kind, key: NamespacedName::from_object(object), outcome }
    }

    /// Returns whether this is the result of applying `object`.
    #[must_use]
    pub fn is_of(&self, object: &Value) -> bool {
        object["kind"] == *self.kind && self.key == NamespacedName::from_object(object)
    }

    /// Returns `Kind namespace/name` for messages.
    #[must_use]
    pub fn object(&self) -> String {
        format!("{} {}", self.kind, self.key)
    }
}

// === impl Applier ===

impl Applier {
    /// Returns an applier for objects of `managed_kinds` with the field manager `manager`.
    #[must_use]
    pub fn new(client: Client, stores: Stores, managed_kinds: &'static [Kind], manager: &'static str) -> Applier {
        Applier { client, stores, managed_kinds, manager }
    }

    /// Applies the `desired` objects of `owner` in the given order, then prunes objects that `owner` controls, that are not
    /// desired, and whose identity is recorded.
    ///
    /// # Errors
    /// [`Error::Deleted`] if an object has to be created and `owner`, an object of `owner_kind`, no longer exists. Otherwise
    /// returns the first request that failed because the API server was unreachable or an object changed in the meantime.
    /// Earlier writes are not rolled back; a retry applies the remaining objects. A rejection by the API server is an
    /// outcome of that object and stops only the objects that follow a [`DesiredObject::ApplyFirst`].
    pub async fn converge<D: Into<DesiredObject>>(
        &self,
        owner_kind: Kind,
        owner: &Value,
        desired: Vec<D>,
    ) -> Result<Convergence, Error> {
        let desired: Vec<DesiredObject> = desired.into_iter().map(Into::into).collect();
        if desired.iter().any(|desired| self.is_missing(desired)) {
            self.check_existence(owner_kind, owner).await?;
        }
        let mut convergence = Convergence::default();
        let (mut retained, mut identified, mut blocked_by) = (BTreeSet::new(), BTreeSet::new(), None);
        for desired in desired {
            let kind = self.managed_kind(desired.object());
            let key = kind.map(|kind| (kind, NamespacedName::from_object(desired.object())));
            if let DesiredObject::Obsolete(_) = desired {
                identified.extend(key);
                continue;
            }
            retained.extend(key);
            let result = match blocked_by {
                None => self.apply_desired(kind, owner, &desired, &mut convergence).await?,
                // Report kinds that are not served or not listed even while the object is blocked.
                Some(_) => {
                    let outcome = kind.map_or(Some(ApplyOutcome::KindNotServed), |kind| self.unlisted_outcome(kind));
                    ApplyResult::new(desired.object(), outcome.unwrap_or(ApplyOutcome::Deferred))
                }
            };
            if matches!(desired, DesiredObject::ApplyFirst(_)) && !result.outcome.is_applied() {
                blocked_by.get_or_insert(result.outcome.clone());
            }
            convergence.results.push(result);
        }
        // The PodGroup of a gang must be updated before members of the gang are deleted.
        if matches!(blocked_by, Some(ApplyOutcome::Rejected(_))) {
            return Ok(convergence);
        }
        let obsolete = obsolete_objects(&self.stores, self.managed_kinds, owner, &retained, &identified);
        convergence.unrecorded = obsolete.unrecorded;
        for candidate in obsolete.candidates {
            self.delete(&candidate).await?;
            convergence.pruned.push(candidate.object);
        }
        Ok(convergence)
    }

    /// Returns whether an object has to be created as far as the caches know.
    fn is_missing(&self, desired: &DesiredObject) -> bool {
        let (DesiredObject::Apply(object) | DesiredObject::ApplyFirst(object)) = desired else { return false };
        self.managed_kind(object).is_some_and(|kind| {
            self.unlisted_outcome(kind).is_none()
                && self.stores.get(kind, &NamespacedName::from_object(object)).is_none()
        })
    }

    /// Checks that an object of the cache still exists. Garbage collection deletes the objects of a deleted owner, and as
    /// long as the cache contains the owner, they would be created again.
    async fn check_existence(&self, kind: Kind, cached: &Value) -> Result<(), Error> {
        let uid = |object: &Value| object["metadata"]["uid"].clone();
        match self.read_listed(kind, cached).await? {
            Some(live) if uid(&live) == uid(cached) => Ok(()),
            _ => Err(Error::Deleted { object: kind_and_name(cached) }),
        }
    }

    pub(crate) fn managed_kind(&self, object: &Value) -> Option<Kind> {
        let matches = |kind: &&Kind| object["kind"] == kind.kind && object["apiVersion"] == kind.api_version();
        self.managed_kinds.iter().find(matches).copied()
    }

    async fn apply_desired(
        &self,
        kind: Option<Kind>,
        owner: &Value,
        desired: &DesiredObject,
        convergence: &mut Convergence,
    ) -> Result<ApplyResult, Error> {
        let mut object = desired.object().clone();
        object["metadata"]["ownerReferences"] = json!([controller_reference(owner)]);
        let outcome = match (kind, desired) {
            (None, _) => ApplyOutcome::KindNotServed,
            (_, DesiredObject::Defer(_)) => ApplyOutcome::Deferred,
            (Some(kind), _) => {
                self.apply(kind, owner, &object).await.or_else(|error| record_rejection(error, convergence))?
            }
        };
        Ok(ApplyResult::new(&object, outcome))
    }

    async fn apply(&self, kind: Kind, owner: &Value, object: &Value) -> Result<ApplyOutcome, Error> {
        self.apply_unless_owned(kind, object, |live| other_owner(live, Some(owner), self.manager)).await
    }

    /// Applies `object` unless `other_owner` returns an owner of the live object.
    pub(crate) async fn apply_unless_owned(
        &self,
        kind: Kind,
        object: &Value,
        other_owner: impl Fn(&Value) -> Option<ObjectOwner>,
    ) -> Result<ApplyOutcome, Error> {
        if let Some(outcome) = self.unlisted_outcome(kind) {
            return Ok(outcome);
        }
        let object = &with_identity(object);
        let mut live = match self.stores.get(kind, &NamespacedName::from_object(object)) {
            None => self.read_unselected(kind, object).await?,
            cached => cached,
        };
        for _ in 1..MAX_ATTEMPTS {
            match self.try_apply(kind, live.as_deref(), object, &other_owner).await {
                Err(error) if error.is_conflict() => live = self.read_listed(kind, object).await?,
                result => return result,
            }
        }
        self.try_apply(kind, live.as_deref(), object, &other_owner).await
    }

    /// Applies `object` over the version `live`, or creates it if `live` is `None`.
    async fn try_apply(
        &self,
        kind: Kind,
        live: Option<&Value>,
        object: &Value,
        other_owner: &impl Fn(&Value) -> Option<ObjectOwner>,
    ) -> Result<ApplyOutcome, Error> {
        if let Some(outcome) = live.and_then(|live| self.outcome_without_request(live, object, other_owner)) {
            return Ok(outcome);
        }
        let api = kind.api(self.client.clone(), metadata_field(object, "namespace"));
        let params = PatchParams::apply(self.manager);
        // Without force, a new object takes no field from an object that another client created concurrently.
        let params = if live.is_some() { params.force() } else { params };
        let body = with_precondition(object, live);
        let response = api.patch(metadata_field(object, "name"), &params, &Patch::Apply(&body)).await;
        let response = response.map_err(|source| Error::Request {
            action: "apply",
            object: kind_and_name(object),
            source: Box::new(source),
        })?;
        let applied = serde_json::to_value(response).unwrap_or_default();
        let version = |object: &Value| metadata_field(object, "resourceVersion").to_owned();
        let outcome = match live {
            Some(live) if version(live) == version(&applied) => ApplyOutcome::Unchanged,
            Some(_) => ApplyOutcome::Updated,
            None => ApplyOutcome::Created,
        };
        self.observe_response(kind, applied, object);
        Ok(outcome)
    }

    /// Returns the outcome for objects of a kind that is not listed: without the live objects, it is unknown which of them
    /// may be written. Returns `None` for a listed kind.
    pub(crate) fn unlisted_outcome(&self, kind: Kind) -> Option<ApplyOutcome> {
        match list_state(&self.stores, kind) {
            ListState::Listed => None,
            ListState::NotListed(error) => Some(ApplyOutcome::KindNotListed(error)),
            ListState::NotServed => Some(ApplyOutcome::KindNotServed),
        }
    }

    /// Reads an object that the cache does not contain because its labels do not match the selector of `kind`. It may
    /// belong to another owner.
    pub(crate) async fn read_unselected(&self, kind: Kind, object: &Value) -> Result<Option<Arc<Value>>, Error> {
        if kind.label_selector.is_empty() {
            return Ok(None);
        }
        let (namespace, name) = (metadata_field(object, "namespace"), metadata_field(object, "name"));
        Ok(read_object(&self.client, kind, namespace, name).await?.map(Arc::new))
    }

    /// Reads an object after a conflict. It lists, because watched kinds require permission to list them, but not to get
    /// their objects.
    async fn read_listed(&self, kind: Kind, object: &Value) -> Result<Option<Arc<Value>>, Error> {
        let (namespace, name) = (metadata_field(object, "namespace"), metadata_field(object, "name"));
        let params = ListParams::default().fields(&format!("metadata.name={name}"));
        let list = kind.api(self.client.clone(), namespace).list(&params).await.map_err(|source| Error::Request {
            action: "read",
            object: kind_and_name(object),
            source: Box::new(source),
        })?;
        Ok(list.items.into_iter().next().map(|found| {
            let mut found = serde_json::to_value(found).unwrap_or_default();
            drop_unused_fields(&mut found, kind, self.manager, CachedFields::Reduced);
            Arc::new(found)
        }))
    }

    /// Returns the outcome if it can be determined without a request, or `None` if the object must be applied.
    pub(crate) fn outcome_without_request(
        &self,
        live: &Value,
        object: &Value,
        other_owner: impl Fn(&Value) -> Option<ObjectOwner>,
    ) -> Option<ApplyOutcome> {
        if let Some(other) = other_owner(live) {
            return Some(ApplyOutcome::NotOwned(other));
        }
        if is_terminating(live) {
            return Some(ApplyOutcome::Terminating);
        }
        self.is_up_to_date(live, object).then_some(ApplyOutcome::Unchanged)
    }

    /// Updates the caches with the object that the API server returned for the apply of `desired`.
    fn observe_response(&self, kind: Kind, applied: Value, desired: &Value) {
        if !is_applied(&applied, desired, self.manager) {
            self.stores.last_applied().record(&applied, desired);
        }
        self.stores.observe_write(kind, applied);
    }

    /// Returns whether applying `desired` to `live` would change nothing.
    fn is_up_to_date(&self, live: &Value, desired: &Value) -> bool {
        is_applied(live, desired, self.manager)
            || (is_applied_ignoring_extra_fields(live, desired, self.manager)
                && self.stores.last_applied().contains(live, desired))
    }

    pub(crate) async fn delete(&self, candidate: &PruneCandidate) -> Result<(), Error> {
        let preconditions = Preconditions {
            uid: Some(candidate.uid.clone()),
            resource_version: Some(candidate.resource_version.clone()),
        };
        let params = DeleteParams::background().preconditions(preconditions);
        let api = candidate.kind.api(self.client.clone(), &candidate.key.namespace);
        match api.delete(&candidate.key.name, &params).await.map_err(|source| Error::Request {
            action: "delete",
            object: candidate.object.clone(),
            source: Box::new(source),
        }) {
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}

/// Turns a rejection into an outcome and records the first one in `convergence`; returns other errors.
fn record_rejection(error: Error, convergence: &mut Convergence) -> Result<ApplyOutcome, Error> {
    let message = error.rejection().ok_or(()).map(str::to_owned);
    match message {
        Ok(message) => {
            convergence.rejection.get_or_insert(error);
            Ok(ApplyOutcome::Rejected(message))
        }
        Err(()) => Err(error),
    }
}
