//! Two operators, and the one that works dies in the middle.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use realcluster::Write;

use super::gangs::disaggregated;
use super::world::{GROUPS, PODS, ROLES, SERVICES, SETS, World};

const NAMESPACE: &str = "election";
/// How many writes the leader gets done.
const WRITES: usize = 2;

/// SIGKILL after the second write of one reconcile: the other goes on from there, and repeats nothing.
pub(super) async fn the_leader_is_killed_between_two_writes(world: &mut World) {
    world.operate("second", &[]).await;
    world.namespace(NAMESPACE).await;
    let [first, second] = world.operators.as_slice() else { panic!("two operators") };
    let (seen, process) = (AtomicUsize::new(0), Arc::clone(&first.process));
    first.proxy.after_write(move |write| {
        if made(write) && seen.fetch_add(1, Ordering::SeqCst) + 1 == WRITES {
            process.lock().unwrap().kill().unwrap();
        }
    });
    world.apply(&disaggregated(NAMESPACE, "survivor")).await;
    world.condition(ROLES, NAMESPACE, "survivor", ("Active", "True"), "").await;
    let sets = world.until("three sets", SETS, NAMESPACE, |found| found.len() == 3).await;
    assert!(sets.values().all(|set| set["metadata"]["generation"] == 1), "nothing was written twice");

    let by = |writes: Vec<Write>| writes.into_iter().filter(made).map(|write| write.path).collect::<Vec<_>>();
    let (before, after) = (by(first.proxy.writes()), by(second.proxy.writes()));
    assert_eq!(before.len(), WRITES, "{before:?}");
    let (done, paths) = (before.len() + after.len(), before.iter().chain(&after).collect::<BTreeSet<_>>());
    assert_eq!(paths.len(), done, "each object is written by one of them, once: {before:?} {after:?}");
    assert!(done >= 4, "{paths:?}");

    world.delete(ROLES, NAMESPACE, "survivor").await;
    world.nothing_left(NAMESPACE, &[ROLES, SETS, GROUPS, PODS, SERVICES]).await;
    // Only the second one is left.
    world.operators.remove(0);
}

/// A write of an object of the service; its status is written more than once, by nature.
fn made(write: &Write) -> bool {
    write.path.contains("/namespaces/election/") && !write.path.ends_with("/status")
}
