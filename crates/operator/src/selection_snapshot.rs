//! Snapshot of the runtimes, models and classes that services select from, read from the stores once per change and
//! shared by all reconciles.

use std::sync::{Arc, MutexGuard, PoisonError};

use api::Document;
use cluster::{Error, EventPolicy, Kind, NamespacedName, Transition, is_served, metadata_field};
use decide::{Warning, WarningSubject};
use plan::{AutoscalerSupport, ServicePlan, Snapshot};
use serde_json::Value;

use crate::condition_reason::ConditionReason;
use crate::controller::Operator;
use crate::kinds::{
    ACCELERATOR_CLASS, BASE_MODEL, BUILTIN, CLUSTER_BASE_MODEL, CLUSTER_SERVING_RUNTIME, NODE, POD, SCALED_OBJECT,
    SERVING_RUNTIME,
};
use crate::pod_group_schema;

/// Custom resources that decisions depend on.
pub(crate) const SELECTION_KINDS: [Kind; 5] =
    [CLUSTER_SERVING_RUNTIME, SERVING_RUNTIME, CLUSTER_BASE_MODEL, BASE_MODEL, ACCELERATOR_CLASS];

/// Objects that services select from.
#[derive(Clone, Default)]
pub(crate) struct SelectionSnapshot {
    pub(crate) snapshot: Snapshot,
    /// Invalid objects, which are excluded so that they do not affect other services.
    pub(crate) invalid_objects: Vec<InvalidObject>,
}

/// Cache of the latest snapshot. Runtimes, models and classes are read again if one of them changes; the inventory of
/// nodes and Pods is replaced separately.
#[derive(Default)]
pub(crate) struct SnapshotCache {
    snapshot: Option<Arc<SelectionSnapshot>>,
    /// Whether the snapshot contains the current inventory.
    has_inventory: bool,
    /// Incremented with every change; a decision is valid within one epoch.
    epoch: u64,
}

/// Runtime, model or class that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InvalidObject {
    pub(crate) kind: Kind,
    pub(crate) key: NamespacedName,
    /// The invalid field and its error.
    pub(crate) error: String,
}

// === impl InvalidObject ===

impl InvalidObject {
    /// Formats a message: `Kind namespace/name is invalid and is ignored: …`.
    pub(crate) fn message(&self) -> String {
        let NamespacedName { namespace, name } = &self.key;
        let name = if namespace.is_empty() { name.clone() } else { format!("{namespace}/{name}") };
        format!("{} {name} is invalid and is ignored: {}", self.kind.kind, self.error)
    }

    /// Returns the object as the subject of a warning.
    fn subject(&self) -> WarningSubject {
        let NamespacedName { namespace, name } = self.key.clone();
        WarningSubject::Object { kind: self.kind.kind, namespace, name }
    }

    /// Returns whether the service could select the object if it were valid.
    fn is_visible_to(&self, service: &Value) -> bool {
        !self.kind.namespaced || self.key.namespace == metadata_field(service, "namespace")
    }

    fn has_kind_and_name(&self, kinds: [Kind; 2], name: &Value) -> bool {
        kinds.contains(&self.kind) && *name == *self.key.name
    }
}

// === impl SelectionSnapshot ===

impl SelectionSnapshot {
    /// Adds the invalid objects to the plan of a service that they affect: as the reason if the service names the
    /// object, otherwise as a warning if the object could have been selected.
    pub(crate) fn report_invalid_objects(&self, service: &Value, plan: &mut ServicePlan) {
        for object in self.invalid_objects.iter().filter(|object| object.is_visible_to(service)) {
            let spec = &service["spec"];
            let (not_found_reason, reason) = match object.kind {
                _ if object.has_kind_and_name([SERVING_RUNTIME, CLUSTER_SERVING_RUNTIME], &spec["runtime"]["name"]) => {
                    ("RuntimeNotFound", ConditionReason::RuntimeUnreadable)
                }
                _ if object.has_kind_and_name([BASE_MODEL, CLUSTER_BASE_MODEL], &spec["model"]["name"]) => {
                    ("ModelNotFound", ConditionReason::ModelUnreadable)
                }
                BASE_MODEL | CLUSTER_BASE_MODEL => continue,
                _ => ("", ConditionReason::LeftOut),
            };
            if plan.reason == not_found_reason {
                plan.reason = reason.as_str().to_owned();
                plan.message = object.message();
            }
            add_warning(&mut plan.warnings, object);
        }
    }
}

