//! The connection between one process and the API server: a function call that applies faults and planted mistakes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use bytes::Bytes;
use embedded::Server;
use futures::{StreamExt, stream};
use http::{Method, Request, Response, Uri};
use http_body_util::BodyExt;
use kube::Client;
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tower::{BoxError, ServiceExt};

use crate::faults::{Fault, Faults, RequestClass};
use crate::journal::{EntryKind, Journal};
use crate::mistake::{Mistake, adopt, edit_uri};

/// Receives the process and the path of each write when it is sent.
pub(crate) type WriteObserver = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// The connection of one process. Clones share their state.
#[derive(Clone)]
pub(crate) struct Transport {
    pub(crate) server: Server,
    pub(crate) process: &'static str,
    pub(crate) faults: Faults,
    pub(crate) journal: Journal,
    pub(crate) mistake: Option<Mistake>,
    /// Receives each write when it is sent.
    pub(crate) on_write: WriteObserver,
    /// Cancelled when the process has crashed: none of its requests is sent any more.
    pub(crate) crashed: CancellationToken,
    /// Paths of the watches that were started before, for [`Mistake::NoRelist`].
    pub(crate) watched: Arc<Mutex<BTreeSet<String>>>,
    /// The last services that were read, for [`Mistake::StaleOwner`].
    pub(crate) owners: Arc<Mutex<BTreeMap<String, Bytes>>>,
}

// === impl Transport ===

impl Transport {
    /// Returns a client that sends its requests through this connection.
    pub(crate) fn client(self) -> Client {
        let mistake = self.mistake;
        let service = tower::service_fn(move |request: Request<kube::client::Body>| self.clone().send(request));
        match mistake {
            Some(Mistake::NoDeadline) => Client::new(service, "default"),
            _ => cluster::client_of_service(service, "default"),
        }
    }

    async fn send(self, request: Request<kube::client::Body>) -> Result<Response<Body>, BoxError> {
        if self.crashed.is_cancelled() {
            return Err("the process has crashed".into());
        }
        let class = RequestClass::of(&request);
        let (mut request, object) = self.with_mistake(request).await?;
        if let Some(size) = self.faults.page_size() {
            edit_uri(&mut request, |uri| uri.replace("limit=100", &format!("limit={size}")));
        }
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let path = uri.path().to_owned();
        let ignores_failure =
            |status| self.mistake.is_some_and(|mistake| mistake.ignores_failure(&method, &object, status));
        let unless_ignored = |response: Response<Body>| {
            let is_ignored = !response.status().is_success() && ignores_failure(Some(response.status()));
            if is_ignored { success(&object) } else { response }
        };
        if matches!(class, RequestClass::Write | RequestClass::Event) {
            (self.on_write)(self.process, &path);
        }
        let fault = self.faults.take(class);
        if let Some(response) = self.response_of_mistake(&method) {
            return Ok(response);
        }
        if let Some(fault) = fault {
            self.journal.record(EntryKind::Fault, self.process, format!("{method} {path}: {fault}"));
        }
        let response = match fault {
            // A request on its way arrives, although the process may have crashed since.
            Some(Fault::Delay(delay)) => {
                let transport = self.clone();
                let delivery = tokio::spawn(async move {
                    sleep(delay).await;
                    transport.deliver(request).await
                });
                delivery.await??
            }
            Some(Fault::Reject(code)) => return Ok(unless_ignored(rejection(code))),
            Some(Fault::Unprocessed) => std::future::pending().await,
            Some(Fault::LostResponse | Fault::Unanswered) | None => self.deliver(request).await?,
        };
        match (fault, class) {
            (Some(Fault::Unanswered), _) => std::future::pending().await,
            (Some(Fault::LostResponse), _) if ignores_failure(None) => Ok(success(&object)),
            (Some(Fault::LostResponse), _) => Err("the connection was closed before the response arrived".into()),
            (_, RequestClass::Read | RequestClass::NextPage) => self.read(&uri, response).await,
            (_, RequestClass::Watch) if response.status().is_success() => Ok(self.watch(&path, response)),
            _ => Ok(unless_ignored(response)),
        }
    }

    /// Returns the response of the API server.
    async fn deliver(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let response = embedded::router(&self.server).oneshot(request).await?;
        let text = format!("{method} {path}: {}", response.status().as_u16());
        self.journal.record(EntryKind::Request, self.process, text);
        Ok(response)
    }

    /// Returns the request with the planted mistake, and its object.
    async fn with_mistake(&self, request: Request<kube::client::Body>) -> Result<(Request<Body>, Value), BoxError> {
        let (head, body) = request.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let mut request = Request::from_parts(head, Body::empty());
        let mut object: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        let Some(mistake) = self.mistake else {
            *request.body_mut() = bytes.into();
            return Ok((request, object));
        };
        mistake.apply(&mut request, &mut object, &self.server);
        let body = if object.is_null() { bytes } else { Bytes::from(object.to_string()) };
        *request.body_mut() = body.into();
        Ok((request, object))
    }

