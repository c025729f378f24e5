//! The server under load: where it is, and how to get in.

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

use crate::Result;
use crate::connection::{Connection, Request};
use crate::figures::Figures;

/// How long a server has to come up.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is taken from a socket at once; TLS by itself would ask for 4 KiB at a time.
const RECEIVED: usize = 64 * 1024;

#[derive(Clone)]
pub(crate) struct Target {
    address: String,
    name: ServerName<'static>,
    tls: TlsConnector,
    /// Lines of every request.
    headers: Arc<str>,
}

// === impl Target ===

impl Target {
    pub(crate) async fn read(kubeconfig: &Path) -> Result<Self> {
        let file = Kubeconfig::read_from(kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        let mut tls = config.rustls_client_config()?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let host = config.cluster_url.host().ok_or("a kubeconfig without a server")?.to_owned();
        let address = format!("{host}:{}", config.cluster_url.port_u16().unwrap_or(443));
        // The token is secret to `Debug` only.
        let user = serde_json::to_value(&config.auth_info)?;
        let token = user["token"].as_str().map(|token| format!("authorization: Bearer {token}\r\n"));
        let headers =
            format!("host: {address}\r\naccept: application/json\r\nuser-agent: load\r\n{}", token.unwrap_or_default());
        let (name, tls) = (ServerName::try_from(host)?, TlsConnector::from(Arc::new(tls)));
        Ok(Self { address, name, tls, headers: headers.into() })
    }

    pub(crate) async fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let stream = self.tls.connect(self.name.clone(), BufReader::with_capacity(RECEIVED, stream)).await?;
        Ok(Connection::new(stream, Arc::clone(&self.headers)))
    }

    /// So many connections, one after the other.
    pub(crate) async fn connections(&self, count: usize) -> Result<Vec<Connection>> {
        let mut made = Vec::with_capacity(count);
        for _ in 0..count {
            made.push(self.connect().await?);
        }
        Ok(made)
    }

    /// Waits for the first answer of `/readyz`.
    pub(crate) async fn ready(&self) -> Result<Figures> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if let Ok(mut connection) = self.connect().await
                && let Ok((200, _)) = connection.send(&Request::get("/readyz")).await
            {
                return Ok(Figures::default());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Err("the server did not come up".into())
    }

    /// Creates namespaces `PREFIX-0`, `PREFIX-1`, …; those that are there stay.
    pub(crate) async fn namespaces(&self, prefix: &str, count: usize) -> Result<Vec<String>> {
        const CONFLICT: u16 = 409;
        let mut connection = self.connect().await?;
        let mut names = Vec::with_capacity(count);
        for number in 0..count {
            let name = format!("{prefix}-{number}");
            let body = Bytes::from(format!(r#"{{"metadata":{{"name":"{name}"}}}}"#));
            let (code, answer) = connection.send(&Request::post("/api/v1/namespaces", body)).await?;
            if code != CONFLICT && !(200..300).contains(&code) {
                return Err(format!("namespace {name}: {}", String::from_utf8_lossy(&answer)).into());
            }
            names.push(name);
        }
        Ok(names)
    }
}