/// Adds a warning about an invalid object unless the plan already contains one.
fn add_warning(warnings: &mut Vec<Warning>, object: &InvalidObject) {
    let code = match object.kind {
        SERVING_RUNTIME | CLUSTER_SERVING_RUNTIME => decide::code::warning::INVALID_RUNTIME,
        BASE_MODEL | CLUSTER_BASE_MODEL => decide::code::warning::INVALID_MODEL,
        _ => decide::code::warning::INVALID_CLASS,
    };
    let subject = object.subject();
    if warnings.iter().all(|warning| warning.subject.as_ref() != Some(&subject)) {
        warnings.push(Warning::new(code, object.message()).with_subject(subject));
    }
}

impl Operator {
    /// Returns the current snapshot and its epoch.
    pub(crate) fn selection_snapshot(&self) -> (Arc<SelectionSnapshot>, u64) {
        let mut cache = self.lock_snapshot_cache();
        let snapshot = match cache.snapshot.take() {
            Some(snapshot) if cache.has_inventory => snapshot,
            Some(mut snapshot) => {
                Arc::make_mut(&mut snapshot).snapshot.inventory = self.inventory.current();
                snapshot
            }
            None => Arc::new(self.read_snapshot()),
        };
        cache.has_inventory = true;
        (Arc::clone(cache.snapshot.insert(snapshot)), cache.epoch)
    }

    /// Drops the snapshot after a runtime, model or class changed.
    pub(crate) fn invalidate_snapshot(&self) {
        let mut cache = self.lock_snapshot_cache();
        cache.snapshot = None;
        cache.epoch += 1;
    }

    /// Releases the snapshot's inventory before a node or Pod changes, so that the inventory is updated in place
    /// instead of being copied.
    pub(crate) fn release_inventory(&self) {
        let mut cache = self.lock_snapshot_cache();
        cache.epoch += 1;
        if std::mem::take(&mut cache.has_inventory)
            && let Some(snapshot) = &mut cache.snapshot
        {
            Arc::make_mut(snapshot).snapshot.inventory = Arc::default();
        }
    }

    fn lock_snapshot_cache(&self) -> MutexGuard<'_, SnapshotCache> {
        self.snapshot_cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_snapshot(&self) -> SelectionSnapshot {
        let has_keda = is_served(&self.stores, SCALED_OBJECT);
        let snapshot = Snapshot {
            inventory: self.inventory.current(),
            accelerator_aware: self.accelerator_aware,
            autoscaler_support: if has_keda { AutoscalerSupport::HpaAndKeda } else { AutoscalerSupport::HpaOnly },
            pod_group_schema: pod_group_schema::installed_schema(&self.stores),
            ..Snapshot::default()
        };
        let mut snapshot = SelectionSnapshot { snapshot, invalid_objects: Vec::new() };
        for kind in SELECTION_KINDS {
            for object in self.stores.list(kind) {
                if let Err(error) = add_object(&mut snapshot.snapshot, &document(kind, &object)) {
                    let key = NamespacedName::from_object(&object);
                    snapshot.invalid_objects.push(InvalidObject { kind, key, error });
                }
            }
        }
        snapshot
    }

    /// Returns the kinds that decisions depend on and that are not listed yet, for example for lack of permissions.
    pub(crate) fn unlisted_selection_kinds(&self) -> Vec<String> {
        let builtin = BUILTIN.iter().filter(|kind| [NODE, POD].contains(kind)).copied();
        let custom = SELECTION_KINDS.into_iter().filter(|kind| is_served(&self.stores, *kind));
        // The inventory observes the initial list later than the stores do.
        let is_in_inventory = |kind: Kind| {
            !self.accelerator_aware
                || ![NODE, POD, ACCELERATOR_CLASS].contains(&kind)
                || self.inventory.has_synced(&[kind])
        };
        let unlisted = builtin.chain(custom).filter(|kind| !(self.stores.has_synced(*kind) && is_in_inventory(*kind)));
        unlisted.map(|kind| kind.group_resource()).collect()
    }

    /// Publishes an event for every object that has become invalid or valid again.
    pub(crate) async fn report_invalid_objects(&self) -> Result<(), Error> {
        let new: Vec<InvalidObject> = self.selection_snapshot().0.invalid_objects.clone();
        let old =
            std::mem::replace(&mut *self.invalid_objects.lock().unwrap_or_else(PoisonError::into_inner), new.clone());
        let recovered = old.iter().filter(|old| new.iter().all(|new| (new.kind, &new.key) != (old.kind, &old.key)));
        let invalid = new
            .iter()
            .filter(|new| !old.contains(new))
            .map(|object| (object, ConditionReason::LeftOut, object.message()));
        let recovered = recovered.map(|object| {
            let message = "The object is valid again and takes part in selection".to_owned();
            (object, ConditionReason::Readable, message)
        });
        for (invalid_object, reason, message) in invalid.chain(recovered) {
            // Invalid classes are reported in their conditions.
            if invalid_object.kind == ACCELERATOR_CLASS {
                continue;
            }
            let Some(object) = self.stores.get(invalid_object.kind, &invalid_object.key) else { continue };
            let warning = reason.event_policy() == EventPolicy::Warning;
            let transition = Transition { warning, reason: reason.as_str().to_owned(), message };
            self.event_recorder.publish_once(&object, "Read", &transition).await?;
        }
        Ok(())
    }
}

