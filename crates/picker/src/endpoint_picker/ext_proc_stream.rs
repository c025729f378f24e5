//! State machine of one `ext_proc` stream, without the transport: messages in, messages out.
//!
//! Bodies are in mode `FULL_DUPLEX_STREAMED`: the proxy sends the whole request without waiting for responses. When the
//! request is complete, the picker answers its headers with the selected endpoint, and returns the body. It asks for the
//! response body only if the model name was replaced, and returns it with the name that the client used, or if the number of
//! output tokens is measured.

use std::net::SocketAddr;

use bytes::{Buf, Bytes};
use http::{HeaderName, StatusCode};
use http_server::BodyBuffer;
use tonic::Status;

use crate::{
    control_fields::{ControlFields, REQUEST_ID_HEADER},
    control_headers::{CONTROL_HEADERS, SERVED_ENDPOINT_KEY, destination, engine_headers, is_control_header},
    endpoint_subset::EndpointSubset,
    ext_proc::{
        BodyMutation, BodyResponse, BodySendMode, CommonResponse, HeaderAppendAction, HeaderMap, HeaderMutation,
        HeaderSendMode, HeaderValue, HeaderValueOption, HeadersResponse, HttpBody, HttpHeaders, HttpStatus,
        ImmediateResponse, Metadata, ProcessingMode, ProcessingRequest, ProcessingResponse, ProtocolConfiguration,
        StreamedBodyResponse, Struct, TrailersResponse, processing_request::Request, processing_response::Response,
        value::Kind,
    },
    flow_headers::FlowHeaders,
    model_rewrite::{self, ModelRestorer, RewrittenModel},
    openai_error::OpenAiError,
    policy::{Parser, SchedulingResult},
    request::{self, MAX_BODY_BYTES, RequestInfo, ScanError},
    scheduler::RequestedModel,
};

/// Header and metadata key of the selected endpoints.
const DESTINATION_ENDPOINT_KEY: &str = "x-gateway-destination-endpoint";
/// Metadata namespace of [`DESTINATION_ENDPOINT_KEY`] and [`SERVED_ENDPOINT_KEY`].
const LOAD_BALANCER_NAMESPACE: &str = "envoy.lb";
/// Metadata namespace and key of the endpoints that may be selected.
const SUBSET_HINT: (&str, &str) = ("envoy.lb.subset_hint", "x-gateway-destination-endpoint-subset");
/// Headers with the model name to use instead of the one in the body, in order of precedence.
const MODEL_REWRITE_HEADERS: [&str; 2] = ["x-llm-d-model-name-rewrite", "x-gateway-model-name-rewrite"];
/// Maximum body bytes per message: proxies reject messages of 64 KiB and more by default.
const MAX_CHUNK_BYTES: usize = 62_000;

/// State of one request.
#[derive(Debug)]
pub(super) struct ExtProcStream {
    parser: Parser,
    control_fields: ControlFields,
    /// Header whose value identifies a session.
    session_header: Option<HeaderName>,
    /// Value of the session header.
    session: Option<String>,
    /// Model name from the headers that takes precedence over the one in the body.
    model_rewrite: Option<String>,
    /// How the request waits if it has no use case.
    flow: Option<Box<FlowHeaders>>,
    /// Size of the body in bytes according to the headers.
    pub(super) content_length: Option<usize>,
    body: BodyBuffer,
    subset: Option<EndpointSubset>,
    /// Control headers that the client set.
    client_control_headers: Vec<String>,
    /// Endpoint that served the request, as reported by the proxy.
    pub(super) served_endpoint: Option<SocketAddr>,
    /// Status of the response. The proxy generates 5xx responses if it could not reach the engine.
    pub(super) response_status: Option<StatusCode>,
    /// Path of the request, without a query.
    path: String,
    /// Whether engines may parse the body as JSON, according to the headers.
    is_json: bool,
    /// The model name that was replaced in the request, if any.
    pub(super) rewritten: Option<RewrittenModel>,
    /// Whether the response body states a number of output tokens that is measured, until its end.
    pub(super) measures_response: bool,
    /// Restores the model name in the response body.
    restorer: Option<ModelRestorer>,
    /// Whether the proxy sends the response body.
    sends_response_body: bool,
}

