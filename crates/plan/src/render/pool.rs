//! How requests find the service: a pool of its engine pods and one use case, both of the service's name.

use serde_json::{Value, json};

use crate::labels::{self, Labels};
use crate::topology::{Owner, Routing};

const API_VERSION: &str = "inference.networking.x-k8s.io/v1alpha1";

/// What is not stated here the kind defaults (queue, failure mode, implicit use cases).
pub(crate) fn backend_pool(owner: &Owner, labels: &Labels, routing: &Routing) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": "BackendPool",
        "metadata": owner.metadata(&owner.name, &labels::managed(labels)),
        "spec": {"selector": routing.selector, "targetPorts": routing.ports, "modelServer": routing.model_server},
    })
}

/// Clients say the service's name; the engine hears the name it knows.
pub(crate) fn use_case_set(owner: &Owner, labels: &Labels, routing: &Routing) -> Value {
    let mut use_case = json!({"modelName": routing.model_name});
    if let Some(target) = &routing.target_model {
        use_case["targetModels"] = json!([{"targetModelName": target, "weight": 1}]);
    }
    json!({
        "apiVersion": API_VERSION,
        "kind": "LLMUseCaseSet",
        "metadata": owner.metadata(&owner.name, &labels::managed(labels)),
        "spec": {"poolRef": [{"name": owner.name}], "useCases": [use_case]},
    })
}
