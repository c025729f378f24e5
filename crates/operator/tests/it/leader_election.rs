//! Leader election between two operators, and the shutdown of a leader.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cluster::{LeaderElection, LeaderElectionTimings};
use http::Method;
use operator::{Metrics, Options};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::supply::{self, create_supply};
use crate::test_cluster::{Fault, OME_SERVICES, OperatorRequest, TestCluster, server_with_ostler_crds};

const LEASES: &str = "leases.coordination.k8s.io";

fn options(identity: &str) -> Options {
    let timings = LeaderElectionTimings { retry_period: Duration::from_millis(20), ..LeaderElectionTimings::default() };
    let leader_election = LeaderElection {
        namespace: "default".to_owned(),
        name: "ostler-operator".to_owned(),
        identity: identity.to_owned(),
        timings,
    };
    Options { leader_election: Some(leader_election), ..Options::default() }
}

async fn wait_for_holder(test_cluster: &TestCluster, identity: &str) -> Arc<Value> {
    test_cluster
        .wait_for(&format!("the lease held by {identity}"), |server| {
            let lease = server.get(LEASES, "default", "ostler-operator")?;
            (lease["spec"]["holderIdentity"] == identity).then_some(lease)
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn second_replica_takes_over_and_only_the_leader_writes() {
    let server = server_with_ostler_crds();
    create_supply(&server, &[("big", "80Gi", "5")]);
    let first = TestCluster::with_server(server.clone(), options("first"));
    wait_for_holder(&first, "first").await;
    let second = TestCluster::with_server(server.clone(), options("second"));
    server.create(OME_SERVICES, supply::service("one", "small")).unwrap();
    second.wait_for_condition(OME_SERVICES, "one", "RuntimeResolved", "True").await;
    assert_eq!(second.writes.load(Ordering::Relaxed), 0);
    let decided_service = server.get(OME_SERVICES, "default", "one").unwrap();
    let write_count = Arc::clone(&first.writes);
    drop(first);
    let lease = wait_for_holder(&second, "second").await;
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
    let writes_before = write_count.load(Ordering::Relaxed);
    server.create(OME_SERVICES, supply::service("two", "small")).unwrap();
    second.wait_for_condition(OME_SERVICES, "two", "RuntimeResolved", "True").await;
    assert_eq!(write_count.load(Ordering::Relaxed), writes_before);
    // The new leader finds the existing decision valid.
    assert_eq!(
        server.get(OME_SERVICES, "default", "one").unwrap()["status"]["decision"],
        decided_service["status"]["decision"]
    );
}

#[tokio::test(start_paused = true)]
async fn lost_lease_stops_reconciles_until_it_is_reacquired() {
    let server = server_with_ostler_crds();
    create_supply(&server, &[("big", "80Gi", "5")]);
    let test_cluster = TestCluster::with_server(server.clone(), options("first"));
    let mut lease = (*wait_for_holder(&test_cluster, "first").await).clone();
    // Another holder acquires the lease for one second and never renews it.
    loop {
        lease["spec"]["holderIdentity"] = json!("intruder");
        lease["spec"]["leaseDurationSeconds"] = json!(1);
        match server.update(LEASES, lease) {
            Ok(_) => break,
            Err(_) => lease = (*server.get(LEASES, "default", "ostler-operator").unwrap()).clone(),
        }
    }
    let lease = wait_for_holder(&test_cluster, "first").await;
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
    server.create(OME_SERVICES, supply::service("one", "small")).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "one", "RuntimeResolved", "True").await;
}

/// A standby is ready once it can observe the leader.
#[tokio::test(start_paused = true)]
async fn standby_is_ready_once_it_has_read_the_lease() {
    let server = server_with_ostler_crds();
    let leader = TestCluster::with_server(server.clone(), options("first"));
    wait_for_holder(&leader, "first").await;
    for fault in [Fault::NoResponse, Fault::Status(403)] {
        let standby = TestCluster::without_operator(server.clone());
        let (standby_options, is_broken) = (options("second"), Arc::new(AtomicBool::new(true)));
        let (health, broken) = (Arc::clone(&standby_options.health), Arc::clone(&is_broken));
        let faults = move |request: &OperatorRequest| {
            let is_lease = request.uri().path().contains("/leases/");
            if is_lease && broken.load(Ordering::Relaxed) { fault } else { Fault::None }
        };
        let _operator = standby.start_operator_with_faults(standby_options, Arc::new(faults));
        sleep(Duration::from_secs(5)).await;
        let reason = "waiting for the first read of Lease default/ostler-operator";
        assert_eq!(health.check_readiness(), Err(reason.to_owned()), "{fault:?}");
        is_broken.store(false, Ordering::Relaxed);
        sleep(Duration::from_secs(20)).await;
        assert_eq!(health.check_readiness(), Ok(()), "{fault:?}");
    }
}

/// Returns the holder of the Lease.
fn holder(test_cluster: &TestCluster) -> Value {
    test_cluster.server.get(LEASES, "default", "ostler-operator").unwrap()["spec"]["holderIdentity"].clone()
}

/// Returns the sorted reasons of the events about a service.
fn event_reasons(test_cluster: &TestCluster, service: &str) -> Vec<String> {
    let events = test_cluster.server.list("events").into_iter();
    let events = events.filter(|event| event["involvedObject"]["name"] == service);
    let mut reasons: Vec<String> = events.map(|event| event["reason"].as_str().unwrap().to_owned()).collect();
    reasons.sort();
    reasons
}

/// The shutdown arrives while a reconcile sends its events: they and the status that records them are written, and then the
/// Lease is released.
#[tokio::test(start_paused = true)]
async fn shutdown_sends_events_then_completes_work_then_releases_the_lease() {
    let test_cluster = TestCluster::empty();
    create_supply(&test_cluster.server, &[("big", "80Gi", "5")]);
    let writes: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = Arc::clone(&writes);
    let faults = move |request: &OperatorRequest| {
        let path = request.uri().path();
        if *request.method() != Method::GET {
            log.lock().unwrap().push(format!("{} {path}", request.method()));
        }
        let is_slow = path.ends_with("/events") || path.contains("/inferenceservices/");
        if is_slow { Fault::Delay(Duration::from_secs(1)) } else { Fault::None }
    };
    let operator = test_cluster.start_operator_with_faults(options("first"), Arc::new(faults));
    let acquired = wait_for_holder(&test_cluster, "first").await;
    test_cluster.server.create(OME_SERVICES, supply::service("one", "small")).unwrap();
    while !writes.lock().unwrap().iter().any(|write| write.ends_with("/events")) {
        sleep(Duration::from_millis(10)).await;
    }
    let start = Instant::now();
    test_cluster.shutdown_token().cancel();
    timeout(Duration::from_secs(10), operator).await.unwrap().unwrap();
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    let service = test_cluster.server.get(OME_SERVICES, "default", "one").unwrap();
    assert!(service["status"]["decision"].is_object());
    assert_eq!(event_reasons(&test_cluster, "one"), ["Selected"]);
    assert_eq!(holder(&test_cluster), "");
    let released = test_cluster.server.get(LEASES, "default", "ostler-operator").unwrap();
    let transitions = |lease: &Value| lease["spec"]["leaseTransitions"].clone();
    assert_eq!(transitions(&released), transitions(&acquired), "the Lease was released early and acquired again");
    let writes = writes.lock().unwrap();
    let last_event = writes.iter().rposition(|write| write.ends_with("/events")).unwrap();
    let release = writes.iter().rposition(|write| write.ends_with("/leases/ostler-operator")).unwrap();
    let status_path = "PATCH /apis/ome.io/v1beta1/namespaces/default/inferenceservices/one/status";
    let status = writes.iter().rposition(|write| write == status_path).unwrap();
    assert!(last_event < status && status < release && release == writes.len() - 1, "{writes:#?}");
}

/// A leader that loses the Lease between the events and the status leaves both to the next leader, which creates each event
/// once.
#[tokio::test(start_paused = true)]
async fn next_leader_writes_the_status_without_repeating_events() {
    let test_cluster = TestCluster::empty();
    create_supply(&test_cluster.server, &[("big", "80Gi", "5")]);
    let is_disconnected = Arc::new(AtomicBool::new(false));
    let disconnected = Arc::clone(&is_disconnected);
    // From its first write of the status, the first leader cannot reach the API server.
    let faults = move |request: &OperatorRequest| {
        disconnected.fetch_or(request.uri().path().ends_with("/inferenceservices/one/status"), Ordering::Relaxed);
        if disconnected.load(Ordering::Relaxed) { Fault::NoResponse } else { Fault::None }
    };
    let _first = test_cluster.start_operator_with_faults(options("first"), Arc::new(faults));
    wait_for_holder(&test_cluster, "first").await;
    test_cluster.start_operator(options("second"));
    test_cluster.server.create(OME_SERVICES, supply::service("one", "small")).unwrap();
    test_cluster.wait_for_condition(OME_SERVICES, "one", "RuntimeResolved", "True").await;
    assert!(is_disconnected.load(Ordering::Relaxed));
    assert_eq!(holder(&test_cluster), "second");
    assert_eq!(event_reasons(&test_cluster, "one"), ["Selected"]);
}

/// A request that is never answered delays the shutdown by a limited time. The Lease is not released, because the API
/// server may still process the request.
#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_an_api_server_that_does_not_respond() {
    for is_leader_election in [true, false] {
        let test_cluster = TestCluster::empty();
        create_supply(&test_cluster.server, &[("big", "80Gi", "5")]);
        let is_stuck = Arc::new(AtomicBool::new(false));
        let stuck = Arc::clone(&is_stuck);
        let faults = move |request: &OperatorRequest| {
            stuck.fetch_or(request.uri().path().contains("/inferenceservices/"), Ordering::Relaxed);
            if stuck.load(Ordering::Relaxed) { Fault::NoResponse } else { Fault::None }
        };
        let options = if is_leader_election { options("first") } else { Options::default() };
        let operator = test_cluster.start_operator_with_faults(options, Arc::new(faults));
        test_cluster.server.create(OME_SERVICES, supply::service("one", "small")).unwrap();
        while !is_stuck.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(10)).await;
        }
        test_cluster.shutdown_token().cancel();
        timeout(Duration::from_secs(9), operator).await.unwrap().unwrap();
        if is_leader_election {
            assert_eq!(holder(&test_cluster), "first");
        }
    }
}

