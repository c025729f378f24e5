//! One request as the proxy tells it, without the transport: messages in, messages out.
//!
//! Bodies are `FULL_DUPLEX_STREAMED`: the proxy sends the whole request and waits for no answer before its end; then the
//! headers are answered, with the choice, and the body is given back. Answers are not looked at.

use std::{collections::BTreeMap, net::SocketAddr};

use bytes::{Bytes, BytesMut};
use http::StatusCode;
use tonic::Status;

use super::messages::{
    AppendAction, Asks, BodyMutation, BodySendMode, CommonResponse, HeaderMap, HeaderMutation, HeaderSendMode,
    HeaderValue, HeaderValueOption, HeadersOrBody, HttpBody, HttpHeaders, HttpStatus, ImmediateResponse, Kind,
    Metadata, ProcessingMode, ProcessingRequest, ProcessingResponse, ProtocolConfiguration, Says, StreamedBodyResponse,
    Struct, TrailersResponse,
};
use crate::{
    gateway::openai::problem,
    policy::{Bodies, Choice},
    pool::PoolKey,
    request::{self, Facts, MAX_BODY},
    splice,
};

/// Header and metadata key of the choice.
const DESTINATION: &str = "x-gateway-destination-endpoint";
/// Metadata key of the endpoint that answered.
const SERVED: &str = "x-gateway-destination-endpoint-served";
/// Namespace of both.
const BALANCER: &str = "envoy.lb";
/// Namespace and key of the endpoints that may be chosen.
const SUBSET: (&str, &str) = ("envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset");
/// Where a decoder sends the prompt first.
const PREFILLER: &str = "x-prefiller-host-port";
/// The engine that is meant where one port of its Pod stands for all.
const RANK: &str = "x-data-parallel-host-port";
/// The model to ask the engine for, in place of the body's; the first that is there counts.
const REWRITE: [&str; 2] = ["x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite"];
/// Headers that speak to the picker, not to an engine.
const CONTROL: [&str; 15] = [
    PREFILLER,
    RANK,
    "x-encoder-hosts-ports",
    SERVED,
    "x-gateway-destination-endpoint-subset",
    "x-gateway-inference-objective",
    "x-llm-d-inference-objective",
    "x-gateway-inference-fairness-id",
    "x-llm-d-inference-fairness-id",
    "x-gateway-model-name-rewrite",
    "x-llm-d-model-name-rewrite",
    "x-slo-ttft-ms",
    "x-llm-d-slo-ttft-ms",
    "x-slo-tpot-ms",
    "x-llm-d-slo-tpot-ms",
];

/// Body bytes of one message; proxies refuse messages of 64 KiB and more by default.
const CHUNK: usize = 62_000;

/// What is known of one request so far.
#[derive(Debug)]
pub(super) struct Exchange {
    bodies: Bodies,
    headers: BTreeMap<String, String>,
    body: BytesMut,
    subset: Option<Vec<String>>,
    /// The endpoint that answered, as the proxy told.
    pub served: Option<SocketAddr>,
    /// The answer is a failure of the server's side: the engine's, or the proxy's that did not reach it.
    pub failed: bool,
}

/// What is to be done.
#[derive(Debug)]
pub(super) enum Step {
    /// More has to come.
    Wait,
    Say(Vec<ProcessingResponse>),
    /// An endpoint is to be chosen; [`chosen`] or [`refused`] makes the answer.
    Choose(Asked),
    /// Nothing more will be said.
    End(ProcessingResponse),
}

/// A request that is complete.
#[derive(Debug)]
pub(super) struct Asked {
    pub body: Bytes,
    pub facts: Facts,
    /// The model as the engines know it.
    pub target: String,
    /// `ip` or `ip:port` of each endpoint that may be chosen; absent: all.
    subset: Option<Vec<String>>,
    /// What remains to be answered after the headers.
    end: End,
}

/// What ended the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Headers,
    Body,
    Trailers,
}

impl Exchange {
    pub(super) fn new(bodies: Bodies) -> Self {
        Self { bodies, headers: BTreeMap::new(), body: BytesMut::new(), subset: None, served: None, failed: false }
    }

