//! Predicts what [`Applier::converge`](crate::Applier::converge) would change, without writing.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::apply::{Applier, ApplyOutcome, DesiredObject};
use crate::integrations::CUSTOM_RESOURCE_DEFINITION;
use crate::namespaced_name::NamespacedName;
use crate::object::{controller_reference, metadata_field};
use crate::owner::{other_owner, with_identity};
use crate::predicted_apply::{ObjectSchema, predict_apply};
use crate::prune::obsolete_objects;
use crate::{Error, Kind};

/// What would happen to one object.
#[derive(Clone, Debug, PartialEq)]
pub enum PreviewOutcome {
    /// Nothing.
    Unchanged,
    /// It would be created.
    Created,
    /// It would be updated.
    Updated,
    /// It would be deleted.
    Deleted,
    /// It is desired, but would not be applied.
    NotApplied(ApplyOutcome),
}

/// The prediction for one object.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectPreview {
    /// API version of the object.
    pub api_version: String,
    /// Kind of the object.
    pub kind: String,
    /// Namespace and name.
    pub key: NamespacedName,
    /// What would happen.
    pub outcome: PreviewOutcome,
    /// The live object, if it exists.
    pub live: Option<Value>,
    /// The object afterwards, without defaults that the API server sets in new built-in objects; `None` if it would not exist.
    pub planned: Option<Value>,
}

// === impl ObjectPreview ===

impl ObjectPreview {
    /// Returns the prediction for an object that exists as `live` before and as `planned` after a write.
    #[must_use]
    pub fn new(live: Option<Value>, planned: Option<Value>) -> ObjectPreview {
        let outcome = match (&live, &planned) {
            (None, Some(_)) => PreviewOutcome::Created,
            (Some(_), None) => PreviewOutcome::Deleted,
            (live, planned) if is_equal_object(live.as_ref(), planned.as_ref()) => PreviewOutcome::Unchanged,
            _ => PreviewOutcome::Updated,
        };
        let object = planned.as_ref().or(live.as_ref()).unwrap_or(&Value::Null);
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let (api_version, kind, key) = (text("apiVersion"), text("kind"), NamespacedName::from_object(object));
        ObjectPreview { api_version, kind, key, outcome, live, planned }
    }

    fn not_applied(object: &Value, outcome: ApplyOutcome) -> ObjectPreview {
        let preview = ObjectPreview::new(Some(object.clone()), None);
        ObjectPreview { outcome: PreviewOutcome::NotApplied(outcome), live: None, ..preview }
    }
}

/// Returns whether the objects differ at most in `managedFields`.
fn is_equal_object(left: Option<&Value>, right: Option<&Value>) -> bool {
    let content = |object: Option<&Value>| {
        let mut object = object.cloned().unwrap_or_default();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        object
    };
    left == right || content(left) == content(right)
}

// === impl Applier ===

impl Applier {
    /// Predicts what `converge` would change in the objects of `owner`, with one result per desired object that is not obsolete
    /// in the given order, and then one per object to delete. The stores must be [complete](crate::Stores::with_complete_objects).
    ///
    /// # Errors
    /// An object that the stores do not contain could not be read, for a reason other than missing permissions.
    pub async fn preview(&self, owner: &Value, desired: &[DesiredObject]) -> Result<Vec<ObjectPreview>, Error> {
        let (mut previews, mut retained, mut identified) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
        for desired in desired {
            let kind = self.managed_kind(desired.object());
            let key = kind.map(|kind| (kind, NamespacedName::from_object(desired.object())));
            if let DesiredObject::Obsolete(_) = desired {
                identified.extend(key);
                continue;
            }
            retained.extend(key);
            previews.push(match (kind, desired) {
                (None, _) => ObjectPreview::not_applied(desired.object(), ApplyOutcome::KindNotServed),
                (_, DesiredObject::Defer(object)) => ObjectPreview::not_applied(object, ApplyOutcome::Deferred),
                (Some(kind), _) => self.preview_object(kind, owner, desired.object()).await?,
            });
        }
        let obsolete = obsolete_objects(&self.stores, self.managed_kinds, owner, &retained, &identified);
        for candidate in obsolete.candidates {
            let live = self.stores.get(candidate.kind, &candidate.key);
            previews.push(ObjectPreview::new(live.map(|live| (*live).clone()), None));
        }
        Ok(previews)
    }

    async fn preview_object(&self, kind: Kind, owner: &Value, object: &Value) -> Result<ObjectPreview, Error> {
        if let Some(outcome) = self.unlisted_outcome(kind) {
            return Ok(ObjectPreview::not_applied(object, outcome));
        }
        let mut object = with_identity(object);
        // A service that does not exist yet has no UID.
        if !metadata_field(owner, "uid").is_empty() {
            object["metadata"]["ownerReferences"] = json!([controller_reference(owner)]);
        }
        let live = match self.stores.get(kind, &NamespacedName::from_object(&object)) {
            None => match self.read_unselected(kind, &object).await {
                Err(error) if error.rejection().is_some() => None,
                live => live?,
            },
            cached => cached,
        };
        let is_other_owner = |live: &Value| other_owner(live, Some(owner), self.manager);
        let is_applied = [ApplyOutcome::Unchanged, ApplyOutcome::Updated];
        let outcome = live.as_deref().and_then(|live| self.outcome_without_request(live, &object, is_other_owner));
        if let Some(outcome) = outcome.filter(|outcome| !is_applied.contains(outcome)) {
            return Ok(ObjectPreview::not_applied(&object, outcome));
        }
        let definition = self.stores.get(CUSTOM_RESOURCE_DEFINITION, &NamespacedName::new("", &kind.group_resource()));
        let schema = ObjectSchema::new(kind, definition.as_deref());
        Ok(match predict_apply(&schema, live.as_deref(), &object, self.manager) {
            Ok(planned) => ObjectPreview::new(live.map(|live| (*live).clone()), Some(planned)),
            Err(status) => ObjectPreview::not_applied(&object, ApplyOutcome::Rejected(status.message)),
        })
    }
}
