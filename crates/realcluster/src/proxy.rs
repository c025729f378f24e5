//! A proxy between a client and the API server. It records writes, interrupts watches, rejects requests, and runs a
//! callback of the test after each write.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;
use http::{Method, StatusCode};
use kube::Client;
use serde_json::json;
use tokio_util::sync::CancellationToken;

/// A write request and the status of its response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedWrite {
    /// HTTP method.
    pub method: Method,
    /// Request path.
    pub path: String,
    /// HTTP status code of the response.
    pub status: u16,
}

type WriteCallback = Box<dyn FnMut(&ObservedWrite) + Send>;

/// A running proxy. It forwards requests with the credentials of the `upstream` client.
pub struct Proxy {
    /// Address that the proxy listens on.
    pub address: SocketAddr,
    state: Arc<ProxyState>,
}

struct ProxyState {
    upstream: Client,
    writes: Mutex<Vec<ObservedWrite>>,
    after_write: Mutex<Option<WriteCallback>>,
    /// Cancels all open watches.
    watch_cancellation: Mutex<CancellationToken>,
    is_accepting: AtomicBool,
    /// Number of further watches to reject with 410 Gone.
    pending_expirations: AtomicUsize,
    expired_watches: AtomicUsize,
}

// === impl Proxy ===

impl Proxy {
    /// Starts a proxy on a free local port.
    ///
    /// # Errors
    /// No port can be bound.
    pub async fn start(upstream: Client) -> Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let state = Arc::new(ProxyState {
            upstream,
            writes: Mutex::default(),
            after_write: Mutex::default(),
            watch_cancellation: Mutex::default(),
            is_accepting: AtomicBool::new(true),
            pending_expirations: AtomicUsize::new(0),
            expired_watches: AtomicUsize::new(0),
        });
        let router = Router::new().fallback(forward).with_state(Arc::clone(&state));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, state })
    }

    /// Returns a kubeconfig that connects to the proxy.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: proxy\nclusters:\n- name: proxy\n  cluster: {{server: \"http://{}\"}}\nusers:\n- {{name: proxy, user: {{}}}}\ncontexts:\n- name: proxy\n  context: {{cluster: proxy, user: proxy}}\n",
            self.address
        )
    }

    /// Returns all writes so far, except Leases and Events, in the order of their responses.
    #[must_use]
    pub fn writes(&self) -> Vec<ObservedWrite> {
        self.state.writes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets a callback that runs after each write and before its response is sent.
    pub fn on_write(&self, callback: impl FnMut(&ObservedWrite) + Send + 'static) {
        *self.state.after_write.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(callback));
    }

    /// Terminates all open watches.
    pub fn cut_watches(&self) {
        let mut watches = self.state.watch_cancellation.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *watches).cancel();
    }

    /// Terminates all open watches and responds 503 to every request until [`Self::accept_requests`] is called.
    pub fn reject_requests(&self) {
        self.state.is_accepting.store(false, Ordering::SeqCst);
        self.cut_watches();
    }

    /// Forwards requests again after [`Self::reject_requests`].
    pub fn accept_requests(&self) {
        self.state.is_accepting.store(true, Ordering::SeqCst);
    }

    /// Responds 410 Gone to the next `count` watches.
    pub fn expire_watches(&self, count: usize) {
        self.state.pending_expirations.store(count, Ordering::SeqCst);
    }

    /// Returns the number of watches rejected with 410 Gone.
    #[must_use]
    pub fn expired_watches(&self) -> usize {
        self.state.expired_watches.load(Ordering::SeqCst)
    }
}

async fn forward(State(state): State<Arc<ProxyState>>, request: Request) -> Response {
    if !state.is_accepting.load(Ordering::SeqCst) {
        return (StatusCode::SERVICE_UNAVAILABLE, "the proxy rejects requests").into_response();
    }
    let query = request.uri().query().unwrap_or_default().to_owned();
    let watch = query.contains("watch=true");
    if watch && state.take_pending_expiry() {
        return resource_expired();
    }
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    match state.send_upstream(request).await {
        Ok(response) if watch => state.cancellable_watch(response),
        Ok(response) => {
            state.record_write(method, path, response.status());
            response.map(Body::new)
        }
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

// === impl ProxyState ===

impl ProxyState {
    fn take_pending_expiry(&self) -> bool {
        let expired = self
            .pending_expirations
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| count.checked_sub(1))
            .is_ok();
        if expired {
            self.expired_watches.fetch_add(1, Ordering::SeqCst);
        }
        expired
    }

    async fn send_upstream(&self, request: Request) -> Result<http::Response<kube::client::Body>> {
        let (mut parts, body) = request.into_parts();
        for header in ["host", "connection", "authorization", "content-length"] {
            parts.headers.remove(header);
        }
        parts.uri = parts.uri.path_and_query().map(|path| path.as_str().parse()).transpose()?.unwrap_or_default();
        let bytes = axum::body::to_bytes(body, usize::MAX).await?;
        let request = http::Request::from_parts(parts, kube::client::Body::from(bytes.to_vec()));
        Ok(self.upstream.send(request).await?)
    }

    fn cancellable_watch(&self, response: http::Response<kube::client::Body>) -> Response {
        let token = self.watch_cancellation.lock().unwrap_or_else(PoisonError::into_inner).clone();
        response.map(|body| {
            let stream = Body::new(body).into_data_stream();
            Body::from_stream(stream.take_until(token.cancelled_owned()))
        })
    }

    fn record_write(&self, method: Method, path: String, status: StatusCode) {
        if method == Method::GET || path.contains("/leases/") || path.ends_with("/leases") || path.ends_with("/events")
        {
            return;
        }
        let write = ObservedWrite { method, path, status: status.as_u16() };
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).push(write.clone());
        if let Some(callback) = self.after_write.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            callback(&write);
        }
    }
}

/// Returns the watch response of an API server for a resource version that is too old.
fn resource_expired() -> Response {
    let event = json!({"type": "ERROR", "object": {"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Expired",
        "code": 410, "message": "too old resource version"}});
    ([("content-type", "application/json")], format!("{event}\n")).into_response()
}
