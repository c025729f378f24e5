use std::{collections::BTreeMap, sync::Arc};

use rstest::rstest;

use super::*;
use crate::ext_proc::{HttpTrailers, ListValue, Value};
use crate::{endpoint::tests::endpoint, routing_error::RoutingError};
use cluster::NamespacedName;

fn scheduling_result(prefiller: Option<u8>) -> SchedulingResult {
    SchedulingResult {
        endpoint: Arc::new(endpoint(2)),
        fallbacks: vec![Arc::new(endpoint(1))],
        prefill_endpoint: prefiller.map(endpoint).map(Arc::new),
        cached_bytes: 0,
    }
}

fn new_stream(parser: Parser) -> ExtProcStream {
    ExtProcStream::new(parser, ControlFields::Reject, None)
}

fn message(request: Request) -> ProcessingRequest {
    ProcessingRequest { request: Some(request), ..ProcessingRequest::default() }
}

fn headers(headers: &[(&str, &str)], end_of_stream: bool) -> ProcessingRequest {
    let header = |(key, value): &(&str, &str)| HeaderValue {
        key: (*key).to_owned(),
        raw_value: Bytes::copy_from_slice(value.as_bytes()),
        ..HeaderValue::default()
    };
    let headers = Some(HeaderMap { headers: headers.iter().map(header).collect() });
    message(Request::RequestHeaders(HttpHeaders { headers, end_of_stream }))
}

fn body(text: &str, end_of_stream: bool) -> ProcessingRequest {
    message(Request::RequestBody(HttpBody { body: Bytes::copy_from_slice(text.as_bytes()), end_of_stream }))
}

fn with_subset(mut message: ProcessingRequest, kind: Kind) -> ProcessingRequest {
    let metadata =
        Metadata { filter_metadata: [(SUBSET_HINT.0.to_owned(), Struct::with_field(SUBSET_HINT.1, kind))].into() };
    message.metadata_context = Some(metadata);
    message
}

/// Handles all messages and returns the complete request, which must follow the last message.
fn complete_request(messages: Vec<ProcessingRequest>) -> CompleteRequest {
    let mut stream = new_stream(Parser::RequireModel);
    let mut actions = messages.into_iter().map(|message| stream.handle(message).unwrap()).peekable();
    loop {
        match actions.next() {
            Some(Action::Continue) => {}
            Some(Action::Schedule(request)) if actions.peek().is_none() => return *request,
            other => panic!("{other:?}"),
        }
    }
}

fn rejection(messages: Vec<ProcessingRequest>) -> (i32, String) {
    let mut stream = new_stream(Parser::RequireModel);
    let last = messages.into_iter().map(|message| stream.handle(message).unwrap()).last();
    let Some(Action::Reject(error)) = last else { panic!("{last:?}") };
    let Some(Response::ImmediateResponse(response)) = immediate_response(&error).response else { panic!("{error:?}") };
    (response.status.unwrap().code, String::from_utf8(response.body.to_vec()).unwrap())
}

/// Returns the headers that are set and those that are removed.
fn header_mutation(responses: &ProcessingResponse) -> (BTreeMap<String, String>, Vec<String>) {
    let Some(Response::RequestHeaders(HeadersResponse { response: Some(response) })) = &responses.response else {
        panic!("{responses:?}")
    };
    let mutation = response.header_mutation.clone().unwrap();
    let set = mutation.set_headers.into_iter().map(|option| option.header.unwrap());
    (set.map(|header| (header.key.clone(), header.text())).collect(), mutation.remove_headers)
}

fn returned_body(responses: &[ProcessingResponse]) -> (String, Vec<bool>) {
    let (mut text, mut ends) = (String::new(), Vec::new());
    for option in responses {
        if let Some(Response::RequestBody(BodyResponse { response: Some(response) })) = &option.response {
            let chunk = response.body_mutation.clone().unwrap().streamed_response.unwrap();
            text.push_str(std::str::from_utf8(&chunk.body).unwrap());
            ends.push(chunk.end_of_stream);
        }
    }
    (text, ends)
}

