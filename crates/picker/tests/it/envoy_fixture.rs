//! An Envoy in front of simulated engines that asks endpoint pickers by ext_proc, and its clients.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};
use std::time::Duration;

use apiserver::Server;
use cluster::NamespacedName;
use picker::{
    DEFAULT_REQUEST_MEMORY, EndpointPicker, ListenerRole, PoolGroup, ServingCertificate, parse_config, serve_grpc,
    watch_inference_pool,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::gateway_fixture::{self, HttpResponse, TIMEOUT};

const TYPES: &str = "type.googleapis.com/envoy.extensions";

/// Header of the picker with the selected endpoints.
const DESTINATION_HEADER: &str = "x-gateway-destination-endpoint";

/// Configuration of an Envoy.
pub(crate) struct EnvoyConfig {
    /// Addresses of the endpoint pickers.
    pub(crate) pickers: Vec<SocketAddr>,
    /// Port of the health service of the pickers, if they serve it on another port than ext_proc.
    pub(crate) health_port: Option<u16>,
    /// Picker of a second pool, and its share of the requests in percent.
    pub(crate) second_pool: Option<(SocketAddr, u32)>,
    /// PEM file with the certificate authority of the pickers, which then serve TLS.
    pub(crate) picker_ca: Option<String>,
    /// Whether requests are sent to an engine that Envoy selects while no picker is available.
    pub(crate) fail_open: bool,
    /// Whether the bodies of requests pass the picker.
    pub(crate) sends_request_body: bool,
    /// Whether the bodies of responses pass the picker.
    pub(crate) sends_response_body: bool,
    /// Engines that Envoy selects by the destination header in order, and by itself without that header. If there are none,
    /// the header states the only engine (`ORIGINAL_DST`).
    pub(crate) engines: Vec<SocketAddr>,
}

/// A running Envoy, which is stopped when the value is dropped.
pub(crate) struct Envoy {
    process: Child,
    admin: SocketAddr,
    pub(crate) address: SocketAddr,
    _directory: TempDir,
}

/// An endpoint picker with a runtime of its own, so that it can be killed.
pub(crate) struct PickerProcess {
    pub(crate) picker: Arc<EndpointPicker>,
    pub(crate) address: SocketAddr,
    shutdown: CancellationToken,
    serving: JoinHandle<()>,
    runtime: Option<Runtime>,
}

/// Clients that stream responses, one after another.
pub(crate) struct Load {
    served: Arc<AtomicUsize>,
    failures: Arc<Mutex<Vec<String>>>,
    is_stopped: Arc<AtomicBool>,
    clients: JoinSet<()>,
}

// === impl EnvoyConfig ===

impl EnvoyConfig {
    /// Returns the configuration of a gateway that fails closed and follows the header of the pickers.
    pub(crate) fn new(pickers: Vec<SocketAddr>) -> Self {
        Self {
            pickers,
            health_port: None,
            second_pool: None,
            picker_ca: None,
            fail_open: false,
            sends_request_body: true,
            sends_response_body: false,
            engines: Vec::new(),
        }
    }

    fn bootstrap(&self) -> Value {
        let route = json!({
            "match": {"prefix": "/"},
            "route": {
                "weighted_clusters": {"clusters": self.weighted_clusters()}, "timeout": "0s",
                "retry_policy": {"retry_on": "connect-failure", "num_retries": 2},
            },
            "response_headers_to_add": [{
                "header": {"key": format!("{DESTINATION_HEADER}-served"), "value": "%UPSTREAM_REMOTE_ADDRESS%"},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }],
        });
        let manager = json!({
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "ingress",
            "stream_idle_timeout": "0s",
            "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
            "http_filters": [
                metadata_filter("subset", "request_rules", "envoy.lb.subset_hint", "subset"),
                {"name": "ext_proc", "typed_config": self.ext_proc()},
                metadata_filter("served", "response_rules", "envoy.lb", "served"),
                {"name": "router", "typed_config": {"@type": format!("{TYPES}.filters.http.router.v3.Router")}},
            ],
        });
        let listener = json!({
            "name": "http", "address": loopback(0),
            "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
        });
        json!({
            "admin": {"address": loopback(0)},
            "static_resources": {"listeners": [listener], "clusters": self.clusters()},
        })
    }

    fn clusters(&self) -> Vec<Value> {
        let second = self.second_pool.map(|(picker, _)| self.picker_cluster("second-pickers", &[picker]));
        [self.picker_cluster("pickers", &self.pickers), self.engine_cluster()].into_iter().chain(second).collect()
    }

    /// Returns the backends of the route. As in gateways that serve InferencePools, the one that is drawn states the picker.
    fn weighted_clusters(&self) -> Value {
        let Some((_, percent)) = self.second_pool else { return json!([{"name": "engines", "weight": 100}]) };
        let second = json!({"ext_proc": {
            "@type": format!("{TYPES}.filters.http.ext_proc.v3.ExtProcPerRoute"),
            "overrides": {"grpc_service": {"envoy_grpc": {"cluster_name": "second-pickers"}}},
        }});
        json!([
            {"name": "engines", "weight": 100 - percent},
            {"name": "engines", "weight": percent, "typed_per_filter_config": second},
        ])
    }

    fn ext_proc(&self) -> Value {
        let mode = |is_sent| if is_sent { "FULL_DUPLEX_STREAMED" } else { "NONE" };
        let (request_body_mode, response_body_mode) = (mode(self.sends_request_body), mode(self.sends_response_body));
        json!({
            "@type": format!("{TYPES}.filters.http.ext_proc.v3.ExternalProcessor"),
            "grpc_service": {"envoy_grpc": {"cluster_name": "pickers"}},
            "failure_mode_allow": self.fail_open,
            "message_timeout": "60s",
            "processing_mode": {
                "request_header_mode": "SEND", "request_body_mode": request_body_mode, "request_trailer_mode": "SEND",
                "response_header_mode": "SEND", "response_body_mode": response_body_mode, "response_trailer_mode": "SEND",
            },
            "metadata_options": {
                "forwarding_namespaces": {"untyped": ["envoy.lb.subset_hint", "envoy.lb"]},
                "receiving_namespaces": {"untyped": ["envoy.lb"]},
            },
        })
    }

    /// Envoy uses the pickers that are healthy.
    fn picker_cluster(&self, name: &str, pickers: &[SocketAddr]) -> Value {
        let http2 = json!({
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        });
        let mut cluster = json!({
            "name": name, "type": "STATIC", "connect_timeout": "1s",
            "typed_extension_protocol_options": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": http2},
            "load_assignment": load_assignment(name, pickers),
            "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
            "health_checks": [{
                "timeout": "5s", "interval": "0.2s", "no_traffic_interval": "0.2s", "no_traffic_healthy_interval": "0.2s",
                "unhealthy_threshold": 1, "healthy_threshold": 1,
                "grpc_health_check": {"service_name": "envoy.service.ext_proc.v3.ExternalProcessor"},
            }],
        });
        if let Some(port) = self.health_port {
            for endpoint in cluster["load_assignment"]["endpoints"][0]["lb_endpoints"].as_array_mut().unwrap() {
                endpoint["endpoint"]["health_check_config"] = json!({"port_value": port});
            }
        }
        if let Some(file) = &self.picker_ca {
            let names = json!([{"san_type": "DNS", "matcher": {"exact": "localhost"}}]);
            cluster["transport_socket"] = json!({"name": "tls", "typed_config": {
                "@type": format!("{TYPES}.transport_sockets.tls.v3.UpstreamTlsContext"),
                "sni": "localhost",
                "common_tls_context": {"validation_context":
                    {"trusted_ca": {"filename": file}, "match_typed_subject_alt_names": names}},
            }});
        }
        cluster
    }

    fn engine_cluster(&self) -> Value {
        if self.engines.is_empty() {
            return json!({
                "name": "engines", "type": "ORIGINAL_DST", "connect_timeout": "5s", "lb_policy": "CLUSTER_PROVIDED",
                "original_dst_lb_config": {"use_http_header": true, "http_header_name": DESTINATION_HEADER},
            });
        }
        let policy = |name: &str, config: Value| json!({"policies": [{"typed_extension_config": {"name": name, "typed_config": config}}]});
        let fallback = policy(
            "round_robin",
            json!({"@type": format!("{TYPES}.load_balancing_policies.round_robin.v3.RoundRobin")}),
        );
        let override_host = json!({
            "@type": format!("{TYPES}.load_balancing_policies.override_host.v3.OverrideHost"),
            "override_host_sources": [{"header": DESTINATION_HEADER}],
            "fallback_policy": fallback,
        });
        json!({
            "name": "engines", "type": "STATIC", "connect_timeout": "5s",
            "load_assignment": load_assignment("engines", &self.engines),
            "load_balancing_policy": policy("override_host", override_host),
        })
    }
}

fn socket_address(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}})
}

