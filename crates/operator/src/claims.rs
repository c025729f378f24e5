//! Claims of services on accelerators: the accelerators that a decided service will use, even before its Pods run. Claims
//! prevent two services from selecting the same accelerators.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::{NamespacedName, is_terminating};
use decide::Inventory;
use plan::Claim;
use serde_json::Value;

/// Claims of all services, updated one service at a time.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    state: Mutex<ClaimState>,
}

/// Claims, and what changed last.
#[derive(Debug, Default)]
struct ClaimState {
    claims: SortedClaims,
    /// Claims of services whose Pods are not all running; the inventory does not account for these claims.
    pending: SortedClaims,
    /// Incremented whenever a claim changes.
    version: u64,
    /// Service whose claim changed last.
    last_changed: Option<NamespacedName>,
    /// Version at the last change of any service other than `last_changed`.
    other_services_version: u64,
    /// Decided services whose status does not contain the decision yet.
    pinned: BTreeSet<NamespacedName>,
}

/// Claims sorted by service; copied on write only while a decision reads them.
#[derive(Debug, Default)]
struct SortedClaims(Arc<Vec<Claim>>);

// === impl Claims ===

impl Claims {
    /// Updates the claim of a changed or deleted service from its status, unless the claim is pinned.
    pub(crate) fn observe(&self, key: &NamespacedName, service: Option<&Value>, inventory: &Inventory) {
        let mut state = self.lock();
        if !state.pinned.contains(key) {
            state.set(key, recorded_claim(service), inventory);
        }
    }

    /// Updates whether the claim of a service is pending after one of its Pods changed.
    pub(crate) fn update_pending(&self, key: &NamespacedName, inventory: &Inventory) {
        let mut state = self.lock();
        let pending = state.claims.get(key).filter(|claim| claim.has_pending_pods(inventory)).cloned();
        state.pending.set(key, pending);
    }

    /// Sets the claim of a service that was just decided; the next decision takes it into account before the status is
    /// written.
    pub(crate) fn pin(&self, key: &NamespacedName, claim: Option<Claim>, inventory: &Inventory) {
        let mut state = self.lock();
        state.pinned.insert(key.clone());
        state.set(key, claim, inventory);
    }

    /// Reads the claim from the status again, after the status was written or the write failed.
    pub(crate) fn unpin(&self, key: &NamespacedName, service: Option<&Value>, inventory: &Inventory) {
        let mut state = self.lock();
        if state.pinned.remove(key) {
            state.set(key, recorded_claim(service), inventory);
        }
    }

    /// Returns the claims that `inventory` does not account for, and a version that changes whenever the claim of a
    /// service other than `key` changes.
    pub(crate) fn unaccounted_claims(&self, key: &NamespacedName, inventory: &Inventory) -> (Arc<Vec<Claim>>, u64) {
        let state = self.lock();
        let version =
            if state.last_changed.as_ref() == Some(key) { state.other_services_version } else { state.version };
        // An inventory without nodes accounts for no claim.
        let claims = if inventory.has_nodes() { &state.pending } else { &state.claims };
        (Arc::clone(&claims.0), version)
    }

    fn lock(&self) -> MutexGuard<'_, ClaimState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the claim in the status of a service. A terminating service claims nothing; the inventory accounts for its
/// remaining Pods.
fn recorded_claim(service: Option<&Value>) -> Option<Claim> {
    service.filter(|service| !is_terminating(service)).and_then(Claim::from_status)
}

// === impl ClaimState ===

impl ClaimState {
    fn set(&mut self, key: &NamespacedName, claim: Option<Claim>, inventory: &Inventory) {
        let pending = claim.clone().filter(|claim| claim.has_pending_pods(inventory));
        self.pending.set(key, pending);
        if self.claims.set(key, claim) {
            self.increment_version(key);
        }
    }

    fn increment_version(&mut self, key: &NamespacedName) {
        if self.last_changed.as_ref() != Some(key) {
            self.other_services_version = self.version;
            self.last_changed = Some(key.clone());
        }
        self.version = self.version.wrapping_add(1);
    }
}

// === impl SortedClaims ===

impl SortedClaims {
    fn search(&self, key: &NamespacedName) -> Result<usize, usize> {
        self.0.binary_search_by(|claim| {
            (claim.namespace.as_str(), claim.service.as_str()).cmp(&(key.namespace.as_str(), key.name.as_str()))
        })
    }

    fn get(&self, key: &NamespacedName) -> Option<&Claim> {
        self.0.get(self.search(key).ok()?)
    }

