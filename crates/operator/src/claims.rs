//! What services that are decided will take, whether their Pods run yet or not: two do not choose the same accelerators.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::Key;
use cluster::object::terminating;
use decide::inventory::Index;
use plan::Claim;
use serde_json::Value;

/// Claims of services, kept right one service after the other.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    claims: Sorted,
    /// Those whose Pods do not all run: the nodes do not tell of these.
    open: Sorted,
    /// Counts changes.
    count: u64,
    /// Whose claim changed last.
    newest: Option<Key>,
    /// The count when that of any other service changed last.
    before: u64,
    /// Services that are decided and whose status does not say so yet.
    promised: BTreeSet<Key>,
}

/// In key order; changed in place unless a decision still looks at them.
#[derive(Debug, Default)]
struct Sorted(Arc<Vec<Claim>>);

// === impl Claims ===

impl Claims {
    /// Takes in what a service, which has changed or gone, records. The stores hold the answers to our own writes.
    pub(crate) fn look(&self, key: &Key, service: Option<&Value>, inventory: &Index) {
        let mut state = self.lock();
        if !state.promised.contains(key) {
            state.put(key, recorded(service), inventory);
        }
    }

    /// A Pod of the service has come, moved or gone.
    pub(crate) fn recount(&self, key: &Key, inventory: &Index) {
        let mut state = self.lock();
        let open = state.claims.get(key).filter(|claim| claim.is_open(inventory)).cloned();
        state.open.put(key, open);
    }

    /// What a service was just decided to take: it counts for the very next decision, before any status says so.
    pub(crate) fn promise(&self, key: &Key, claim: Option<Claim>, inventory: &Index) {
        let mut state = self.lock();
        state.promised.insert(key.clone());
        state.put(key, claim, inventory);
    }

    /// The status of a service has been written, or could not be: it says what counts again.
    pub(crate) fn settle(&self, key: &Key, service: Option<&Value>, inventory: &Index) {
        let mut state = self.lock();
        if state.promised.remove(key) {
            state.put(key, recorded(service), inventory);
        }
    }