fn loopback(port: u16) -> Value {
    socket_address(([127, 0, 0, 1], port).into())
}

fn load_assignment(cluster: &str, addresses: &[SocketAddr]) -> Value {
    let endpoints: Vec<Value> =
        addresses.iter().map(|address| json!({"endpoint": {"address": socket_address(*address)}})).collect();
    json!({"cluster_name": cluster, "endpoints": [{"lb_endpoints": endpoints}]})
}

/// Returns a filter that moves the header `x-gateway-destination-endpoint-SUFFIX` to the metadata of this name.
fn metadata_filter(name: &str, rules: &str, namespace: &str, suffix: &str) -> Value {
    let key = format!("{DESTINATION_HEADER}-{suffix}");
    let rule = json!({
        "header": key, "remove": true,
        "on_header_present": {"metadata_namespace": namespace, "key": key, "type": "STRING"},
    });
    json!({"name": name, "typed_config":
        {"@type": format!("{TYPES}.filters.http.header_to_metadata.v3.Config"), rules: [rule]}})
}

// === impl Envoy ===

impl Envoy {
    /// Starts the Envoy in `$OSTLER_ENVOY`, and waits until it is ready and its pickers are healthy.
    pub(crate) async fn start(config: &EnvoyConfig) -> Self {
        let program = std::env::var_os("OSTLER_ENVOY").expect("OSTLER_ENVOY is set by `cargo xtask test --with envoy`");
        let directory = tempfile::tempdir().unwrap();
        let (bootstrap, admin_file) = (directory.path().join("envoy.json"), directory.path().join("admin"));
        std::fs::write(&bootstrap, config.bootstrap().to_string()).unwrap();
        let mut command = Command::new(program);
        command.arg("-c").arg(&bootstrap).arg("--admin-address-path").arg(&admin_file);
        command.args(["--disable-hot-restart", "--concurrency", "1", "--log-level", "warning"]);
        let process = command.stdin(Stdio::null()).spawn().unwrap();
        let mut envoy = Self {
            process,
            admin: ([127, 0, 0, 1], 0).into(),
            address: ([127, 0, 0, 1], 0).into(),
            _directory: directory,
        };
        let admin = async || std::fs::read_to_string(&admin_file).ok().and_then(|address| address.parse().ok());
        gateway_fixture::wait_until("the address of the admin interface", async || {
            admin().await.is_some_and(|_: SocketAddr| true)
        })
        .await;
        envoy.admin = admin().await.unwrap();
        gateway_fixture::wait_until("Envoy", async || {
            gateway_fixture::get(envoy.admin, "/ready").await.status() == 200
        })
        .await;
        let listeners = gateway_fixture::get(envoy.admin, "/listeners").await.body;
        envoy.address = listeners.trim().rsplit_once("::").unwrap().1.parse().unwrap();
        envoy
    }

