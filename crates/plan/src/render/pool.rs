//! Renders the BackendPool and the LLMUseCaseSet of a service, both named after the service.

use serde_json::{Value, json};

use crate::labels::{self, Labels};
use crate::owner::Owner;
use crate::topology::{RoutedModel, Routing};

const API_VERSION: &str = "inference.networking.x-k8s.io/v1alpha1";

/// Renders the BackendPool. Omitted fields (queue, failure mode, implicit use cases) have their defaults.
pub(crate) fn backend_pool(owner: &Owner, labels: &Labels, routing: &Routing) -> Value {
    let mut pool = json!({
        "apiVersion": API_VERSION,
        "kind": "BackendPool",
        "metadata": owner.metadata(&owner.name, &labels::with_managed_by(labels)),
        "spec": {"selector": routing.selector, "targetPorts": routing.ports, "modelServer": routing.model_server},
    });
    if let Some(scale_to_zero) = &routing.scale_to_zero {
        pool["spec"]["scaleToZero"] = json!(scale_to_zero);
    }
    pool
}

/// Renders the LLMUseCaseSet, which maps the names of the service and its adapters to model names of the engine.
pub(crate) fn use_case_set(owner: &Owner, labels: &Labels, routing: &Routing) -> Value {
    let use_case = |model: &RoutedModel| {
        let mut use_case = json!({"modelName": model.name});
        if model.target != model.name {
            use_case["targetModels"] = json!([{"targetModelName": model.target, "weight": 1}]);
        }
        use_case
    };
    let use_cases: Vec<Value> = routing.models.iter().map(use_case).collect();
    json!({
        "apiVersion": API_VERSION,
        "kind": "LLMUseCaseSet",
        "metadata": owner.metadata(&owner.name, &labels::with_managed_by(labels)),
        "spec": {"poolRef": [{"name": owner.name}], "useCases": use_cases},
    })
}