/// The last value counts; without one, the request belongs to no session.
#[rstest]
#[case::none(&[], None)]
#[case::empty(&[("x-session-id", "")], None)]
#[case::last(&[("X-Session-Id", "a"), ("x-session-id", "b"), ("x-other", "c")], Some("b"))]
fn session_is_read_from_its_header(#[case] request_headers: &[(&str, &str)], #[case] expect: Option<&str>) {
    let header = HeaderName::from_static("x-session-id");
    let mut stream = ExtProcStream::new(Parser::RequireModel, ControlFields::Reject, Some(header));
    stream.handle(headers(request_headers, false)).unwrap();
    let Action::Schedule(request) = stream.handle(body(BODY, true)).unwrap() else { panic!() };
    assert_eq!(request.session.as_deref(), expect);
}

const BODY: &str = r#"{"model":"m","prompt":"hi","big":12345678901234567890123}"#;

// spec: GW-55
#[test]
fn selected_endpoint_is_sent_in_header_and_metadata() {
    let request = complete_request(vec![
        headers(&[(":path", "/v1/completions")], false),
        body(&BODY[..9], false),
        body(&BODY[9..], true),
    ]);
    assert_eq!(request.target_model, None);
    let responses = request.responses("m", &scheduling_result(None), None);
    let (set, removed) = header_mutation(&responses[0]);
    assert_eq!(set, [("x-gateway-destination-endpoint".to_owned(), "10.0.0.2:8000,10.0.0.1:8000".to_owned())].into());
    assert!(removed.contains(&"x-prefiller-host-port".to_owned()), "clients must not set the header");
    let metadata = &responses[0].dynamic_metadata.clone().unwrap().fields["envoy.lb"];
    let expect = Struct::with_field(
        "x-gateway-destination-endpoint",
        Kind::StringValue("10.0.0.2:8000,10.0.0.1:8000".to_owned()),
    );
    assert_eq!(metadata.kind, Some(Kind::StructValue(expect)));
    assert_eq!(returned_body(&responses), (BODY.to_owned(), vec![true]));
}