    /// Sets or removes a claim; returns whether it changed.
    fn set(&mut self, key: &NamespacedName, claim: Option<Claim>) -> bool {
        if self.get(key) == claim.as_ref() {
            return false;
        }
        let position = self.search(key);
        let claims = Arc::make_mut(&mut self.0);
        match (position, claim) {
            (Ok(index), Some(claim)) => drop(claims.splice(index..=index, [claim])),
            (Ok(index), None) => drop(claims.remove(index)),
            (Err(index), Some(claim)) => claims.insert(index, claim),
            (Err(_), None) => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn service(name: &str, class: &str, is_deleted: bool) -> Value {
        let accelerator = json!({"acceleratorClass": class, "resourceRequests": {"nvidia.com/gpu": "8"}});
        let mut service = json!({"metadata": {"namespace": "n", "name": name, "generation": 1}, "status": {"observedGeneration": 1,
            "decision": {"reason": "Selected", "message": ""},
            "components": {"engine": {"replicas": 1, "selectedAccelerator": accelerator}}}});
        if is_deleted {
            service["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        service
    }

    #[test]
    fn observes_claims_in_service_status() {
        let claims = Claims::default();
        let observe = |service: Value| {
            claims.observe(&NamespacedName::from_object(&service), Some(&service), &Inventory::default());
        };
        let current = || -> Vec<String> {
            let (unaccounted_claims, _) =
                claims.unaccounted_claims(&NamespacedName::new("n", "any"), &Inventory::default());
            unaccounted_claims.iter().map(|claim| format!("{} {}", claim.service, claim.pod_sets[0].class)).collect()
        };
        observe(service("b", "x", false));
        observe(service("a", "x", false));
        assert_eq!(current(), ["a x", "b x"]);
        observe(service("b", "y", false));
        assert_eq!(current(), ["a x", "b y"]);
        observe(service("b", "y", true));
        assert_eq!(current(), ["a x"]);
        claims.observe(&NamespacedName::new("n", "a"), None, &Inventory::default());
        assert_eq!(current(), [""; 0]);
    }

    #[test]
    fn pinned_claim_takes_precedence_over_status() {
        let (claims, inventory) = (Claims::default(), Inventory::default());
        let (key, before) = (NamespacedName::new("n", "a"), service("a", "x", false));
        let classes = || -> Vec<String> {
            let (unaccounted_claims, _) = claims.unaccounted_claims(&NamespacedName::new("n", "any"), &inventory);
            unaccounted_claims.iter().map(|claim| claim.pod_sets[0].class.clone()).collect()
        };
        claims.pin(&key, recorded_claim(Some(&service("a", "y", false))), &inventory);
        assert_eq!(classes(), ["y"]);
        // A watch event with the previous status does not change a pinned claim.
        claims.observe(&key, Some(&before), &inventory);
        assert_eq!(classes(), ["y"]);
        claims.unpin(&key, Some(&before), &inventory);
        assert_eq!(classes(), ["x"], "the status could not be written");
        claims.pin(&key, None, &inventory);
        claims.unpin(&key, Some(&service("a", "z", false)), &inventory);
        assert_eq!(classes(), ["z"]);
        claims.observe(&key, None, &inventory);
        assert!(classes().is_empty());
    }

    #[test]
    fn claim_is_pending_until_its_pods_run() {
        let claims = Claims::default();
        let mut inventory = Inventory::default();
        let node = json!({"metadata": {"name": "x"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}});
        inventory.set_node("x", Some(&node));
        let key = NamespacedName::new("n", "a");
        let pending =
            |inventory: &Inventory| claims.unaccounted_claims(&NamespacedName::new("n", "any"), inventory).0.len();
        claims.observe(&key, Some(&service("a", "h", false)), &inventory);
        assert_eq!(pending(&inventory), 1);
        let labels = json!({"ome.io/inferenceservice": "a", "component": "engine"});
        let pod = json!({"metadata": {"namespace": "n", "name": "p", "labels": labels},
            "spec": {"nodeName": "x", "containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}]}});
        inventory.set_pod("n", "p", Some(&pod));
        claims.update_pending(&key, &inventory);
        assert_eq!(pending(&inventory), 0);
        assert_eq!(pending(&Inventory::default()), 1, "an inventory without nodes accounts for no Pods");
        inventory.set_pod("n", "p", None);
        claims.update_pending(&key, &inventory);
        assert_eq!(pending(&inventory), 1);
    }

    #[test]
    fn version_changes_with_claims_of_other_services() {
        let claims = Claims::default();
        let observe = |name: &str, class: &str| {
            let service = service(name, class, false);
            claims.observe(&NamespacedName::new("n", name), Some(&service), &Inventory::default());
            ["a", "b", "c"]
                .map(|key| claims.unaccounted_claims(&NamespacedName::new("n", key), &Inventory::default()).1)
        };
        let (first, repeated, own) = (observe("a", "x"), observe("a", "x"), observe("a", "y"));
        assert_eq!(first, repeated);
        assert_eq!((own[0] == repeated[0], own[1] == repeated[1]), (true, false));
        let second = observe("b", "x");
        assert_eq!((second[0] == own[0], second[1] == own[1], second[2] == own[2]), (false, true, false));
        let third = observe("c", "x");
        assert_eq!((third[0] == second[0], third[1] == second[1]), (false, false));
    }
}