    /// Returns what a controller with the planted mistake continues with, if it does not wait for the API server.
    fn response_of_mistake(&self, method: &Method) -> Option<Response<Body>> {
        match self.mistake? {
            Mistake::NoPruning if *method == Method::DELETE => Some(success(&json!({"kind": "Status",
                "apiVersion": "v1", "metadata": {}, "status": "Success"}))),
            _ => None,
        }
    }

    /// Returns what a controller with the planted mistake reads.
    async fn read(&self, uri: &Uri, response: Response<Body>) -> Result<Response<Body>, BoxError> {
        match self.mistake {
            Some(Mistake::FirstPageOnly) => without_next_page(response).await,
            Some(Mistake::OwnershipByAnnotation) => adopted(response).await,
            Some(Mistake::StaleOwner) if is_owner_read(uri) => {
                let (head, body) = response.into_parts();
                let mut bytes = body.collect().await?.to_bytes();
                let list: Value = serde_json::from_slice(&bytes)?;
                let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
                match list["items"].as_array().is_some_and(Vec::is_empty) {
                    true => bytes = owners.get(&uri.to_string()).cloned().unwrap_or(bytes),
                    false => drop(owners.insert(uri.to_string(), bytes.clone())),
                }
                Ok(Response::from_parts(head, bytes.into()))
            }
            _ => Ok(response),
        }
    }

    /// Delays and ends the events of a watch as the faults require.
    fn watch(&self, path: &str, response: Response<Body>) -> Response<Body> {
        let (head, body) = response.into_parts();
        let is_repeated = !self.watched.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned());
        if is_repeated && self.mistake == Some(Mistake::NoRelist) {
            let no_events = stream::pending::<Result<Bytes, BoxError>>();
            return Response::from_parts(head, Body::from_stream(no_events));
        }
        let (cut, faults, path) = (self.faults.cut_token(), self.faults.clone(), path.to_owned());
        let adopts = self.mistake == Some(Mistake::OwnershipByAnnotation);
        let events = body.into_data_stream().then(move |chunk| {
            let delay = faults.watch_delay(&path);
            let chunk = if adopts { chunk.map(|chunk| adopted_events(&chunk)) } else { chunk };
            async move {
                if !delay.is_zero() {
                    sleep(delay).await;
                }
                chunk.map_err(BoxError::from)
            }
        });
        let events = events.take_until(cut.cancelled_owned());
        Response::from_parts(head, Body::from_stream(events))
    }
}

/// Returns an object or a list with the field managers of [`adopt`].
async fn adopted(response: Response<Body>) -> Result<Response<Body>, BoxError> {
    let (head, body) = response.into_parts();
    let mut value: Value = serde_json::from_slice(&body.collect().await?.to_bytes())?;
    match value["items"].as_array_mut() {
        Some(items) => items.iter_mut().for_each(adopt),
        None => adopt(&mut value),
    }
    Ok(Response::from_parts(head, value.to_string().into()))
}

/// Returns the events of a watch with the field managers of [`adopt`].
fn adopted_events(chunk: &[u8]) -> Bytes {
    let mut events = Vec::new();
    for line in chunk.split_inclusive(|byte| *byte == b'\n') {
        match serde_json::from_slice::<Value>(line) {
            Ok(mut event) => {
                adopt(&mut event["object"]);
                events.extend(format!("{event}\n").into_bytes());
            }
            Err(_) => events.extend(line),
        }
    }
    events.into()
}

/// Returns whether a request reads the service whose objects are about to be created.
fn is_owner_read(uri: &Uri) -> bool {
    uri.path().ends_with("/inferenceservices") && uri.query().is_some_and(|query| query.contains("fieldSelector="))
}

/// Returns a page of a list as if it was the last one.
async fn without_next_page(response: Response<Body>) -> Result<Response<Body>, BoxError> {
    let (head, body) = response.into_parts();
    let mut list: Value = serde_json::from_slice(&body.collect().await?.to_bytes())?;
    if let Some(metadata) = list.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("continue");
    }
    Ok(Response::from_parts(head, list.to_string().into()))
}

fn success(object: &Value) -> Response<Body> {
    Response::new(object.to_string().into())
}

/// Returns the response of an API server that rejects a request.
fn rejection(code: u16) -> Response<Body> {
    let reason = match code {
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        504 => "Timeout",
        _ => "InternalError",
    };
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
        "message": format!("the simulation rejects the request with {code}")});
    let mut response = Response::new(status.to_string().into());
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    response
}
