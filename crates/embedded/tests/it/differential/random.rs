//! Sends random sequences of requests to this server and to a kube-apiserver and compares the responses.
//!
//! `cargo xtask test --with realcluster` runs it; `OSTLER_SEQUENCES` sets the number of sequences and `OSTLER_SEED` the
//! seed. A difference is printed as a script with the shortest failing sequence, for `tests/differential/scripts`.

mod objects;
mod requests;

use std::collections::{BTreeMap, BTreeSet};

use kube::Client;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use super::compare::differences_of;
use super::replay::{self, RecordedResponse};
use super::script::Step;

/// Default seed, constant so that a new difference results from a code change.
const DEFAULT_SEED: u64 = 6;

/// Differences by the index of the step.
type DifferencesByStep = BTreeMap<usize, String>;

/// Compares random sequences with a kube-apiserver.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kube-apiserver: cargo xtask test --with realcluster"]
async fn live() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (sequences, seed) = (number("OSTLER_SEQUENCES").unwrap_or(200), number("OSTLER_SEED"));
    let real_apiserver = super::RealApiserver::start().await;
    let real = real_apiserver.client();
    let embedded = embedded();
    create_definition(&real).await;
    create_definition(&embedded).await;
    let seed = seed.unwrap_or(DEFAULT_SEED);
    let mut runner = runner(seed);
    for number in 0..sequences {
        let mut tree = requests::sequence().new_tree(&mut runner).unwrap();
        let mut differences_found = differences(&real, &embedded, &tree.current()).await;
        if differences_found.is_empty() {
            continue;
        }
        let mut shortest = tree.current();
        if std::env::var_os("OSTLER_SURVEY").is_some() {
            let first = differences_found.keys().next().map_or(0, |first| first + 1);
            differences_found.retain(|index, _| *index < first);
            eprintln!("== sequence {number}\n{}", script(&shortest[..first], &differences_found));
            continue;
        }
        // Shrink the sequence as long as a difference remains.
        let mut has_smaller_case = tree.simplify();
        for _ in 0..300 {
            if !has_smaller_case {
                break;
            }
            let current = differences(&real, &embedded, &tree.current()).await;
            if current.is_empty() {
                has_smaller_case = tree.complicate();
            } else {
                (differences_found, shortest) = (current, tree.current());
                has_smaller_case = tree.simplify();
            }
        }
        panic!(
            "sequence {number} of OSTLER_SEED={seed} has different responses:\n{}",
            script(&shortest, &differences_found)
        );
    }
}

/// Checks that the generator produces sequences with every common status code.
#[tokio::test]
async fn generated_sequences_cover_status_codes() {
    let embedded = embedded();
    create_definition(&embedded).await;
    let mut runner = runner(1);
    let mut codes: BTreeMap<u16, usize> = BTreeMap::new();
    for number in 0..40 {
        let requests = requests::sequence().new_tree(&mut runner).unwrap().current();
        let (_, responses) = replay_requests(&embedded, &requests, &format!("random-{number}")).await;
        for response in &responses {
            *codes.entry(response.code).or_default() += 1;
            assert!(
                response.code < 500 || response.body["reason"].is_null(),
                "{} {}",
                response.description,
                response.body
            );
        }
    }
    for code in [200, 201, 400, 404, 409, 422] {
        assert!(codes.contains_key(&code), "no response with code {code}: {codes:?}");
    }
}

