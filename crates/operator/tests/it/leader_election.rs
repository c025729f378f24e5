//! Leader election between two operators.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cluster::LeaderElectionTimings;
use jiff::SignedDuration;
use operator::{LeaderElection, Options};
use serde_json::{Value, json};

use crate::supply::{self, create_supply};
use crate::test_cluster::{OME_SERVICES, TestCluster, server_with_ostler_crds};

const LEASES: &str = "leases.coordination.k8s.io";

fn options(identity: &str) -> Options {
    let timings =
        LeaderElectionTimings { retry_period: SignedDuration::from_millis(20), ..LeaderElectionTimings::default() };
    let leader_election = LeaderElection { namespace: "default".to_owned(), identity: identity.to_owned(), timings };
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
