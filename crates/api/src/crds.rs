//! The CRDs of our kinds, from the Rust types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

use crate::{fusioninfer, inference, ome};

/// Every CRD that ostler serves, in the order to install them.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        ome::AcceleratorClass::crd(),
        ome::BaseModel::crd(),
        ome::ClusterBaseModel::crd(),
        ome::ServingRuntime::crd(),
        ome::ClusterServingRuntime::crd(),
        ome::InferenceService::crd(),
        fusioninfer::InferenceService::crd(),
        inference::BackendPool::crd(),
        inference::LLMUseCaseSet::crd(),
        inference::LLMUseCase::crd(),
    ]
}
