//! Table columns of the built-in kinds (`k8s.io/kubernetes/pkg/printers/internalversion`); each kind with computed
//! cells has a module.

use apimachinery::{object, persistent_volume};
use serde_json::{Value, json};

use super::cell::{age, column, entry_count, number, value_or_na};
use super::column::Column;
use super::{autoscaler, event, job, node, pod, service, storage, workload};
use crate::conversion::autoscaling;

/// Returns the `conditions` of a row: `Completed` for finished Pods.
pub(super) fn conditions(storage: &str, object: &Value) -> Option<Value> {
    let (reason, message) = match (storage, object::text(object, "/status/phase")) {
        ("pods", "Succeeded") => ("Succeeded", "The pod has completed successfully."),
        ("pods", "Failed") => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

/// Reports whether the name is the last column and shown only with `-o wide`, as for Events, whose names are not
/// meaningful.
pub(super) fn has_name_last(storage: &str) -> bool {
    storage == "events"
}

/// Returns the columns of a resource, without the leading name column.
pub(super) fn columns(storage: &str) -> Vec<Column> {
    match storage {
        "pods" => pod::columns(),
        "nodes" => node::columns(),
        "services" => service::columns(),
        "events" => event::columns(),
        "deployments.apps" => workload::deployments(),
        "replicasets.apps" => workload::replica_sets(),
        "statefulsets.apps" => workload::stateful_sets(),
        "jobs.batch" => job::columns(),
        autoscaling::STORAGE => autoscaler::columns(),
        persistent_volume::CLAIMS => storage::claims(),
        persistent_volume::VOLUMES => storage::volumes(),
        persistent_volume::CLASSES => storage::classes(),
        "secrets" => vec![
            column("Type", "string", 0, |secret, _| json!(object::text(secret, "/type"))),
            column("Data", "string", 0, |secret, _| json!(entry_count(secret, "data"))),
            age(),
        ],
        "namespaces" => {
            vec![column("Status", "string", 0, |object, _| json!(object::text(object, "/status/phase"))), age()]
        }
        "configmaps" => {
            vec![
                column("Data", "string", 0, |map, _| json!(entry_count(map, "data") + entry_count(map, "binaryData"))),
                age(),
            ]
        }
        "customresourcedefinitions.apiextensions.k8s.io" => vec![column("Created At", "date", 0, |object, _| {
            json!(object::text(object, "/metadata/creationTimestamp"))
        })],
        "poddisruptionbudgets.policy" => vec![
            column("Min Available", "string", 0, |budget, _| value_or_na(budget, "/spec/minAvailable")),
            column("Max Unavailable", "string", 0, |budget, _| value_or_na(budget, "/spec/maxUnavailable")),
            column("Allowed Disruptions", "integer", 0, |budget, _| {
                json!(number(budget, "/status/disruptionsAllowed"))
            }),
            age(),
        ],
        "priorityclasses.scheduling.k8s.io" => vec![
            column("Value", "integer", 0, |class, _| json!(number(class, "/value"))),
            column("Global-Default", "boolean", 0, |class, _| json!(class["globalDefault"] == true)),
            age(),
            column("PreemptionPolicy", "string", 0, |class, _| json!(object::text(class, "/preemptionPolicy"))),
        ],
        "leases.coordination.k8s.io" => {
            vec![column("Holder", "string", 0, |object, _| json!(object::text(object, "/spec/holderIdentity"))), age()]
        }
        _ => vec![age()],
    }
}
