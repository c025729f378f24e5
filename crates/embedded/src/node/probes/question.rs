//! What is asked of a container, by probes and by hooks.

use std::net::SocketAddr;
use std::sync::Arc;

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::http_get::{self, Scheme};
use crate::node::grpc;
use crate::node::logs::LogSink;
use crate::object;
use crate::ports::{Container, Network, Purpose, Runner};

/// One question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Question {
    Http { scheme: Scheme, host: Option<String>, port: u16, path: String, headers: Vec<(String, String)> },
    Connect { port: u16 },
    Grpc { port: u16, service: String },
    Exec { command: Vec<String> },
}

/// Who is asked, and by what means.
pub(crate) struct Target {
    pub(crate) network: Arc<dyn Network>,
    pub(crate) runner: Arc<dyn Runner>,
    pub(crate) container: Container,
}

impl Question {
    /// Reads a handler: `httpGet`, `tcpSocket`, `grpc` or `exec`.
    pub(crate) fn of(spec: &Value, container: &Value) -> Option<Self> {
        if let Some(get) = spec.get("httpGet") {
            let port = port(get, container)?;
            let scheme = if object::text(get, "/scheme") == "HTTPS" { Scheme::Https } else { Scheme::Http };
            let path = match object::text(get, "/path") {
                "" => "/".to_owned(),
                path if path.starts_with('/') => path.to_owned(),
                path => format!("/{path}"),
            };
            let headers = get.get("httpHeaders").and_then(Value::as_array).into_iter().flatten();
            let pair = |h: &Value| (object::text(h, "/name").to_owned(), object::text(h, "/value").to_owned());
            let host = get.get("host").and_then(Value::as_str).map(str::to_owned);
            return Some(Self::Http { scheme, host, port, path, headers: headers.map(pair).collect() });
        }
        if let Some(grpc) = spec.get("grpc") {
            return Some(Self::Grpc {
                port: port(grpc, container)?,
                service: object::text(grpc, "/service").to_owned(),
            });
        }
        if let Some(connect) = spec.get("tcpSocket") {
            return Some(Self::Connect { port: port(connect, container)? });
        }
        let command = spec.pointer("/exec/command")?.as_array()?;
        Some(Self::Exec { command: command.iter().filter_map(|w| w.as_str().map(str::to_owned)).collect() })
    }

    pub(crate) async fn put(&self, target: &Target) -> Result<(), String> {
        let address = target.container.address;
        match self {
            Self::Http { scheme, host, port, path, headers } => {
                let address = host.as_ref().and_then(|host| host.parse().ok()).unwrap_or(address);
                http_get::get(target.network.as_ref(), *scheme, SocketAddr::new(address, *port), path, headers).await
            }
            Self::Connect { port } => {
                let connected = target.network.connect(SocketAddr::new(address, *port)).await;
                connected.map(drop).map_err(|error| format!("dial tcp {address}:{port}: {error}"))
            }
            Self::Grpc { port, service } => {
                grpc::check(target.network.as_ref(), SocketAddr::new(address, *port), service).await
            }
            Self::Exec { command } => {
                let log = LogSink::default();
                let container = Container {
                    purpose: Purpose::Probe,
                    command: command.clone(),
                    args: Vec::new(),
                    log: log.clone(),
                    ..target.container.clone()
                };
                let exit = target.runner.run(container, CancellationToken::new()).await;
                let output: Vec<u8> = log.lines(None).iter().flat_map(|line| line.to_vec()).collect();
                let why = || format!("exit code {}: {}", exit.code, String::from_utf8_lossy(&output).trim_end());
                (exit.code == 0).then_some(()).ok_or_else(why)
            }
        }
    }
}

fn port(action: &Value, container: &Value) -> Option<u16> {
    let port = action.get("port")?;
    if let Some(name) = port.as_str() {
        let ports = container.get("ports").and_then(Value::as_array).into_iter().flatten();
        let named = ports.filter(|p| object::text(p, "/name") == name).find_map(|p| p.get("containerPort")?.as_u64());
        return named.and_then(|n| u16::try_from(n).ok()).or_else(|| name.parse().ok());
    }
    port.as_u64().and_then(|number| u16::try_from(number).ok())
}
