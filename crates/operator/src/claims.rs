//! What services that are decided will take, whether their Pods run yet or not: two do not choose the same accelerators.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::Key;
use cluster::object::terminating;
use plan::Claim;
use serde_json::Value;

/// Claims of services, kept right one service after the other.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// In key order; changed in place unless a decision still looks at them.
    claims: Arc<Vec<Claim>>,
    /// Counts changes.
    count: u64,
    /// Whose claim changed last.
    newest: Option<Key>,
    /// The count when that of any other service changed last.
    before: u64,
    /// Services that are decided and whose status does not say so yet.
    promised: BTreeSet<Key>,
}

// === impl Claims ===

impl Claims {
    /// Takes in what a service, which has changed or gone, records. The stores hold the answers to our own writes.
    pub(crate) fn look(&self, key: &Key, service: Option<&Value>) {
        let mut state = self.lock();
        if !state.promised.contains(key) {
            state.put(key, recorded(service));
        }
    }

    /// What a service was just decided to take: it counts for the very next decision, before any status says so.
    pub(crate) fn promise(&self, key: &Key, claim: Option<Claim>) {
        let mut state = self.lock();
        state.promised.insert(key.clone());
        state.put(key, claim);
    }

    /// The status of a service has been written, or could not be: it says what counts again.
    pub(crate) fn settle(&self, key: &Key, service: Option<&Value>) {
        let mut state = self.lock();
        if state.promised.remove(key) {
            state.put(key, recorded(service));
        }
    }

    /// What every service claims now, and a number that moves when that of any but `own` does.
    pub(crate) fn beside(&self, own: &Key) -> (Arc<Vec<Claim>>, u64) {
        let state = self.lock();
        let of_others = if state.newest.as_ref() == Some(own) { state.before } else { state.count };
        (Arc::clone(&state.claims), of_others)
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
    fn put(&mut self, key: &Key, claim: Option<Claim>) {
        let place = |claim: &Claim| {
            (claim.namespace.as_str(), claim.service.as_str()).cmp(&(key.namespace.as_str(), key.name.as_str()))
        };
        match (self.claims.binary_search_by(place), claim) {
            (Ok(at), Some(claim)) if self.claims.get(at) == Some(&claim) => return,
            (Ok(at), Some(claim)) => {
                Arc::make_mut(&mut self.claims).splice(at..=at, [claim]);
            }
            (Ok(at), None) => drop(Arc::make_mut(&mut self.claims).remove(at)),
            (Err(at), Some(claim)) => Arc::make_mut(&mut self.claims).insert(at, claim),
            (Err(_), None) => return,
        }
        self.count_change(key);
    }

    fn count_change(&mut self, key: &Key) {
        if self.newest.as_ref() != Some(key) {
            self.before = self.count;
            self.newest = Some(key.clone());
        }
        self.count += 1;
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
        let look = |service: Value| claims.look(&Key::of(&service), Some(&service));
        let told = || -> Vec<String> {
            let (found, _) = claims.beside(&Key::new("n", "any"));
            found.iter().map(|claim| format!("{} {}", claim.service, claim.sets[0].class)).collect()
        };
        look(service("b", "x", false));
        look(service("a", "x", false));
        assert_eq!(told(), ["a x", "b x"]);
        look(service("b", "y", false));
        assert_eq!(told(), ["a x", "b y"]);
        look(service("b", "y", true));
        assert_eq!(told(), ["a x"]);
        claims.look(&Key::new("n", "a"), None);
        assert_eq!(told(), [""; 0]);
    }

    #[test]
    fn a_decision_counts_before_its_status_is_written() {
        let claims = Claims::default();
        let (key, before) = (Key::new("n", "a"), service("a", "x", false));
        let told = || {
            claims.beside(&Key::new("n", "any")).0.iter().map(|claim| claim.sets[0].class.clone()).collect::<Vec<_>>()
        };
        claims.promise(&key, recorded(Some(&service("a", "y", false))));
        assert_eq!(told(), ["y"]);
        // News of the service as it was before.
        claims.look(&key, Some(&before));
        assert_eq!(told(), ["y"]);
        claims.settle(&key, Some(&before));
        assert_eq!(told(), ["x"], "the status could not be written");
        claims.promise(&key, None);
        claims.settle(&key, Some(&service("a", "z", false)));
        claims.look(&key, None);
        assert!(told().is_empty());
    }

    #[test]
    fn the_number_moves_with_the_claims_of_others() {
        let claims = Claims::default();
        let accept = |name: &str, class: &str| {
            claims.look(&Key::new("n", name), Some(&service(name, class, false)));
            ["a", "b", "c"].map(|own| claims.beside(&Key::new("n", own)).1)
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