    /// Returns the value of a counter or gauge, 0 if it does not exist.
    pub(crate) async fn stat(&self, name: &str) -> u64 {
        let text = gateway_fixture::get(self.admin, &format!("/stats?filter=^{name}$")).await.body;
        text.trim().rsplit_once(": ").map_or(0, |(_, value)| value.parse().unwrap())
    }

    /// Returns the value of a counter of the ext_proc filter.
    pub(crate) async fn ext_proc_stat(&self, name: &str) -> u64 {
        self.stat(&format!("http.ingress.ext_proc.{name}")).await
    }

    pub(crate) async fn wait_for_healthy_pickers(&self, count: u64) {
        let description = format!("{count} healthy pickers");
        let is_healthy = async || self.stat("cluster.pickers.membership_healthy").await == count;
        gateway_fixture::wait_until(&description, is_healthy).await;
    }

    /// Sends requests with `clients` until the load is stopped.
    pub(crate) fn load(&self, clients: usize) -> Load {
        Load::start(self.address, clients)
    }
}

impl Drop for Envoy {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

// === impl PickerProcess ===

impl PickerProcess {
    /// Starts a picker for the pool `default/pool` that watches `server` and listens on `address`.
    pub(crate) async fn start(
        server: &Server,
        config: &str,
        address: SocketAddr,
        certificate: Option<Arc<ServingCertificate>>,
    ) -> Self {
        Self::start_for("pool", server, config, address, certificate).await
    }

