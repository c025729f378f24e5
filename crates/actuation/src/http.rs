//! Performs calls over HTTP. Each request has its own connection: vLLM closes idle ones after five seconds, which may coincide with
//! the next request.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request as HttpRequest, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};

use crate::call::{Answer, Call, CallError, CallErrorKind, INSTANCES, ObservedInstance, Request};
use crate::instance::{InstanceRecord, PORT_ANNOTATION};

/// Maximum size of a response.
const MAX_RESPONSE_BYTES: usize = 4 << 20;
/// Maximum length of a response in a message.
const MAX_MESSAGE_CHARS: usize = 200;
/// Interval at which an engine that starts is polled.
const HEALTH_INTERVAL: Duration = Duration::from_millis(100);
/// Interval at which the number of requests is polled.
const DRAIN_INTERVAL: Duration = Duration::from_millis(100);
/// Maximum number of accelerators of one requester.
const MAX_ACCELERATORS: usize = 128;
/// Metrics with the number of requests that run or wait, of vLLM and SGLang.
const REQUEST_METRICS: [&str; 4] =
    ["vllm:num_requests_running", "vllm:num_requests_waiting", "sglang:num_running_reqs", "sglang:num_queue_reqs"];
/// Prompt whose completion identifies an engine.
const PROMPT: &str = "The quick brown fox jumps over the";

/// Performs a call within its timeout.
///
/// # Errors
/// The target was not reached, rejected the request, or did not respond in time.
pub async fn perform(call: &Call) -> Result<Answer, CallError> {
    let address: IpAddr = call.ip.parse().map_err(|_| not_delivered(format!("{} is not an IP address", call.ip)))?;
    let client = Client {
        address: SocketAddr::new(address, call.port),
        deadline: Instant::now().checked_add(call.timeout).unwrap_or_else(Instant::now),
    };
    match &call.request {
        Request::Drain { settle } => client.drain(*settle).await,
        Request::Verify { completion } => client.verify(*completion).await,
        Request::AwaitHealth => client.await_health().await,
        Request::Instances { after: Some(revision) } => client.follow_instances(*revision).await,
        request => {
            let (method, path) = request.method_and_path();
            let method = Method::from_bytes(method.as_bytes()).unwrap_or(Method::GET);
            let config = if let Request::CreateInstance { config, .. } = request { Some(config) } else { None };
            let (status, body) = client.send(method, &path, config).await?;
            answer(request, status, &body)
        }
    }
}

/// Returns the answer in a response.
fn answer(request: &Request, status: StatusCode, body: &[u8]) -> Result<Answer, CallError> {
    let is_sleep_route = matches!(request, Request::IsSleeping | Request::WakeUp | Request::Sleep(_));
    if is_sleep_route && status == StatusCode::NOT_FOUND {
        return Ok(Answer::SleepUnsupported);
    }
    match (request, status) {
        (Request::CreateInstance { .. }, StatusCode::CONFLICT) => return Ok(Answer::InstanceExists),
        (Request::DeleteInstance { .. }, StatusCode::NOT_FOUND) => return Ok(Answer::InstanceDeleted { revision: 0 }),
        _ => {}
    }
    check_status(status, body)?;
    let unexpected = || rejected(format!("unexpected response: {}", excerpt(body)));
    match request {
        Request::IsSleeping => {
            let is_sleeping = parse(body).and_then(|value| value["is_sleeping"].as_bool());
            is_sleeping.map(Answer::Sleeping).ok_or_else(unexpected)
        }
        Request::Accelerators => {
            let uuids: Option<Vec<String>> = serde_json::from_slice(body).ok();
            let is_uuid = |uuid: &String| !uuid.is_empty() && !uuid.contains([',', ' ']);
            let uuids = uuids.filter(|uuids| uuids.len() <= MAX_ACCELERATORS && uuids.iter().all(is_uuid));
            uuids.map(Answer::Accelerators).ok_or_else(unexpected)
        }
        Request::MemoryUsage => serde_json::from_slice(body).map(Answer::MemoryUsage).map_err(|_| unexpected()),
        Request::Instances { .. } => instances(body).ok_or_else(unexpected),
        Request::CreateInstance { .. } | Request::DeleteInstance { .. } => {
            let revision = parse(body).and_then(|value| value["revision"].as_u64()).ok_or_else(unexpected)?;
            Ok(match request {
                Request::CreateInstance { .. } => Answer::InstanceCreated { revision },
                _ => Answer::InstanceDeleted { revision },
            })
        }
        _ => Ok(Answer::Accepted),
    }
}

/// List of instances in the response of a launcher.
#[derive(Deserialize)]
struct InstanceList {
    revision: u64,
    instances: Vec<InstanceState>,
}

#[derive(Deserialize)]
struct InstanceState {
    status: String,
    instance_id: String,
    #[serde(default)]
    gpu_uuids: Option<BTreeSet<String>>,
    #[serde(default)]
    annotations: Option<BTreeMap<String, String>>,
}

