//! Endpoint picker: selects endpoints of one InferencePool for a proxy that sends requests over Envoy's `ext_proc`.
//!
//! Input: the pool and its Pods ([`watch_inference_pool`]), and requests ([`serve_grpc`]). Output: the endpoints that the
//! [`Scheduler`] selects. `ext_proc_stream` implements the protocol without its transport, as a pure state machine.

mod ext_proc_service;
mod ext_proc_stream;
#[cfg(test)]
mod frontend_equality;
mod message_reader;
mod server;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use cluster::NamespacedName;
use http::HeaderName;
use http_server::BodyMemory;
use supervisor::TaskFailure;
use tokio_util::sync::CancellationToken;

use crate::{
    access_log::AccessLog,
    control_fields::ControlFields,
    policy::SchedulingPolicy,
    routing_error::RoutingError,
    scheduler::{AdmissionRequest, Permit, Scheduler},
    snapshot::Pool,
    watch::{self, PoolGroup},
};
use ext_proc_stream::CompleteRequest;

pub use message_reader::MIN_PICKER_MEMORY;
pub use server::{ListenerRole, serve_grpc};

/// Frontend of one InferencePool for proxies.
pub struct EndpointPicker {
    /// Namespace and name of the InferencePool.
    pub pool: NamespacedName,
    scheduler: Arc<Scheduler>,
    draining: AtomicBool,
    /// Cancelled when exchanges with proxies end.
    shutdown: CancellationToken,
    /// Memory for the bodies of requests.
    body_memory: BodyMemory,
    control_fields: ControlFields,
    session_header: Option<HeaderName>,
}

/// Watches the pool of `picker` and the Pods of its namespace until `shutdown`. A task that panics is restarted; until then,
/// the picker uses the last endpoints.
///
/// # Errors
/// Restarts do not help.
pub async fn watch_inference_pool(
    client: kube::Client,
    group: PoolGroup,
    picker: Arc<EndpointPicker>,
    shutdown: CancellationToken,
) -> Result<(), TaskFailure> {
    watch::watch_inference_pool(client, group, &picker.pool, Arc::clone(&picker.scheduler), shutdown).await
}

impl EndpointPicker {
    /// Returns a picker without endpoints, with `request_memory` bytes for the bodies of requests and a quarter as much for their
    /// headers. `seed` makes random selections reproducible.
    pub fn new(pool: NamespacedName, policy: SchedulingPolicy, request_memory: usize, seed: u64) -> Self {
        let scheduler = Scheduler::new(policy, seed).with_request_memory(request_memory);
        Self {
            scheduler: Arc::new(scheduler.with_default_namespace(pool.namespace.clone())),
            pool,
            draining: AtomicBool::new(false),
            shutdown: CancellationToken::new(),
            body_memory: BodyMemory::new(request_memory),
            control_fields: ControlFields::default(),
            session_header: None,
        }
    }

    /// Returns the picker with this treatment of control fields. By default they are rejected.
    #[must_use]
    pub fn with_control_fields(self, control_fields: ControlFields) -> Self {
        Self { control_fields, ..self }
    }

    /// Returns the picker that sends all requests with the same value of this header to one target model.
    #[must_use]
    pub fn with_session_header(self, session_header: Option<HeaderName>) -> Self {
        Self { session_header, ..self }
    }

    /// Returns the picker that records each request in `access_log`.
    #[must_use]
    pub fn with_access_log(mut self, access_log: Option<AccessLog>) -> Self {
        // Nothing else uses the scheduler yet.
        if let Some(scheduler) = Arc::get_mut(&mut self.scheduler) {
            scheduler.access_log = access_log;
        }
        self
    }

    /// Returns the picker that compares latencies with the objectives of use cases over this time.
    #[must_use]
    pub fn with_objective_window(mut self, window: Duration) -> Self {
        // Nothing else uses the scheduler yet.
        if let Some(scheduler) = Arc::get_mut(&mut self.scheduler) {
            scheduler.objective_window = window;
        }
        self
    }

    /// Returns whether the pool exists, the Pods are listed, and the picker is not draining. A watch that does not run does not
    /// count: the last endpoints serve requests, and one object may stop the watches of all replicas.
    pub fn is_ready(&self) -> bool {
        let is_listed = self.scheduler.readiness_failures().is_empty() && self.current_pool().is_some();
        is_listed && !self.draining.load(Relaxed)
    }

    /// Starts draining: the picker reports that it is not ready, but continues to answer requests.
    pub fn drain(&self) {
        self.draining.store(true, Relaxed);
    }

    /// Ends all exchanges with proxies that need nothing more of the picker.
    fn shut_down(&self) {
        self.drain();
        self.shutdown.cancel();
    }

    /// Returns the scheduling core.
    pub fn scheduler(&self) -> &Arc<Scheduler> {
        &self.scheduler
    }

    /// Returns the addresses of the ready endpoints in ascending order.
    pub fn endpoints(&self) -> Vec<SocketAddr> {
        let pool = self.current_pool();
        pool.iter().flat_map(|pool| &pool.ready_endpoints).map(|endpoint| endpoint.address).collect()
    }

    fn policy(&self) -> &SchedulingPolicy {
        self.scheduler.default_policy()
    }

    fn current_pool(&self) -> Option<Arc<Pool>> {
        self.scheduler.snapshot().pools.get(&self.pool).cloned()
    }

    /// Admits a request to one of the endpoints that the proxy allows.
    ///
    /// # Errors
    /// [`RoutingError::NoEndpointAvailable`], also while the pool does not exist; [`RoutingError::ModelNotFound`].
    async fn admit(&self, request: &CompleteRequest) -> Result<Permit, RoutingError> {
        let admission = AdmissionRequest {
            pool: Some(&self.pool),
            model: request.model(),
            body: &request.body,
            info: &request.info,
            path: &request.path,
            flow: request.flow.as_deref(),
            subset: request.subset.as_ref(),
            session: request.session.as_deref().map(str::as_bytes),
        };
        let permit = self.scheduler.admit(&admission).await;
        permit.map_err(|error| match error {
            RoutingError::PoolNotFound(pool) => RoutingError::NoEndpointAvailable(pool),
            error => error,
        })
    }

    /// Returns whether `served` differs from the selected endpoint. If one port forwards to all engines of a Pod, only
    /// the IP addresses are compared.
    fn is_other_endpoint(&self, selected: SocketAddr, served: SocketAddr) -> bool {
        match self.policy().primary_port {
            Some(_) => selected.ip() != served.ip(),
            None => selected != served,
        }
    }
}

/// Processes the messages of one stream as a proxy sends them.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn check_ext_proc_messages(messages: impl Iterator<Item = crate::ext_proc::ProcessingRequest>) {
    use ext_proc_stream::{Action, ExtProcStream, response_body_messages};

    let mut stream = ExtProcStream::new(crate::policy::Parser::RequireModel, ControlFields::Reject, None);
    for message in messages {
        match stream.handle(message) {
            Ok(Action::Schedule(request)) => {
                stream.rewritten = request.rewritten_model("tuned");
                if let Some(subset) = &request.subset {
                    subset.contains(([10, 0, 0, 1], 8000).into(), &mut 0);
                }
            }
            Ok(Action::ReturnResponseBody(body)) => drop(response_body_messages(body)),
            Ok(Action::Continue | Action::Respond(_)) => {}
            Ok(Action::Reject(_)) | Err(_) => return,
        }
    }
}