    /// What services claim now beside what `inventory` tells, and a number that moves when any claim but that of `own` does.
    pub(crate) fn beside(&self, own: &Key, inventory: &Index) -> (Arc<Vec<Claim>>, u64) {
        let state = self.lock();
        let of_others = if state.newest.as_ref() == Some(own) { state.before } else { state.count };
        // Without nodes nobody tells of any.
        let claims = if inventory.has_nodes() { &state.open } else { &state.claims };
        (Arc::clone(&claims.0), of_others)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A service that goes takes nothing any more; its Pods count as long as they are there.
fn recorded(service: Option<&Value>) -> Option<Claim> {
    service.filter(|service| !terminating(service)).and_then(Claim::recorded)
}

// === impl State ===

impl State {
    fn put(&mut self, key: &Key, claim: Option<Claim>, inventory: &Index) {
        let open = claim.clone().filter(|claim| claim.is_open(inventory));
        self.open.put(key, open);
        if self.claims.put(key, claim) {
            self.count_change(key);
        }
    }

    fn count_change(&mut self, key: &Key) {
        if self.newest.as_ref() != Some(key) {
            self.before = self.count;
            self.newest = Some(key.clone());
        }
        self.count += 1;
    }
}

// === impl Sorted ===

impl Sorted {
    fn place(&self, key: &Key) -> Result<usize, usize> {
        self.0.binary_search_by(|claim| {
            (claim.namespace.as_str(), claim.service.as_str()).cmp(&(key.namespace.as_str(), key.name.as_str()))
        })
    }

    fn get(&self, key: &Key) -> Option<&Claim> {
        self.0.get(self.place(key).ok()?)
    }

    /// Returns whether that is news.
    fn put(&mut self, key: &Key, claim: Option<Claim>) -> bool {
        if self.get(key) == claim.as_ref() {
            return false;
        }
        let place = self.place(key);
        let claims = Arc::make_mut(&mut self.0);
        match (place, claim) {
            (Ok(at), Some(claim)) => drop(claims.splice(at..=at, [claim])),
            (Ok(at), None) => drop(claims.remove(at)),
            (Err(at), Some(claim)) => claims.insert(at, claim),
            (Err(_), None) => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service(name: &str, class: &str, deleted: bool) -> Value {
        let mut service = json!({"metadata": {"namespace": "n", "name": name, "generation": 1}, "status": {"observedGeneration": 1,
            "decision": {"feasible": true, "components": {"engine": {"acceleratorClass": class, "acceleratorsPerNode": 8, "nodes": 1, "replicas": 1}}}}});
        if deleted {
            service["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        service
    }

    #[test]
    fn services_claim_what_they_were_last_promised() {
        let claims = Claims::default();
        let look = |service: Value| claims.look(&Key::of(&service), Some(&service), &Index::default());
        let told = || -> Vec<String> {
            let (found, _) = claims.beside(&Key::new("n", "any"), &Index::default());
            found.iter().map(|claim| format!("{} {}", claim.service, claim.sets[0].class)).collect()
        };
        look(service("b", "x", false));
        look(service("a", "x", false));
        assert_eq!(told(), ["a x", "b x"]);
        look(service("b", "y", false));
        assert_eq!(told(), ["a x", "b y"]);
        look(service("b", "y", true));
        assert_eq!(told(), ["a x"]);
        claims.look(&Key::new("n", "a"), None, &Index::default());
        assert_eq!(told(), [""; 0]);
    }

    #[test]
    fn a_decision_counts_before_its_status_is_written() {
        let (claims, none) = (Claims::default(), Index::default());
        let (key, before) = (Key::new("n", "a"), service("a", "x", false));
        let told = || -> Vec<String> {
            let (found, _) = claims.beside(&Key::new("n", "any"), &none);
            found.iter().map(|claim| claim.sets[0].class.clone()).collect()
        };
        claims.promise(&key, recorded(Some(&service("a", "y", false))), &none);
        assert_eq!(told(), ["y"]);
        // News of the service as it was before.
        claims.look(&key, Some(&before), &none);
        assert_eq!(told(), ["y"]);
        claims.settle(&key, Some(&before), &none);
        assert_eq!(told(), ["x"], "the status could not be written");
        claims.promise(&key, None, &none);
        claims.settle(&key, Some(&service("a", "z", false)), &none);
        assert_eq!(told(), ["z"]);
        claims.look(&key, None, &none);
        assert!(told().is_empty());
    }

    #[test]
    fn a_claim_counts_until_its_pods_run() {
        let claims = Claims::default();
        let mut index = Index::default();
        let node = json!({"metadata": {"name": "x"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}});
        index.set_node("x", Some(&node));
        let key = Key::new("n", "a");
        let open = |index: &Index| claims.beside(&Key::new("n", "any"), index).0.len();
        claims.look(&key, Some(&service("a", "h", false)), &index);
        assert_eq!(open(&index), 1);
        let labels = json!({"ome.io/inferenceservice": "a", "component": "engine"});
        let pod = json!({"metadata": {"namespace": "n", "name": "p", "labels": labels},
            "spec": {"nodeName": "x", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]}});
        index.set_pod("n", "p", Some(&pod));
        claims.recount(&key, &index);
        assert_eq!(open(&index), 0);
        assert_eq!(open(&Index::default()), 1, "without nodes nothing is told of Pods");
        index.set_pod("n", "p", None);
        claims.recount(&key, &index);
        assert_eq!(open(&index), 1);
    }

    #[test]
    fn the_number_moves_with_the_claims_of_others() {
        let claims = Claims::default();
        let accept = |name: &str, class: &str| {
            claims.look(&Key::new("n", name), Some(&service(name, class, false)), &Index::default());
            ["a", "b", "c"].map(|own| claims.beside(&Key::new("n", own), &Index::default()).1)
        };
        let (first, again, own) = (accept("a", "x"), accept("a", "x"), accept("a", "y"));
        assert_eq!(first, again);
        assert_eq!((own[0] == again[0], own[1] == again[1]), (true, false));
        let other = accept("b", "x");
        assert_eq!((other[0] == own[0], other[1] == own[1], other[2] == own[2]), (false, true, false));
        let third = accept("c", "x");
        assert_eq!((third[0] == other[0], third[1] == other[1]), (false, false));
    }
}
