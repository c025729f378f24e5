//! Scrapes the metrics of every endpoint: frequently while it is busy, rarely while it is idle. Reads the list of its models too.
//! The task of an endpoint that panics is restarted.

use std::{collections::BTreeSet, net::SocketAddr, sync::Arc, time::Duration};

use api::inference::ModelServer;
use apimachinery::catch_panic;
use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use supervisor::Supervisor;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::{
    endpoint_state::EndpointState,
    engine_metrics::{EngineMetrics, parse_metrics},
    served_models::parse_model_list,
};

/// Interval between scrapes of a busy engine.
pub const BUSY_SCRAPE_INTERVAL: Duration = Duration::from_millis(200);

/// Interval between scrapes of an idle engine, and of one that cannot be scraped.
const IDLE_INTERVAL: Duration = Duration::from_secs(2);

/// Interval between scrapes of an unreachable endpoint; short, so that it is selected soon after it recovers.
const UNREACHABLE_INTERVAL: Duration = Duration::from_millis(500);

/// Minimum interval between scrapes, even if many requests fail.
const MIN_INTERVAL: Duration = Duration::from_millis(20);

/// Timeout of a scrape.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Timeout for connecting to an endpoint. It is shorter than [`TIMEOUT`], so that an endpoint that drops connection attempts
/// differs from one that is too busy to respond.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(750);

/// Maximum size of a response in bytes.
const MAX_RESPONSE_BYTES: usize = 4 * 1024 * 1024;

/// Scrapes metrics over pooled connections.
pub(crate) struct Scraper {
    client: Client<HttpConnector, Empty<Bytes>>,
}

/// Result of one scrape.
enum ScrapeResult {
    /// The engine returned its metrics.
    Metrics(EngineMetrics),
    /// No connection was established: it was refused, or the attempt received no answer.
    NotConnected,
    /// The scrape timed out or did not return metrics: the engine may be too busy to respond.
    Failed,
}

/// Why a request to an engine returned nothing.
enum GetError {
    /// No connection was established.
    NotConnected,
    /// The engine did not respond, or with an error.
    Failed,
}

// === impl ScrapeResult ===

impl From<GetError> for ScrapeResult {
    fn from(error: GetError) -> Self {
        match error {
            GetError::NotConnected => Self::NotConnected,
            GetError::Failed => Self::Failed,
        }
    }
}

// === impl Scraper ===

impl Default for Scraper {
    /// Returns a scraper without connections.
    fn default() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let mut builder = Client::builder(TokioExecutor::new());
        // vLLM closes connections that were idle for five seconds.
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(Duration::from_secs(4)).pool_max_idle_per_host(1);
        Self { client: builder.build(connector) }
    }
}

impl Scraper {
    /// Scrapes `address` and records the results, until nothing else refers to `state`. Failures of the task are outages of
    /// `supervisor`.
    pub(crate) fn start(&self, address: SocketAddr, state: &Arc<EndpointState>, supervisor: &Supervisor) {
        let (client, weak_state) = (self.client.clone(), Arc::downgrade(state));
        let scrape = move || {
            let (client, state) = (client.clone(), weak_state.clone());
            async move {
                // Without a state, the result has no effect.
                let Some(state) = state.upgrade() else { return ScrapeResult::Failed };
                let is_due = state.served_models.is_due(Instant::now());
                let models = async { if is_due { list_models(&client, address).await } else { None } };
                let metrics = timeout(TIMEOUT, scrape(&client, address, state.model_server()));
                // At the same time, so that the list does not delay the metrics.
                let (metrics, models) = tokio::join!(metrics, timeout(TIMEOUT, models));
                let result = metrics.unwrap_or(ScrapeResult::Failed);
                if is_due && matches!(result, ScrapeResult::Metrics(_)) {
                    state.served_models.record(models.ok().flatten(), Instant::now());
                }
                result
            }
        };
        tokio::spawn(supervise(scrape, address, state, supervisor));
    }
}

/// Calls `scrape` at intervals and records its results, until nothing else refers to `state`.
fn supervise<F>(
    scrape: impl Fn() -> F + Clone + Send + Sync + 'static,
    address: SocketAddr,
    state: &Arc<EndpointState>,
    supervisor: &Supervisor,
) -> impl Future<Output = ()> + Send + 'static
where
    F: Future<Output = ScrapeResult> + Send + 'static,
{
    let (state, requested) = (Arc::downgrade(state), Arc::clone(&state.scrape_requested));
    let stop = CancellationToken::new();
    supervisor.supervise_indefinitely(format!("scrape of {address}"), stop.clone(), move || {
        let (scrape, state, requested, stop) = (scrape.clone(), state.clone(), Arc::clone(&requested), stop.clone());
        async move {
            while state.strong_count() > 0 {
                let result = scrape().await;
                let Some(state) = state.upgrade() else { break };
                let interval = interval(&result, &state);
                record(result, address, &state);
                drop(state);
                sleep(MIN_INTERVAL).await;
                // Jitter spreads the scrapes of many engines over time.
                let interval = interval.mul_f64(0.8 + 0.4 * fastrand::f64());
                timeout(interval, requested.notified()).await.ok();
            }
            stop.cancel();
        }
    })
}