/// Action of the server after a message.
#[derive(Debug)]
pub(super) enum Action {
    /// Wait for the next message.
    Continue,
    /// Send these messages.
    Respond(Vec<ProcessingResponse>),
    /// Send [`response_body_messages`] of this part of the response body.
    ReturnResponseBody(HttpBody),
    /// Schedule the request; [`CompleteRequest::responses`] or [`immediate_response`] returns the messages to send.
    Schedule(Box<CompleteRequest>),
    /// Send [`immediate_response`] and end the stream.
    Reject(OpenAiError),
}

/// A completely received request.
#[derive(Debug)]
pub(super) struct CompleteRequest {
    /// The whole body.
    pub(super) body: Bytes,
    /// Fields of the body; empty if the body is not sent or not parsed.
    pub(super) info: RequestInfo,
    /// Model name for the engines, if a header states one.
    pub(super) target_model: Option<String>,
    /// Path of the request, without a query.
    pub(super) path: String,
    /// How the request waits if it has no use case.
    pub(super) flow: Option<Box<FlowHeaders>>,
    /// Endpoints that may be selected; `None` allows all.
    pub(super) subset: Option<EndpointSubset>,
    /// Value of the session header.
    pub(super) session: Option<String>,
    /// Control headers that the client set.
    client_control_headers: Vec<String>,
    end: RequestEnd,
}

/// Message that completed the request: it determines which messages the proxy waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestEnd {
    /// A request without a body, or with a body that the proxy does not send.
    Headers,
    /// The last chunk of the body.
    Body,
    /// Trailers after the body.
    Trailers,
}

// === impl ExtProcStream ===

impl ExtProcStream {
    /// Returns the state before the first message.
    pub(super) fn new(parser: Parser, control_fields: ControlFields, session_header: Option<HeaderName>) -> Self {
        Self {
            parser,
            control_fields,
            session_header,
            session: None,
            model_rewrite: None,
            flow: None,
            content_length: None,
            body: BodyBuffer::default(),
            subset: None,
            client_control_headers: Vec::new(),
            served_endpoint: None,
            response_status: None,
            path: String::new(),
            is_json: true,
            rewritten: None,
            measures_response: false,
            restorer: None,
            sends_response_body: false,
        }
    }

    /// Returns whether a part of the response is still to be restored or measured.
    pub(super) fn needs_response(&self) -> bool {
        self.sends_response_body && (self.rewritten.is_some() || self.restorer.is_some() || self.measures_response)
    }

    /// Processes a message from the proxy.
    ///
    /// # Errors
    /// Returns the gRPC status that ends the stream if the proxy uses an unsupported mode or message.
    pub(super) fn handle(&mut self, message: ProcessingRequest) -> Result<Action, Status> {
        let mode = request_body_mode(message.protocol_config)?;
        if let Some(config) = message.protocol_config {
            self.sends_response_body = config.response_body_mode() != BodySendMode::None;
        }
        let metadata = message.metadata_context.unwrap_or_default();
        let is_request = matches!(
            message.request,
            Some(Request::RequestHeaders(_) | Request::RequestBody(_) | Request::RequestTrailers(_))
        );
        if is_request {
            self.subset = subset_hint(&metadata).or(self.subset.take());
        }
        match message.request {
            Some(Request::RequestHeaders(headers)) => Ok(self.request_headers(headers, mode)),
            Some(Request::RequestBody(body)) => Ok(self.request_body(body)),
            Some(Request::RequestTrailers(_)) => Ok(self.finish_request(RequestEnd::Trailers)),
            Some(Request::ResponseHeaders(headers)) => {
                self.served_endpoint = served_endpoint(&metadata);
                self.response_status = response_status(&headers);
                self.restorer = self.rewritten.take().and_then(|model| response_restorer(&model, &headers));
                let is_success = self.response_status.is_some_and(|status| status.is_success());
                self.measures_response &= is_success && !headers.end_of_stream;
                let reply = match (self.restorer.is_some(), self.measures_response) {
                    (true, _) => request_changed_response_body(),
                    (false, true) => request_response_body(),
                    (false, false) => skip_response_body(),
                };
                Ok(Action::Respond(vec![reply]))
            }
            Some(Request::ResponseBody(body)) => {
                self.sends_response_body = true;
                self.measures_response &= !body.end_of_stream;
                Ok(Action::ReturnResponseBody(self.restore_model(body)))
            }
            Some(Request::ResponseTrailers(_)) => {
                self.measures_response = false;
                let rest = self.restore_model(HttpBody { body: Bytes::new(), end_of_stream: true }).body;
                let mut responses = response_body_messages(HttpBody { body: rest, end_of_stream: false });
                responses.push(processing_response(Response::ResponseTrailers(TrailersResponse::default())));
                Ok(Action::Respond(responses))
            }
            None => Err(Status::invalid_argument("unsupported ProcessingRequest message")),
        }
    }