    /// Takes one message in.
    ///
    /// # Errors
    /// A status that ends the stream: the proxy is set up in a way that cannot work.
    pub(super) fn take(&mut self, message: ProcessingRequest) -> Result<Step, Status> {
        let mode = body_mode(message.protocol_config)?;
        let metadata = message.metadata_context.unwrap_or_default();
        self.subset = subset(&metadata).or(self.subset.take());
        match message.request {
            Some(Asks::RequestHeaders(headers)) => Ok(self.request_headers(headers, mode)),
            Some(Asks::RequestBody(body)) => Ok(self.request_body(&body)),
            Some(Asks::RequestTrailers(_)) => Ok(self.complete(End::Trailers)),
            Some(Asks::ResponseHeaders(told)) => {
                self.served = served(&metadata);
                self.failed = status(&told).is_some_and(|status| status >= 500);
                Ok(Step::Say(vec![answer_not_needed()]))
            }
            Some(Asks::ResponseBody(body)) => {
                Ok(Step::Say(chunks(&body.body, body.end_of_stream).map(Says::ResponseBody).map(plain).collect()))
            }
            Some(Asks::ResponseTrailers(_)) => {
                Ok(Step::Say(vec![plain(Says::ResponseTrailers(TrailersResponse::default()))]))
            }
            None => Err(Status::invalid_argument("a message of a kind that is not known here")),
        }
    }

    fn request_headers(&mut self, told: HttpHeaders, mode: Option<BodySendMode>) -> Step {
        let HeaderMap { headers } = told.headers.unwrap_or_default();
        self.headers = headers.into_iter().map(|header| (header.key.to_ascii_lowercase(), header.text())).collect();
        // A body that is not sent here is not looked at.
        if told.end_of_stream || mode == Some(BodySendMode::None) {
            return Step::Choose(self.asked(Facts::default(), Bytes::new(), String::new(), End::Headers));
        }
        Step::Wait
    }

    fn request_body(&mut self, told: &HttpBody) -> Step {
        if self.body.len() + told.body.len() > MAX_BODY {
            let message = format!("The request body is larger than {} MiB.", MAX_BODY / (1024 * 1024));
            return Step::End(refusal(StatusCode::PAYLOAD_TOO_LARGE, &message, None, "request_too_large"));
        }
        self.body.extend_from_slice(&told.body);
        if told.end_of_stream { self.complete(End::Body) } else { Step::Wait }
    }

    fn complete(&mut self, end: End) -> Step {
        let body = self.body.split().freeze();
        let (facts, stated) = match (self.facts(&body), self.bodies) {
            (Ok(found), _) => found,
            // Whatever it is, its beginning is one.
            (Err(_), Bodies::Pass) => {
                let whole = Facts { prompt: std::iter::once(0..body.len()).collect(), ..Facts::default() };
                return Step::Choose(self.asked(whole, body, String::new(), end));
            }
            (Err(refused), Bodies::Refused) => return Step::End(*refused),
        };
        let rewrite = REWRITE.iter().find_map(|name| self.headers.get(*name)).filter(|name| !name.is_empty());
        let target = rewrite.cloned().unwrap_or(stated);
        Step::Choose(self.asked(facts, body, target, end))
    }

    /// What the body says, and the model it names; or why it cannot be scheduled.
    fn facts(&self, body: &[u8]) -> Result<(Facts, String), Box<ProcessingResponse>> {
        let bad = |message: &str, param, code| Box::new(refusal(StatusCode::BAD_REQUEST, message, param, code));
        let facts = request::scan(body).map_err(|reason| bad(&format!("{reason}."), None, "invalid_body"))?;
        let stated = facts.model.as_ref().map(|model| model.name.clone()).filter(|name| !name.is_empty());
        let stated =
            stated.ok_or_else(|| bad("You must provide a model parameter.", Some("model"), "missing_model"))?;
        Ok((facts, stated))
    }

    fn asked(&mut self, facts: Facts, body: Bytes, target: String, end: End) -> Asked {
        Asked { body, facts, target, subset: self.subset.take(), end }
    }
}