/// Parses a list of instances.
fn instances(body: &[u8]) -> Option<Answer> {
    let list: InstanceList = serde_json::from_slice(body).ok()?;
    let instance = |state: InstanceState| {
        let port = state.annotations.as_ref().and_then(|annotations| annotations.get(PORT_ANNOTATION)?.parse().ok());
        let record = InstanceRecord {
            accelerators: state.gpu_uuids.unwrap_or_default(),
            port: port.unwrap_or_default(),
            ..InstanceRecord::default()
        };
        (state.instance_id, ObservedInstance { is_running: state.status == "running", record })
    };
    let instances = list.instances.into_iter().map(instance).collect();
    Some(Answer::Instances { revision: list.revision, instances })
}

/// Sends the requests of one call to an address.
struct Client {
    address: SocketAddr,
    deadline: Instant,
}

// === impl Client ===

impl Client {
    /// Waits until no request runs or waits, or until the deadline.
    async fn drain(&self, settle: Duration) -> Result<Answer, CallError> {
        sleep(settle).await;
        loop {
            let (status, body) = self.send(Method::GET, "/metrics", None).await?;
            check_status(status, &body)?;
            let requests = number_of_requests(&String::from_utf8_lossy(&body));
            let requests = requests.ok_or_else(|| rejected("no metric has the number of requests".to_owned()))?;
            let next = Instant::now().checked_add(DRAIN_INTERVAL).filter(|next| *next < self.deadline);
            match next {
                Some(next) if requests > 0.0 => tokio::time::sleep_until(next).await,
                _ => return Ok(Answer::Idle(requests == 0.0)),
            }
        }
    }

    /// Waits until the engine is healthy, or until the deadline.
    async fn await_health(&self) -> Result<Answer, CallError> {
        loop {
            // The engine listens late.
            let response = self.send(Method::GET, "/health", None).await;
            if response.is_ok_and(|(status, _)| status.is_success()) {
                return Ok(Answer::Healthy(true));
            }
            let next = Instant::now().checked_add(HEALTH_INTERVAL).filter(|next| *next < self.deadline);
            match next {
                Some(next) => tokio::time::sleep_until(next).await,
                None => return Ok(Answer::Healthy(false)),
            }
        }
    }

    /// Waits for a change of the instances after a revision, or for half of the time until the deadline, and lists them.
    async fn follow_instances(&self, revision: u64) -> Result<Answer, CallError> {
        let end = Instant::now() + self.deadline.saturating_duration_since(Instant::now()) / 2;
        let (_, path) = Request::Instances { after: Some(revision) }.method_and_path();
        let path = format!("{path}?since={revision}");
        // Without a response, and after one that is not a stream, such as 410, the list is current.
        let _ = tokio::time::timeout_at(end, self.first_chunk(&path)).await;
        let (status, body) = self.send(Method::GET, INSTANCES, None).await?;
        answer(&Request::Instances { after: None }, status, &body)
    }

    /// Checks the health of an engine, and requests a completion of one token.
    async fn verify(&self, completion: bool) -> Result<Answer, CallError> {
        let (status, body) = self.send(Method::GET, "/health", None).await?;
        check_status(status, &body)?;
        if !completion {
            return Ok(Answer::Completion(None));
        }
        let models = self.json(Method::GET, "/v1/models", None).await?;
        let request = json!({"model": models["data"][0]["id"], "prompt": PROMPT, "max_tokens": 1, "temperature": 0});
        let response = self.json(Method::POST, "/v1/completions", Some(&request)).await?;
        let text = response["choices"][0]["text"].as_str();
        let text =
            text.ok_or_else(|| rejected(format!("unexpected response: {}", excerpt(response.to_string().as_bytes()))))?;
        Ok(Answer::Completion(Some(text.to_owned())))
    }

    async fn json(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, CallError> {
        let (status, body) = self.send(method, path, body).await?;
        check_status(status, &body)?;
        parse(&body).ok_or_else(|| rejected(format!("unexpected response: {}", excerpt(&body))))
    }

    /// Sends a request on a new connection and returns the response.
    async fn send(&self, method: Method, path: &str, body: Option<&Value>) -> Result<(StatusCode, Bytes), CallError> {
        let connect = timeout_at(self.deadline, TcpStream::connect(self.address)).await;
        let stream = connect.map_err(|_| not_delivered("the connection timed out".to_owned()))?;
        let stream = stream.map_err(|error| not_delivered(error.to_string()))?;
        // A request is small and must not wait for an acknowledgment.
        stream.set_nodelay(true).ok();
        let exchange = timeout_at(self.deadline, self.exchange(stream, method, path, body)).await;
        exchange.map_err(|_| no_response("the request timed out".to_owned()))?
    }

    /// Sends a request and waits for the first part of the response's body.
    async fn first_chunk(&self, path: &str) -> Option<()> {
        let stream = TcpStream::connect(self.address).await.ok()?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
        let request = HttpRequest::get(path).header(header::HOST, self.address.to_string());
        let request = request.body(Full::new(Bytes::new())).ok()?;
        let exchange = async { sender.send_request(request).await.ok()?.into_body().frame().await?.ok().map(drop) };
        tokio::select! {
            result = exchange => result,
            _ = connection => None,
        }
    }

    async fn exchange(
        &self,
        stream: TcpStream,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Bytes), CallError> {
        let failed = |error: hyper::Error| no_response(error.to_string());
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        let content = body.map(Value::to_string).unwrap_or_default();
        let request = HttpRequest::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, self.address.to_string())
            .header(header::CONNECTION, "close")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(content)))
            .map_err(|error| not_delivered(error.to_string()))?;
        let exchange = async {
            let response = sender.send_request(request).await.map_err(failed)?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await;
            let body = body.map_err(|error| no_response(error.to_string()))?;
            Ok((status, body.to_bytes()))
        };
        let mut exchange = std::pin::pin!(exchange);
        tokio::select! {
            result = &mut exchange => result,
            // The connection has ended; the response may be complete.
            _ = connection => exchange.await,
        }
    }
}

