//! One request: read, route, pick, send, relay.

use std::{sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::time::timeout;

use super::{
    engines::Engines,
    openai,
    path::{Place, place},
    relay::Body,
};
use crate::{
    pool::{InFlight, PoolKey, Pools},
    request::{self, Facts, MAX_BODY, Model},
    schedule::{self, Pick, Question, Refusal},
    splice::{self, Restorer},
};

/// A client that sends nothing of its body for so long is given up.
const STALL: Duration = Duration::from_secs(30);

/// Endpoints tried for one request.
const ATTEMPTS: usize = 3;

/// Headers that belong to one connection (RFC 9110 §7.6.1).
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The proxy behind every connection.
pub(super) struct Proxy {
    pools: Arc<Pools>,
    engines: Engines,
}

/// A call that is ready to be sent.
struct Call {
    path: String,
    pool: Option<PoolKey>,
    headers: HeaderMap,
    body: Bytes,
    facts: Facts,
    model: Model,
}

impl Proxy {
    pub(super) fn new(pools: Arc<Pools>) -> Self {
        Self { pools, engines: Engines::new() }
    }

    pub(super) async fn answer(&self, request: Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let get = request.method() == Method::GET;
        match place(&path) {
            Place::Health => openai::healthy(),
            Place::Models(_) | Place::Model(..) if !get => openai::wrong_method("GET"),
            Place::Models(pool) => openai::models(&self.pools.routing(), pool.as_ref()),
            Place::Model(pool, name) => openai::model(&self.pools.routing(), pool.as_ref(), name),
            Place::Call { .. } if request.method() != Method::POST => openai::wrong_method("POST"),
            Place::Call { pool, path } => match read(request, pool, path).await {
                Ok(call) => self.proxy(call).await.unwrap_or_else(|refusal| openai::refused(&refusal)),
                Err(answer) => answer,
            },
            Place::Unknown => openai::no_such_path(&path),
        }
    }

    async fn proxy(&self, call: Call) -> Result<Response<Body>, Refusal> {
        let (routing, mut rng) = (self.pools.routing(), self.pools.rng());
        let prompt_tokens = call.facts.prompt_tokens();
        let question = Question { model: &call.model.name, pool: call.pool.as_ref(), prompt_tokens };
        let route = schedule::route(question, &routing, &mut rng)?;
        let rewritten = route.target != call.model.name;
        let body = match rewritten {
            true => splice::replace(&call.body, &call.model.span, &route.target),
            false => call.body.clone(),
        };
        let mut tried = Vec::new();
        loop {
            let pick = route.pick(&tried, &mut rng)?;
            tried.push(pick.endpoint.address);
            let in_flight = pick.endpoint.load.begin(call.facts.tokens());
            let more = tried.len() < ATTEMPTS && tried.len() < route.pool.ready.len();
            let sent = self.engines.send(upstream(&call, &body, &pick, rewritten)).await;
            match sent {
                Ok(answer) if more && elsewhere(answer.status()) => {
                    tracing::debug!(endpoint = %pick.endpoint.address, status = %answer.status(), "trying another endpoint");
                }
                Ok(answer) => {
                    let restore = rewritten.then_some((route.target.as_str(), call.model.name.as_str()));
                    return Ok(relay(answer, restore, &pick, in_flight));
                }
                Err(error) => {
                    tracing::debug!(endpoint = %pick.endpoint.address, %error, "endpoint failed before its answer");
                    if !more {
                        return Err(Refusal::NoEndpoint(route.pool.key.clone()));
                    }
                }
            }
        }
    }
}

/// Answers that another endpoint may give better: it lacks the model, or takes no request now.
fn elsewhere(status: StatusCode) -> bool {
    matches!(status, StatusCode::NOT_FOUND | StatusCode::SERVICE_UNAVAILABLE)
}

async fn read(request: Request<Incoming>, pool: Option<PoolKey>, path: &str) -> Result<Call, Response<Body>> {
    let (head, body) = request.into_parts();
    // A stated length is believed before a byte is read.
    if http_body::Body::size_hint(&body).lower() > MAX_BODY as u64 {
        return Err(openai::too_large());
    }
    let body = whole(body).await?;
    let mut facts = request::scan(&body).map_err(openai::not_scanned)?;
    let model = facts.model.take().filter(|model| !model.name.is_empty()).ok_or_else(openai::no_model)?;
    let path = match head.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    Ok(Call { path, pool, headers: head.headers, body, facts, model })
}

/// All of a body that ends, is not too large, and keeps coming.
async fn whole(body: Incoming) -> Result<Bytes, Response<Body>> {
    let mut body = Limited::new(body, MAX_BODY);
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    loop {
        let frame = match timeout(STALL, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) if error.is::<LengthLimitError>() => return Err(openai::too_large()),
            Ok(Some(Err(_))) => return Err(openai::unreadable("The request body ended early.")),
            Ok(None) => break,
            Err(_) => return Err(openai::too_slow()),
        };
        let Ok(data) = frame.into_data() else { continue };
        match (first.is_empty(), rest.is_empty()) {
            // Most bodies are one piece, and that is not copied.
            (true, true) => first = data,
            (_, true) => {
                rest.extend_from_slice(&first);
                rest.extend_from_slice(&data);
            }
            _ => rest.extend_from_slice(&data),
        }
    }
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// The request as the engine receives it.
fn upstream(call: &Call, body: &Bytes, pick: &Pick, rewritten: bool) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = Uri::builder()
        .scheme("http")
        .authority(pick.endpoint.address.to_string())
        .path_and_query(call.path.as_str())
        .build()
        .unwrap_or_default();
    let mut headers = end_to_end(&call.headers);
    for name in [header::HOST, header::CONTENT_LENGTH, header::EXPECT] {
        headers.remove(name);
    }
    if rewritten {
        // The name can only be restored in an answer that is not compressed.
        headers.remove(header::ACCEPT_ENCODING);
    }
    *request.headers_mut() = headers;
    request
}