    fn request_headers(&mut self, message: HttpHeaders, mode: Option<BodySendMode>) -> Action {
        let HeaderMap { headers } = message.headers.unwrap_or_default();
        let value =
            |name: &str| headers.iter().rfind(|header| header.key.eq_ignore_ascii_case(name)).map(HeaderValue::text);
        self.model_rewrite = MODEL_REWRITE_HEADERS.into_iter().find_map(value).filter(|name| !name.is_empty());
        self.flow = FlowHeaders::read(value);
        let session = self.session_header.as_ref().and_then(|name| value(name.as_str()));
        self.session = session.filter(|session| !session.is_empty());
        let path = value(":path").unwrap_or_default();
        self.path = path.split('?').next().unwrap_or_default().to_owned();
        let mut content_types =
            headers.iter().filter(|header| header.key.eq_ignore_ascii_case("content-type")).peekable();
        self.is_json = content_types.peek().is_none()
            || content_types.any(|header| header.text().to_ascii_lowercase().contains("json"));
        self.content_length = value("content-length").and_then(|length| length.parse().ok());
        let names = headers.iter().map(|header| header.key.to_ascii_lowercase());
        self.client_control_headers = names.filter(|name| is_control_header(name)).collect();
        let request_ids = headers.iter().filter(|header| header.key.eq_ignore_ascii_case(REQUEST_ID_HEADER));
        if let Err(error) = self.control_fields.check_request_ids(request_ids.map(HeaderValue::text)) {
            return Action::Reject(error.into());
        }
        // With mode NONE the proxy does not send the body.
        if message.end_of_stream || mode == Some(BodySendMode::None) {
            let info = RequestInfo::default();
            return Action::Schedule(self.complete_request(info, Bytes::new(), None, RequestEnd::Headers));
        }
        Action::Continue
    }

    fn request_body(&mut self, message: HttpBody) -> Action {
        if self.body.len().saturating_add(message.body.len()) > MAX_BODY_BYTES {
            return Action::Reject(OpenAiError::body_too_large());
        }
        self.body.push(message.body);
        if message.end_of_stream { self.finish_request(RequestEnd::Body) } else { Action::Continue }
    }

    fn finish_request(&mut self, end: RequestEnd) -> Action {
        let body = self.body.take();
        let scanned = request::parse_request(&body);
        let control_field = scanned.as_ref().ok().and_then(|info| info.control_field);
        if let Err(error) = self.control_fields.check_field(control_field) {
            return Action::Reject(error.into());
        }
        // Engines accept JSON that the scan rejects, such as UTF-16 or NaN; it may contain control fields.
        let may_hide_fields = scanned.is_err() && self.is_json && self.control_fields == ControlFields::Reject;
        let info = match (require_model(scanned), self.parser) {
            (Ok(info), _) => info,
            (Err(error), Parser::Passthrough) if may_hide_fields => return Action::Reject(error),
            // The whole body counts as the prompt.
            (Err(_), Parser::Passthrough) => {
                let prompt_spans = std::iter::once(0..body.len()).collect();
                let info = RequestInfo { prompt_spans, ..RequestInfo::default() };
                return Action::Schedule(self.complete_request(info, body, None, end));
            }
            (Err(error), Parser::RequireModel) => return Action::Reject(error),
        };
        let target_model = self.model_rewrite.take();
        Action::Schedule(self.complete_request(info, body, target_model, end))
    }

