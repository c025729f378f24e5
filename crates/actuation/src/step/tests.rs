//! Tables of situations of one node and the action that follows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::dual_pods as names;
use apimachinery::apply_merge_patch;
use rstest::rstest;
use serde_json::{Value, json};

use super::*;
use crate::action::{Action, Write};
use crate::facts::{Activity, Drain, MemoryUsage, Verification};
use crate::node::{Demand, Engine};
use crate::nominal::NominalProvider;
use crate::provider::Provider;
use crate::requester::Requester;

/// Edits the Pod of an engine.
type Edit = fn(&mut Value);
/// Name, accelerators, and the minute in which it was last awake.
type Sleeper = (&'static str, &'static str, u8);

fn now() -> Timestamp {
    "2026-01-01T01:00:00Z".parse().unwrap()
}

fn settings(sleeper_limit: usize) -> Settings {
    Settings { sleeper_limit, ..Settings::default() }
}

/// Returns a requester `r`, which has reported its accelerators and is the only one of the node.
fn requester_pod(accelerators: &str) -> Value {
    json!({
        "metadata": {
            "name": "r", "namespace": "n", "uid": "r", "finalizers": [names::REQUESTER_FINALIZER], "labels": {names::DUAL: "p"},
            "annotations": {names::ACCELERATORS: accelerators, names::ACCELERATORS_CONTAINER: "c"},
        },
        "status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [
            {"name": "inference-server", "containerID": "c", "state": {"running": {}}, "ready": false},
        ]},
    })
}

/// Returns a provider that sleeps, and whose engine is the one that `r` needs.
fn provider_pod(name: &str, accelerators: &str, minute: u8) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "n", "uid": name, "resourceVersion": "7", "labels": {names::SLEEPING: "true"},
            "annotations": {
                names::NOMINAL: "i", names::ACCELERATORS: accelerators, names::SERVER_PORT: "8000",
                names::LAST_AWAKE: format!("2026-01-01T00:{minute:02}:00Z"), names::POOL_LABELS: r#"{"model":"m"}"#,
            },
        },
        "spec": {"nodeName": "node"},
        "status": {"phase": "Running", "podIP": "10.0.0.2", "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "inference-server", "containerID": "c", "state": {"running": {}}, "ready": true}]},
    })
}

fn bind(pod: &mut Value) {
    pod["metadata"]["annotations"][names::REQUESTER] = json!("r r");
    pod["metadata"]["finalizers"] = json!([names::PROVIDER_FINALIZER]);
}

/// Binds the provider and sets the labels by which pools select it.
fn publish(pod: &mut Value) {
    bind(pod);
    pod["metadata"]["labels"] = json!({"model": "m", names::SLEEPING: "false"});
}

fn terminate(pod: &mut Value) {
    pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T01:01:00Z");
}

fn engine(pod: &Value, activity: Option<Activity>) -> Engine {
    let mut engine = Engine::new(Provider::from_pod(pod));
    engine.facts.activity = activity;
    engine
}

fn node(requester: Option<&Value>, engines: impl IntoIterator<Item = Engine>) -> NodeState {
    let mut node = NodeState { name: "node".to_owned(), ..NodeState::default() };
    node.engines = engines.into_iter().map(|engine| (engine.provider.engine_id(), engine)).collect();
    let bound = node.engines.values().any(|engine| engine.provider.is_bound_to("r"));
    if requester.is_some() || bound {
        let requester = requester.map(Requester::from_pod);
        let accelerators = requester.as_ref().and_then(|requester| requester.accelerators.clone()).unwrap_or_default();
        let mut server =
            Server { requester, demand: Demand::Nominal(Arc::new(nominal(accelerators))), ..Server::default() };
        server.facts.memory = Some(MemoryUsage::Unavailable);
        node.servers.insert("r".to_owned(), server);
    }
    node
}

fn nominal(accelerators: BTreeSet<String>) -> NominalProvider {
    NominalProvider {
        namespace: "n".to_owned(),
        node: "node".to_owned(),
        spec: json!({}),
        instance: None,
        labels: BTreeMap::new(),
        pool_labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        owner: None,
        accelerators,
        identity: "i".to_owned(),
        port: 8000,
    }
}

