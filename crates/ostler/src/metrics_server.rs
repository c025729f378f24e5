//! The server of the metrics and probes of controllers.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::{MethodRouter, any, get};
use cluster::Health;
use http_server::{ConnectionLimits, Connections, Overload};
use hyper_util::service::TowerToHyperService;
use picker::{ConnectionAddresses, DEBUG_PATH, DebugPages};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Maximum number of connections of scrapers and probes. A further client replaces the oldest connection, so that scrapers
/// cannot prevent probes.
const MAX_CONNECTIONS: usize = 64;
/// How long responses may continue after shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Timeout for open connections of the server after the controller has stopped.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
/// Content type of the OpenMetrics text format, and the last line of a page.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const END_OF_METRICS: &str = "# EOF\n";

/// Renders metrics in the OpenMetrics text format.
pub(crate) type RenderMetrics = Arc<dyn Fn() -> String + Send + Sync>;

/// What is served of one controller.
#[derive(Clone)]
pub(crate) struct MonitoredController {
    /// Renders its metrics.
    pub render_metrics: RenderMetrics,
    /// Its health.
    pub health: Arc<Health>,
}

/// What is served of a gateway.
#[derive(Clone)]
pub(crate) struct GatewayPages {
    /// Renders its metrics.
    pub render_metrics: RenderMetrics,
    /// Its debug pages.
    pub debug: Arc<DebugPages>,
}

/// Serves `GET /metrics`, and the probes `GET /livez` and `GET /readyz`, until `stop` is cancelled. The metrics are those of the
/// controllers and the gateway, whose debug pages are served as well.
pub(crate) async fn serve(
    listener: TcpListener,
    controllers: Vec<MonitoredController>,
    gateway: Option<GatewayPages>,
    stop: CancellationToken,
) {
    let of_controllers = controllers.iter().map(|controller| Arc::clone(&controller.render_metrics));
    let of_gateway = gateway.iter().map(|gateway| Arc::clone(&gateway.render_metrics));
    let metrics: Vec<RenderMetrics> = of_controllers.chain(of_gateway).collect();
    let controllers: Arc<[MonitoredController]> = controllers.into();
    let [live, ready] = [(); 2].map(|()| Arc::clone(&controllers));
    let scrape = move || {
        let text = render_metrics(&metrics);
        async move { ([(CONTENT_TYPE, OPEN_METRICS)], text) }
    };
    let livez = move || async move { probe_response(&live, Health::check_liveness) };
    let readyz = move || async move { probe_response(&ready, Health::check_readiness) };
    let router = Router::new().route("/metrics", get(scrape)).route("/livez", get(livez)).route("/readyz", get(readyz));
    let connection = |stream: TcpStream| {
        let debug = gateway.as_ref().map(|gateway| Arc::clone(&gateway.debug));
        let router = match (debug, ConnectionAddresses::of(&stream)) {
            (Some(debug), Ok(addresses)) => {
                router.clone().route(&format!("{DEBUG_PATH}{{*path}}"), debug_route(debug, addresses))
            }
            _ => router.clone(),
        };
        let service = TowerToHyperService::new(router);
        http_server::serve_connection(stream, service, ConnectionLimits::default(), stop.clone())
    };
    let connections = Connections::accept(&listener, MAX_CONNECTIONS, Overload::CloseOldest, &stop, connection).await;
    drop(listener);
    connections.drain(DRAIN_TIMEOUT).await;
}

/// Returns the route of the debug pages for the connection with `addresses`.
fn debug_route(debug: Arc<DebugPages>, addresses: ConnectionAddresses) -> MethodRouter {
    any(move |request: Request| async move { debug.respond(request, addresses).await.map(Body::new) })
}

/// Runs a controller until `shutdown`, and serves its metrics and probes until it has stopped.
///
/// # Errors
/// The controller or the server failed; the other one has stopped as after a shutdown.
pub(crate) async fn run_monitored(
    shutdown: CancellationToken,
    listener: TcpListener,
    controller: MonitoredController,
    run_controller: impl AsyncFnOnce(CancellationToken) -> Result<()>,
) -> Result<()> {
    tracing::info!(address = %listener.local_addr()?, "serving metrics");
    // In its own task, so that probes get a response while the controller computes.
    let serve = async |stop| tokio::spawn(serve(listener, vec![controller], None, stop)).await.context("metrics");
    run_while_serving(shutdown, run_controller, serve).await
}

/// Runs a controller until `shutdown`, and serves metrics until the controller has stopped. If one of them fails, the other
/// stops as after a shutdown.
async fn run_while_serving(
    shutdown: CancellationToken,
    run_controller: impl AsyncFnOnce(CancellationToken) -> Result<()>,
    serve_metrics: impl AsyncFnOnce(CancellationToken) -> Result<()>,
) -> Result<()> {
    let stop_metrics = CancellationToken::new();
    let controller = async {
        let result = run_controller(shutdown.clone()).await;
        stop_metrics.cancel();
        result
    };
    let metrics = async {
        // A client that does not close its connection must not delay the exit.
        let is_late = async {
            stop_metrics.cancelled().await;
            tokio::time::sleep(STOP_TIMEOUT).await;
        };
        let result = tokio::select! {
            result = serve_metrics(stop_metrics.clone()) => result,
            () = is_late => Ok(()),
        };
        shutdown.cancel();
        result
    };
    let (controller, metrics) = tokio::join!(controller, metrics);
    controller.and(metrics)
}