impl Asked {
    /// Whether the proxy allows this endpoint.
    pub(super) fn allows(&self, endpoint: SocketAddr) -> bool {
        let Some(subset) = &self.subset else { return true };
        let (all, ip) = (endpoint.to_string(), endpoint.ip().to_string());
        subset.iter().any(|allowed| *allowed == all || *allowed == ip)
    }

    /// The answer once endpoints are chosen: the headers with the choice, then what the proxy waits for.
    pub(super) fn chosen(&self, choice: &Choice, primary_port: Option<u16>) -> Vec<ProcessingResponse> {
        let stated = self.facts.model.as_ref();
        let rewritten = stated.filter(|model| model.name != self.target);
        let body = rewritten.map(|model| splice::replace(&self.body, &model.span, &self.target));
        let mut said = vec![headers(choice, primary_port, body.as_ref().map(Bytes::len))];
        let body = body.unwrap_or_else(|| self.body.clone());
        if self.end != End::Headers {
            said.extend(chunks(&body, self.end == End::Body).map(Says::RequestBody).map(plain));
        }
        if self.end == End::Trailers {
            said.push(plain(Says::RequestTrailers(TrailersResponse::default())));
        }
        said
    }
}

/// Where the request goes: the first answer, with the choice as a header and as metadata.
fn headers(choice: &Choice, primary_port: Option<u16>, new_length: Option<usize>) -> ProcessingResponse {
    let addresses = choice.endpoints.iter().map(|endpoint| endpoint.address);
    let reached = |mut address: SocketAddr| {
        address.set_port(primary_port.unwrap_or(address.port()));
        address
    };
    let endpoints: Vec<String> = addresses.clone().map(|address| reached(address).to_string()).collect();
    let endpoints = endpoints.join(",");
    let mut set = vec![set(DESTINATION, &endpoints)];
    let behind = addresses.take(1).filter(|first| reached(*first) != *first);
    set.extend(behind.map(|rank| self::set(RANK, &rank.to_string())));
    set.extend(choice.prefiller.iter().map(|prefiller| self::set(PREFILLER, &prefiller.address.to_string())));
    set.extend(new_length.map(|length| self::set("content-length", &length.to_string())));
    let kept: Vec<String> = set.iter().filter_map(|one| Some(one.header.as_ref()?.key.clone())).collect();
    let remove_headers = CONTROL.map(str::to_owned).into_iter().filter(|name| !kept.contains(name)).collect();
    let response = CommonResponse {
        header_mutation: Some(HeaderMutation { set_headers: set, remove_headers }),
        // The route may depend on the endpoint.
        clear_route_cache: true,
        ..CommonResponse::default()
    };
    let metadata = Struct::of(DESTINATION, Kind::Text(endpoints));
    ProcessingResponse {
        response: Some(Says::RequestHeaders(HeadersOrBody { response: Some(response) })),
        dynamic_metadata: Some(Struct::of(BALANCER, Kind::Fields(metadata))),
        mode_override: None,
    }
}

/// The answer where no endpoint may be chosen.
pub(super) fn refused(pool: &PoolKey) -> ProcessingResponse {
    let message = format!("No endpoint of pool {pool} can answer now.");
    let mut said = refusal(StatusCode::SERVICE_UNAVAILABLE, &message, None, "no_endpoint");
    if let Some(Says::Immediate(ImmediateResponse { headers: Some(headers), .. })) = &mut said.response {
        headers.set_headers.push(set("retry-after", "1"));
        headers.set_headers.push(set("x-llm-d-request-dropped-reason", "rejected-no-endpoints"));
    }
    said
}

fn refusal(status: StatusCode, message: &str, param: Option<&str>, code: &str) -> ProcessingResponse {
    plain(Says::Immediate(ImmediateResponse {
        status: Some(HttpStatus { code: i32::from(status.as_u16()) }),
        headers: Some(HeaderMutation {
            set_headers: vec![set("content-type", "application/json")],
            remove_headers: Vec::new(),
        }),
        body: Bytes::from(problem(status, message, param, Some(code)).to_string()),
        details: code.to_owned(),
    }))
}