    /// Returns a part of the response body with the client's model name. Bytes that may be part of the name are delayed.
    fn restore_model(&mut self, message: HttpBody) -> HttpBody {
        let Some(restorer) = &mut self.restorer else { return message };
        let mut body = restorer.push(&message.body);
        if message.end_of_stream {
            let rest = restorer.finish();
            body = if rest.is_empty() { body } else { [body, rest].concat().into() };
            self.restorer = None;
        }
        HttpBody { body, ..message }
    }

    fn complete_request(
        &mut self,
        info: RequestInfo,
        body: Bytes,
        target_model: Option<String>,
        end: RequestEnd,
    ) -> Box<CompleteRequest> {
        let client_control_headers = std::mem::take(&mut self.client_control_headers);
        let (path, flow, subset) = (std::mem::take(&mut self.path), self.flow.take(), self.subset.take());
        let session = self.session.take();
        Box::new(CompleteRequest { body, info, target_model, path, flow, subset, session, client_control_headers, end })
    }
}

// === impl CompleteRequest ===

impl CompleteRequest {
    /// Returns which model is requested. A header takes precedence over the body.
    pub(super) fn model(&self) -> RequestedModel<'_> {
        match (&self.target_model, &self.info.model) {
            (Some(target), _) => RequestedModel::Target(target),
            (None, Some(model)) => RequestedModel::Name(&model.name),
            (None, None) => RequestedModel::Unknown,
        }
    }

    /// Returns the model name that is replaced if the request is sent to an engine for `target_model`.
    pub(super) fn rewritten_model(&self, target_model: &str) -> Option<RewrittenModel> {
        let model = self.info.model.as_ref().filter(|model| model.name != target_model)?;
        Some(RewrittenModel { client_model: model.name.clone(), engine_model: target_model.to_owned() })
    }

    /// Returns the messages for a scheduled request: the headers with the selected endpoint, then the body and the trailers
    /// that the proxy waits for.
    pub(super) fn responses(
        &self,
        target_model: &str,
        result: &SchedulingResult,
        primary_port: Option<u16>,
    ) -> Vec<ProcessingResponse> {
        let rewritten = self.info.model.as_ref().filter(|model| model.name != target_model);
        let [start, model, end] = match rewritten {
            Some(model) => model_rewrite::replace_model(&self.body, &model.span, target_model),
            None => [self.body.clone(), Bytes::new(), Bytes::new()],
        };
        let body = start.chain(model).chain(end);
        let headers = self.header_response(result, primary_port, rewritten.map(|_| body.remaining()));
        let mut responses = vec![headers];
        if self.end != RequestEnd::Headers {
            let chunks = body_responses(body, self.end == RequestEnd::Body).map(Response::RequestBody);
            responses.extend(chunks.map(processing_response));
        }
        if self.end == RequestEnd::Trailers {
            responses.push(processing_response(Response::RequestTrailers(TrailersResponse::default())));
        }
        responses
    }

    /// Returns the response to the request headers, with the selected endpoints as a header and as metadata.
    fn header_response(
        &self,
        result: &SchedulingResult,
        primary_port: Option<u16>,
        new_length: Option<usize>,
    ) -> ProcessingResponse {
        let addresses = std::iter::once(&result.endpoint).chain(&result.fallbacks).map(|endpoint| endpoint.address);
        let endpoints: Vec<String> = addresses.map(|address| destination(address, primary_port).to_string()).collect();
        let endpoints = endpoints.join(",");
        let mut set_headers = vec![set_header(DESTINATION_ENDPOINT_KEY, &endpoints)];
        let engine_headers = engine_headers(result, primary_port);
        set_headers.extend(engine_headers.map(|(name, address)| set_header(name, &address.to_string())));
        set_headers.extend(new_length.map(|length| set_header("content-length", &length.to_string())));
        let set_header_names: Vec<String> =
            set_headers.iter().filter_map(|option| Some(option.header.as_ref()?.key.clone())).collect();
        // The model name cannot be restored in a compressed response.
        let accept_encoding = new_length.map(|_| "accept-encoding");
        let other_headers = self.client_control_headers.iter().filter(|name| !CONTROL_HEADERS.contains(&name.as_str()));
        let remove_headers = CONTROL_HEADERS.into_iter().chain(accept_encoding).map(str::to_owned);
        let remove_headers = remove_headers.chain(other_headers.cloned());
        let remove_headers = remove_headers.filter(|name| !set_header_names.contains(name)).collect();
        let response = CommonResponse {
            header_mutation: Some(HeaderMutation { set_headers, remove_headers }),
            // The route may depend on the endpoint.
            clear_route_cache: true,
            ..CommonResponse::default()
        };
        let metadata = Struct::with_field(DESTINATION_ENDPOINT_KEY, Kind::StringValue(endpoints));
        ProcessingResponse {
            response: Some(Response::RequestHeaders(HeadersResponse { response: Some(response) })),
            dynamic_metadata: Some(Struct::with_field(LOAD_BALANCER_NAMESPACE, Kind::StructValue(metadata))),
            mode_override: None,
        }
    }
}

