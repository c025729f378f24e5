//! The internal topology of a service. Both InferenceService kinds are converted into it, and a single renderer
//! converts it into objects.

use std::collections::BTreeMap;

use api::inference::ScaleToZero;

use crate::gang::Gang;
use crate::owner::Owner;
use crate::role::Role;
use crate::router::Router;

/// Complete topology of one service.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Topology {
    pub owner: Owner,
    /// Labels of the objects that belong to the service as a whole.
    pub labels: BTreeMap<String, String>,
    /// In declaration order; names are unique.
    pub roles: Vec<Role>,
    /// Gang of Pods to schedule together; `None` without gang scheduling.
    pub gang: Option<Gang>,
    /// Pool and use case for the gateway.
    pub routing: Option<Routing>,
    /// Endpoint picker for Gateway API gateways; only role-based services have one.
    pub router: Option<Router>,
}

/// Pool and use case of the service for the gateway.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Routing {
    /// Selects the Pods that serve requests.
    pub selector: BTreeMap<String, String>,
    pub ports: Vec<u16>,
    /// `vllm`, `sglang`, `trtllm` or `triton`.
    pub model_server: &'static str,
    /// Models that clients may request.
    pub models: Vec<RoutedModel>,
    /// Workload that the gateway scales to zero while it receives no requests.
    pub scale_to_zero: Option<ScaleToZero>,
}

/// A model that clients may request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoutedModel {
    /// Model name in requests of clients.
    pub name: String,
    /// Model name of the engine.
    pub target: String,
}