/// Returns sleeping engines which are not the one that `r` needs.
fn sleepers(sleepers: &[Sleeper]) -> Vec<Engine> {
    let engine = |(name, accelerators, minute): &Sleeper| {
        let mut pod = provider_pod(name, accelerators, *minute);
        pod["metadata"]["annotations"][names::NOMINAL] = json!("other");
        engine(&pod, Some(Activity::Asleep))
    };
    sleepers.iter().map(engine).collect()
}

/// Returns the action and its object.
fn action(node: &NodeState, settings: &Settings) -> String {
    match step(node, settings, now()).action {
        None => "wait".to_owned(),
        Some(Action::Write(Write::Create { requester, .. })) => format!("create for {}", requester.name),
        Some(Action::Write(Write::Patch { pod, purpose, .. })) => format!("{} {}", purpose.as_str(), pod.name),
        Some(Action::Write(Write::Delete { pod, purpose, .. })) => format!("delete {}: {purpose:?}", pod.name),
        Some(Action::Call(call)) => call.request.purpose().to_owned(),
    }
}

fn problems(node: &NodeState, settings: &Settings) -> Vec<String> {
    server_problems(node, settings, now(), "r").iter().map(ToString::to_string).collect()
}

// spec: DP-54
#[rstest]
#[case::suitable(|_: &mut Value| {}, "bind s")]
#[case::other_engine(|pod: &mut Value| pod["metadata"]["annotations"][names::NOMINAL] = json!("other"), "create for r")]
#[case::other_namespace(|pod: &mut Value| pod["metadata"]["namespace"] = json!("other"), "create for r")]
#[case::terminating(terminate, "create for r")]
#[case::bound(|pod: &mut Value| pod["metadata"]["annotations"][names::REQUESTER] = json!("other other"), "create for r")]
fn suitable_sleeper_is_bound(#[case] edit: Edit, #[case] expected: &str) {
    let mut pod = provider_pod("s", "GPU-a", 0);
    edit(&mut pod);
    let node = node(Some(&requester_pod("GPU-a")), [engine(&pod, Some(Activity::Asleep))]);
    assert_eq!(action(&node, &settings(1)), expected);
}

/// The binding is one patch of one version of the provider, and precedes the wake.
// spec: DP-47, DP-55
#[test]
fn sleeper_is_bound_then_woken() {
    let (requester, pod) = (requester_pod("GPU-a"), provider_pod("s", "GPU-a", 0));
    let unbound = node(Some(&requester), [engine(&pod, Some(Activity::Asleep))]);
    let Some(Action::Write(Write::Patch { pod: version, patch, .. })) = step(&unbound, &settings(1), now()).action
    else {
        panic!("not bound")
    };
    assert_eq!((version.uid.as_str(), version.resource_version.as_str()), ("s", "7"));
    assert_eq!(patch["metadata"]["annotations"][names::REQUESTER], "r r");
    assert_eq!(patch["metadata"]["finalizers"], json!([names::PROVIDER_FINALIZER]));
    let bound = apply_merge_patch(&pod, &patch);
    assert_eq!(action(&node(Some(&requester), [engine(&bound, Some(Activity::Asleep))]), &settings(1)), "wake");
    assert_eq!(action(&node(None, [engine(&pod, Some(Activity::Asleep))]), &settings(1)), "wait", "it is not bound");
}

/// Another engine on the accelerator may use its memory.
// spec: DP-58
#[rstest]
#[case::awake(Some(Activity::Awake), "awake")]
#[case::unknown(None, "unknown")]
fn busy_accelerator_is_reported(#[case] activity: Option<Activity>, #[case] state: &str) {
    let mut pod = provider_pod("busy", "GPU-a,GPU-b", 0);
    pod["metadata"]["annotations"][names::REQUESTER] = json!("other other");
    let node_of = |accelerators| node(Some(&requester_pod(accelerators)), [engine(&pod, activity)]);
    let blocked = node_of("GPU-b");
    assert_eq!(action(&blocked, &settings(1)), "wait");
    let [problem] = problems(&blocked, &settings(1)).try_into().unwrap();
    assert!(problem.contains("busy") && problem.contains("GPU-b") && problem.contains(state), "{problem}");
    assert_eq!(action(&node_of("GPU-c"), &settings(1)), "create for r");
}

