//! The states of all endpoints of the process.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use supervisor::Supervisor;

use crate::{endpoint::Endpoint, endpoint_state::EndpointState, scrape::Scraper};

/// The states of the endpoints by address and Pod UID. A state lives as long as a pool or a request refers to it.
#[derive(Default)]
pub(crate) struct EndpointRegistry {
    scraper: Scraper,
    states: Mutex<HashMap<(SocketAddr, String), Weak<EndpointState>>>,
}

impl EndpointRegistry {
    /// Returns the state of an endpoint, which all pools share.
    pub(crate) fn state(&self, address: SocketAddr, uid: &str) -> Arc<EndpointState> {
        let mut states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let state = states.entry((address, uid.to_owned())).or_default();
        state.upgrade().unwrap_or_else(|| {
            let new = Arc::default();
            *state = Arc::downgrade(&new);
            new
        })
    }

    /// Scrapes an endpoint from now on, in a task of `supervisor`.
    pub(crate) fn scrape(&self, endpoint: &Endpoint, supervisor: &Supervisor) {
        if endpoint.state.begin_scraping() {
            self.scraper.start(endpoint.address, &endpoint.state, supervisor);
        }
    }

    /// Ends the requests to endpoints of deleted Pods: those for whose UID `exists` is false.
    pub(crate) fn end_requests_of_deleted_pods(&self, exists: impl Fn(&str) -> bool) {
        let states = self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let deleted = states.iter().filter(|((_, uid), _)| !exists(uid));
        deleted.filter_map(|(_, state)| state.upgrade()).for_each(|state| state.pod_deleted.cancel());
    }

    /// Forgets endpoints that nothing refers to.
    pub(crate) fn remove_unused(&self) {
        self.states.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, state| state.strong_count() > 0);
    }
}