/// Modes that hold the body back until the headers are answered would wait for us as we wait for them.
fn body_mode(config: Option<ProtocolConfiguration>) -> Result<Option<BodySendMode>, Status> {
    let Some(config) = config else { return Ok(None) };
    match config.request_body_mode() {
        mode @ (BodySendMode::None | BodySendMode::FullDuplexStreamed) => Ok(Some(mode)),
        mode => Err(Status::failed_precondition(format!(
            "request_body_mode {mode:?} does not work here: set FULL_DUPLEX_STREAMED in the proxy's ext_proc filter"
        ))),
    }
}

/// A list of strings, or one string with commas.
fn subset(metadata: &Metadata) -> Option<Vec<String>> {
    let value = metadata.filter_metadata.get(SUBSET.0)?.fields.get(SUBSET.1)?;
    let split = |text: &str| text.split(',').map(|part| part.trim().to_owned()).collect::<Vec<_>>();
    Some(match value.kind.as_ref()? {
        Kind::Text(text) => split(text),
        Kind::List(list) => {
            let texts = list.values.iter().filter_map(|value| match &value.kind {
                Some(Kind::Text(text)) => Some(text.as_str()),
                _ => None,
            });
            texts.flat_map(split).collect()
        }
        Kind::Fields(_) => return None,
    })
}

fn status(told: &HttpHeaders) -> Option<u16> {
    let headers = told.headers.as_ref()?.headers.iter();
    headers.filter(|header| header.key == ":status").find_map(|header| header.text().parse().ok())
}

fn served(metadata: &Metadata) -> Option<SocketAddr> {
    match &metadata.filter_metadata.get(BALANCER)?.fields.get(SERVED)?.kind {
        Some(Kind::Text(address)) => address.parse().ok(),
        _ => None,
    }
}

/// The answer passes as it is, and its body need not come here: a proxy that listens sends none of it. Envoy does not
/// listen where `response_body_mode` is `FULL_DUPLEX_STREAMED`; set to `NONE` there, a long stream costs no round trip.
/// With `response_trailer_mode: SEND` beside it the proxy stays until the answer's end.
fn answer_not_needed() -> ProcessingResponse {
    let mode = ProcessingMode {
        request_header_mode: HeaderSendMode::Send.into(),
        response_header_mode: HeaderSendMode::Send.into(),
        request_body_mode: BodySendMode::FullDuplexStreamed.into(),
        response_body_mode: BodySendMode::None.into(),
        request_trailer_mode: HeaderSendMode::Send.into(),
        // Until trailers or the end: the request counts as long as its answer comes.
        response_trailer_mode: HeaderSendMode::Send.into(),
    };
    let response = Some(Says::ResponseHeaders(HeadersOrBody::default()));
    ProcessingResponse { response, dynamic_metadata: None, mode_override: Some(mode) }
}

/// `body` in messages, at least one; the last says whether the body ends with it.
fn chunks(body: &Bytes, end: bool) -> impl Iterator<Item = HeadersOrBody> {
    let number = body.len().div_ceil(CHUNK).max(1);
    let body = body.clone();
    (0..number).map(move |at| {
        let part = body.slice(at * CHUNK..body.len().min((at + 1) * CHUNK));
        let streamed = StreamedBodyResponse { body: part, end_of_stream: end && at + 1 == number };
        let body_mutation = Some(BodyMutation { streamed_response: Some(streamed) });
        HeadersOrBody { response: Some(CommonResponse { body_mutation, ..CommonResponse::default() }) }
    })
}

fn plain(says: Says) -> ProcessingResponse {
    ProcessingResponse { response: Some(says), dynamic_metadata: None, mode_override: None }
}

fn set(key: &str, value: &str) -> HeaderValueOption {
    let header = HeaderValue {
        key: key.to_owned(),
        raw_value: Bytes::copy_from_slice(value.as_bytes()),
        ..HeaderValue::default()
    };
    HeaderValueOption { header: Some(header), append_action: AppendAction::OverwriteIfExistsOrAdd.into() }
}

#[cfg(test)]
#[path = "exchange_tests.rs"]
mod tests;