/// Returns the fields of a body that names a model. Unlike the gateway, the picker states a code for both errors: proxies
/// write it to their access log.
fn require_model(scanned: Result<RequestInfo, ScanError>) -> Result<RequestInfo, OpenAiError> {
    let info = scanned.map_err(|error| OpenAiError { param: None, code: Some("invalid_body"), ..error.into() })?;
    if info.model.as_ref().is_none_or(|model| model.name.is_empty()) {
        return Err(OpenAiError { code: Some("missing_model"), ..OpenAiError::missing_model() });
    }
    Ok(info)
}

/// Returns the message that rejects a request: the proxy sends the error to the client.
pub(super) fn immediate_response(error: &OpenAiError) -> ProcessingResponse {
    let content_type = [("content-type", "application/json")];
    let headers = content_type.iter().chain(&error.headers);
    processing_response(Response::ImmediateResponse(ImmediateResponse {
        status: Some(HttpStatus { code: i32::from(error.status.as_u16()) }),
        headers: Some(HeaderMutation {
            set_headers: headers.map(|(name, value)| set_header(name, value)).collect(),
            remove_headers: Vec::new(),
        }),
        body: Bytes::from(error.body().to_string()),
        details: error.code.unwrap_or_default().to_owned(),
    }))
}

/// Returns the request body mode of the proxy. With a mode that withholds the body until the headers are answered, proxy
/// and picker would wait for each other.
fn request_body_mode(config: Option<ProtocolConfiguration>) -> Result<Option<BodySendMode>, Status> {
    let Some(config) = config else { return Ok(None) };
    match config.request_body_mode() {
        mode @ (BodySendMode::None | BodySendMode::FullDuplexStreamed) => Ok(Some(mode)),
        mode => Err(Status::failed_precondition(format!(
            "request_body_mode {mode:?} is not supported: set FULL_DUPLEX_STREAMED in the proxy's ext_proc filter"
        ))),
    }
}

/// Returns the subset hint: a list of strings, or one comma-separated string.
fn subset_hint(metadata: &Metadata) -> Option<EndpointSubset> {
    let value = metadata.filter_metadata.get(SUBSET_HINT.0)?.fields.get(SUBSET_HINT.1)?;
    Some(match value.kind.as_ref()? {
        Kind::StringValue(text) => EndpointSubset::parse(split(text)),
        Kind::ListValue(list) => {
            let strings = list.values.iter().filter_map(|value| match &value.kind {
                Some(Kind::StringValue(text)) => Some(text.as_str()),
                _ => None,
            });
            EndpointSubset::parse(strings.flat_map(split))
        }
        Kind::StructValue(_) => return None,
    })
}

/// Returns the entries of a comma-separated list.
fn split(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim)
}

fn response_status(message: &HttpHeaders) -> Option<StatusCode> {
    header(message, ":status")?.parse().ok()
}

/// Returns what restores the client's model name in the body of this response, if it has one with a model name.
fn response_restorer(model: &RewrittenModel, message: &HttpHeaders) -> Option<ModelRestorer> {
    let content_type = header(message, "content-type").unwrap_or_default();
    model.restorer(&content_type, header(message, "content-encoding").is_some()).filter(|_| !message.end_of_stream)
}

/// Returns the last value of a header.
fn header(message: &HttpHeaders, name: &str) -> Option<String> {
    let headers = &message.headers.as_ref()?.headers;
    headers.iter().rfind(|header| header.key.eq_ignore_ascii_case(name)).map(HeaderValue::text)
}

