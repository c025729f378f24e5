//! The server under load and the client credentials for it.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kube::client::ConfigExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustls::pki_types::ServerName;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::connection::{Connection, Request};
use crate::measurements::Measurements;
use crate::result::Result;

/// Maximum time to wait until the server is ready.
const READY_TIMEOUT: Duration = Duration::from_secs(60);

/// Size of the read buffer of a socket in bytes. Without it, the TLS library reads only 4 KiB at a time.
const READ_BUFFER_SIZE: usize = 64 * 1024;

/// The server under load.
#[derive(Clone)]
pub(crate) struct LoadTarget {
    address: String,
    server_name: ServerName<'static>,
    tls: TlsConnector,
    /// Header lines that are sent with every request.
    headers: Arc<str>,
}

// === impl LoadTarget ===

impl LoadTarget {
    /// Reads the server address and the credentials from a kubeconfig.
    pub(crate) async fn from_kubeconfig(kubeconfig: &Path) -> Result<Self> {
        let kubeconfig_file = Kubeconfig::read_from(kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(kubeconfig_file, &KubeConfigOptions::default()).await?;
        let mut tls = config.rustls_client_config()?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let host = config.cluster_url.host().ok_or("the kubeconfig has no server")?.to_owned();
        let address = format!("{host}:{}", config.cluster_url.port_u16().unwrap_or(443));
        // The token is a secret type whose value is accessible through serialization.
        let user = serde_json::to_value(&config.auth_info)?;
        let token = user["token"].as_str().map(|token| format!("authorization: Bearer {token}\r\n"));
        let headers =
            format!("host: {address}\r\naccept: application/json\r\nuser-agent: load\r\n{}", token.unwrap_or_default());
        let (server_name, tls) = (ServerName::try_from(host)?, TlsConnector::from(Arc::new(tls)));
        Ok(Self { address, server_name, tls, headers: headers.into() })
    }

    /// Opens a connection.
    pub(crate) async fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let stream =
            self.tls.connect(self.server_name.clone(), BufReader::with_capacity(READ_BUFFER_SIZE, stream)).await?;
        Ok(Connection::new(stream, Arc::clone(&self.headers)))
    }

    /// Opens `count` connections.
    pub(crate) async fn connections(&self, count: usize) -> Result<Vec<Connection>> {
        let mut connections = Vec::with_capacity(count);
        for _ in 0..count {
            connections.push(self.connect().await?);
        }
        Ok(connections)
    }

    /// Waits until `/readyz` responds with 200.
    pub(crate) async fn wait_ready(&self) -> Result<Measurements> {
        let started = Instant::now();
        while started.elapsed() < READY_TIMEOUT {
            if let Ok(mut connection) = self.connect().await
                && let Ok((200, _)) = connection.send(&Request::get("/readyz")).await
            {
                return Ok(Measurements::default());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Err("the server did not become ready".into())
    }

    /// Creates the namespaces `PREFIX-0`, `PREFIX-1`, … unless they exist, and returns their names.
    pub(crate) async fn namespaces(&self, prefix: &str, count: usize) -> Result<Vec<String>> {
        const CONFLICT: u16 = 409;
        let mut connection = self.connect().await?;
        let mut names = Vec::with_capacity(count);
        for number in 0..count {
            let name = format!("{prefix}-{number}");
            let body = Bytes::from(format!(r#"{{"metadata":{{"name":"{name}"}}}}"#));
            let (code, response) = connection.send(&Request::post("/api/v1/namespaces", body)).await?;
            if code != CONFLICT && !(200..300).contains(&code) {
                return Err(format!("namespace {name}: {}", String::from_utf8_lossy(&response)).into());
            }
            names.push(name);
        }
        Ok(names)
    }
}
