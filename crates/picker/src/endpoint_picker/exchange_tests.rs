use rstest::rstest;

use super::super::messages::{HttpTrailers, ListValue, Value};
use super::*;
use crate::pool::{Endpoint, Pools};

fn endpoint(number: u8) -> Endpoint {
    let address = ([10, 0, 0, number], 8000).into();
    Endpoint {
        address,
        pod: format!("pod-{number}"),
        prompts: crate::Prompts::default(),
        load: Pools::new(0).load(address),
    }
}

fn choice(prefiller: Option<u8>) -> Choice {
    Choice { endpoints: vec![endpoint(2), endpoint(1)], prefiller: prefiller.map(endpoint), known_bytes: 0 }
}

fn message(request: Asks) -> ProcessingRequest {
    ProcessingRequest { request: Some(request), ..ProcessingRequest::default() }
}

fn headers(of: &[(&str, &str)], end_of_stream: bool) -> ProcessingRequest {
    let header = |(key, value): &(&str, &str)| HeaderValue {
        key: (*key).to_owned(),
        raw_value: Bytes::copy_from_slice(value.as_bytes()),
        ..HeaderValue::default()
    };
    let headers = Some(HeaderMap { headers: of.iter().map(header).collect() });
    message(Asks::RequestHeaders(HttpHeaders { headers, end_of_stream }))
}

fn body(text: &str, end_of_stream: bool) -> ProcessingRequest {
    message(Asks::RequestBody(HttpBody { body: Bytes::copy_from_slice(text.as_bytes()), end_of_stream }))
}

fn with_subset(mut message: ProcessingRequest, kind: Kind) -> ProcessingRequest {
    let metadata = Metadata { filter_metadata: [(SUBSET.0.to_owned(), Struct::of(SUBSET.1, kind))].into() };
    message.metadata_context = Some(metadata);
    message
}

/// Feeds all messages in; every one but the last has to be followed by another.
fn asked(messages: Vec<ProcessingRequest>) -> Asked {
    let mut exchange = Exchange::new(Bodies::Refused);
    let mut steps = messages.into_iter().map(|message| exchange.take(message).unwrap()).peekable();
    loop {
        match steps.next() {
            Some(Step::Wait) => {}
            Some(Step::Choose(asked)) if steps.peek().is_none() => return asked,
            other => panic!("{other:?}"),
        }
    }
}

fn ended(messages: Vec<ProcessingRequest>) -> (i32, String) {
    let mut exchange = Exchange::new(Bodies::Refused);
    let last = messages.into_iter().map(|message| exchange.take(message).unwrap()).last();
    let Some(Step::End(ProcessingResponse { response: Some(Says::Immediate(said)), .. })) = last else {
        panic!("{last:?}")
    };
    (said.status.unwrap().code, String::from_utf8(said.body.to_vec()).unwrap())
}

/// Headers that are set, and those that are removed.
fn mutation(said: &ProcessingResponse) -> (BTreeMap<String, String>, Vec<String>) {
    let Some(Says::RequestHeaders(HeadersOrBody { response: Some(response) })) = &said.response else {
        panic!("{said:?}")
    };
    let mutation = response.header_mutation.clone().unwrap();
    let set = mutation.set_headers.into_iter().map(|one| one.header.unwrap());
    (set.map(|header| (header.key.clone(), header.text())).collect(), mutation.remove_headers)
}

fn given_back(said: &[ProcessingResponse]) -> (String, Vec<bool>) {
    let (mut text, mut ends) = (String::new(), Vec::new());
    for one in said {
        if let Some(Says::RequestBody(HeadersOrBody { response: Some(response) })) = &one.response {
            let part = response.body_mutation.clone().unwrap().streamed_response.unwrap();
            text.push_str(std::str::from_utf8(&part.body).unwrap());
            ends.push(part.end_of_stream);
        }
    }
    (text, ends)
}

const BODY: &str = r#"{"model":"m","prompt":"hi","big":12345678901234567890123}"#;

// spec: GW-55
#[test]
fn the_choice_is_a_header_and_metadata_and_the_body_comes_back_as_it_was() {
    let asked =
        asked(vec![headers(&[(":path", "/v1/completions")], false), body(&BODY[..9], false), body(&BODY[9..], true)]);
    assert_eq!(asked.target, "m");
    let said = asked.chosen(&choice(None), None);
    let (set, removed) = mutation(&said[0]);
    assert_eq!(set, [("x-gateway-destination-endpoint".to_owned(), "10.0.0.2:8000,10.0.0.1:8000".to_owned())].into());
    assert!(removed.contains(&"x-prefiller-host-port".to_owned()), "a client must not choose it");
    let metadata = &said[0].dynamic_metadata.clone().unwrap().fields["envoy.lb"];
    let expect = Struct::of("x-gateway-destination-endpoint", Kind::Text("10.0.0.2:8000,10.0.0.1:8000".to_owned()));
    assert_eq!(metadata.kind, Some(Kind::Fields(expect)));
    assert_eq!(given_back(&said), (BODY.to_owned(), vec![true]));
}

