//! What the stores hold, as the input of the pure core.

use api::manifest::Document;
use cluster::Kind;
use plan::{Service, Snapshot};
use serde_json::Value;

use crate::Operator;
use crate::kinds::{CLASS, CLUSTER_MODEL, CLUSTER_RUNTIME, MODEL, NODE, POD, ROLES_SERVICE, RUNTIME};

impl Operator {
    /// The service's entry of `ostler plan -o json`.
    ///
    /// # Errors
    /// What makes the service unreadable, in words for a condition.
    pub(crate) fn plan(&self, kind: Kind, service: &Value) -> Result<Value, String> {
        let read = Service::read(&document(kind, service)).map_err(|error| error.to_string())?;
        let service = read.ok_or_else(|| format!("{} is not a service", service["kind"]))?;
        // Role-based services choose nothing: what is on offer plays no part.
        let snapshot = if kind == ROLES_SERVICE { Snapshot::default() } else { self.snapshot() };
        serde_json::to_value(plan::plan_service(&snapshot, &service)).map_err(|error| error.to_string())
    }

    /// Everything on offer. What cannot be read is left out: one broken runtime must not stop the services of others.
    fn snapshot(&self) -> Snapshot {
        let all = |kind: Kind| self.stores.list(kind).iter().map(|object| (**object).clone()).collect();
        let mut snapshot = Snapshot {
            nodes: all(NODE),
            pods: all(POD),
            accelerator_aware: self.accelerator_aware,
            ..Snapshot::default()
        };
        for kind in [CLUSTER_RUNTIME, RUNTIME, CLUSTER_MODEL, MODEL, CLASS] {
            for object in self.stores.list(kind) {
                if let Err(error) = snapshot.add_supply(&document(kind, &object)) {
                    tracing::debug!(%error, "left out of the choice");
                }
            }
        }
        snapshot
    }
}

fn document(kind: Kind, object: &Value) -> Document {
    Document { source: kind.resource(), index: 1, value: object.clone() }
}
