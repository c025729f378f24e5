//! Renders the BackendPool and the LLMUseCaseSet of a service, both named after the service.

use api::inference::PICKER_CONFIG_KEY;
use serde_json::{Value, json};

use crate::labels::{self, Labels};
use crate::owner::Owner;
use crate::router::RouterNames;
use crate::topology::{RoutedModel, Routing};

const API_VERSION: &str = "inference.networking.x-k8s.io/v1alpha1";

/// Renders the BackendPool. Omitted fields (queue, failure mode, implicit use cases) have their defaults. With a router, the
/// gateway selects endpoints by the router's configuration too.
pub(crate) fn backend_pool(owner: &Owner, labels: &Labels, routing: &Routing, router: Option<&RouterNames>) -> Value {
    let mut metadata = owner.metadata(&owner.name, &labels::with_managed_by(labels));
    if let Some(router) = router {
        metadata["annotations"] = json!({PICKER_CONFIG_KEY: router.config});
    }
    json!({
        "apiVersion": API_VERSION,
        "kind": "BackendPool",
        "metadata": metadata,
        "spec": {"selector": routing.selector, "targetPorts": routing.ports, "modelServer": routing.model_server},
    })
}

/// Renders the LLMUseCaseSet, which maps the names of the service and its adapters to model names of the engine. With a router, its endpoint
/// picker applies the use case too.
pub(crate) fn use_case_set(owner: &Owner, labels: &Labels, routing: &Routing, router: Option<&RouterNames>) -> Value {
    let use_case = |model: &RoutedModel| {
        let mut use_case = json!({"modelName": model.name});
        if model.target != model.name {
            use_case["targetModels"] = json!([{"targetModelName": model.target, "weight": 1}]);
        }
        use_case
    };
    let use_cases: Vec<Value> = routing.models.iter().map(use_case).collect();
    let mut pools = vec![json!({"name": owner.name})];
    pools.extend(router.map(|router| json!({"kind": "InferencePool", "name": router.pool})));
    json!({
        "apiVersion": API_VERSION,
        "kind": "LLMUseCaseSet",
        "metadata": owner.metadata(&owner.name, &labels::with_managed_by(labels)),
        "spec": {"poolRef": pools, "useCases": use_cases},
    })
}
