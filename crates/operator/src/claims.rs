//! What services that are decided will take, whether their Pods run yet or not: two do not choose the same accelerators.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use cluster::object::terminating;
use cluster::{Key, Stores};
use plan::Claim;
use serde_json::Value;

use crate::kinds::OME_SERVICE;

/// Claims of services, each read once per state of its service.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    read: Mutex<BTreeMap<Key, Read>>,
}

/// A service as it was when its claim was read.
#[derive(Debug)]
struct Read {
    service: Arc<Value>,
    claim: Option<Claim>,
}

// === impl Claims ===

impl Claims {
    /// What every service but `own` claims now, in key order. The stores hold the answers to our own writes, so a decision
    /// counts for the very next one.
    pub(crate) fn of_others(&self, stores: &Stores, own: &Key) -> Vec<Claim> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut *read);
        let mut claims = Vec::new();
        for service in stores.list(OME_SERVICE) {
            let key = Key::of(&service);
            let known = before.remove(&key).filter(|known| Arc::ptr_eq(&known.service, &service));
            let known = known.unwrap_or_else(|| Read::of(service));
            if key != *own {
                claims.extend(known.claim.clone());
            }
            read.insert(key, known);
        }
        claims
    }
}

// === impl Read ===

impl Read {
    /// A service that goes takes nothing any more; its Pods count as long as they are there.
    fn of(service: Arc<Value>) -> Read {
        let claim = Claim::recorded(&service).filter(|_| !terminating(&service));
        Read { service, claim }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::runtime::watcher::Event;
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
    fn others_claim_what_they_were_last_promised() {
        let (stores, claims) = (Stores::new("us"), Claims::default());
        let accept = |service: Value| drop(stores.accept(OME_SERVICE, Event::Apply(service)));
        let told = |own: &str| -> Vec<String> {
            let found = claims.of_others(&stores, &Key::new("n", own));
            found.iter().map(|claim| format!("{} {}", claim.service, claim.sets[0].class)).collect()
        };
        accept(service("a", "x", false));
        accept(service("b", "x", false));
        assert_eq!((told("a"), told("b")), (vec!["b x".to_owned()], vec!["a x".to_owned()]));
        accept(service("b", "y", false));
        assert_eq!(told("a"), ["b y"]);
        accept(service("b", "y", true));
        assert_eq!(told("a"), [""; 0]);
    }
}
