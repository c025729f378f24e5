//! Applies the accelerator classes of ConfigMap `accelerator-classes-base` in the operator's namespace.

use std::sync::PoisonError;

use cluster::{ApplyOutcome, Error, NamespacedName, Transition, metadata_field};
use decide::{BaseSet, Provenance, is_unmodified, provenance};
use serde_json::Value;

use crate::controller::Operator;
use crate::kinds::{ACCELERATOR_CLASS, BASE_SET_CONFIG_MAP};

/// Name of the ConfigMap.
pub(crate) const CONFIG_MAP_NAME: &str = "accelerator-classes-base";

impl Operator {
    /// Applies the classes of the ConfigMap, deletes those that it no longer contains, and reports errors as events. A
    /// class that a user created or edited is not modified.
    pub(crate) async fn reconcile_base_set(&self) -> Result<(), Error> {
        if !self.inventory.has_synced(&[ACCELERATOR_CLASS, BASE_SET_CONFIG_MAP]) {
            return Ok(());
        }
        let key = NamespacedName::new(&self.namespace, CONFIG_MAP_NAME);
        let config_map = self.stores.get(BASE_SET_CONFIG_MAP, &key);
        let base_set = config_map.as_deref().map(BaseSet::from_config_map).unwrap_or_default();
        let own_provenance = Provenance::ConfigMap(format!("{}/{}", key.namespace, key.name));
        let mut errors: Vec<String> = base_set.errors.iter().map(error_with_hint).collect();
        for class in &base_set.classes {
            errors.extend(self.apply_base_class(class, &own_provenance).await?);
        }
        // An invalid document may describe an existing class, so nothing is deleted.
        if base_set.errors.is_empty() {
            self.delete_removed_classes(&base_set.classes, &own_provenance).await?;
        }
        if let Some(config_map) = config_map {
            self.report_errors(&config_map, &errors).await;
        }
        Ok(())
    }

    /// Applies one class; returns the error message if that fails.
    async fn apply_base_class(&self, class: &Value, own_provenance: &Provenance) -> Result<Option<String>, Error> {
        let name = metadata_field(class, "name");
        let live = self.stores.get(ACCELERATOR_CLASS, &NamespacedName::from_object(class));
        if live.as_deref().is_some_and(|live| provenance(live).as_ref() != Some(own_provenance)) {
            return Ok(Some(format!(
                "AcceleratorClass {name} already exists and was not created from this ConfigMap; it was not modified"
            )));
        }
        if live.as_deref().is_some_and(|live| !is_unmodified(live)) {
            return Ok(None);
        }
        Ok(match self.apply_class(class).await? {
            ApplyOutcome::Rejected(error) => Some(format!("Failed to apply AcceleratorClass {name}: {error}")),
            _ => None,
        })
    }

    async fn delete_removed_classes(&self, base_classes: &[Value], own_provenance: &Provenance) -> Result<(), Error> {
        for class in self.stores.list(ACCELERATOR_CLASS) {
            let is_managed = provenance(&class).as_ref() == Some(own_provenance) && is_unmodified(&class);
            if is_managed
                && !base_classes
                    .iter()
                    .any(|base_class| metadata_field(base_class, "name") == metadata_field(&class, "name"))
            {
                self.applier.delete_unowned(ACCELERATOR_CLASS, &class).await?;
            }
        }
        Ok(())
    }

    /// Sends one event per error, once per change of the errors.
    async fn report_errors(&self, config_map: &Value, errors: &[String]) {
        let current_errors = (metadata_field(config_map, "uid").to_owned(), errors.to_vec());
        {
            let mut reported = self.reported_base_set_errors.lock().unwrap_or_else(PoisonError::into_inner);
            if reported.as_ref() == Some(&current_errors) {
                return;
            }
            *reported = Some(current_errors);
        }
        for message in errors {
            let transition =
                Transition { warning: true, reason: crate::code::INVALID_DOCUMENT.into(), message: message.clone() };
            self.enqueue_event(config_map, &transition);
        }
    }
}

fn error_with_hint(error: &api::ManifestError) -> String {
    match &error.hint {
        Some(hint) => format!("{error}; hint: {hint}"),
        None => error.to_string(),
    }
}