/// A replica that loses the Lease exports no gauges of the cluster, until it leads again.
#[tokio::test(start_paused = true)]
async fn former_leader_exports_no_cluster_gauges() {
    let test_cluster = TestCluster::empty();
    create_supply(&test_cluster.server, &[("big", "80Gi", "5")]);
    let metrics = Arc::new(Metrics::default());
    let is_disconnected = Arc::new(AtomicBool::new(false));
    let disconnected = Arc::clone(&is_disconnected);
    let faults = move |request: &OperatorRequest| {
        let is_lost = disconnected.load(Ordering::Relaxed) && request.uri().path().contains("/leases/");
        if is_lost { Fault::NoResponse } else { Fault::None }
    };
    let options = Options { metrics: Arc::clone(&metrics), ..options("first") };
    let _operator = test_cluster.start_operator_with_faults(options, Arc::new(faults));
    let has_gauges = || metrics.render().contains("ostler_accelerators{class=\"big\"");
    for is_leader in [true, false, true] {
        is_disconnected.store(!is_leader, Ordering::Relaxed);
        sleep(Duration::from_secs(60)).await;
        assert_eq!(has_gauges(), is_leader);
    }
}

/// Two operators in one namespace watch different namespaces. With the same Lease, the second one would stand by for ever.
#[tokio::test(start_paused = true)]
async fn operators_with_different_leases_work_at_the_same_time() {
    let test_cluster = TestCluster::empty();
    create_supply(&test_cluster.server, &[("big", "80Gi", "5")]);
    for namespace in ["default", "other"] {
        let mut options = options(namespace);
        options.leader_election.as_mut().unwrap().name = format!("ostler-operator-{namespace}");
        test_cluster.start_operator(Options { namespaces: vec![namespace.to_owned()], ..options });
    }
    test_cluster.server.create("namespaces", json!({"metadata": {"name": "other"}})).unwrap();
    for namespace in ["default", "other"] {
        let mut service = supply::service("one", "small");
        service["metadata"]["namespace"] = json!(namespace);
        test_cluster.server.create(OME_SERVICES, service).unwrap();
        test_cluster
            .wait_for(&format!("a decision in namespace {namespace}"), |server| {
                server.get(OME_SERVICES, namespace, "one")?["status"]["decision"].is_object().then_some(())
            })
            .await;
        let lease = test_cluster.server.get(LEASES, "default", &format!("ostler-operator-{namespace}")).unwrap();
        assert_eq!(lease["spec"]["holderIdentity"], namespace);
    }
}