/// A provider is created with its binding, on the accelerators of a loading engine only after that one.
// spec: DP-58
#[test]
fn created_provider_is_bound() {
    let node_of = |engines| node(Some(&requester_pod("GPU-a")), engines);
    let Some(Action::Write(Write::Create { requester, nominal })) = step(&node_of(vec![]), &settings(1), now()).action
    else {
        panic!("not created")
    };
    let created = crate::write::provider_pod(&requester, &nominal);
    assert_eq!(created["metadata"]["annotations"][names::REQUESTER], "r r");
    assert_eq!(created["metadata"]["finalizers"], json!([names::PROVIDER_FINALIZER]));
    let mut loading = provider_pod("busy", "GPU-a", 0);
    loading["metadata"]["annotations"] = json!({names::ACCELERATORS: "GPU-a", names::REQUESTER: "other other"});
    loading["status"] = json!({});
    assert_eq!(action(&node_of(vec![engine(&loading, None)]), &settings(1)), "wait");
}

/// Readiness that was relayed, whether the engine was verified and its Pod is Ready, and the call that follows.
// spec: DP-60
#[rstest]
#[case::first_ready(None, true, true, "relay_ready")]
#[case::ready_again(Some(false), true, true, "relay_ready")]
#[case::unchanged(Some(true), true, true, "wait")]
#[case::not_ready(Some(true), true, false, "relay_unready")]
#[case::still_not_ready(Some(false), true, false, "wait")]
#[case::not_verified(Some(false), false, true, "get_health")]
fn readiness_is_relayed(
    #[case] relayed: Option<bool>,
    #[case] is_verified: bool,
    #[case] is_ready: bool,
    #[case] expected: &str,
) {
    let mut node = serving(&requester_pod("GPU-a"), |_: &mut Value| {});
    let engine = node.engines.values_mut().next().unwrap();
    engine.provider.is_ready = is_ready;
    engine.facts.verification.take_if(|_| !is_verified);
    node.servers.get_mut("r").unwrap().facts.relayed = relayed;
    assert_eq!(action(&node, &settings(1)), expected);
}

/// Returns a node whose engine is awake, verified, Ready and published.
fn serving(requester: &Value, edit: Edit) -> NodeState {
    let mut pod = provider_pod("p", "GPU-a", 0);
    publish(&mut pod);
    edit(&mut pod);
    let mut engine = engine(&pod, Some(Activity::Awake));
    engine.facts.verification = Some(Verification { completion: None });
    node(Some(requester), [engine])
}

/// The engine is ready, but its requester is not to know.
// spec: DP-61
#[rstest]
#[case::both_exist(|_: &mut Value| {}, |_: &mut Value| {}, "relay_ready")]
#[case::requester_is_deleted(terminate, |_: &mut Value| {}, "withdraw p")]
#[case::provider_is_deleted(|_: &mut Value| {}, terminate, "delete r: ProviderLost")]
#[case::former_requester_of_the_name(|_: &mut Value| {}, |pod: &mut Value| pod["metadata"]["annotations"][names::REQUESTER] = json!("former r"), "wait")]
fn readiness_is_relayed_to_the_bound_requester(
    #[case] edit_requester: Edit,
    #[case] edit: Edit,
    #[case] expected: &str,
) {
    let mut requester = requester_pod("GPU-a");
    edit_requester(&mut requester);
    assert_eq!(action(&serving(&requester, edit), &settings(1)), expected);
}