/// Adds one object to the snapshot.
///
/// # Errors
/// Returns the invalid field and its error.
fn add_object(snapshot: &mut Snapshot, document: &Document) -> Result<(), String> {
    let message = |error: api::ManifestError| match &error.path {
        Some(path) => format!("{path}: {}", error.cause),
        None => error.cause.clone(),
    };
    snapshot.add_supply(document).map_err(message)?;
    let added = snapshot.runtimes.iter().rev().find(|runtime| document.name() == runtime.name);
    match added.filter(|_| document.kind().ends_with("ServingRuntime")) {
        Some(runtime) => runtime.parsed().map(drop).map_err(ToString::to_string),
        None => Ok(()),
    }
}

/// Wraps an object as a manifest document.
pub(crate) fn document(kind: Kind, object: &Value) -> Document {
    Document { source: kind.group_resource(), index: 1, value: object.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    fn snapshot(kind: Kind, namespace: &str, name: &str) -> SelectionSnapshot {
        let key = NamespacedName::new(namespace, name);
        let invalid_object = InvalidObject { kind, key, error: "spec.x: not a number".to_owned() };
        SelectionSnapshot { invalid_objects: vec![invalid_object], ..SelectionSnapshot::default() }
    }

    /// Returns reason and warnings of a plan after invalid objects were reported.
    fn reason_and_warnings(snapshot: &SelectionSnapshot, reason: &str) -> (String, Vec<String>) {
        let service = json!({"metadata": {"namespace": "n", "name": "s"}, "spec": {"model": {"name": "m"}, "runtime": {"name": "r"}}});
        let mut plan = ServicePlan { reason: reason.to_owned(), ..ServicePlan::default() };
        snapshot.report_invalid_objects(&service, &mut plan);
        let codes = plan.warnings.into_iter().map(|warning| warning.code).collect();
        (plan.reason, codes)
    }

    #[test]
    fn named_invalid_object_sets_the_reason_and_others_add_warnings() {
        let expected = |reason: &str, codes: &[&str]| {
            (reason.to_owned(), codes.iter().map(|code| (*code).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(
            reason_and_warnings(&snapshot(CLUSTER_SERVING_RUNTIME, "", "r"), "RuntimeNotFound"),
            expected("RuntimeUnreadable", &["InvalidRuntime"])
        );
        assert_eq!(
            reason_and_warnings(&snapshot(CLUSTER_SERVING_RUNTIME, "", "other"), "Selected"),
            expected("Selected", &["InvalidRuntime"])
        );
        assert_eq!(
            reason_and_warnings(&snapshot(BASE_MODEL, "n", "m"), "ModelNotFound"),
            expected("ModelUnreadable", &["InvalidModel"])
        );
        assert_eq!(reason_and_warnings(&snapshot(BASE_MODEL, "n", "other"), "Selected"), expected("Selected", &[]));
        assert_eq!(
            reason_and_warnings(&snapshot(SERVING_RUNTIME, "elsewhere", "r"), "RuntimeNotFound"),
            expected("RuntimeNotFound", &[])
        );
    }

    #[rstest]
    #[case::cluster_scoped(CLUSTER_SERVING_RUNTIME, "", true)]
    #[case::namespaced(SERVING_RUNTIME, "n", true)]
    #[case::same_name_in_other_scope(SERVING_RUNTIME, "n", false)]
    fn warning_of_the_plan_is_not_repeated(#[case] kind: Kind, #[case] namespace: &str, #[case] is_same: bool) {
        let invalid = &snapshot(kind, namespace, "r").invalid_objects[0];
        let other = &snapshot(CLUSTER_SERVING_RUNTIME, "", "r").invalid_objects[0];
        let of_plan = if is_same { invalid } else { other };
        let warning = Warning::new(decide::code::warning::INVALID_RUNTIME, "Runtime r is invalid and ignored: x");
        let mut warnings = vec![warning.with_subject(of_plan.subject())];
        add_warning(&mut warnings, invalid);
        assert_eq!(warnings.len(), if is_same { 1 } else { 2 });
    }
}