fn runner(seed: u64) -> TestRunner {
    let bytes: Vec<u8> = seed.to_le_bytes().into_iter().cycle().take(32).collect();
    TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

fn embedded() -> Client {
    crate::client(&crate::server())
}

/// Creates the custom resource definition of the sequences, if it does not exist.
async fn create_definition(client: &Client) {
    let request = http::Request::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions");
    let request = request.header("Content-Type", "application/json");
    let _ = client.send(request.body(objects::definition().to_string().into_bytes().into()).unwrap()).await.unwrap();
    for _ in 0..3000 {
        let request = http::Request::get("/apis/random.example.com/v1/widgets").body(Vec::new().into()).unwrap();
        if client.send(request).await.unwrap().status() == 200 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("the definition was never served");
}

async fn differences(real: &Client, embedded: &Client, requests: &[Value]) -> DifferencesByStep {
    let namespace = format!("random-{:08x}", fastrand::u32(..));
    let ((steps, expected), (_, actual)) =
        tokio::join!(replay_requests(real, requests, &namespace), replay_requests(embedded, requests, &namespace));
    let mut differences_found = DifferencesByStep::new();
    for (index, (step, (expected, actual))) in steps.iter().zip(expected.iter().zip(&actual)).enumerate() {
        let differences: Vec<String> = differences_of(step, expected, actual)
            .into_iter()
            .filter(|(pointer, _)| {
                !ACCEPTED_DIFFERENCES.iter().any(|(_, is_accepted)| is_accepted(pointer, expected, actual))
            })
            .map(|(pointer, line)| format!("{pointer}: {line}"))
            .collect();
        if !differences.is_empty() {
            differences_found.insert(index, differences.join("\n#     "));
        }
    }
    differences_found
}

/// Reports whether a difference at a JSON pointer is accepted, given the expected and the actual response.
type AcceptedDifference = fn(&str, &RecordedResponse, &RecordedResponse) -> bool;

/// Accepted differences of random sequences with their reasons, which docs/embedded.md documents.
const ACCEPTED_DIFFERENCES: &[(&str, AcceptedDifference)] = &[
    ("Go decoder messages", is_decoder_message),
    ("Go map iteration order", depends_on_map_order),
    ("message text", is_pod_update_message),
];

#[test]
fn every_reason_is_documented() {
    let documentation = include_str!("../../../../../docs/embedded.md");
    for (reason, _) in ACCEPTED_DIFFERENCES {
        assert!(documentation.contains(reason), "docs/embedded.md does not contain {reason:?}");
    }
}

/// Decoding errors are compared by status code, not by message.
fn is_decoder_message(pointer: &str, expected: &RecordedResponse, actual: &RecordedResponse) -> bool {
    let has_text = |text: &str| message(expected).contains(text);
    let is_text = pointer == "/message" || pointer.starts_with("/details");
    is_text
        && expected.code == actual.code
        && (has_text("cannot unmarshal") || has_text("json: ") || has_text("ReadString"))
}

/// kube-apiserver checks the fields of a map in random order and stops at the first undeclared one. Its errors must be
/// a subset of the actual errors.
fn depends_on_map_order(pointer: &str, expected: &RecordedResponse, actual: &RecordedResponse) -> bool {
    let (expected, actual) = (apply_errors(message(expected)), apply_errors(message(actual)));
    let is_incomplete = expected.iter().any(|error| error.ends_with("field not declared in schema"));
    pointer == "/message" && is_incomplete && expected.is_subset(&actual)
}

/// The rejection of a Pod update is compared, not the list of mutable fields.
fn is_pod_update_message(pointer: &str, expected: &RecordedResponse, actual: &RecordedResponse) -> bool {
    const PREFIX: &str = "pod updates may not change fields other than";
    let has_prefix = |response: &RecordedResponse| message(response).contains(PREFIX);
    pointer.ends_with("/message") && has_prefix(expected) && has_prefix(actual)
}

/// Returns the individual errors in a message about a configuration that cannot be applied.
fn apply_errors(message: &str) -> BTreeSet<&str> {
    let Some((head, rest)) = message.split_once("): ") else { return BTreeSet::new() };
    if !head.starts_with("failed to create typed patch object") {
        return BTreeSet::new();
    }
    rest.trim_start_matches("errors:\n").lines().map(str::trim).collect()
}

fn message(response: &RecordedResponse) -> &str {
    response.body["message"].as_str().unwrap_or_default()
}

async fn replay_requests(client: &Client, requests: &[Value], namespace: &str) -> (Vec<Step>, Vec<RecordedResponse>) {
    let steps: Vec<Step> = steps(requests);
    super::send_namespace_request(client, "POST", namespace).await;
    let responses = replay::replay(client, &steps, namespace).await;
    super::send_namespace_request(client, "DELETE", namespace).await;
    (steps, responses)
}

/// Converts requests to steps named by their index.
fn steps(requests: &[Value]) -> Vec<Step> {
    let steps_by_index = requests.iter().enumerate().map(|(index, request)| {
        let mut request = request.clone();
        request["does"] = json!(format!("step {index}"));
        serde_json::from_value(request).unwrap()
    });
    steps_by_index.collect()
}

/// Formats requests as a script file.
fn script(requests: &[Value], differences_found: &DifferencesByStep) -> String {
    let mut text = String::new();
    for (index, request) in requests.iter().enumerate() {
        text += &format!("- {request}\n");
        if let Some(difference) = differences_found.get(&index) {
            text += &format!("#     {difference}\n");
        }
    }
    text
}
