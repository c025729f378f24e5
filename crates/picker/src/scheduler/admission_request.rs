//! A request that a frontend passes to the scheduler.

use cluster::NamespacedName;

use crate::{endpoint_subset::EndpointSubset, flow_headers::FlowHeaders, request::RequestInfo};

/// A request to admit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdmissionRequest<'a> {
    /// Pool that the request addresses; `None` searches all pools.
    pub(crate) pool: Option<&'a NamespacedName>,
    /// Which model is requested.
    pub(crate) model: RequestedModel<'a>,
    /// The whole body.
    pub(crate) body: &'a [u8],
    /// Fields of the body.
    pub(crate) info: &'a RequestInfo,
    /// Path of the API, without a query.
    pub(crate) path: &'a str,
    /// How a request without a use case waits.
    pub(crate) flow: Option<&'a FlowHeaders>,
    /// Endpoints that may be selected; `None` allows all.
    pub(crate) subset: Option<&'a EndpointSubset>,
    /// Value of the session header: all requests of a session are sent to one target model.
    pub(crate) session: Option<&'a [u8]>,
}

/// The model of a request to admit.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RequestedModel<'a> {
    /// Name in the body: its use case states the model for the engines.
    Name(&'a str),
    /// Model for the engines, which a header states.
    Target(&'a str),
    /// The request names no model, or its body is not sent to the scheduler.
    Unknown,
}

// === impl RequestedModel ===

impl<'a> RequestedModel<'a> {
    /// Returns the name, empty if it is unknown.
    pub(crate) fn name(self) -> &'a str {
        match self {
            Self::Name(model) | Self::Target(model) => model,
            Self::Unknown => "",
        }
    }
}
