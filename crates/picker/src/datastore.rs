//! State that the watch of BackendPools and the native gateway share.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use fastrand::Rng;
use supervisor::Supervisor;

use crate::{
    endpoint::EndpointLoad,
    pool::{Pool, RoutingTable},
};

/// Current routing table and endpoint loads, shared by the watch and the gateway.
#[derive(Debug)]
pub struct Datastore {
    table: RwLock<Arc<RoutingTable>>,
    loads: Mutex<BTreeMap<SocketAddr, Arc<EndpointLoad>>>,
    rng: Mutex<Rng>,
    /// Why the routing table does not contain all pools yet.
    incomplete: Mutex<Option<String>>,
    /// The tasks that keep the routing table up to date.
    pub(crate) supervisor: Supervisor,
}

impl Datastore {
    /// Returns a datastore without pools. `seed` makes random selections reproducible.
    pub fn new(seed: u64) -> Self {
        Self {
            table: RwLock::default(),
            loads: Mutex::default(),
            rng: Mutex::new(Rng::with_seed(seed)),
            incomplete: Mutex::new(Some("the gateway is starting".to_owned())),
            supervisor: Supervisor::default(),
        }
    }

    /// Replaces all pools atomically; the loads of retained endpoints are preserved.
    pub fn replace(&self, pools: Vec<Pool>) {
        let routing = Arc::new(RoutingTable::new(pools));
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = routing;
        // Remove loads of removed endpoints without requests: only this map references them.
        self.loads.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, load| Arc::strong_count(load) > 1);
    }

    /// Returns the current routing table.
    pub fn routing_table(&self) -> Arc<RoutingTable> {
        Arc::clone(&self.table.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the load of `address`, which all pools share.
    pub fn load(&self, address: SocketAddr) -> Arc<EndpointLoad> {
        let mut loads = self.loads.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(loads.entry(address).or_default())
    }

    /// Returns why tasks that keep the routing table up to date do not run, one line per task.
    pub fn outages(&self) -> Vec<String> {
        self.supervisor.outages()
    }

    /// Records which resources the routing table lacks because their first lists are not complete.
    pub(crate) fn set_unlisted(&self, resources: &[String]) {
        let reason = || format!("waiting for the first list of {}", resources.join(", "));
        *self.incomplete.lock().unwrap_or_else(PoisonError::into_inner) = (!resources.is_empty()).then(reason);
    }

    /// Returns why the gateway is not ready for requests: its routing table does not contain all pools yet. Outages do not
    /// count, since the last routing table serves requests, and one object may cause an outage of all replicas.
    pub fn readiness_failures(&self) -> Vec<String> {
        self.incomplete.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    /// Returns a random number generator for one request, derived from the seed.
    pub fn rng(&self) -> Rng {
        self.rng.lock().unwrap_or_else(PoisonError::into_inner).fork()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn load_counts_requests_in_flight_and_survives_replacement() {
        let pools = Datastore::new(0);
        let address = "127.0.0.1:1".parse().unwrap();
        let running = pools.load(address).begin(10);
        pools.replace(Vec::new());
        assert_eq!((pools.load(address).requests(), pools.load(address).tokens()), (1, 10));
        drop(running);
        assert_eq!((pools.load(address).requests(), pools.load(address).tokens()), (0, 0));
    }
}
