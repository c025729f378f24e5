//! Two operators, one lease.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cluster::lease::Terms;
use jiff::SignedDuration;
use operator::{Options, Seat};
use serde_json::{Value, json};

use crate::cluster::{SERVICES, World, bare};
use crate::fleet::{self, furnish};

const LEASES: &str = "leases.coordination.k8s.io";

fn candidate(identity: &str) -> Options {
    let terms = Terms { retry: SignedDuration::from_millis(20), ..Terms::default() };
    let seat = Seat { namespace: "default".to_owned(), identity: identity.to_owned(), terms };
    Options { seat: Some(seat), ..Options::default() }
}

async fn held_by(world: &World, identity: &str) -> Arc<Value> {
    world
        .until(&format!("the lease of {identity}"), |server| {
            let lease = server.get(LEASES, "default", "ostler-operator")?;
            (lease["spec"]["holderIdentity"] == identity).then_some(lease)
        })
        .await
}

#[tokio::test(start_paused = true)]
async fn the_second_takes_over_when_the_first_stops_and_only_one_writes() {
    let server = bare();
    furnish(&server, &[("big", "80Gi", "5")]);
    let first = World::on(server.clone(), candidate("first"));
    held_by(&first, "first").await;
    let second = World::on(server.clone(), candidate("second"));
    server.create(SERVICES, fleet::service("one", "small")).unwrap();
    second.condition(SERVICES, "one", "RuntimeResolved", "True").await;
    assert_eq!(second.writes.load(Ordering::Relaxed), 0);
    let decided = server.get(SERVICES, "default", "one").unwrap();
    let counter = Arc::clone(&first.writes);
    drop(first);
    let lease = held_by(&second, "second").await;
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
    let written = counter.load(Ordering::Relaxed);
    server.create(SERVICES, fleet::service("two", "small")).unwrap();
    second.condition(SERVICES, "two", "RuntimeResolved", "True").await;
    assert_eq!(counter.load(Ordering::Relaxed), written);
    // The successor finds everything as it should be.
    assert_eq!(server.get(SERVICES, "default", "one").unwrap()["status"]["decision"], decided["status"]["decision"]);
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_stops_the_work_until_it_is_won_back() {
    let server = bare();
    furnish(&server, &[("big", "80Gi", "5")]);
    let world = World::on(server.clone(), candidate("first"));
    let mut lease = (*held_by(&world, "first").await).clone();
    // Somebody takes it for one second and never renews.
    loop {
        lease["spec"]["holderIdentity"] = json!("intruder");
        lease["spec"]["leaseDurationSeconds"] = json!(1);
        match server.update(LEASES, lease) {
            Ok(_) => break,
            Err(_) => lease = (*server.get(LEASES, "default", "ostler-operator").unwrap()).clone(),
        }
    }
    let lease = held_by(&world, "first").await;
    assert_eq!(lease["spec"]["leaseTransitions"], 1);
    server.create(SERVICES, fleet::service("one", "small")).unwrap();
    world.condition(SERVICES, "one", "RuntimeResolved", "True").await;
}