fn parse(body: &[u8]) -> Option<Value> {
    serde_json::from_slice(body).ok()
}

fn check_status(status: StatusCode, body: &[u8]) -> Result<(), CallError> {
    match status.is_success() {
        true => Ok(()),
        false => Err(rejected(format!("status {}: {}", status.as_u16(), excerpt(body)))),
    }
}

/// Returns the start of a response on one line.
fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let text: Vec<&str> = text.split_whitespace().collect();
    text.join(" ").chars().take(MAX_MESSAGE_CHARS).collect()
}

/// Returns the number of requests that run or wait; `None` if no metric has it.
fn number_of_requests(page: &str) -> Option<f64> {
    let value = |line: &str| {
        let is_metric = |name: &&&str| line.strip_prefix(**name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        REQUEST_METRICS.iter().find(is_metric)?;
        line.rsplit(' ').next()?.parse::<f64>().ok()
    };
    let values: Vec<f64> = page.lines().filter_map(value).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

fn not_delivered(message: String) -> CallError {
    CallError { kind: CallErrorKind::NotDelivered, message }
}

fn rejected(message: String) -> CallError {
    CallError { kind: CallErrorKind::Rejected, message }
}

fn no_response(message: String) -> CallError {
    CallError { kind: CallErrorKind::NoResponse, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::idle(
        "# HELP a b\nvllm:num_requests_running{model_name=\"m\"} 0.0\nvllm:num_requests_waiting{model_name=\"m\"} 0.0\n",
        Some(0.0)
    )]
    #[case::several_engines(
        "vllm:num_requests_running{engine=\"0\"} 2.0\nvllm:num_requests_running{engine=\"1\"} 1.0\n",
        Some(3.0)
    )]
    #[case::other_metric("vllm:num_requests_running_total 7\n", None)]
    #[case::sglang("sglang:num_queue_reqs{} 4\n", Some(4.0))]
    #[case::empty("", None)]
    fn requests_are_counted(#[case] page: &str, #[case] expected: Option<f64>) {
        assert_eq!(number_of_requests(page), expected);
    }

    #[rstest]
    #[case::asleep(Request::IsSleeping, 200, r#"{"is_sleeping":true}"#, Ok(Answer::Sleeping(true)))]
    #[case::no_sleep_mode(Request::IsSleeping, 404, r#"{"detail":"Not Found"}"#, Ok(Answer::SleepUnsupported))]
    #[case::nonsense(Request::IsSleeping, 200, "yes", Err("unexpected response: yes"))]
    #[case::accelerators(Request::Accelerators, 200, r#"["GPU-a"]"#, Ok(Answer::Accelerators(vec!["GPU-a".to_owned()])))]
    #[case::separator(Request::Accelerators, 200, r#"["GPU-a,GPU-b"]"#, Err(r#"unexpected response: ["GPU-a,GPU-b"]"#))]
    #[case::no_list(Request::Accelerators, 200, r#"{"a":1}"#, Err(r#"unexpected response: {"a":1}"#))]
    #[case::no_accelerators(Request::Accelerators, 500, "no\ndevices\n", Err("status 500: no devices"))]
    #[case::memory(Request::MemoryUsage, 200, r#"{"GPU-a":1532}"#, Ok(Answer::MemoryUsage([("GPU-a".to_owned(), 1532)].into())))]
    #[case::out_of_memory(Request::WakeUp, 500, "Internal Server Error", Err("status 500: Internal Server Error"))]
    #[case::upstream_requester(Request::Release, 404, "404 page not found", Err("status 404: 404 page not found"))]
    fn responses_are_parsed(
        #[case] request: Request,
        #[case] status: u16,
        #[case] body: &str,
        #[case] expected: Result<Answer, &str>,
    ) {
        let result = answer(&request, StatusCode::from_u16(status).unwrap(), body.as_bytes());
        assert_eq!(result.map_err(|error| error.message), expected.map_err(str::to_owned));
    }
}