#[test]
fn long_body_is_returned_in_chunks() {
    let long_body = format!(r#"{{"model":"m","prompt":"{}"}}"#, "x".repeat(2 * MAX_CHUNK_BYTES));
    let (text, ends) = returned_body(&complete_request(vec![headers(&[], false), body(&long_body, true)]).responses(
        "m",
        &scheduling_result(None),
        None,
    ));
    assert_eq!((text == long_body, ends), (true, vec![false, false, true]));
}

#[test]
fn trailers_complete_the_request() {
    let trailers = message(Request::RequestTrailers(HttpTrailers::default()));
    let responses = complete_request(vec![headers(&[], false), body(BODY, false), trailers]).responses(
        "m",
        &scheduling_result(None),
        None,
    );
    assert_eq!(returned_body(&responses), (BODY.to_owned(), vec![false]));
    assert!(matches!(responses.last().unwrap().response, Some(Response::RequestTrailers(_))));
}

#[test]
fn request_without_body_is_scheduled_after_headers() {
    let responses =
        complete_request(vec![headers(&[(":method", "GET")], true)]).responses("m", &scheduling_result(None), None);
    assert_eq!(responses.len(), 1);
    assert!(header_mutation(&responses[0]).0.contains_key(DESTINATION_ENDPOINT_KEY));
}

#[test]
fn prefill_endpoint_is_sent_in_header() {
    let responses =
        complete_request(vec![headers(&[], false), body(BODY, true)]).responses("m", &scheduling_result(Some(7)), None);
    let (set, removed) = header_mutation(&responses[0]);
    assert_eq!(set["x-prefiller-host-port"], "10.0.0.7:8000");
    assert!(!removed.contains(&"x-prefiller-host-port".to_owned()));
}

#[test]
fn data_parallel_endpoint_is_sent_in_header() {
    let request =
        complete_request(vec![headers(&[("x-data-parallel-host-port", "10.9.9.9:1")], false), body(BODY, true)]);
    let (set, removed) = header_mutation(&request.responses("m", &scheduling_result(None), Some(9000))[0]);
    assert_eq!(
        (set[DESTINATION_ENDPOINT_KEY].as_str(), set["x-data-parallel-host-port"].as_str()),
        ("10.0.0.2:9000,10.0.0.1:9000", "10.0.0.2:8000")
    );
    assert!(!removed.contains(&"x-data-parallel-host-port".to_owned()));
    let (set, removed) = header_mutation(&request.responses("m", &scheduling_result(None), Some(8000))[0]);
    assert_eq!(
        (set[DESTINATION_ENDPOINT_KEY].as_str(), set.get("x-data-parallel-host-port")),
        ("10.0.0.2:8000,10.0.0.1:8000", None)
    );
    assert!(removed.contains(&"x-data-parallel-host-port".to_owned()), "clients must not set the header");
}

/// An engine sends requests to the addresses in some of these headers.
#[test]
fn control_headers_of_clients_are_removed() {
    let sent = [
        ("X-Prefiller-Host-Port", "169.254.169.254:80"),
        ("x-data-parallel-host-port", "169.254.169.254:80"),
        ("x-prefiller-url", "http://169.254.169.254"),
        ("X-SLO-E2E-ms", "1"),
        ("x-llm-d-video-fps", "1"),
        ("x-gateway-destination-endpoint", "169.254.169.254:80"),
        ("x-ostler-pod", "p"),
        ("x-request-id", "abc"),
        ("authorization", "Bearer t"),
    ];
    let request = complete_request(vec![headers(&sent, false), body(BODY, true)]);
    let (set, removed) = header_mutation(&request.responses("m", &scheduling_result(None), None)[0]);
    assert_eq!(set.into_keys().collect::<Vec<_>>(), ["x-gateway-destination-endpoint"]);
    let is_removed = sent.map(|(name, _)| removed.contains(&name.to_ascii_lowercase()));
    assert_eq!(is_removed, [true, true, true, true, true, false, true, false, false], "the destination is replaced");
}

/// Columns: header, body, name of the field or header.
#[rstest]
#[case::vllm("", r#"{"model":"m","kv_transfer_params":{"remote_host":"169.254.169.254"}}"#, "kv_transfer_params")]
#[case::no_model("", r#"{"bootstrap_host":"169.254.169.254"}"#, "bootstrap_host")]
#[case::header("___decode_addr_169.254.169.254:80", BODY, "x-request-id")]
fn requests_that_name_engines_are_rejected(#[case] request_id: &str, #[case] text: &str, #[case] name: &str) {
    let messages = || [headers(&[("X-Request-Id", request_id)], false), body(text, true)];
    let last_action = |parser, control_fields| {
        let mut stream = ExtProcStream::new(parser, control_fields, None);
        let mut actions = messages().into_iter().map(|message| stream.handle(message).unwrap());
        actions.find(|action| !matches!(action, Action::Continue)).unwrap()
    };
    for parser in [Parser::RequireModel, Parser::Passthrough] {
        let Action::Reject(error) = last_action(parser, ControlFields::Reject) else { panic!() };
        assert_eq!((error.status.as_u16(), error.param), (400, Some(name)));
    }
    assert!(matches!(last_action(Parser::Passthrough, ControlFields::Forward), Action::Schedule(_)));
}

#[rstest]
#[case::not_json("application/octet-stream", "not json")]
#[case::no_model("application/json", r#"{"prompt":"hi"}"#)]
fn passthrough_parser_accepts_bodies_without_a_model(#[case] content_type: &str, #[case] text: &str) {
    let mut stream = new_stream(Parser::Passthrough);
    let head = headers(&[("content-type", content_type)], false);
    assert!(matches!(stream.handle(head).unwrap(), Action::Continue));
    let Action::Schedule(request) = stream.handle(body(text, true)).unwrap() else { panic!() };
    assert_eq!((&request.target_model, request.info.prompt_bytes()), (&None, text.len()));
    assert_eq!(returned_body(&request.responses("m", &scheduling_result(None), None)).0, text);
}

/// Engines parse bodies of these content types as JSON, and accept more than the scan.
#[rstest]
#[case::no_content_type(&[], r#"{"a":NaN,"kv_transfer_params":{}}"#)]
#[case::not_a_number(&["application/json"], r#"{"a":NaN,"kv_transfer_params":{}}"#)]
#[case::utf_16(&["application/json"], "{\0\"\0a\0\"\0:\x001\0}\0")]
#[case::model_not_a_string(&["application/json"], r#"{"model":["m"],"kv_transfer_params":{}}"#)]
#[case::other_json(&["text/plain", "application/vnd.api+JSON"], "not json")]
fn passthrough_parser_rejects_json_in_which_control_fields_are_not_found(
    #[case] content_types: &[&str],
    #[case] text: &str,
) {
    let content_types: Vec<_> = content_types.iter().map(|value| ("Content-Type", *value)).collect();
    let action = |control_fields| {
        let mut stream = ExtProcStream::new(Parser::Passthrough, control_fields, None);
        stream.handle(headers(&content_types, false)).unwrap();
        stream.handle(body(text, true)).unwrap()
    };
    assert!(matches!(action(ControlFields::Reject), Action::Reject(error) if error.status.as_u16() == 400));
    assert!(matches!(action(ControlFields::Forward), Action::Schedule(_)));
}

#[rstest]
#[case::new("x-llm-d-model-name-rewrite")]
#[case::old("x-gateway-model-name-rewrite")]
// spec: GW-52
fn model_rewrite_changes_only_model_and_length(#[case] header: &str) {
    let request = complete_request(vec![headers(&[(header, "tuned-v2")], false), body(BODY, true)]);
    assert_eq!(request.target_model.as_deref(), Some("tuned-v2"));
    let responses = request.responses("tuned-v2", &scheduling_result(None), None);
    let expect = BODY.replace("\"m\"", "\"tuned-v2\"");
    assert_eq!(header_mutation(&responses[0]).0["content-length"], expect.len().to_string());
    assert_eq!(returned_body(&responses).0, expect);
}

#[test]
fn objective_and_fairness_id_are_read_and_removed() {
    let names = ["x-gateway-inference-objective", "x-llm-d-inference-fairness-id"];
    let request = complete_request(vec![headers(&names.map(|name| (name, "v")), false), body(BODY, true)]);
    let flow = request.flow.as_ref().unwrap();
    assert_eq!((flow.objective.as_deref(), flow.fairness_id.as_deref()), (Some("v"), Some("v")));
    let removed = header_mutation(&request.responses("m", &scheduling_result(None), None)[0]).1;
    assert!(names.iter().all(|name| removed.iter().any(|removed| removed == name)), "{removed:?}");
}

/// The engine receives exactly the name of the target, whatever characters it contains.
// spec: GW-39
#[rstest]
#[case::adapter("creativeNameGen-v3")]
#[case::path("org/Model:v1.2@sha256")]
#[case::escaped("größe \"\\ \u{1}")]
fn target_model_is_sent_verbatim(#[case] target: &str) {
    let request = complete_request(vec![headers(&[], false), body(BODY, true)]);
    let (sent, _) = returned_body(&request.responses(target, &scheduling_result(None), None));
    assert_eq!(serde_json::from_str::<serde_json::Value>(&sent).unwrap()["model"], target);
}

// spec: GW-38
#[test]
fn body_is_unchanged_if_the_target_is_the_requested_model() {
    let request = complete_request(vec![headers(&[("accept-encoding", "gzip")], false), body(BODY, true)]);
    let responses = request.responses("m", &scheduling_result(None), None);
    assert_eq!(returned_body(&responses).0, BODY);
    let (set, removed) = header_mutation(&responses[0]);
    assert!(!set.contains_key("content-length") && !removed.contains(&"accept-encoding".to_owned()));
}

#[rstest]
#[case::none(None, [true, true])]
#[case::text(Some(Kind::StringValue("10.0.0.9:1, 10.0.0.2:8000".to_owned())), [false, true])]
#[case::other_port(Some(Kind::StringValue("10.0.0.2:8001".to_owned())), [false, false])]
#[case::address_only(Some(Kind::StringValue("10.0.0.1".to_owned())), [true, false])]
#[case::list(Some(Kind::ListValue(ListValue { values: vec![Value { kind: Some(Kind::StringValue("10.0.0.1:8000".to_owned())) }] })), [true, false])]
#[case::empty(Some(Kind::ListValue(ListValue::default())), [false, false])]
// spec: GW-54
fn subset_hint_restricts_endpoints(#[case] hint: Option<Kind>, #[case] allowed: [bool; 2]) {
    let mut first = headers(&[], false);
    if let Some(hint) = hint {
        first = with_subset(first, hint);
    }
    let request = complete_request(vec![first, body(BODY, true)]);
    assert_eq!(
        [1, 2].map(|number| {
            request.subset.as_ref().is_none_or(|subset| subset.contains(endpoint(number).address, &mut 0))
        }),
        allowed
    );
}

#[rstest]
#[case::not_json("not json", 400, "not a JSON object")]
#[case::no_model(r#"{"prompt":"hi"}"#, 400, "You must provide a model parameter.")]
#[case::model_not_a_string(r#"{"model":7}"#, 400, "`model` must be a string")]
// spec: GW-80
fn invalid_body_is_rejected(#[case] text: &str, #[case] status: i32, #[case] expect: &str) {
    let (code, message) = rejection(vec![headers(&[], false), body(text, true)]);
    assert_eq!(code, status);
    assert!(message.contains(expect) && message.contains("invalid_request_error"), "{message}");
}

// spec: GW-80
#[test]
fn body_size_is_limited() {
    let half = "x".repeat(MAX_BODY_BYTES / 2);
    let (code, _) = rejection(vec![headers(&[], false), body(&half, false), body(&half, false), body("x", false)]);
    assert_eq!(code, 413);
}

// spec: GW-79
#[test]
fn missing_endpoint_is_503_with_reason() {
    let pool = NamespacedName { namespace: "ns".to_owned(), name: "p".to_owned() };
    let error = RoutingError::NoEndpointAvailable(pool).into();
    let Some(Response::ImmediateResponse(responses)) = immediate_response(&error).response else { panic!() };
    assert_eq!(responses.status.unwrap().code, 503);
    let set = responses.headers.unwrap().set_headers.into_iter().map(|option| option.header.unwrap());
    let set: BTreeMap<String, String> = set.map(|header| (header.key.clone(), header.text())).collect();
    assert_eq!(
        (set["x-llm-d-request-dropped-reason"].as_str(), set["retry-after"].as_str()),
        ("rejected-no-endpoints", "1")
    );
}

fn response_headers(headers_: &[(&str, &str)], end_of_stream: bool) -> ProcessingRequest {
    let Some(Request::RequestHeaders(headers)) = headers(headers_, end_of_stream).request else { panic!() };
    message(Request::ResponseHeaders(headers))
}

/// Returns the mode of the response body that the picker asks for, and the headers that it removes.
fn response_headers_reply_of(action: Action) -> (BodySendMode, Vec<String>) {
    let Action::Respond(responses) = action else { panic!("{action:?}") };
    let Some(Response::ResponseHeaders(HeadersResponse { response })) = &responses[0].response else {
        panic!("{responses:?}")
    };
    let mutation = response.clone().and_then(|response| response.header_mutation).unwrap_or_default();
    assert_eq!(mutation.set_headers, []);
    let mode = responses[0].mode_override.unwrap();
    assert_eq!(mode.response_trailer_mode(), HeaderSendMode::Send);
    (mode.response_body_mode(), mutation.remove_headers)
}

/// Returns the bytes of the messages for the response body, and whether the last one ends it.
fn returned_response_body(messages: &[ProcessingResponse]) -> (Vec<u8>, bool) {
    let (mut bytes, mut is_end) = (Vec::new(), false);
    for message in messages {
        let Some(Response::ResponseBody(BodyResponse { response: Some(response) })) = &message.response else {
            panic!("{message:?}")
        };
        let chunk = response.body_mutation.clone().unwrap().streamed_response.unwrap();
        bytes.extend_from_slice(&chunk.body);
        assert!(!is_end && chunk.body.len() <= MAX_CHUNK_BYTES);
        is_end = chunk.end_of_stream;
    }
    (bytes, is_end)
}

#[test]
fn response_is_unchanged_and_served_endpoint_is_recorded() {
    let mut stream = new_stream(Parser::RequireModel);
    let mut first = response_headers(&[("content-type", "application/json")], false);
    let served = Struct::with_field(SERVED_ENDPOINT_KEY, Kind::StringValue("10.0.0.1:8000".to_owned()));
    first.metadata_context = Some(Metadata { filter_metadata: [(LOAD_BALANCER_NAMESPACE.to_owned(), served)].into() });
    assert_eq!(response_headers_reply_of(stream.handle(first).unwrap()), (BodySendMode::None, Vec::new()));
    assert_eq!(stream.served_endpoint, Some(endpoint(1).address));
    let chunk = HttpBody { body: Bytes::from_static(b"data: x\n\n"), end_of_stream: false };
    let Action::ReturnResponseBody(body) = stream.handle(message(Request::ResponseBody(chunk))).unwrap() else {
        panic!()
    };
    assert_eq!(returned_response_body(&response_body_messages(body)), (b"data: x\n\n".to_vec(), false));
}

/// Returns a stream whose request for `chat` is sent to an engine for `tuned`.
fn rewritten_stream() -> ExtProcStream {
    let mut stream = new_stream(Parser::RequireModel);
    assert!(matches!(stream.handle(headers(&[("accept-encoding", "gzip")], false)).unwrap(), Action::Continue));
    let Action::Schedule(request) = stream.handle(body(r#"{"model":"chat"}"#, true)).unwrap() else { panic!() };
    assert_eq!(request.rewritten_model("chat"), None);
    let removed_headers = |target| header_mutation(&request.responses(target, &scheduling_result(None), None)[0]).1;
    assert!(!removed_headers("chat").contains(&"accept-encoding".to_owned()));
    assert!(removed_headers("tuned").contains(&"accept-encoding".to_owned()), "the response must not be compressed");
    stream.rewritten = request.rewritten_model("tuned");
    stream
}

#[rstest]
#[case::events(&[("content-type", "text/event-stream; charset=utf-8"), ("transfer-encoding", "chunked")], false, true)]
#[case::document(&[("content-type", "application/json"), ("content-length", "17")], false, true)]
#[case::compressed(&[("content-type", "application/json"), ("content-encoding", "gzip")], false, false)]
#[case::other_type(&[("content-type", "audio/wav")], false, false)]
#[case::no_type(&[], false, false)]
#[case::no_body(&[("content-type", "application/json")], true, false)]
fn only_bodies_with_a_model_name_are_requested(
    #[case] headers: &[(&str, &str)],
    #[case] end_of_stream: bool,
    #[case] is_requested: bool,
) {
    let action = rewritten_stream().handle(response_headers(headers, end_of_stream)).unwrap();
    let expect = match is_requested {
        true => (BodySendMode::FullDuplexStreamed, vec!["content-length".to_owned()]),
        false => (BodySendMode::None, Vec::new()),
    };
    assert_eq!(response_headers_reply_of(action), expect);
}

/// How a proxy ends a response.
#[derive(Clone, Copy, PartialEq)]
enum ResponseEnd {
    LastChunk,
    EmptyChunk,
    Trailers,
}

/// Returns what the client receives if the engine's response arrives in `chunks`.
fn restored_response(content_type: &str, chunks: &[&[u8]], end: ResponseEnd) -> String {
    let mut stream = rewritten_stream();
    stream.handle(response_headers(&[("content-type", content_type)], false)).unwrap();
    let last = chunks.len() - 1;
    let chunk = |body: &[u8], end_of_stream| {
        message(Request::ResponseBody(HttpBody { body: Bytes::copy_from_slice(body), end_of_stream }))
    };
    let chunks = chunks.iter().enumerate();
    let mut messages: Vec<_> =
        chunks.map(|(index, body)| chunk(body, end == ResponseEnd::LastChunk && index == last)).collect();
    match end {
        ResponseEnd::LastChunk => {}
        ResponseEnd::EmptyChunk => messages.push(chunk(b"", true)),
        ResponseEnd::Trailers => messages.push(message(Request::ResponseTrailers(HttpTrailers::default()))),
    }
    let (mut text, mut is_end) = (Vec::new(), false);
    for message in messages {
        let mut replies = match stream.handle(message).unwrap() {
            Action::ReturnResponseBody(body) => response_body_messages(body),
            Action::Respond(replies) => replies,
            other => panic!("{other:?}"),
        };
        if matches!(replies.last(), Some(ProcessingResponse { response: Some(Response::ResponseTrailers(_)), .. })) {
            replies.pop();
            is_end = true;
        }
        let (bytes, is_last) = returned_response_body(&replies);
        text.extend(bytes);
        is_end |= is_last;
    }
    assert!(is_end);
    String::from_utf8(text).unwrap()
}

// spec: GW-53
#[rstest]
#[case::events("text/event-stream", "data: {\"id\":\"1\",\"model\":\"tuned\"}\n\ndata: [DONE]\n\n")]
#[case::document("application/json", r#"{"model":"tuned","choices":[{"text":"tuned"}]}"#)]
#[case::truncated("application/json", r#"{"model":"tun"#)]
#[case::messages(
    "text/event-stream",
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"1\",\"model\":\"tuned\"}}\n\n"
)]
#[case::responses(
    "text/event-stream",
    "event: response.created\ndata: {\"response\":{\"output\":[{\"x\":\"tuned\"}],\"model\":\"tuned\"}}\n\n"
)]
#[case::error("application/json", r#"{"error":{"message":"The model `tuned` does not exist.","code":404}}"#)]
fn model_name_is_restored_at_every_chunk_boundary(
    #[case] content_type: &str,
    #[case] response: &str,
    #[values(ResponseEnd::LastChunk, ResponseEnd::EmptyChunk, ResponseEnd::Trailers)] end: ResponseEnd,
) {
    let expect = response.replace(r#""model":"tuned""#, r#""model":"chat""#).replace("`tuned`", "`chat`");
    for size in 1..=response.len() {
        let chunks: Vec<&[u8]> = response.as_bytes().chunks(size).collect();
        assert_eq!(restored_response(content_type, &chunks, end), expect, "chunks of {size}");
    }
}

#[test]
fn long_chunk_of_a_response_is_returned_in_several_messages() {
    let text = "x".repeat(2 * MAX_CHUNK_BYTES);
    let response = format!(r#"{{"text":"{text}","model":"tuned"}}"#);
    let restored = restored_response("application/json", &[response.as_bytes()], ResponseEnd::LastChunk);
    assert_eq!(restored, response.replace("tuned", "chat"));
}

#[rstest]
#[case::ok("200", Some(StatusCode::OK))]
#[case::unavailable("503", Some(StatusCode::SERVICE_UNAVAILABLE))]
#[case::invalid("x", None)]
fn status_of_the_response_is_recorded(#[case] status: &str, #[case] expect: Option<StatusCode>) {
    let mut stream = new_stream(Parser::RequireModel);
    stream.handle(response_headers(&[(":status", status)], false)).unwrap();
    assert_eq!(stream.response_status, expect);
}

#[test]
fn unsupported_body_mode_is_rejected_with_remedy() {
    let mut first = headers(&[], false);
    let mode = BodySendMode::Buffered.into();
    first.protocol_config = Some(ProtocolConfiguration { request_body_mode: mode, response_body_mode: 0 });
    let status = new_stream(Parser::RequireModel).handle(first).unwrap_err();
    assert_eq!(status.code(), tonic::Code::FailedPrecondition);
    assert!(status.message().contains("set FULL_DUPLEX_STREAMED"), "{status}");
}
