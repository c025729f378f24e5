//! What services that are decided will take, whether their Pods run yet or not: two do not choose the same accelerators.

use std::sync::{Arc, Mutex, PoisonError};

use cluster::object::terminating;
use cluster::{Key, Stores};
use plan::Claim;

use crate::kinds::OME_SERVICE;

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
}

// === impl Claims ===

impl Claims {
    /// Looks at one service again, which has changed or gone. The stores hold the answers to our own writes, so a decision
    /// counts for the very next one.
    pub(crate) fn look(&self, stores: &Stores, key: &Key) {
        let service = stores.get(OME_SERVICE, key);
        // A service that goes takes nothing any more; its Pods count as long as they are there.
        let claim = service.filter(|service| !terminating(service)).and_then(|service| Claim::recorded(&service));
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.put(key, claim) {
            state.count_change(key);
        }
    }

    /// What every service claims now, and a number that moves when that of any but `own` does.
    pub(crate) fn beside(&self, own: &Key) -> (Arc<Vec<Claim>>, u64) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let of_others = if state.newest.as_ref() == Some(own) { state.before } else { state.count };
        (Arc::clone(&state.claims), of_others)
    }
}

// === impl State ===

impl State {
    /// Returns whether that is news.
    fn put(&mut self, key: &Key, claim: Option<Claim>) -> bool {
        let place = |claim: &Claim| {
            (claim.namespace.as_str(), claim.service.as_str()).cmp(&(key.namespace.as_str(), key.name.as_str()))
        };
        match (self.claims.binary_search_by(place), claim) {
            (Ok(at), Some(claim)) if self.claims.get(at) == Some(&claim) => return false,
            (Ok(at), Some(claim)) => {
                Arc::make_mut(&mut self.claims).splice(at..=at, [claim]);
            }
            (Ok(at), None) => drop(Arc::make_mut(&mut self.claims).remove(at)),
            (Err(at), Some(claim)) => Arc::make_mut(&mut self.claims).insert(at, claim),
            (Err(_), None) => return false,
        }
        true
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
    use kube::runtime::watcher::Event;
    use serde_json::{Value, json};

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
        let (stores, claims) = (Stores::new("us"), Claims::default());
        let accept = |service: Value| {
            let key = Key::of(&service);
            let _ = stores.accept(OME_SERVICE, Event::Apply(service));
            claims.look(&stores, &key);
        };
        let told = || -> Vec<String> {
            let (found, _) = claims.beside(&Key::new("n", "any"));
            found.iter().map(|claim| format!("{} {}", claim.service, claim.sets[0].class)).collect()
        };
        accept(service("b", "x", false));
        accept(service("a", "x", false));
        assert_eq!(told(), ["a x", "b x"]);
        accept(service("b", "y", false));
        assert_eq!(told(), ["a x", "b y"]);
        accept(service("b", "y", true));
        assert_eq!(told(), ["a x"]);
        let _ = stores.accept(OME_SERVICE, Event::Delete(service("a", "x", false)));
        claims.look(&stores, &Key::new("n", "a"));
        assert_eq!(told(), [""; 0]);
    }

    #[test]
    fn the_number_moves_with_the_claims_of_others() {
        let (stores, claims) = (Stores::new("us"), Claims::default());
        let accept = |name: &str, class: &str| {
            let _ = stores.accept(OME_SERVICE, Event::Apply(service(name, class, false)));
            claims.look(&stores, &Key::new("n", name));
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