/// `headers` without those of the connection, and without those by which pickers talk to gateways.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let named = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named: Vec<String> =
        named.flat_map(|list| list.split(',')).map(|name| name.trim().to_ascii_lowercase()).collect();
    let ours = |name: &str| ["x-gateway-", "x-llm-d-", "x-ostler-"].iter().any(|prefix| name.starts_with(prefix));
    let mut kept = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let text = name.as_str();
        if !HOP_BY_HOP.contains(&text) && !ours(text) && !named.iter().any(|other| other == text) {
            // A header may stand several times; all of them go on.
            kept.append(name, value.clone());
        }
    }
    kept
}

/// The engine's answer as the client receives it; `restore` holds the engine's and the client's model name.
fn relay(
    answer: Response<Incoming>,
    restore: Option<(&str, &str)>,
    pick: &Pick,
    in_flight: InFlight,
) -> Response<Body> {
    let (head, incoming) = answer.into_parts();
    let mut headers = end_to_end(&head.headers);
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let events = content_type.starts_with("text/event-stream");
    let plain =
        (events || content_type.starts_with("application/json")) && !headers.contains_key(header::CONTENT_ENCODING);
    let restorer = restore.filter(|_| plain).map(|(target, client)| Restorer::new(target, client, events));
    if restorer.is_some() {
        headers.remove(header::CONTENT_LENGTH);
    }
    explain(&mut headers, pick);
    let mut response = Response::new(Body::relayed(incoming, restorer, in_flight));
    *response.status_mut() = head.status;
    *response.headers_mut() = headers;
    response
}

/// Why this endpoint: for `ostler` and for people.
fn explain(headers: &mut HeaderMap, pick: &Pick) {
    let address = pick.endpoint.address.to_string();
    for (name, value) in
        [("x-ostler-endpoint", &address), ("x-ostler-pod", &pick.endpoint.pod), ("x-ostler-decision", &pick.decision)]
    {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_the_connection_and_of_the_picker_are_removed() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("te", "trailers"),
            ("x-gateway-destination-endpoint", "10.0.0.1:1"),
            ("x-ostler-pod", "p"),
            ("authorization", "Bearer t"),
            ("x-request-id", "abc"),
            ("accept", "a/b"),
            ("accept", "c/d"),
        ] {
            headers.append(name, HeaderValue::from_static(value));
        }
        let kept = end_to_end(&headers);
        let names: Vec<&str> = kept.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["authorization", "x-request-id", "accept", "accept"]);
    }
}
