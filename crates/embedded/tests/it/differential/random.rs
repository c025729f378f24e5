//! Sequences of requests that nobody thought of, to the embedded server and to a living kube-apiserver at once.
//!
//! `cargo xtask test --with realcluster` runs it; `OSTLER_SEQUENCES` says how many, `OSTLER_SEED` which. What it finds is printed as a
//! script: the shortest sequence that is answered differently, to be mended and kept under `tests/differential/scripts`.

mod objects;
mod requests;

use std::collections::{BTreeMap, BTreeSet};

use kube::Client;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

use super::compare::differences_of;
use super::play::{self, Answer};
use super::script::Step;

/// What is played when nobody says otherwise: a difference then comes from a change, not from chance.
const SEED: u64 = 6;

/// Where both answered differently, by the number of the step.
type Found = BTreeMap<usize, String>;

/// Compares random sequences with a living kube-apiserver.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs a kube-apiserver: cargo xtask test --with realcluster"]
async fn live() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (sequences, seed) = (number("OSTLER_SEQUENCES").unwrap_or(200), number("OSTLER_SEED"));
    let living = super::Living::start().await;
    let real = living.client();
    let embedded = embedded();
    define(&real).await;
    define(&embedded).await;
    let seed = seed.unwrap_or(SEED);
    let mut runner = runner(seed);
    for number in 0..sequences {
        let mut tree = requests::sequence().new_tree(&mut runner).unwrap();
        let mut found = differences(&real, &embedded, &tree.current()).await;
        if found.is_empty() {
            continue;
        }
        let mut worst = tree.current();
        if std::env::var_os("OSTLER_SURVEY").is_some() {
            let first = found.keys().next().map_or(0, |first| first + 1);
            found.retain(|index, _| *index < first);
            eprintln!("== sequence {number}\n{}", script(&worst[..first], &found));
            continue;
        }
        // Smaller as long as something still differs.
        let mut is_smaller = tree.simplify();
        for _ in 0..300 {
            if !is_smaller {
                break;
            }
            let now = differences(&real, &embedded, &tree.current()).await;
            if now.is_empty() {
                is_smaller = tree.complicate();
            } else {
                (found, worst) = (now, tree.current());
                is_smaller = tree.simplify();
            }
        }
        panic!("sequence {number} of OSTLER_SEED={seed} is answered differently:\n{}", script(&worst, &found));
    }
}

/// The generator makes what it says: every kind of request, and sequences that change something.
#[tokio::test]
async fn sequences_of_requests_are_answered() {
    let embedded = embedded();
    define(&embedded).await;
    let mut runner = runner(1);
    let mut codes: BTreeMap<u16, usize> = BTreeMap::new();
    for number in 0..40 {
        let requests = requests::sequence().new_tree(&mut runner).unwrap().current();
        let (_, answers) = played(&embedded, &requests, &format!("random-{number}")).await;
        for answer in &answers {
            *codes.entry(answer.code).or_default() += 1;
            assert!(answer.code < 500 || answer.body["reason"].is_null(), "{} {}", answer.does, answer.body);
        }
    }
    for code in [200, 201, 400, 404, 409, 422] {
        assert!(codes.contains_key(&code), "{code} is never answered: {codes:?}");
    }
}

