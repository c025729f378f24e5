//! A launcher Pod as the controller observes it: a provider that runs several engines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::dual_pods;
use serde_json::Value;

use crate::instance::{EngineId, Instance, InstanceRecord, InstanceRecords};
use crate::provider::Provider;

/// A launcher Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launcher {
    /// The Pod. Its identity is that of the launcher; it has no accelerators and no port of its own.
    pub provider: Provider,
    /// How many instances it can have.
    pub max_instances: usize,
    /// Engines that it may run.
    pub records: Arc<InstanceRecords>,
    /// Id of the instance that serves the requester to which the launcher is bound.
    pub bound_instance: Option<String>,
}

// === impl Launcher ===

impl Launcher {
    /// Reads a provider Pod; `None` in direct mode.
    #[must_use]
    pub fn from_pod(pod: &Value) -> Option<Launcher> {
        let annotation = |key: &str| pod["metadata"]["annotations"].get(key)?.as_str();
        let records: InstanceRecords = serde_json::from_str(annotation(dual_pods::INSTANCES)?).unwrap_or_default();
        let provider = Provider { accelerators: BTreeSet::new(), port: 0, ..Provider::from_pod(pod) };
        Some(Launcher {
            max_instances: annotation(dual_pods::MAX_INSTANCES).and_then(|text| text.parse().ok()).unwrap_or_default(),
            records: Arc::new(records),
            bound_instance: annotation(dual_pods::INSTANCE_ID).map(str::to_owned),
            provider,
        })
    }

    /// Returns the engines, each as the provider that it would be in direct mode. `observed` are those of the launcher's response that
    /// may have no record.
    pub(crate) fn engines<'a>(
        &'a self,
        observed: impl Iterator<Item = (&'a String, &'a InstanceRecord)>,
    ) -> BTreeMap<EngineId, Provider> {
        let unrecorded = observed.filter(|(id, _)| !self.records.contains_key(*id));
        let engines = self.records.iter().chain(unrecorded).map(|(id, record)| {
            let key = EngineId { pod: self.provider.pod.uid.clone(), instance: Some(id.clone()) };
            (key, self.engine(id, record))
        });
        engines.collect()
    }

    fn engine(&self, id: &str, record: &InstanceRecord) -> Provider {
        let is_bound = self.bound_instance.as_deref() == Some(id);
        let pool_labels = if is_bound { self.provider.pool_labels.clone() } else { BTreeMap::new() };
        Provider {
            binding: self.provider.binding.clone().filter(|_| is_bound),
            identity: id.to_owned(),
            accelerators: record.accelerators.clone(),
            port: record.port,
            last_awake: record.last_awake,
            fingerprint: record.fingerprint.clone(),
            is_labeled_sleeping: if is_bound { self.provider.is_labeled_sleeping } else { Some(true) },
            pool_labels,
            instance: Some(Instance {
                id: id.to_owned(),
                records: Arc::clone(&self.records),
                is_launcher_bound: self.provider.binding.is_some(),
            }),
            ..self.provider.clone()
        }
    }

    /// Returns whether an engine that may run has this port.
    #[must_use]
    pub fn uses_port(&self, port: u16) -> bool {
        self.records.values().any(|record| record.port == port)
    }
}
