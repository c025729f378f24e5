//! Envoy: with plain round robin, and as the proxy in front of an endpoint picker.

use anyhow::Result;

use super::super::measured_process::MeasuredProcess;
use super::backends::Backends;
use super::peer::{self, Peer};
use crate::suites::ENVOY;

pub(super) const NAME: &str = "Envoy";

const PORT: u16 = 26_802;

/// How Envoy selects an engine.
enum Selection {
    RoundRobin,
    /// By the endpoint picker that serves ext_proc on this port.
    Picker(u16),
}

/// Starts an Envoy with round robin; returns `None` if it cannot be downloaded.
pub(super) fn start(backends: &Backends) -> Result<Option<Peer>> {
    let process = start_process(backends, PORT, &Selection::RoundRobin)?;
    let name = format!("{NAME} {}, round robin", ENVOY.version);
    Ok(process.map(|process| Peer::new(&name, PORT, process, Vec::new())))
}

/// Starts an Envoy on `port` in front of the endpoint picker on `picker_port`.
pub(super) fn start_before_picker(backends: &Backends, port: u16, picker_port: u16) -> Result<Option<MeasuredProcess>> {
    start_process(backends, port, &Selection::Picker(picker_port))
}

fn start_process(backends: &Backends, port: u16, selection: &Selection) -> Result<Option<MeasuredProcess>> {
    let Some(python) = ENVOY.python()? else { return Ok(None) };
    let config = peer::write_config(backends, &format!("envoy-{port}.yaml"), &config(port, selection))?;
    // The program of the package replaces itself by Envoy.
    let mut command = std::process::Command::new(python.with_file_name("envoy"));
    command.args(["-c", &config, "--use-dynamic-base-id", "--log-level", "warning"]);
    peer::start_process(backends, &format!("envoy-{port}"), &mut command).map(Some)
}

fn config(port: u16, selection: &Selection) -> String {
    let (filters, clusters) = match selection {
        Selection::RoundRobin => (String::new(), round_robin_cluster()),
        Selection::Picker(port) => (EXT_PROC_FILTER.to_owned(), picker_clusters(*port)),
    };
    format!(
        r#"static_resources:
  listeners:
  - name: http
    address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: ingress
          route_config:
            virtual_hosts:
            - {{name: all, domains: ["*"], routes: [{{match: {{prefix: "/"}}, route: {{cluster: engines, timeout: 0s}}}}]}}
          http_filters:
{filters}          - name: router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
{clusters}"#
    )
}

fn round_robin_cluster() -> String {
    let endpoints: Vec<String> = Backends::engines()
        .iter()
        .map(|engine| {
            let (address, port) = (engine.ip(), engine.port());
            format!("{{endpoint: {{address: {{socket_address: {{address: {address}, port_value: {port}}}}}}}}}")
        })
        .collect();
    format!(
        "  - name: engines
    type: STATIC
    lb_policy: ROUND_ROBIN
    circuit_breakers: {{thresholds: [{{max_connections: 4096, max_pending_requests: 4096, max_requests: 4096}}]}}
    load_assignment: {{cluster_name: engines, endpoints: [{{lb_endpoints: [{}]}}]}}
",
        endpoints.join(", ")
    )
}

/// The processing mode that the upstream project documents for its endpoint picker.
const EXT_PROC_FILTER: &str = r#"          - name: ext_proc
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor
              grpc_service: {envoy_grpc: {cluster_name: picker}}
              message_timeout: 60s
              processing_mode:
                request_header_mode: SEND
                request_body_mode: FULL_DUPLEX_STREAMED
                request_trailer_mode: SEND
                response_header_mode: SEND
                response_body_mode: FULL_DUPLEX_STREAMED
                response_trailer_mode: SEND
"#;

/// The picker states the engine in a header.
fn picker_clusters(port: u16) -> String {
    format!(
        r#"  - name: engines
    type: ORIGINAL_DST
    lb_policy: CLUSTER_PROVIDED
    original_dst_lb_config: {{use_http_header: true, http_header_name: x-gateway-destination-endpoint}}
    circuit_breakers: {{thresholds: [{{max_connections: 4096, max_pending_requests: 4096, max_requests: 4096}}]}}
  - name: picker
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{http2_protocol_options: {{}}}}
    load_assignment:
      cluster_name: picker
      endpoints: [{{lb_endpoints: [{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}}}]}}]
"#
    )
}