fn record(result: ScrapeResult, address: SocketAddr, state: &EndpointState) {
    let is_unreachable = matches!(result, ScrapeResult::NotConnected);
    if state.record_unreachable(is_unreachable) {
        if is_unreachable {
            tracing::info!(%address, "endpoint is unreachable, selecting other endpoints");
        } else {
            tracing::info!(%address, "endpoint is reachable again");
        }
    }
    match result {
        ScrapeResult::Metrics(metrics) => state.record_metrics(metrics, Instant::now()),
        ScrapeResult::Failed => state.record_missing_report(),
        ScrapeResult::NotConnected => {}
    }
}

fn interval(result: &ScrapeResult, state: &EndpointState) -> Duration {
    match result {
        ScrapeResult::Metrics(metrics) if state.requests() > 0 || is_busy(metrics) => BUSY_SCRAPE_INTERVAL,
        ScrapeResult::Metrics(_) | ScrapeResult::Failed => IDLE_INTERVAL,
        ScrapeResult::NotConnected => UNREACHABLE_INTERVAL,
    }
}

fn is_busy(metrics: &EngineMetrics) -> bool {
    metrics.running.unwrap_or(0.0) + metrics.waiting.unwrap_or(0.0) > 0.0
}

async fn scrape(
    client: &Client<HttpConnector, Empty<Bytes>>,
    address: SocketAddr,
    model_server: ModelServer,
) -> ScrapeResult {
    let text = match get(client, address, "/metrics").await {
        Ok(text) => text,
        Err(error) => return error.into(),
    };
    // A defect of the parser must not end the scrapes of this engine.
    match catch_panic(|| parse_metrics(&String::from_utf8_lossy(&text), model_server)) {
        Ok(metrics) => ScrapeResult::Metrics(metrics),
        Err(panic) => {
            tracing::error!(%address, %panic, "failed to parse metrics");
            ScrapeResult::Failed
        }
    }
}

/// Returns the models that the engine lists, `None` if it returns no list.
async fn list_models(client: &Client<HttpConnector, Empty<Bytes>>, address: SocketAddr) -> Option<BTreeSet<String>> {
    parse_model_list(&get(client, address, "/v1/models").await.ok()?)
}

/// Returns the body of a successful response.
async fn get(client: &Client<HttpConnector, Empty<Bytes>>, address: SocketAddr, path: &str) -> Result<Bytes, GetError> {
    let uri = Uri::builder().scheme("http").authority(address.to_string()).path_and_query(path).build();
    let request = Request::get(uri.unwrap_or_default()).body(Empty::new()).map_err(|_| GetError::Failed)?;
    let response = match client.request(request).await {
        Ok(response) if response.status().is_success() => response,
        Ok(response) => {
            tracing::debug!(%address, path, status = %response.status(), "request to an engine failed");
            return Err(GetError::Failed);
        }
        Err(error) => {
            tracing::debug!(%address, path, %error, "request to an engine failed");
            return Err(if error.is_connect() { GetError::NotConnected } else { GetError::Failed });
        }
    };
    let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await.map_err(|_| GetError::Failed)?;
    Ok(body.to_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use tokio::net::{TcpSocket, TcpStream};

    use super::*;

    /// The kernel drops connection attempts while the queue of the listener is full.
    #[tokio::test(start_paused = true)]
    async fn endpoint_that_drops_connection_attempts_is_unreachable() {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let listener = socket.listen(0).unwrap();
        let address = listener.local_addr().unwrap();
        let queued = TcpStream::connect(address).await.unwrap();
        let state = Arc::<EndpointState>::default();
        Scraper::default().start(address, &state, &Supervisor::default());
        let reaches = async |expected: bool| {
            while state.is_unreachable() != expected {
                sleep(MIN_INTERVAL).await;
            }
        };
        reaches(true).await;
        drop((queued, listener.accept().await));
        // It accepts connections and does not respond.
        reaches(false).await;
    }

    /// The first scrapes panic, more often than a task without which the process cannot continue may fail.
    #[tokio::test(start_paused = true)]
    async fn task_that_panics_is_restarted() {
        const PANICS: u32 = 15;
        let (supervisor, state, scrapes) =
            (Supervisor::default(), Arc::<EndpointState>::default(), Arc::<AtomicU32>::default());
        let count = Arc::clone(&scrapes);
        let scrape = move || {
            let count = Arc::clone(&count);
            async move {
                assert!(count.fetch_add(1, Relaxed) >= PANICS, "broken");
                ScrapeResult::NotConnected
            }
        };
        let task = tokio::spawn(supervise(scrape, ([10, 0, 0, 1], 8000).into(), &state, &supervisor));
        sleep(Duration::from_millis(1)).await;
        let outage = "the scrape of 10.0.0.1:8000 panicked: broken; it restarts after 1 s";
        assert_eq!((supervisor.outages(), scrapes.load(Relaxed)), (vec![outage.to_owned()], 1));
        assert!(timeout(Duration::from_secs(15 * 60), supervisor.failed()).await.is_err(), "the process continues");
        assert!(scrapes.load(Relaxed) > 2 * PANICS, "the endpoint is scraped again");
        assert!(supervisor.outages().is_empty() && state.is_unreachable());
        drop(state);
        task.await.unwrap();
        assert!(supervisor.statuses().borrow().is_empty());
    }
}
