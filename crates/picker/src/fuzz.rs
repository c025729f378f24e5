//! Properties of the functions that process bytes of clients and engines. Each function panics if its property does not hold.
//! `fuzz/` contains a target of `cargo fuzz` for each, and the corpora, which also run as ordinary tests.

use api::inference::ModelServer;
use bytes::Bytes;
use prost::Message as _;
use serde_json::Value;

use crate::{
    endpoint_picker::check_ext_proc_messages,
    engine_metrics::parse_metrics,
    ext_proc::ProcessingRequest,
    gateway::{check_event_stream, check_path},
    model_rewrite::{RewrittenModel, replace_model},
    request::parse_request,
};

/// Scans a request body: every JSON object is accepted, with the same model as `serde_json` finds.
pub fn scan_body(body: &[u8]) {
    let scanned = parse_request(body);
    if let Ok(info) = &scanned {
        assert!(info.prompt_spans.iter().all(|span| body.get(span.clone()).is_some()));
    }
    let Ok(Value::Object(fields)) = serde_json::from_slice(body) else { return };
    match (fields.get("model"), scanned) {
        (Some(Value::String(model)), Ok(info)) => assert_eq!(info.model.map(|field| field.name).as_ref(), Some(model)),
        (None, scanned) => assert!(scanned.is_ok_and(|info| info.model.is_none())),
        (Some(Value::Null), Ok(info)) => assert_eq!(info.model, None),
        // Another value, or one of several values, or a long string.
        (Some(_), scanned) => assert!(scanned.is_err()),
    }
}

/// Replaces the model in a request body: only the value changes.
pub fn splice_body(body: &[u8]) {
    let Some(model) = parse_request(body).ok().and_then(|info| info.model) else { return };
    let name = "größe \"\\";
    let spliced = replace_model(&Bytes::copy_from_slice(body), &model.span, name).concat();
    let rescanned = parse_request(&spliced).ok().and_then(|info| info.model);
    assert_eq!(rescanned.map(|model| model.name).as_deref(), Some(name));
    let rest = body.len() - model.span.end;
    assert_eq!(spliced[..model.span.start], body[..model.span.start]);
    assert_eq!(spliced[spliced.len() - rest..], body[model.span.end..]);
}

/// Restores the model in a response: chunks do not matter, and a response without the name is unchanged.
pub fn restore_response(response: &[u8]) {
    for content_type in ["application/json", "text/event-stream"] {
        let restore = |engine_model: &str, size: usize| {
            let model = RewrittenModel { client_model: "client".to_owned(), engine_model: engine_model.to_owned() };
            let mut restored = Vec::new();
            if let Some(mut restorer) = model.restorer(content_type, false) {
                response.chunks(size).for_each(|chunk| restored.extend(restorer.push(chunk)));
                restored.extend(restorer.finish());
            }
            restored
        };
        let whole = restore("tuned", response.len().max(1));
        for size in [1, 2, 7] {
            assert_eq!(restore("tuned", size), whole);
        }
        assert_eq!(restore("a name that no response contains", 3), response);
    }
}

/// Forwards an event stream: all bytes arrive, in order.
pub fn forward_event_stream(stream: &[u8]) {
    check_event_stream(stream);
}

/// Processes messages of a proxy. Each byte string is one message.
pub fn process_ext_proc_messages(messages: &[u8]) {
    // A message may contain 0, but it need not.
    let messages = messages.split(|byte| *byte == 0).filter_map(|message| ProcessingRequest::decode(message).ok());
    check_ext_proc_messages(messages);
}

/// Parses a page of metrics: values are finite.
pub fn parse_metrics_page(page: &[u8]) {
    let metrics = parse_metrics(&String::from_utf8_lossy(page), ModelServer::Vllm);
    let values = [metrics.waiting, metrics.running, metrics.kv_cache_usage];
    assert!(values.into_iter().flatten().all(|value| value >= 0.0), "{metrics:?}");
    assert!(metrics.kv_cache_usage.is_none_or(|usage| usage <= 1.0), "{metrics:?}");
}

/// Routes a path: only known paths reach an engine.
pub fn route_path(path: &[u8]) {
    check_path(&String::from_utf8_lossy(path));
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use fastrand::Rng;
    use rstest::rstest;

    use super::*;

    /// Mutations of each file of a corpus.
    const MUTATIONS: u64 = 500;

    /// Returns `bytes` with a few changes.
    fn mutate(bytes: &[u8], rng: &mut Rng) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..rng.usize(1..4) {
            let index = rng.usize(..=bytes.len());
            match rng.u8(..4) {
                0 => bytes.insert(index, *rng.choice(b"{}[]\",:\\\n\0%/ \xff").unwrap()),
                1 => bytes.truncate(index),
                2 if index < bytes.len() => drop(bytes.remove(index)),
                _ if index < bytes.len() => bytes[index] = rng.u8(..),
                _ => {}
            }
        }
        bytes
    }

    #[rstest]
    #[case::scan_body("scan_body", scan_body)]
    #[case::splice_body("splice_body", splice_body)]
    #[case::restore_response("restore_response", restore_response)]
    #[case::forward_event_stream("forward_event_stream", forward_event_stream)]
    #[case::process_ext_proc_messages("process_ext_proc_messages", process_ext_proc_messages)]
    #[case::parse_metrics_page("parse_metrics_page", parse_metrics_page)]
    #[case::route_path("route_path", route_path)]
    fn corpus_has_the_property(#[case] target: &str, #[case] check: fn(&[u8])) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
        assert!(root.join("fuzz_targets").join(format!("{target}.rs")).exists());
        let mut files: Vec<_> =
            fs::read_dir(root.join("corpus").join(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        assert!(!files.is_empty());
        for (seed, file) in (0..).zip(&files) {
            let bytes = fs::read(file).unwrap();
            check(&bytes);
            let mut rng = Rng::with_seed(seed);
            (0..MUTATIONS).for_each(|_| check(&mutate(&bytes, &mut rng)));
        }
    }
}