fn runner(seed: u64) -> TestRunner {
    let bytes: Vec<u8> = seed.to_le_bytes().into_iter().cycle().take(32).collect();
    TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

fn embedded() -> Client {
    crate::client(&crate::server())
}

/// The custom resource of the sequences; one that is there already stays.
async fn define(client: &Client) {
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

async fn differences(real: &Client, embedded: &Client, requests: &[Value]) -> Found {
    let namespace = format!("random-{:08x}", fastrand::u32(..));
    let ((steps, expected), (_, given)) =
        tokio::join!(played(real, requests, &namespace), played(embedded, requests, &namespace));
    let mut found = Found::new();
    for (index, (step, (expected, given))) in steps.iter().zip(expected.iter().zip(&given)).enumerate() {
        let differences: Vec<String> = differences_of(step, expected, given)
            .into_iter()
            .filter(|(place, _)| !STAYING.iter().any(|(_, stays)| stays(place, expected, given)))
            .map(|(place, line)| format!("{place}: {line}"))
            .collect();
        if !differences.is_empty() {
            found.insert(index, differences.join("\n#     "));
        }
    }
    found
}

/// A difference at a place that stays, by what was expected and what was given.
type Stays = fn(&str, &Answer, &Answer) -> bool;

/// Why differences of random sequences stay; each reason stands in docs/embedded.md. What none of them says is new.
const STAYING: &[(&str, Stays)] = &[
    ("the words of Go's decoder", is_decoders),
    ("the order of Go's maps", is_in_the_order_of_a_map),
    ("the words of the message", is_about_pods),
];

#[test]
fn every_reason_is_explained_in_the_documentation() {
    let page = include_str!("../../../../../docs/embedded.md");
    for (reason, _) in STAYING {
        assert!(page.contains(reason), "docs/embedded.md does not say {reason:?}");
    }
}

/// That a body that does not fit its type is refused is compared, not what is said of it.
fn is_decoders(place: &str, expected: &Answer, given: &Answer) -> bool {
    let says = |text: &str| message(expected).contains(text);
    let is_text = place == "/message" || place.starts_with("/details");
    is_text && expected.code == given.code && (says("cannot unmarshal") || says("json: ") || says("ReadString"))
}

/// After an undeclared field, what a map holds is not looked at any more; which is left out is chance. What was found
/// has to be among what was given.
fn is_in_the_order_of_a_map(place: &str, expected: &Answer, given: &Answer) -> bool {
    let (expected, given) = (misfits(message(expected)), misfits(message(given)));
    let is_cut = expected.iter().any(|misfit| misfit.ends_with("field not declared in schema"));
    place == "/message" && is_cut && expected.is_subset(&given)
}

/// That a Pod may not change is compared, not the list of what may.
fn is_about_pods(place: &str, expected: &Answer, given: &Answer) -> bool {
    const START: &str = "pod updates may not change fields other than";
    let is_said = |answer: &Answer| message(answer).contains(START);
    place.ends_with("/message") && is_said(expected) && is_said(given)
}

/// What a message says of a configuration that cannot be applied, one by one.
fn misfits(message: &str) -> BTreeSet<&str> {
    let Some((head, rest)) = message.split_once("): ") else { return BTreeSet::new() };
    if !head.starts_with("failed to create typed patch object") {
        return BTreeSet::new();
    }
    rest.trim_start_matches("errors:\n").lines().map(str::trim).collect()
}

fn message(answer: &Answer) -> &str {
    answer.body["message"].as_str().unwrap_or_default()
}

async fn played(client: &Client, requests: &[Value], namespace: &str) -> (Vec<Step>, Vec<Answer>) {
    let steps: Vec<Step> = steps(requests);
    super::namespaced(client, "POST", namespace).await;
    let answers = play::play(client, &steps, namespace).await;
    super::namespaced(client, "DELETE", namespace).await;
    (steps, answers)
}

/// Each request with its number as its name.
fn steps(requests: &[Value]) -> Vec<Step> {
    let named = requests.iter().enumerate().map(|(index, request)| {
        let mut request = request.clone();
        request["does"] = json!(format!("step {index}"));
        serde_json::from_value(request).unwrap()
    });
    named.collect()
}

/// As a file under `tests/differential/scripts` has it.
fn script(requests: &[Value], found: &Found) -> String {
    let mut text = String::new();
    for (index, request) in requests.iter().enumerate() {
        text += &format!("- {request}\n");
        if let Some(difference) = found.get(&index) {
            text += &format!("#     {difference}\n");
        }
    }
    text
}
