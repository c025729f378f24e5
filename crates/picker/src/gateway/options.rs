//! Settings of the native gateway.

use std::{sync::Arc, time::Duration};

use http::HeaderName;

use crate::{
    api_keys::ApiKeys, control_fields::ControlFields, request::DEFAULT_REQUEST_MEMORY,
    serving_certificate::ServingCertificate,
};

/// Settings of a gateway.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    /// Bytes for the bodies of requests. Headers have a quarter as much.
    pub request_memory: usize,
    /// How long requests in progress may continue after the shutdown; `None` means no limit.
    pub drain_timeout: Option<Duration>,
    /// Whether responses have the headers `x-ostler-*`, which name the endpoint and explain its selection.
    pub debug_headers: bool,
    /// Serves HTTPS with this certificate instead of HTTP.
    pub certificate: Option<Arc<ServingCertificate>>,
    /// Keys of which each request must contain one, except for probes.
    pub api_keys: Option<Arc<ApiKeys>>,
    /// Whether clients may set fields that name engines to connect to.
    pub control_fields: ControlFields,
    /// Header whose value identifies a session: all its requests are sent to one target model.
    pub session_header: Option<HeaderName>,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            request_memory: DEFAULT_REQUEST_MEMORY,
            drain_timeout: None,
            debug_headers: false,
            certificate: None,
            api_keys: None,
            control_fields: ControlFields::default(),
            session_header: None,
        }
    }
}
