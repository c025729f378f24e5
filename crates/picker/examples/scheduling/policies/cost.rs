//! The default policy of this crate: the code that gateway and endpoint picker run.

use std::{
    collections::{BTreeMap, HashMap},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use picker::{AdmittedRequest, Endpoint, Pool, PromptTokenRange, ReplicaId, Scheduler, SchedulingPolicy};
use tokio::time::Instant;

use super::policy::Policy;
use crate::{engine::Gauges, trace::Request};

/// Path of the requests.
const PATH: &str = "/v1/chat/completions";

pub(super) struct Cost {
    scheduler: Scheduler,
    endpoints: Vec<Arc<Endpoint>>,
    admitted: HashMap<usize, AdmittedRequest>,
}

// === impl Cost ===

impl Cost {
    pub(super) fn new(engines: usize, replica: usize, seed: u64) -> Self {
        let replica = ReplicaId { name: format!("gateway-{replica}"), incarnation: 1 };
        let scheduler = Scheduler::new(SchedulingPolicy::default(), seed);
        scheduler.enable_peers(replica);
        let endpoints: Vec<Arc<Endpoint>> = (0..engines).map(|engine| Arc::new(endpoint(&scheduler, engine))).collect();
        // The simulation scrapes the engines.
        endpoints.iter().for_each(|endpoint| assert!(endpoint.state.begin_scraping(), "the endpoint is new"));
        let key = cluster::NamespacedName::new("default", "pool");
        let mut pool = Pool::new(key, scheduler.default_scheduling(), endpoints.clone());
        pool.allows_implicit_use_cases = true;
        scheduler.replace(vec![pool]);
        Self { scheduler, endpoints, admitted: HashMap::new() }
    }
}

fn endpoint(scheduler: &Scheduler, engine: usize) -> Endpoint {
    let address: SocketAddr = ([10, 0, 0, 1], 8_000 + engine as u16).into();
    Endpoint {
        address,
        pod: format!("engine-{engine}"),
        uid: String::new(),
        labels: BTreeMap::new(),
        prompt_tokens: PromptTokenRange::default(),
        state: scheduler.endpoint_state(address, ""),
    }
}

impl Policy for Cost {
    fn scrape_interval(&self) -> Option<Duration> {
        Some(picker::BUSY_SCRAPE_INTERVAL)
    }

    fn select(&mut self, index: usize, request: &Request) -> usize {
        let Ok(admitted) = self.scheduler.admit_body(PATH, request.body.as_bytes()) else { return 0 };
        let address = admitted.endpoint();
        self.admitted.insert(index, admitted);
        self.endpoints.iter().position(|endpoint| endpoint.address == address).unwrap_or(0)
    }

    fn first_token(&mut self, index: usize) {
        if let Some(admitted) = self.admitted.get(&index) {
            admitted.record_first_byte();
        }
    }

    fn finished(&mut self, index: usize) {
        self.admitted.remove(&index);
    }

    fn scraped(&mut self, engine: usize, gauges: &Gauges) {
        self.endpoints[engine].state.record_metrics_page(&gauges.page(), Instant::now());
    }

    fn peer_message(&mut self) -> Option<Vec<u8>> {
        self.scheduler.peer_message(Instant::now())
    }

    fn record_peer_message(&mut self, message: &[u8]) {
        let result = self.scheduler.record_peer_messages(&[message], Instant::now());
        assert!(result.is_ok(), "{result:?}");
    }
}
