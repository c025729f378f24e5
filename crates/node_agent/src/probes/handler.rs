//! Handlers of probes and lifecycle hooks.

use std::net::SocketAddr;
use std::sync::Arc;

use apimachinery::object;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::http_get::{self, Scheme};
use crate::grpc;
use crate::logs::LogSink;
use crate::network::Network;
use crate::runtime::{ContainerConfig, ContainerPurpose, ContainerRuntime};

/// The handler of a probe or lifecycle hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProbeHandler {
    /// `httpGet`: succeeds with a status code from 200 to 399.
    HttpGet { scheme: Scheme, host: Option<String>, port: u16, path: String, headers: Vec<(String, String)> },
    /// `tcpSocket`: succeeds when a connection is established.
    TcpSocket { port: u16 },
    /// `grpc`: the standard health check; an empty service name means the whole server.
    Grpc { port: u16, service: String },
    /// `exec`: succeeds when the command exits with code 0.
    Exec { command: Vec<String> },
}

/// Maximum size in bytes of the output of a command that is part of a message (the kubelet's `maxReadLength`).
const MAX_OUTPUT_BYTES: usize = 10 << 10;

/// Memory in bytes for the output of a command, which may write without end.
const OUTPUT_BUFFER_BYTES: usize = 64 << 10;

/// The container that a handler targets.
pub(crate) struct ProbeTarget {
    pub(crate) network: Arc<dyn Network>,
    pub(crate) runtime: Arc<dyn ContainerRuntime>,
    pub(crate) container: ContainerConfig,
}

// === impl ProbeHandler ===

impl ProbeHandler {
    /// Parses a handler: `httpGet`, `tcpSocket`, `grpc` or `exec`.
    pub(crate) fn from_json(spec: &Value, container: &Value) -> Option<Self> {
        if let Some(http_get) = spec.get("httpGet") {
            let port = port(http_get, container)?;
            let scheme = if object::text(http_get, "/scheme") == "HTTPS" { Scheme::Https } else { Scheme::Http };
            let path = match object::text(http_get, "/path") {
                "" => "/".to_owned(),
                path if path.starts_with('/') => path.to_owned(),
                path => format!("/{path}"),
            };
            let headers = http_get.get("httpHeaders").and_then(Value::as_array).into_iter().flatten();
            let pair = |h: &Value| (object::text(h, "/name").to_owned(), object::text(h, "/value").to_owned());
            let host = http_get.get("host").and_then(Value::as_str).map(str::to_owned);
            return Some(Self::HttpGet { scheme, host, port, path, headers: headers.map(pair).collect() });
        }
        if let Some(grpc) = spec.get("grpc") {
            return Some(Self::Grpc {
                port: port(grpc, container)?,
                service: object::text(grpc, "/service").to_owned(),
            });
        }
        if let Some(tcp_socket) = spec.get("tcpSocket") {
            return Some(Self::TcpSocket { port: port(tcp_socket, container)? });
        }
        let command = spec.pointer("/exec/command")?.as_array()?;
        Some(Self::Exec { command: command.iter().filter_map(|w| w.as_str().map(str::to_owned)).collect() })
    }

    /// Runs the handler once.
    pub(crate) async fn run(&self, target: &ProbeTarget) -> Result<(), String> {
        let pod_ip = target.container.pod_ip;
        match self {
            Self::HttpGet { scheme, host, port, path, headers } => {
                let host_ip = host.as_ref().and_then(|host| host.parse().ok()).unwrap_or(pod_ip);
                http_get::get(target.network.as_ref(), *scheme, SocketAddr::new(host_ip, *port), path, headers).await
            }
            Self::TcpSocket { port } => {
                let result = target.network.connect(SocketAddr::new(pod_ip, *port)).await;
                result.map(drop).map_err(|error| format!("dial tcp {pod_ip}:{port}: {error}"))
            }
            Self::Grpc { port, service } => {
                grpc::check(target.network.as_ref(), SocketAddr::new(pod_ip, *port), service).await
            }
            Self::Exec { command } => {
                let log = LogSink::with_max_bytes(OUTPUT_BUFFER_BYTES);
                let container = ContainerConfig {
                    purpose: ContainerPurpose::ExecProbe,
                    command: command.clone(),
                    args: Vec::new(),
                    log: log.clone(),
                    ..target.container.clone()
                };
                let exit = target.runtime.run(container, CancellationToken::new()).await;
                let message = || {
                    let output = log.tail(usize::MAX, MAX_OUTPUT_BYTES);
                    format!("exit code {}: {}", exit.code, String::from_utf8_lossy(&output).trim_end())
                };
                (exit.code == 0).then_some(()).ok_or_else(message)
            }
        }
    }
}

/// Returns the port of a handler by number or name.
fn port(handler: &Value, container: &Value) -> Option<u16> {
    let port = handler.get("port")?;
    if let Some(name) = port.as_str() {
        let ports = container.get("ports").and_then(Value::as_array).into_iter().flatten();
        let named_port =
            ports.filter(|p| object::text(p, "/name") == name).find_map(|p| p.get("containerPort")?.as_u64());
        return named_port.and_then(|n| u16::try_from(n).ok()).or_else(|| name.parse().ok());
    }
    port.as_u64().and_then(|number| u16::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::net::{IpAddr, Ipv4Addr};

    use futures::future::{BoxFuture, FutureExt};

    use super::*;
    use crate::network::TcpNetwork;
    use crate::runtime::ContainerExit;

    /// Every command writes 1 MiB in lines of 1 KiB, and an error.
    struct VerboseRuntime;

    impl ContainerRuntime for VerboseRuntime {
        fn run(&self, container: ContainerConfig, _stop: CancellationToken) -> BoxFuture<'static, ContainerExit> {
            (0..1024).for_each(|_| container.log.write_line(&"x".repeat(1023)));
            container.log.write_line("no GPU");
            std::future::ready(ContainerExit { code: 2, message: String::new() }).boxed()
        }
    }

    #[tokio::test]
    async fn message_has_the_end_of_the_output() {
        let container = ContainerConfig {
            attempt: 0,
            node: "node".to_owned(),
            namespace: "n".to_owned(),
            pod: "p".to_owned(),
            pod_uid: "u".to_owned(),
            name: "c".to_owned(),
            image: "none".to_owned(),
            purpose: ContainerPurpose::Service,
            command: Vec::new(),
            args: Vec::new(),
            env: Vec::new(),
            pod_ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            ports: Vec::new(),
            working_dir: None,
            labels: BTreeMap::new(),
            devices: BTreeMap::new(),
            log: LogSink::default(),
            default_working_dir: None,
            mounts: Vec::new(),
        };
        let target = ProbeTarget { network: Arc::new(TcpNetwork), runtime: Arc::new(VerboseRuntime), container };
        let handler = ProbeHandler::Exec { command: vec!["check".to_owned()] };
        let message = handler.run(&target).await.unwrap_err();
        assert!(message.starts_with("exit code 2: xxx") && message.ends_with("x\nno GPU"), "{message}");
        assert!(message.len() > MAX_OUTPUT_BYTES && message.len() < MAX_OUTPUT_BYTES + 20, "{}", message.len());
    }
}
