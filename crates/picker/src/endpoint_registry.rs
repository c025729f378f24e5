//! The states of all endpoints of the process.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use supervisor::Supervisor;

use crate::{
    concurrency_limit::ConcurrencyLimit, endpoint::Endpoint, endpoint_state::EndpointState, peers::EndpointKey,
    scrape::Scraper,
};

/// The states of the endpoints. A state lives as long as a pool or a request refers to it.
#[derive(Default)]
pub(crate) struct EndpointRegistry {
    scraper: Scraper,
    states: Mutex<States>,
}

#[derive(Default)]
struct States {
    /// Endpoints of each Pod, by its UID.
    by_uid: HashMap<String, Vec<(SocketAddr, Weak<EndpointState>)>>,
    /// Number of Pods at which those are removed that nothing refers to.
    cleanup_at: usize,
}

// === impl EndpointRegistry ===

impl EndpointRegistry {
    /// Returns the state of an endpoint, which all pools share.
    pub(crate) fn state(&self, address: SocketAddr, uid: &str) -> Arc<EndpointState> {
        let mut states = self.lock();
        states.remove_unused();
        let endpoints = states.by_uid.entry(uid.to_owned()).or_default();
        let existing = endpoints.iter().find(|(existing, _)| *existing == address);
        existing.and_then(|(_, state)| state.upgrade()).unwrap_or_else(|| {
            let state = Arc::default();
            endpoints.retain(|(_, state)| state.strong_count() > 0);
            endpoints.push((address, Arc::downgrade(&state)));
            state
        })
    }

    /// Returns all endpoints to which a pool or a request refers.
    pub(crate) fn all(&self) -> Vec<(EndpointKey, Arc<EndpointState>)> {
        let states = self.lock();
        let endpoints =
            states.by_uid.iter().flat_map(|(uid, endpoints)| endpoints.iter().map(move |state| (uid, state)));
        let key = |address, uid: &String| EndpointKey { address, pod_uid: uid.clone() };
        endpoints.filter_map(|(uid, (address, state))| Some((key(*address, uid), state.upgrade()?))).collect()
    }

    /// Scrapes an endpoint from now on, in a task of `supervisor`. Its limit is `similar` until its first report.
    pub(crate) fn scrape(&self, endpoint: &Endpoint, similar: &ConcurrencyLimit, supervisor: &Supervisor) {
        if endpoint.state.begin_scraping() {
            endpoint.state.assume_limit(similar.clone());
            self.scraper.start(endpoint.address, &endpoint.state, supervisor);
        }
    }

    /// Ends the requests to endpoints of deleted Pods: those for whose UID `exists` is false.
    pub(crate) fn end_requests_of_deleted_pods(&self, exists: impl Fn(&str) -> bool) {
        let states = self.lock();
        states.by_uid.iter().filter(|(uid, _)| !exists(uid)).for_each(|(_, endpoints)| end_requests(endpoints));
    }

    /// Ends the requests to the endpoints of one deleted Pod.
    pub(crate) fn end_requests_of_deleted_pod(&self, uid: &str) {
        self.lock().by_uid.get(uid).into_iter().for_each(|endpoints| end_requests(endpoints));
    }

    fn lock(&self) -> MutexGuard<'_, States> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn end_requests(endpoints: &[(SocketAddr, Weak<EndpointState>)]) {
    endpoints.iter().filter_map(|(_, state)| state.upgrade()).for_each(|state| state.pod_deleted.cancel());
}

// === impl States ===

impl States {
    /// Forgets endpoints that nothing refers to, each time the number of Pods has doubled.
    fn remove_unused(&mut self) {
        if self.by_uid.len() < self.cleanup_at {
            return;
        }
        self.by_uid.retain(|_, endpoints| endpoints.iter().any(|(_, state)| state.strong_count() > 0));
        self.cleanup_at = 2 * self.by_uid.len().max(32);
    }
}
