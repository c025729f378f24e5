//! Engines that run as instances of a launcher, as the launcher's Pod records them.
//!
//! The annotation `instances` contains each engine that the launcher may run: it is written before the engine is created, and its entry
//! is removed after the launcher has none of this id. So the accelerators of all engines are known before a launcher is called.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Annotation of an instance, in the requests to its launcher, with the port of the engine. The deployed controller sets it, too.
pub(crate) const PORT_ANNOTATION: &str = "inference-port";

/// What a launcher's Pod records of one engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceRecord {
    /// UUIDs of its accelerators.
    pub accelerators: BTreeSet<String>,
    /// Its port.
    pub port: u16,
    /// When it was last awake; `None` if it was never ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_awake: Option<Timestamp>,
    /// Its completion when it was first ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
}

/// Records by the id of the instance, which is the identity of the engine.
pub type InstanceRecords = BTreeMap<String, InstanceRecord>;

/// The place of an engine in a launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// Its id.
    pub id: String,
    /// All records of the launcher.
    pub records: Arc<InstanceRecords>,
    /// Whether the launcher is bound to a requester, with this engine or another one.
    pub is_launcher_bound: bool,
}

/// Identifies an engine: a provider Pod, or an instance of a launcher.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EngineId {
    /// UID of the Pod.
    pub pod: String,
    /// Id of the instance; `None` in direct mode.
    pub instance: Option<String>,
}

// === impl Instance ===

impl Instance {
    /// Returns the records after a change of the one of this engine; `None` removes it.
    pub(crate) fn with_record(&self, record: Option<InstanceRecord>) -> InstanceRecords {
        let mut records = self.records.as_ref().clone();
        match record {
            Some(record) => records.insert(self.id.clone(), record),
            None => records.remove(&self.id),
        };
        records
    }
}

// === impl EngineId ===

impl EngineId {
    /// Returns the id of the engine of a provider in direct mode.
    #[must_use]
    pub fn of_pod(uid: &str) -> EngineId {
        EngineId { pod: uid.to_owned(), instance: None }
    }
}
