//! Applies the accelerator classes of ConfigMap `accelerator-classes-base` in the operator's namespace.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cluster::{ApplyOutcome, Error, EventPolicy, NamespacedName, Transition, metadata_field};
use decide::{BaseSet, BaseSetError, Provenance, is_unmodified, provenance};
use serde_json::Value;

use crate::condition_reason::ConditionReason;
use crate::context::Context;
use crate::kinds::{ACCELERATOR_CLASS, BASE_SET_CONFIG_MAP};
use crate::managed_class::{apply_class, is_copy_of_generated, is_generated_from};

/// Name of the ConfigMap.
pub(crate) const CONFIG_MAP_NAME: &str = "accelerator-classes-base";

/// Reconciles the base set.
#[derive(Debug, Default)]
pub(crate) struct BaseSetReconciler {
    /// Last reported errors, with the UID of the ConfigMap.
    reported_errors: Mutex<Option<(String, Vec<String>)>>,
}

// === impl BaseSetReconciler ===

impl BaseSetReconciler {
    /// Applies the classes of the ConfigMap, deletes those that it no longer contains, and reports errors as events. A
    /// class that a user created, copied or edited is not modified.
    pub(crate) async fn reconcile(&self, context: &Context) -> Result<(), Error> {
        if !context.state.inventory.has_synced(&[ACCELERATOR_CLASS, BASE_SET_CONFIG_MAP]) {
            return Ok(());
        }
        let key = NamespacedName::new(&context.namespace, CONFIG_MAP_NAME);
        let config_map = context.stores.get(BASE_SET_CONFIG_MAP, &key);
        let base_set = config_map.as_deref().map(BaseSet::from_config_map).unwrap_or_default();
        let own_provenance = Provenance::ConfigMap(format!("{}/{}", key.namespace, key.name));
        let mut errors: Vec<String> = base_set.errors.iter().map(error_with_hint).collect();
        for class in &base_set.classes {
            errors.extend(apply_base_class(context, class, &own_provenance).await?);
        }
        // An invalid document, or one below a misspelled key, may describe an existing class, so nothing is deleted.
        if base_set.errors.is_empty() {
            delete_removed_classes(context, &base_set.classes, &own_provenance).await?;
        }
        match config_map {
            Some(config_map) => self.report_errors(context, &config_map, errors).await,
            None => Ok(()),
        }
    }

    /// Publishes one event per error, once per change of the errors.
    async fn report_errors(&self, context: &Context, config_map: &Value, errors: Vec<String>) -> Result<(), Error> {
        let current_errors = (metadata_field(config_map, "uid").to_owned(), errors);
        if self.reported_errors().as_ref() == Some(&current_errors) {
            return Ok(());
        }
        for message in &current_errors.1 {
            let reason = ConditionReason::InvalidDocument;
            let transition = Transition {
                warning: reason.event_policy() == EventPolicy::Warning,
                reason: reason.as_str().to_owned(),
                message: message.clone(),
            };
            context.event_publisher.publish_once(config_map, "Reconcile", &transition).await?;
        }
        *self.reported_errors() = Some(current_errors);
        Ok(())
    }

    fn reported_errors(&self) -> MutexGuard<'_, Option<(String, Vec<String>)>> {
        self.reported_errors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Applies one class; returns the error message if that fails.
async fn apply_base_class(
    context: &Context,
    class: &Value,
    own_provenance: &Provenance,
) -> Result<Option<String>, Error> {
    let name = metadata_field(class, "name");
    let live = context.stores.get(ACCELERATOR_CLASS, &NamespacedName::from_object(class));
    let has_own_provenance = |live: &Value| provenance(live).as_ref() == Some(own_provenance);
    // The status of a copy reports that it is not owned.
    if live
        .as_deref()
        .is_some_and(|live| has_own_provenance(live) && (!is_unmodified(live) || is_copy_of_generated(live)))
    {
        return Ok(None);
    }
    Ok(match apply_class(context, class).await? {
        ApplyOutcome::Rejected(error) => Some(format!("Failed to apply AcceleratorClass {name}: {error}")),
        ApplyOutcome::NotOwned(_) => Some(format!(
            "AcceleratorClass {name} already exists and was not created from this ConfigMap; it was not modified"
        )),
        _ => None,
    })
}

async fn delete_removed_classes(
    context: &Context,
    base_classes: &[Value],
    own_provenance: &Provenance,
) -> Result<(), Error> {
    for class in context.stores.list(ACCELERATOR_CLASS) {
        if is_generated_from(&class, own_provenance)
            && !base_classes
                .iter()
                .any(|base_class| metadata_field(base_class, "name") == metadata_field(&class, "name"))
        {
            context.applier.delete_unowned(ACCELERATOR_CLASS, &class).await?;
        }
    }
    Ok(())
}

fn error_with_hint(error: &BaseSetError) -> String {
    match error.hint() {
        Some(hint) => format!("{error}; hint: {hint}"),
        None => error.to_string(),
    }
}
