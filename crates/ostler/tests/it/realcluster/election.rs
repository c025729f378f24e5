//! Two operators, and the one that works dies in the middle.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use realcluster::Write;

use super::gangs::disaggregated;
use super::world::{GROUPS, PODS, ROLES, SERVICES, SETS, World};

const NAMESPACE: &str = "election";
/// How many writes the leader gets done.
const WRITES: usize = 2;

/// Who has written what, in order: the place of the operator, and the path.
type Writes = Arc<Mutex<Vec<(usize, String)>>>;

/// SIGKILL after the second write of one reconcile: the other goes on from there, and repeats nothing.
pub(super) async fn the_leader_is_killed_between_two_writes(world: &mut World) {
    world.operate("second", &[]).await;
    world.namespace(NAMESPACE).await;
    let writes = Writes::default();
    (0..world.operators.len()).for_each(|operator| kill_after_its_write(world, operator, &writes));
    world.apply(&disaggregated(NAMESPACE, "survivor")).await;
    world.condition(ROLES, NAMESPACE, "survivor", ("Active", "True"), "").await;
    let sets = world.until("three sets", SETS, NAMESPACE, |found| found.len() == 3).await;
    assert!(sets.values().all(|set| set["metadata"]["generation"] == 1), "nothing was written twice");

    let writes = writes.lock().unwrap().clone();
    let killed = writes[WRITES - 1].0;
    assert!(writes[WRITES..].iter().all(|(operator, _)| *operator != killed), "the dead write nothing: {writes:?}");
    let paths: BTreeSet<&String> = writes.iter().map(|(_, path)| path).collect();
    assert_eq!(paths.len(), writes.len(), "each object is written by one of them, once: {writes:?}");
    assert!(writes.len() >= 4, "{writes:?}");

    world.delete(ROLES, NAMESPACE, "survivor").await;
    world.nothing_left(NAMESPACE, &[ROLES, SETS, GROUPS, PODS, SERVICES]).await;
    // Only the other one is left.
    drop(world.operators.remove(killed));
}

/// Whichever of them leads when it comes to that write: on a busy machine a lease may have been lost before.
fn kill_after_its_write(world: &World, operator: usize, writes: &Writes) {
    let (writes, process) = (Arc::clone(writes), Arc::clone(&world.operators[operator].process));
    world.operators[operator].proxy.after_write(move |write| {
        if made(write) {
            let mut writes = writes.lock().unwrap();
            writes.push((operator, write.path.clone()));
            if writes.len() == WRITES {
                process.lock().unwrap().kill().unwrap();
            }
        }
    });
}

/// A write of an object of the service that was taken; its status is written more than once, by nature.
fn made(write: &Write) -> bool {
    write.status < 400 && write.path.contains("/namespaces/election/") && !write.path.ends_with("/status")
}
