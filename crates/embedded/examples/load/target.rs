//! The server under load, and one connection to it. HTTP/1.1, nothing pooled and nothing parsed: what is measured is the
//! server.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use kube::client::ConfigExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::Result;
use crate::figures::Figures;

/// How long a server has to come up.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(crate) struct Target {
    address: String,
    name: ServerName<'static>,
    tls: TlsConnector,
    token: Option<String>,
}

pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    token: Option<String>,
}

// === impl Target ===

impl Target {
    pub(crate) async fn read(kubeconfig: &Path) -> Result<Self> {
        let file = Kubeconfig::read_from(kubeconfig)?;
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        let mut tls = config.rustls_client_config()?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let host = config.cluster_url.host().ok_or("a kubeconfig without a server")?.to_owned();
        let port = config.cluster_url.port_u16().unwrap_or(443);
        // The token is secret to `Debug` only.
        let user = serde_json::to_value(&config.auth_info)?;
        let token = user["token"].as_str().map(|token| format!("Bearer {token}"));
        let name = ServerName::try_from(host.clone())?;
        Ok(Self { address: format!("{host}:{port}"), name, tls: TlsConnector::from(Arc::new(tls)), token })
    }

    pub(crate) async fn connect(&self) -> Result<Connection> {
        let stream = TcpStream::connect(&self.address).await?;
        stream.set_nodelay(true)?;
        let stream = self.tls.connect(self.name.clone(), stream).await?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Connection { sender, host: self.address.clone(), token: self.token.clone() })
    }

    /// So many connections, opened a few at a time.
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
                && let Ok((StatusCode::OK, _)) = connection.send(Method::GET, "/readyz", "", Bytes::new()).await
            {
                return Ok(Figures::default());
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Err("the server did not come up".into())
    }

    /// Creates namespaces `PREFIX-0`, `PREFIX-1`, …; those that are there stay.
    pub(crate) async fn namespaces(&self, prefix: &str, count: usize) -> Result<Vec<String>> {
        let mut connection = self.connect().await?;
        let mut names = Vec::with_capacity(count);
        for number in 0..count {
            let name = format!("{prefix}-{number}");
            let body = format!(r#"{{"metadata":{{"name":"{name}"}}}}"#);
            let (code, answer) = connection.send(Method::POST, "/api/v1/namespaces", JSON, body.into()).await?;
            if code != StatusCode::CREATED && code != StatusCode::CONFLICT {
                return Err(format!("namespace {name}: {}", String::from_utf8_lossy(&answer)).into());
            }
            names.push(name);
        }
        Ok(names)
    }
}

pub(crate) const JSON: &str = "application/json";
pub(crate) const MERGE_PATCH: &str = "application/merge-patch+json";

// === impl Connection ===

impl Connection {
    pub(crate) async fn send(
        &mut self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes)> {
        let response = self.request(method, path, content_type, body).await?;
        Ok((response.status(), response.into_body().collect().await?.to_bytes()))
    }

    /// As [`Self::send`], for what must succeed.
    pub(crate) async fn done(&mut self, method: Method, path: &str, kind: &str, body: Bytes) -> Result<Bytes> {
        let (code, answer) = self.send(method, path, kind, body).await?;
        if code.is_success() { Ok(answer) } else { Err(format!("{path}: {code} {answer:?}").into()) }
    }

    /// A body that does not end: a watch. The connection is used up.
    pub(crate) async fn open(mut self, path: &str) -> Result<(Incoming, SendRequest<Full<Bytes>>)> {
        let response = self.request(Method::GET, path, "", Bytes::new()).await?;
        if !response.status().is_success() {
            return Err(format!("{path}: {}", response.status()).into());
        }
        Ok((response.into_body(), self.sender))
    }

    async fn request(
        &mut self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Bytes,
    ) -> Result<http::Response<Incoming>> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.host)
            .header(header::ACCEPT, JSON)
            .header(header::USER_AGENT, "load");
        if !content_type.is_empty() {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, token);
        }
        self.sender.ready().await?;
        Ok(self.sender.send_request(request.body(Full::new(body))?).await?)
    }
}
