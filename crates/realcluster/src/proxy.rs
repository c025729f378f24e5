//! Stands between a client and the API server: counts writes, cuts watches, closes the way, and lets a test step in
//! between two writes.

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

/// One write that was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub method: Method,
    pub path: String,
    pub status: u16,
}

type AfterWrite = Box<dyn FnMut(&Write) + Send>;

/// A running proxy; requests go on as the account of its client.
pub struct Proxy {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    upstream: Client,
    writes: Mutex<Vec<Write>>,
    after_write: Mutex<Option<AfterWrite>>,
    /// Open watches hang on the current token.
    watches: Mutex<CancellationToken>,
    open: AtomicBool,
    /// How many watches to answer with 410 Gone.
    expire: AtomicUsize,
    expired: AtomicUsize,
}

// === impl Proxy ===

impl Proxy {
    /// Listens on a free port of this machine.
    ///
    /// # Errors
    /// There is none.
    pub async fn start(upstream: Client) -> Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream,
            writes: Mutex::default(),
            after_write: Mutex::default(),
            watches: Mutex::default(),
            open: AtomicBool::new(true),
            expire: AtomicUsize::new(0),
            expired: AtomicUsize::new(0),
        });
        let router = Router::new().fallback(forward).with_state(Arc::clone(&shared));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, shared })
    }

    /// A kubeconfig that leads here.
    #[must_use]
    pub fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: proxy\nclusters:\n- name: proxy\n  cluster: {{server: \"http://{}\"}}\nusers:\n- {{name: proxy, user: {{}}}}\ncontexts:\n- name: proxy\n  context: {{cluster: proxy, user: proxy}}\n",
            self.address
        )
    }

    /// Every write so far (leases and events left out), in order of its answer.
    #[must_use]
    pub fn writes(&self) -> Vec<Write> {
        self.shared.writes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Called after each write was done and before its answer goes back.
    pub fn after_write(&self, step_in: impl FnMut(&Write) + Send + 'static) {
        *self.shared.after_write.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(step_in));
    }

    /// Ends every watch.
    pub fn cut(&self) {
        let mut watches = self.shared.watches.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *watches).cancel();
    }

    /// Answers everything with 503 and ends every watch, until [`Self::open`].
    pub fn close(&self) {
        self.shared.open.store(false, Ordering::SeqCst);
        self.cut();
    }

    /// Lets requests through again.
    pub fn open(&self) {
        self.shared.open.store(true, Ordering::SeqCst);
    }

    /// Answers the next `count` watches that continue from a version with 410 Gone.
    pub fn expire(&self, count: usize) {
        self.shared.expire.store(count, Ordering::SeqCst);
    }

    /// How many were answered so.
    #[must_use]
    pub fn expired(&self) -> usize {
        self.shared.expired.load(Ordering::SeqCst)
    }
}

async fn forward(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    if !shared.open.load(Ordering::SeqCst) {
        return (StatusCode::SERVICE_UNAVAILABLE, "closed").into_response();
    }
    let query = request.uri().query().unwrap_or_default().to_owned();
    let watch = query.contains("watch=true");
    if watch && shared.takes_expiry() {
        return gone();
    }
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    match shared.pass(request).await {
        Ok(response) if watch => shared.cuttable(response),
        Ok(response) => {
            shared.note(method, path, response.status());
            response.map(Body::new)
        }
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

// === impl Shared ===

impl Shared {
    fn takes_expiry(&self) -> bool {
        let taken = self.expire.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        if taken {
            self.expired.fetch_add(1, Ordering::SeqCst);
        }
        taken
    }

    async fn pass(&self, request: Request) -> Result<http::Response<kube::client::Body>> {
        let (mut parts, body) = request.into_parts();
        for hop in ["host", "connection", "authorization", "content-length"] {
            parts.headers.remove(hop);
        }
        parts.uri = parts.uri.path_and_query().map(|path| path.as_str().parse()).transpose()?.unwrap_or_default();
        let bytes = axum::body::to_bytes(body, usize::MAX).await?;
        let request = http::Request::from_parts(parts, kube::client::Body::from(bytes.to_vec()));
        Ok(self.upstream.send(request).await?)
    }

    fn cuttable(&self, response: http::Response<kube::client::Body>) -> Response {
        let token = self.watches.lock().unwrap_or_else(PoisonError::into_inner).clone();
        response.map(|body| {
            let stream = Body::new(body).into_data_stream();
            Body::from_stream(stream.take_until(token.cancelled_owned()))
        })
    }

    fn note(&self, method: Method, path: String, status: StatusCode) {
        if method == Method::GET || path.contains("/leases/") || path.ends_with("/leases") || path.ends_with("/events")
        {
            return;
        }
        let write = Write { method, path, status: status.as_u16() };
        self.writes.lock().unwrap_or_else(PoisonError::into_inner).push(write.clone());
        if let Some(step_in) = self.after_write.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            step_in(&write);
        }
    }
}

/// As an API server tells in a watch that the version is too old.
fn gone() -> Response {
    let event = json!({"type": "ERROR", "object": {"apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "Expired",
        "code": 410, "message": "too old resource version"}});
    ([("content-type", "application/json")], format!("{event}\n")).into_response()
}
