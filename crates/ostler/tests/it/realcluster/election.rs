//! Leader election: the leader of two operators is killed while it reconciles.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use realcluster::ObservedWrite;

use super::gangs::disaggregated;
use super::test_cluster::{GROUPS, PODS, ROLES, SERVICES, SETS, TestCluster};

const NAMESPACE: &str = "election";
/// Number of writes before the leader is killed.
const WRITES_BEFORE_KILL: usize = 2;

/// Writes in order, each with the index of the operator and the request path.
type Writes = Arc<Mutex<Vec<(usize, String)>>>;

/// The leader receives SIGKILL after the second write of a reconcile. The other operator completes it without repeating
/// writes.
pub(super) async fn new_leader_completes_reconcile(test_cluster: &mut TestCluster) {
    test_cluster.start_operator("second", &[]).await;
    test_cluster.namespace(NAMESPACE).await;
    let writes = Writes::default();
    (0..test_cluster.operators.len()).for_each(|operator| kill_after_write(test_cluster, operator, &writes));
    test_cluster.apply(&disaggregated(NAMESPACE, "survivor")).await;
    test_cluster.wait_for_condition(ROLES, NAMESPACE, "survivor", ("Active", "True"), "").await;
    let sets = test_cluster.wait_for("three sets", SETS, NAMESPACE, |objects| objects.len() == 3).await;
    assert!(sets.values().all(|set| set["metadata"]["generation"] == 1), "no set was written twice");

    let writes = writes.lock().unwrap().clone();
    let killed_operator = writes[WRITES_BEFORE_KILL - 1].0;
    assert!(
        writes[WRITES_BEFORE_KILL..].iter().all(|(operator, _)| *operator != killed_operator),
        "the killed operator writes nothing: {writes:?}"
    );
    let paths: BTreeSet<&String> = writes.iter().map(|(_, path)| path).collect();
    assert_eq!(paths.len(), writes.len(), "each object is written once: {writes:?}");
    assert!(writes.len() >= 4, "{writes:?}");

    test_cluster.delete(ROLES, NAMESPACE, "survivor").await;
    test_cluster.wait_for_deletion(NAMESPACE, &[ROLES, SETS, GROUPS, PODS, SERVICES]).await;
    // Removes the killed operator, so that later checks do not use it.
    drop(test_cluster.operators.remove(killed_operator));
}

/// Kills the operator that performs the last of the counted writes. On a loaded host, the leader may change before that.
fn kill_after_write(test_cluster: &TestCluster, operator: usize, writes: &Writes) {
    let (writes, process) = (Arc::clone(writes), Arc::clone(&test_cluster.operators[operator].process));
    test_cluster.operators[operator].proxy.on_write(move |write| {
        if is_object_write(write) {
            let mut writes = writes.lock().unwrap();
            writes.push((operator, write.path.clone()));
            if writes.len() == WRITES_BEFORE_KILL {
                process.lock().unwrap().kill().unwrap();
            }
        }
    });
}

/// Returns whether this is a successful write of an object of the service, except for its status.
fn is_object_write(write: &ObservedWrite) -> bool {
    write.status < 400 && write.path.contains("/namespaces/election/") && !write.path.ends_with("/status")
}