/// Renders all metrics as one page.
fn render_metrics(metrics: &[RenderMetrics]) -> String {
    let mut text: String =
        metrics.iter().map(|render| render()).map(|page| page.trim_end_matches(END_OF_METRICS).to_owned()).collect();
    text.push_str(END_OF_METRICS);
    text
}

/// Returns `ok`, or 503 with the reasons of all controllers.
fn probe_response(
    controllers: &[MonitoredController],
    check: impl Fn(&Health) -> Result<(), String>,
) -> (StatusCode, String) {
    let mut body = String::new();
    for reasons in controllers.iter().filter_map(|controller| check(&controller.health).err()) {
        for reason in reasons.lines() {
            if !body.lines().any(|line| line == reason) {
                body.extend([reason, "\n"]);
            }
        }
    }
    match body.is_empty() {
        true => (StatusCode::OK, "ok\n".to_owned()),
        false => (StatusCode::SERVICE_UNAVAILABLE, body),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use cluster::Part;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Runs a controller that takes three seconds to stop, and returns the steps in order.
    async fn steps(metrics_fail: bool) -> (Result<()>, Vec<&'static str>) {
        let (steps, shutdown) = (Mutex::new(Vec::new()), CancellationToken::new());
        let step = |step| steps.lock().unwrap().push(step);
        let run_controller = async |stop: CancellationToken| {
            stop.cancelled().await;
            step("controller is stopping");
            tokio::time::sleep(Duration::from_secs(3)).await;
            step("controller stopped");
            Ok(())
        };
        let serve_metrics = async |stop: CancellationToken| {
            anyhow::ensure!(!metrics_fail, "address in use");
            stop.cancelled().await;
            step("metrics are stopping");
            // A connection remains open.
            std::future::pending().await
        };
        if !metrics_fail {
            shutdown.cancel();
        }
        let run = run_while_serving(shutdown, run_controller, serve_metrics);
        let result = tokio::time::timeout(Duration::from_secs(5), run).await.unwrap();
        (result, steps.into_inner().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn metrics_are_served_until_the_controller_has_stopped() {
        let (result, steps) = steps(false).await;
        result.unwrap();
        assert_eq!(steps, ["controller is stopping", "controller stopped", "metrics are stopping"]);
    }

    #[tokio::test(start_paused = true)]
    async fn failing_metrics_server_stops_the_controller() {
        let (result, steps) = steps(true).await;
        assert_eq!(result.unwrap_err().to_string(), "address in use");
        assert_eq!(steps, ["controller is stopping", "controller stopped"]);
    }

    /// Serves the metrics and probes of two controllers, and returns the address.
    async fn start(healths: [&Arc<Health>; 2]) -> std::net::SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let controllers = [("a", healths[0]), ("b", healths[1])].map(|(name, health)| MonitoredController {
            render_metrics: Arc::new(move || format!("# TYPE {name} counter\n{name}_total 1\n# EOF\n")),
            health: Arc::clone(health),
        });
        tokio::spawn(serve(listener, controllers.into(), None, CancellationToken::new()));
        address
    }

    /// Returns status and body of the response to a GET.
    async fn get(address: std::net::SocketAddr, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
    }

    #[tokio::test]
    async fn probes_respond_with_status_and_reasons() {
        let (health, other) = (Arc::new(Health::default()), Arc::new(Health::default()));
        let address = start([&other, &health]).await;
        let response = |status: &str, body: &str| (status.to_owned(), body.to_owned());
        assert_eq!(get(address, "/livez").await, response("200", "ok\n"));
        assert_eq!(get(address, "/readyz").await, response("503", "the controller is starting\n"));
        health.set_not_ready(Part::WebhookServer, "the admission webhook has no certificate");
        let reasons = "the controller is starting\nthe admission webhook has no certificate\n";
        assert_eq!(get(address, "/readyz").await, response("503", reasons));
        other.set_ready(Part::ControlLoop);
        health.set_ready(Part::ControlLoop);
        health.set_ready(Part::WebhookServer);
        assert_eq!(get(address, "/readyz").await, response("200", "ok\n"));
        let stop = CancellationToken::new();
        tokio::spawn(health.supervisor.supervise("watch of pods", stop.clone(), || async {}));
        tokio::task::yield_now().await;
        let outage = "the watch of pods ended unexpectedly; it restarts after 1 s\n";
        assert_eq!(get(address, "/readyz").await, response("503", outage));
        assert_eq!(get(address, "/livez").await.0, "200");
        let metrics = "# TYPE a counter\na_total 1\n# TYPE b counter\nb_total 1\n# EOF\n";
        assert_eq!(get(address, "/metrics").await, response("200", metrics));
        assert_eq!(get(address, "/healthz").await.0, "404");
    }

    /// The probe responds although other clients hold all connections.
    #[tokio::test]
    async fn held_connections_do_not_prevent_probes() {
        let health = Arc::default();
        let address = start([&health, &health]).await;
        let mut held = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            held.push(TcpStream::connect(address).await.unwrap());
        }
        assert_eq!(get(address, "/livez").await.0, "200");
        assert_eq!(held[0].read(&mut [0]).await.unwrap_or_default(), 0, "the oldest connection is closed");
    }
}
