//! Property tests: the server responds to any request without internal errors, and whatever it accepts leaves a
//! consistent state that a restart restores. `OSTLER_ROBUSTNESS_CASES` sets the number of cases of each test.

mod invariants;
mod objects;
mod request;
mod storage;
mod values;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use embedded::ports::{Random, ServerPorts, SystemRandom};
use embedded::{Server, Store, StoreSettings};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rstest::rstest;
use serde_json::json;

use request::{DEPLOYMENT, DEPLOYMENTS, Request};
use storage::MemoryStorage;
use values::value;

/// What happened to the requests of a test.
#[derive(Debug, Default)]
struct Counts {
    /// Requests that were valid HTTP and therefore sent.
    sent: u32,
    /// Revisions that the requests and their consequences added to the store.
    revisions: u64,
}

/// Numbers the UIDs, so that requests can refer to objects that earlier requests created.
#[derive(Default)]
struct NumberedUids(AtomicU32);

// === impl NumberedUids ===

impl Random for NumberedUids {
    fn uuid(&self) -> String {
        objects::uid(self.0.fetch_add(1, Ordering::Relaxed))
    }

    fn bits(&self) -> u128 {
        SystemRandom.bits()
    }
}

/// Opens a server on `storage`, which may be empty.
fn open(storage: &MemoryStorage, first_uid: u32) -> Server {
    // With a small value, so that checkpoints are written.
    let settings = StoreSettings { checkpoint_after: 20_000, ..StoreSettings::default() };
    let store = Store::open(Arc::new(storage.clone()), settings).unwrap();
    let random = Arc::new(NumberedUids(AtomicU32::new(first_uid)));
    Server::with_store(&ServerPorts { random, ..ServerPorts::default() }, store)
}

/// Sends the requests to a new server, one thread per sequence, and checks the state of the server, also after a
/// restart.
fn check_requests(sequences: &[Vec<Request>], counts: &mut Counts) -> Result<(), TestCaseError> {
    let storage = MemoryStorage::default();
    let server = open(&storage, 0);
    objects::create_initial(&server);
    let initial = invariants::revision(&server);
    let sent = thread::scope(|scope| {
        let send_all = |requests: &[Request]| -> Result<u32, TestCaseError> {
            requests.iter().map(|request| request.send(&server).map(u32::from)).sum()
        };
        let threads: Vec<_> = sequences.iter().map(|requests| scope.spawn(move || send_all(requests))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum::<Result<u32, TestCaseError>>()
    })?;
    counts.sent += sent;
    counts.revisions += invariants::revision(&server) - initial;
    let state = invariants::state(&server)?;
    invariants::check(&state)?;
    drop(server);

    let restarted = open(&storage, 1_000_000);
    let restored = invariants::state(&restarted)?;
    invariants::check_restored(&state, &restored)
}

/// Returns the number of cases of a test.
fn cases(default: u32) -> u32 {
    std::env::var("OSTLER_ROBUSTNESS_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Runs `cases` cases with `threads` sequences of requests each.
fn run(requests: &BoxedStrategy<Request>, cases: u32, threads: usize) -> Counts {
    let sequence = prop::collection::vec(requests.clone(), 1..24);
    let sequences = prop::collection::vec(sequence, threads..=threads);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 500, ..Config::default() };
    let counts = std::cell::RefCell::new(Counts::default());
    let result =
        TestRunner::new(config).run(&sequences, |sequences| check_requests(&sequences, &mut counts.borrow_mut()));
    result.unwrap_or_else(|error| panic!("{error}"));
    counts.into_inner()
}

/// `stored` is set if the requests are plausible enough that many of them change the store.
#[rstest]
#[case::patches(patches().boxed(), false)]
#[case::json_patches(json_patches().boxed(), false)]
#[case::applied_objects(applied_objects().boxed(), false)]
#[case::bodies(bodies().boxed(), false)]
#[case::selectors(selectors().boxed(), false)]
#[case::paths(paths().boxed(), false)]
#[case::objects(objects::requests().boxed(), true)]
fn accepts_arbitrary_requests(#[case] requests: BoxedStrategy<Request>, #[case] stored: bool) {
    let cases = cases(24);
    let counts = run(&requests, cases, 1);
    assert!(counts.sent >= 3 * cases, "{counts:?}");
    assert!(!stored || counts.revisions >= 3 * u64::from(cases), "{counts:?}");
}

#[test]
fn concurrent_requests_leave_a_consistent_state() {
    let cases = cases(12);
    let counts = run(&objects::requests().boxed(), cases, 4);
    assert!(counts.revisions >= 10 * u64::from(cases), "{counts:?}");
}

fn patches() -> impl Strategy<Value = Request> {
    (value(), any::<bool>()).prop_map(|(patch, is_strategic)| {
        let kind = if is_strategic { "application/strategic-merge-patch+json" } else { "application/merge-patch+json" };
        Request::new("PATCH", DEPLOYMENT, kind, patch.to_string())
    })
}

fn json_patches() -> impl Strategy<Value = Request> {
    values::json_patch()
        .prop_map(|patch| Request::new("PATCH", DEPLOYMENT, "application/json-patch+json", patch.to_string()))
}

fn applied_objects() -> impl Strategy<Value = Request> {
    (value(), any::<bool>()).prop_map(|(object, is_forced)| {
        let uri = format!("{DEPLOYMENT}?fieldManager=m&force={is_forced}");
        Request::new("PATCH", uri, "application/apply-patch+yaml", object.to_string())
    })
}

fn bodies() -> impl Strategy<Value = Request> {
    let bytes = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..60),
        value().prop_map(|object| object.to_string().into_bytes())
    ];
    let kind =
        prop::sample::select(vec!["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"]);
    (bytes, kind, any::<bool>()).prop_map(|(bytes, kind, is_update)| match is_update {
        true => Request::new("PUT", DEPLOYMENT, kind, bytes),
        false => Request::new("POST", DEPLOYMENTS, kind, bytes),
    })
}

fn selectors() -> impl Strategy<Value = Request> {
    let parameter =
        prop::sample::select(vec!["labelSelector", "fieldSelector", "continue", "limit", "resourceVersion"]);
    let method = prop_oneof![3 => Just("GET"), 1 => Just("DELETE")];
    (parameter, "[a-zA-Z0-9=!,()<>\\\\ ./%-]{0,24}", method).prop_map(|(parameter, text, method)| {
        let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
        Request::new(method, format!("{DEPLOYMENTS}?{parameter}={encoded}"), "application/json", "")
    })
}

fn paths() -> impl Strategy<Value = Request> {
    let segment = "(api|apis|v1|apps|openapi|v3|namespaces|default|pods|deployments|configmaps|web|a|log|scale|status|exec|%2F|%zz|[a-z0-9.%]{0,5})";
    let method = prop::sample::select(vec!["GET", "POST", "PUT", "PATCH", "DELETE"]);
    let path = proptest::string::string_regex(&format!("(/{segment}){{0,8}}/?")).unwrap();
    (path, method).prop_map(|(path, method)| Request::json(method, path, &json!({})))
}