    /// Starts a picker for a pool of the namespace `default`.
    pub(crate) async fn start_for(
        pool: &str,
        server: &Server,
        config: &str,
        address: SocketAddr,
        certificate: Option<Arc<ServingCertificate>>,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let key = NamespacedName::new("default", pool);
        let policy = parse_config(config).unwrap().policy;
        let picker = Arc::new(EndpointPicker::new(key, policy, DEFAULT_REQUEST_MEMORY, 7));
        let shutdown = CancellationToken::new();
        let (ready, started) = tokio::sync::oneshot::channel();
        let (server, watching, token) = (server.clone(), Arc::clone(&picker), shutdown.clone());
        let serving = runtime.spawn(async move {
            let client = kube::Client::new(apiserver::router(&server), "default");
            let listener = TcpListener::bind(address).await.unwrap();
            ready.send(listener.local_addr().unwrap()).unwrap();
            tokio::spawn(watch_inference_pool(client, PoolGroup::Stable, Arc::clone(&watching), token.clone()));
            if let Some(certificate) = certificate.clone() {
                let token = token.clone();
                tokio::spawn(async move { certificate.reload_on_change(token).await });
            }
            serve_grpc(listener, ListenerRole::ExtProc(certificate), watching, token).await.unwrap();
        });
        let address = started.await.unwrap();
        gateway_fixture::wait_until("the picker", async || picker.is_ready()).await;
        Self { picker, address, shutdown, serving, runtime: Some(runtime) }
    }

    /// Ends the picker as a signal does: for `drain_timeout` it accepts requests, but is not ready.
    pub(crate) async fn stop(&self, drain_timeout: Duration) {
        self.picker.drain();
        sleep(drain_timeout).await;
        self.shutdown.cancel();
    }

    /// Returns whether the picker has ended its last stream.
    pub(crate) fn has_ended(&self) -> bool {
        self.serving.is_finished()
    }

    pub(crate) async fn wait_until_ended(&self) {
        gateway_fixture::wait_until("the end of the picker", async || self.has_ended()).await;
    }

    /// Ends the picker without closing its streams.
    pub(crate) fn kill(mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

impl Drop for PickerProcess {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

// === impl Load ===

impl Load {
    fn start(address: SocketAddr, clients: usize) -> Self {
        let mut load = Self {
            served: Arc::default(),
            failures: Arc::default(),
            is_stopped: Arc::default(),
            clients: JoinSet::new(),
        };
        for client in 0..clients {
            let (served, failures, is_stopped) =
                (Arc::clone(&load.served), Arc::clone(&load.failures), Arc::clone(&load.is_stopped));
            load.clients.spawn(async move {
                while !is_stopped.load(Relaxed) {
                    match stream(address, "m", &format!("client {client}"), 20).await {
                        Ok(_) => drop(served.fetch_add(1, Relaxed)),
                        Err(failure) => failures.lock().unwrap().push(failure),
                    }
                }
            });
        }
        load
    }

    /// Waits until `count` more requests are served.
    pub(crate) async fn wait_for(&self, count: usize) {
        let expected = self.served.load(Relaxed) + count;
        gateway_fixture::wait_until("served requests", async || self.served.load(Relaxed) >= expected).await;
    }

    /// Returns the failures since the last call.
    pub(crate) fn take_failures(&self) -> Vec<String> {
        std::mem::take(&mut *self.failures.lock().unwrap())
    }

    /// Waits until all clients have received their last response, and returns the failures.
    pub(crate) async fn stop(mut self) -> Vec<String> {
        self.is_stopped.store(true, Relaxed);
        while let Some(result) = self.clients.join_next().await {
            result.unwrap();
        }
        self.take_failures()
    }
}

/// Streams a completion of `tokens` tokens.
///
/// # Errors
/// The status, or that the response was aborted.
pub(crate) async fn stream(
    address: SocketAddr,
    model: &str,
    prompt: &str,
    tokens: usize,
) -> Result<HttpResponse, String> {
    let body = json!({"model": model, "prompt": prompt, "max_tokens": tokens, "ignore_eos": true, "stream": true});
    let response = exchange(address, &body.to_string()).await?;
    match response.status() {
        200 if response.body.ends_with("data: [DONE]\n\n") => Ok(response),
        200 => Err("aborted".to_owned()),
        status => Err(format!("{status} {}", response.body)),
    }
}

/// Sends a completion request.
///
/// # Errors
/// The response is not complete.
pub(crate) async fn exchange(address: SocketAddr, body: &str) -> Result<HttpResponse, String> {
    let mut stream = gateway_fixture::send(address, "POST", "/v1/completions", body).await;
    let mut text = Vec::new();
    let result = timeout(TIMEOUT, stream.read_to_end(&mut text)).await.expect("the response does not end");
    let text = String::from_utf8_lossy(&text).into_owned();
    let is_chunked = text.contains("transfer-encoding: chunked");
    if result.is_err() || text.is_empty() || is_chunked && !text.ends_with("\r\n0\r\n\r\n") {
        return Err("aborted".to_owned());
    }
    Ok(gateway_fixture::parse_response(&text))
}