#[test]
fn a_long_body_comes_back_in_parts_and_ends_once() {
    let long = format!(r#"{{"model":"m","prompt":"{}"}}"#, "x".repeat(2 * CHUNK));
    let (text, ends) = given_back(&asked(vec![headers(&[], false), body(&long, true)]).chosen(&choice(None), None));
    assert_eq!((text == long, ends), (true, vec![false, false, true]));
}

#[test]
fn trailers_end_a_body_too() {
    let trailers = message(Asks::RequestTrailers(HttpTrailers::default()));
    let said = asked(vec![headers(&[], false), body(BODY, false), trailers]).chosen(&choice(None), None);
    assert_eq!(given_back(&said), (BODY.to_owned(), vec![false]));
    assert!(matches!(said.last().unwrap().response, Some(Says::RequestTrailers(_))));
}

#[test]
fn a_request_without_a_body_is_answered_at_once() {
    let said = asked(vec![headers(&[(":method", "GET")], true)]).chosen(&choice(None), None);
    assert_eq!(said.len(), 1);
    assert!(mutation(&said[0]).0.contains_key(DESTINATION));
}

#[test]
fn a_pair_names_the_prefiller() {
    let said = asked(vec![headers(&[], false), body(BODY, true)]).chosen(&choice(Some(7)), None);
    let (set, removed) = mutation(&said[0]);
    assert_eq!(set[PREFILLER], "10.0.0.7:8000");
    assert!(!removed.contains(&PREFILLER.to_owned()));
}

#[test]
fn a_port_that_stands_for_all_is_told_which_is_meant() {
    let asked = asked(vec![headers(&[(RANK, "10.9.9.9:1")], false), body(BODY, true)]);
    let (set, removed) = mutation(&asked.chosen(&choice(None), Some(9000))[0]);
    assert_eq!((set[DESTINATION].as_str(), set[RANK].as_str()), ("10.0.0.2:9000,10.0.0.1:9000", "10.0.0.2:8000"));
    assert!(!removed.contains(&RANK.to_owned()));
    let (set, removed) = mutation(&asked.chosen(&choice(None), Some(8000))[0]);
    assert_eq!((set[DESTINATION].as_str(), set.get(RANK)), ("10.0.0.2:8000,10.0.0.1:8000", None));
    assert!(removed.contains(&RANK.to_owned()), "a client must not choose it");
}

#[rstest]
#[case::no_json("not json")]
#[case::no_model(r#"{"prompt":"hi"}"#)]
fn any_body_passes_where_that_is_asked_for(#[case] text: &str) {
    let mut exchange = Exchange::new(Bodies::Pass);
    assert!(matches!(exchange.take(headers(&[], false)).unwrap(), Step::Wait));
    let Step::Choose(asked) = exchange.take(body(text, true)).unwrap() else { panic!() };
    assert_eq!((asked.target.as_str(), asked.facts.prompt_bytes()), ("", text.len()));
    assert_eq!(given_back(&asked.chosen(&choice(None), None)).0, text);
}

#[rstest]
#[case::new("x-llm-d-model-name-rewrite")]
#[case::old("x-gateway-model-name-rewrite")]
// spec: GW-52
fn a_rewritten_model_changes_its_bytes_and_the_length_only(#[case] header: &str) {
    let asked = asked(vec![headers(&[(header, "tuned-v2")], false), body(BODY, true)]);
    assert_eq!(asked.target, "tuned-v2");
    let said = asked.chosen(&choice(None), None);
    let expect = BODY.replace("\"m\"", "\"tuned-v2\"");
    assert_eq!(mutation(&said[0]).0["content-length"], expect.len().to_string());
    assert_eq!(given_back(&said).0, expect);
}

#[rstest]
#[case::none(None, [true, true])]
#[case::text(Some(Kind::Text("10.0.0.9:1, 10.0.0.2:8000".to_owned())), [false, true])]
#[case::another_port(Some(Kind::Text("10.0.0.2:8001".to_owned())), [false, false])]
#[case::address_only(Some(Kind::Text("10.0.0.1".to_owned())), [true, false])]
#[case::list(Some(Kind::List(ListValue { values: vec![Value { kind: Some(Kind::Text("10.0.0.1:8000".to_owned())) }] })), [true, false])]
#[case::empty(Some(Kind::List(ListValue::default())), [false, false])]
fn a_subset_bounds_the_choice(#[case] hint: Option<Kind>, #[case] allowed: [bool; 2]) {
    let mut first = headers(&[], false);
    if let Some(hint) = hint {
        first = with_subset(first, hint);
    }
    let asked = asked(vec![first, body(BODY, true)]);
    assert_eq!([1, 2].map(|number| asked.allows(endpoint(number).address)), allowed);
}

#[rstest]
#[case::no_json("not json", 400, "not a JSON object")]
#[case::no_model(r#"{"prompt":"hi"}"#, 400, "You must provide a model parameter.")]
#[case::model_is_no_text(r#"{"model":7}"#, 400, "`model` must be a string")]
// spec: GW-80
fn a_body_that_cannot_be_scheduled_is_refused(#[case] text: &str, #[case] status: i32, #[case] says: &str) {
    let (code, told) = ended(vec![headers(&[], false), body(text, true)]);
    assert_eq!(code, status);
    assert!(told.contains(says) && told.contains("invalid_request_error"), "{told}");
}

// spec: GW-80
#[test]
fn a_body_is_bounded() {
    let part = "x".repeat(MAX_BODY / 2);
    let (code, _) = ended(vec![headers(&[], false), body(&part, false), body(&part, false), body("x", false)]);
    assert_eq!(code, 413);
}

// spec: GW-79
#[test]
fn no_endpoint_is_503_with_the_reason() {
    let key = PoolKey { namespace: "ns".to_owned(), name: "p".to_owned() };
    let Some(Says::Immediate(said)) = refused(&key).response else { panic!() };
    assert_eq!(said.status.unwrap().code, 503);
    let set = said.headers.unwrap().set_headers.into_iter().map(|one| one.header.unwrap());
    let set: BTreeMap<String, String> = set.map(|header| (header.key.clone(), header.text())).collect();
    assert_eq!(
        (set["x-llm-d-request-dropped-reason"].as_str(), set["retry-after"].as_str()),
        ("rejected-no-endpoints", "1")
    );
}

#[test]
fn answers_pass_and_the_endpoint_that_served_is_heard() {
    let mut exchange = Exchange::new(Bodies::Refused);
    let mut told = message(Asks::ResponseHeaders(HttpHeaders::default()));
    let served = Struct::of(SERVED, Kind::Text("10.0.0.1:8000".to_owned()));
    told.metadata_context = Some(Metadata { filter_metadata: [(BALANCER.to_owned(), served)].into() });
    let Step::Say(said) = exchange.take(told).unwrap() else { panic!() };
    assert_eq!(said[0].mode_override.unwrap().response_body_mode(), BodySendMode::None);
    assert_eq!(exchange.served, Some(endpoint(1).address));
    let part = HttpBody { body: Bytes::from_static(b"data: x\n\n"), end_of_stream: false };
    let Step::Say(said) = exchange.take(message(Asks::ResponseBody(part))).unwrap() else { panic!() };
    let Some(Says::ResponseBody(HeadersOrBody { response: Some(response) })) = &said[0].response else { panic!() };
    let part = response.body_mutation.clone().unwrap().streamed_response.unwrap();
    assert_eq!((&part.body[..], part.end_of_stream), (&b"data: x\n\n"[..], false));
}

#[rstest]
#[case::well("200", false)]
#[case::too_many("429", false)]
#[case::not_reached("503", true)]
#[case::nonsense("x", false)]
fn failures_are_heard(#[case] status: &str, #[case] expect: bool) {
    let mut exchange = Exchange::new(Bodies::Refused);
    let Some(Asks::RequestHeaders(told)) = headers(&[(":status", status)], false).request else { panic!() };
    exchange.take(message(Asks::ResponseHeaders(told))).unwrap();
    assert_eq!(exchange.failed, expect);
}

#[test]
fn a_mode_that_would_wait_for_ever_is_refused_with_the_remedy() {
    let mut first = headers(&[], false);
    let mode = BodySendMode::Buffered.into();
    first.protocol_config = Some(ProtocolConfiguration { request_body_mode: mode, response_body_mode: 0 });
    let status = Exchange::new(Bodies::Refused).take(first).unwrap_err();
    assert_eq!(status.code(), tonic::Code::FailedPrecondition);
    assert!(status.message().contains("set FULL_DUPLEX_STREAMED"), "{status}");
}