fn served_endpoint(metadata: &Metadata) -> Option<SocketAddr> {
    match &metadata.filter_metadata.get(LOAD_BALANCER_NAMESPACE)?.fields.get(SERVED_ENDPOINT_KEY)?.kind {
        Some(Kind::StringValue(address)) => address.parse().ok(),
        _ => None,
    }
}

/// Returns a reply to the response headers that changes nothing and asks the proxy not to send the response body. Envoy
/// ignores this if `response_body_mode` is `FULL_DUPLEX_STREAMED`. With `NONE` a long stream causes no round trips.
fn skip_response_body() -> ProcessingResponse {
    response_headers_reply(None, BodySendMode::None)
}

/// Returns a reply to the response headers that asks the proxy to send the response body, whose length will change.
/// Envoy 1.40 ignores the mode if `request_body_mode` is `FULL_DUPLEX_STREAMED`.
fn request_changed_response_body() -> ProcessingResponse {
    let removed = HeaderMutation { set_headers: Vec::new(), remove_headers: vec!["content-length".to_owned()] };
    response_headers_reply(Some(removed), BodySendMode::FullDuplexStreamed)
}

/// Returns a reply to the response headers that changes nothing and asks the proxy to send the response body.
fn request_response_body() -> ProcessingResponse {
    response_headers_reply(None, BodySendMode::FullDuplexStreamed)
}

fn response_headers_reply(
    header_mutation: Option<HeaderMutation>,
    response_body_mode: BodySendMode,
) -> ProcessingResponse {
    let mode = ProcessingMode {
        request_header_mode: HeaderSendMode::Send.into(),
        response_header_mode: HeaderSendMode::Send.into(),
        request_body_mode: BodySendMode::FullDuplexStreamed.into(),
        response_body_mode: response_body_mode.into(),
        request_trailer_mode: HeaderSendMode::Send.into(),
        // The request counts as in flight until the end of the response: the stream stays open until then.
        response_trailer_mode: HeaderSendMode::Send.into(),
    };
    let response =
        header_mutation.map(|mutation| CommonResponse { header_mutation: Some(mutation), ..CommonResponse::default() });
    let response = Some(Response::ResponseHeaders(HeadersResponse { response }));
    ProcessingResponse { response, dynamic_metadata: None, mode_override: Some(mode) }
}

/// Returns the messages with a part of the response body, none if it is empty and not the last one.
pub(super) fn response_body_messages(message: HttpBody) -> Vec<ProcessingResponse> {
    if message.body.is_empty() && !message.end_of_stream {
        return Vec::new();
    }
    let chunks = body_responses(message.body, message.end_of_stream).map(Response::ResponseBody);
    chunks.map(processing_response).collect()
}

/// Splits `body` into messages, at least one. `end_of_body` is set on the last one. Only messages with bytes of several parts
/// of `body` are copies.
fn body_responses(mut body: impl Buf, end_of_body: bool) -> impl Iterator<Item = BodyResponse> {
    let count = body.remaining().div_ceil(MAX_CHUNK_BYTES).max(1);
    (0..count).map(move |index| {
        let chunk = body.copy_to_bytes(body.remaining().min(MAX_CHUNK_BYTES));
        let streamed = StreamedBodyResponse { body: chunk, end_of_stream: end_of_body && index + 1 == count };
        let body_mutation = Some(BodyMutation { streamed_response: Some(streamed) });
        BodyResponse { response: Some(CommonResponse { body_mutation, ..CommonResponse::default() }) }
    })
}

fn processing_response(response: Response) -> ProcessingResponse {
    ProcessingResponse { response: Some(response), dynamic_metadata: None, mode_override: None }
}

fn set_header(key: &str, value: &str) -> HeaderValueOption {
    let header = HeaderValue {
        key: key.to_owned(),
        raw_value: Bytes::copy_from_slice(value.as_bytes()),
        ..HeaderValue::default()
    };
    HeaderValueOption { header: Some(header), append_action: HeaderAppendAction::OverwriteIfExistsOrAdd.into() }
}

#[cfg(test)]
mod tests;