/// The requester ends: the engine is put to sleep unless it is known to sleep.
// spec: DP-67
#[rstest]
#[case::awake(Some(Activity::Awake), |_: &mut Value| {}, "sleep")]
#[case::unknown(None, |_: &mut Value| {}, "query_sleeping")]
#[case::asleep(Some(Activity::Asleep), |_: &mut Value| {}, "unbind p")]
#[case::no_address(Some(Activity::Awake), |pod: &mut Value| pod["status"]["podIP"] = Value::Null, "delete p: NotSleeping")]
fn engine_sleeps_before_it_is_unbound(#[case] activity: Option<Activity>, #[case] edit: Edit, #[case] expected: &str) {
    let (mut requester, mut pod) = (requester_pod("GPU-a"), provider_pod("p", "GPU-a", 0));
    terminate(&mut requester);
    bind(&mut pod);
    edit(&mut pod);
    let mut engine = engine(&pod, activity);
    engine.facts.drain = Some(Drain { since: now(), is_idle: true, is_sleep_sent: false, is_overdue: false });
    let node = node(Some(&requester), [engine]);
    assert_eq!(action(&node, &settings(1)), expected);
    if let Some(Action::Write(Write::Patch { patch, .. })) = step(&node, &settings(1), now()).action {
        let unbound = apply_merge_patch(&pod, &patch);
        assert!(unbound["metadata"]["annotations"].get(names::REQUESTER).is_none());
        assert_eq!(unbound["metadata"]["finalizers"], json!([]));
    }
}

/// What the kubelet reports of an engine; the actions for a bound one whose requester has ended, and for an unbound one.
// spec: DP-70
#[rstest]
#[case::runs(|_: &mut Value| {}, "unbind p", "wait")]
#[case::crash_loop(
    |pod: &mut Value| pod["status"]["containerStatuses"][0]["state"] = json!({"waiting": {"reason": "CrashLoopBackOff"}}),
    "delete p: NotReusable", "delete p: NotAsleep"
)]
#[case::failed(|pod: &mut Value| pod["status"]["phase"] = json!("Failed"), "delete p: NotReusable", "delete p: NotAsleep")]
#[case::restarted(restart, "delete p: NotReusable", "delete p: NotAsleep")]
fn broken_engine_is_deleted(#[case] edit: Edit, #[case] bound: &str, #[case] unbound: &str) {
    let mut pod = provider_pod("p", "GPU-a", 0);
    edit(&mut pod);
    assert_eq!(action(&node(None, [engine(&pod, Some(Activity::Asleep))]), &settings(1)), unbound);
    bind(&mut pod);
    let mut terminating = requester_pod("GPU-a");
    terminate(&mut terminating);
    for requester in [None, Some(&terminating)] {
        assert_eq!(action(&node(requester, [engine(&pod, Some(Activity::Asleep))]), &settings(1)), bound);
    }
}

/// The container restarted and is not ready yet.
fn restart(pod: &mut Value) {
    pod["status"]["containerStatuses"][0]["restartCount"] = json!(1);
    pod["status"]["conditions"] = json!([]);
}

/// Sleepers, the limit, the accelerators of a requester without a suitable sleeper, and what is done first.
#[rstest]
// spec: DP-85, DP-86
#[case::oldest_of_three(&[("a", "GPU-a", 1), ("b", "GPU-a", 2), ("c", "GPU-a", 3)], 2, "GPU-a", "delete a: Victim")]
// spec: DP-86
#[case::used_again(&[("a", "GPU-a", 9), ("b", "GPU-a", 2), ("c", "GPU-a", 3)], 2, "GPU-a", "delete b: Victim")]
// spec: DP-85
#[case::within_the_limit(&[("b", "GPU-a", 2), ("c", "GPU-a", 3)], 2, "GPU-a", "create for r")]
// spec: DP-89
#[case::first_of_two_accelerators(&[("a", "GPU-a", 1), ("b", "GPU-a", 2), ("c", "GPU-b", 0)], 1, "GPU-a,GPU-b", "delete a: Victim")]
// spec: DP-89
#[case::second_of_two_accelerators(&[("a", "GPU-b", 1), ("b", "GPU-b", 2), ("c", "GPU-a", 0)], 1, "GPU-a,GPU-b", "delete a: Victim")]
// spec: DP-89
#[case::other_accelerators(&[("a", "GPU-c", 1), ("b", "GPU-c", 2)], 1, "GPU-a,GPU-b", "create for r")]
fn creation_is_within_the_limit(
    #[case] others: &[Sleeper],
    #[case] limit: usize,
    #[case] accelerators: &str,
    #[case] expected: &str,
) {
    assert_eq!(action(&node(Some(&requester_pod(accelerators)), sleepers(others)), &settings(limit)), expected);
}

/// A victim on both accelerators makes room on each: nothing else is deleted while it ends.
// spec: DP-89
#[test]
fn victim_counts_for_each_of_its_accelerators() {
    let others = sleepers(&[("both", "GPU-a,GPU-b", 1), ("x", "GPU-a", 2), ("y", "GPU-b", 3)]);
    let mut node = node(Some(&requester_pod("GPU-a,GPU-b")), others);
    assert_eq!(action(&node, &settings(1)), "delete both: Victim");
    let victim = node.engines.values_mut().find(|engine| engine.provider.pod.name == "both").unwrap();
    victim.is_deletion_sent = true;
    assert_eq!(action(&node, &settings(1)), "wait");
    node.engines.retain(|_, engine| engine.provider.pod.name != "both");
    assert_eq!(action(&node, &settings(1)), "create for r");
}

/// More engines than the limit permits: one is bound and woken, or none is needed, and none is deleted.
// spec: DP-84
#[test]
fn limit_is_enforced_before_a_creation_only() {
    let others = sleepers(&[("a", "GPU-a", 1), ("b", "GPU-a", 2), ("c", "GPU-a", 3)]);
    let mut pod = provider_pod("s", "GPU-a", 0);
    let with = |pod: &Value| others.iter().cloned().chain([engine(pod, Some(Activity::Asleep))]).collect::<Vec<_>>();
    assert_eq!(action(&node(None, with(&pod)), &settings(1)), "wait");
    let requester = requester_pod("GPU-a");
    assert_eq!(action(&node(Some(&requester), with(&pod)), &settings(1)), "bind s");
    bind(&mut pod);
    assert_eq!(action(&node(Some(&requester), with(&pod)), &settings(1)), "wake");
}

/// Used memory of the accelerator in MiB, for limit 2 of engines that retain 4096 MiB each; the actions before a creation and a wake.
// spec: DP-87
#[rstest]
#[case::not_measured(None, "get_accel_memory_usage", "get_accel_memory_usage")]
#[case::two_residues(Some(2 * 4096), "create for r", "wake")]
#[case::three_residues(Some(3 * 4096), "wait", "wake")]
#[case::more(Some(3 * 4096 + 1), "wait", "wait")]
fn memory_is_measured_before_an_engine_starts(
    #[case] used_mib: Option<u64>,
    #[case] creation: &str,
    #[case] wake: &str,
) {
    let mut pod = provider_pod("s", "GPU-a", 0);
    bind(&mut pod);
    for (engines, expected) in [(vec![], creation), (vec![engine(&pod, Some(Activity::Asleep))], wake)] {
        let mut node = node(Some(&requester_pod("GPU-a")), engines);
        let memory = |mib| MemoryUsage::Known { used_mib: BTreeMap::from([("GPU-a".to_owned(), mib)]), at: now() };
        node.servers.get_mut("r").unwrap().facts.memory = used_mib.map(memory);
        assert_eq!(action(&node, &settings(2)), expected);
        let is_short = problems(&node, &settings(2)).iter().any(|problem| problem.contains("of memory"));
        assert_eq!(is_short, expected == "wait");
    }
}

/// The scheduler's message about a provider, and what is deleted on its node.
// spec: DP-87
#[rstest]
#[case::memory("1 Insufficient memory.", "delete old: Victim")]
#[case::other_reason("1 node(s) had untolerated taint.", "wait")]
fn host_memory_is_freed_for_a_provider(#[case] message: &str, #[case] expected: &str) {
    let mut pod = provider_pod("p", "GPU-a", 0);
    pod["metadata"]["annotations"][names::LAST_AWAKE] = Value::Null;
    bind(&mut pod);
    pod["spec"] = json!({});
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
    pod["status"] = json!({"phase": "Pending", "conditions": [condition]});
    let others = sleepers(&[("new", "GPU-b", 2), ("old", "GPU-c", 1)]);
    let node = node(Some(&requester_pod("GPU-a")), others.into_iter().chain([engine(&pod, None)]));
    assert_eq!(action(&node, &settings(1)), expected);
}
