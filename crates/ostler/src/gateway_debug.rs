//! Client of the debug pages of a gateway.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use http::{Method, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

use crate::connect::{self, ConnectArgs};
use crate::report::errors::error_with_hint;

/// Default address of the metrics listener of `ostler gateway`.
pub(crate) const DEFAULT_METRICS_ADDRESS: &str = "127.0.0.1:9466";

/// How long a request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a response in bytes: a thousand endpoints need less than one MiB.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// How to reach a gateway in a cluster.
const PORT_FORWARD_HINT: &str =
    "start `ostler up`, or run `kubectl -n ome-system port-forward deployment/ostler-gateway 9466`";

/// Where the debug pages of a gateway are.
#[derive(clap::Args, Clone)]
pub(crate) struct GatewayDebugArgs {
    /// Read from the metrics listener of the gateway at this address [default: that of `ostler up`, 127.0.0.1:9466]
    ///
    /// The gateway responds to clients on its loopback interface only: run `kubectl port-forward` for one in a cluster.
    #[arg(long, value_name = "HOST:PORT")]
    pub gateway_metrics: Option<SocketAddr>,
}

/// The debug pages of a gateway.
pub(crate) struct GatewayDebug {
    pub address: SocketAddr,
}

// === impl GatewayDebugArgs ===

impl GatewayDebugArgs {
    /// Returns the gateway of the arguments, or that of the `ostler up` whose kubeconfig is selected.
    pub(crate) fn known_gateway(&self, connect: &ConnectArgs) -> Result<Option<GatewayDebug>> {
        let address = match self.gateway_metrics {
            Some(address) => Some(address),
            None => connect::gateway_metrics(connect)?,
        };
        Ok(address.map(|address| GatewayDebug { address }))
    }

    /// Returns the gateway of the arguments, of the selected `ostler up`, or at the default address.
    pub(crate) fn gateway(&self, connect: &ConnectArgs) -> Result<GatewayDebug> {
        match self.known_gateway(connect)? {
            Some(gateway) => Ok(gateway),
            None => Ok(GatewayDebug { address: DEFAULT_METRICS_ADDRESS.parse()? }),
        }
    }
}

// === impl GatewayDebug ===

impl GatewayDebug {
    /// Returns the value at `path`, or `None` if the gateway has none.
    ///
    /// # Errors
    /// No gateway responds, or its response is another error.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>> {
        match self.request(Method::GET, path, String::new()).await? {
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (status, body) => self.decode(path, status, &body).map(Some),
        }
    }

    /// Returns the value of the response to a body that is sent to `path`.
    ///
    /// # Errors
    /// No gateway responds, or its response is an error.
    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str, body: String) -> Result<T> {
        let (status, body) = self.request(Method::POST, path, body).await?;
        self.decode(path, status, &body)
    }

    /// Sends a request and returns status and body of the response.
    async fn request(&self, method: Method, path: &str, body: String) -> Result<(StatusCode, Bytes)> {
        let uri = format!("http://{}{path}", self.address);
        let request = http::Request::builder().method(method).uri(&uri).body(Full::new(Bytes::from(body)))?;
        let response = async {
            let response = HttpClient::builder(TokioExecutor::new()).build_http().request(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES)
                .collect()
                .await
                .map_err(|error| anyhow!(error))?;
            anyhow::Ok((status, body.to_bytes()))
        };
        match timeout(REQUEST_TIMEOUT, response).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(self.no_gateway(&cluster::error_chain(error.as_ref()))),
            Err(_) => Err(self.no_gateway(&format!("timed out after {} s", REQUEST_TIMEOUT.as_secs()))),
        }
    }

    fn decode<T: DeserializeOwned>(&self, path: &str, status: StatusCode, body: &[u8]) -> Result<T> {
        if status.is_success() {
            let address = self.address;
            return serde_json::from_slice(body)
                .with_context(|| format!("http://{address}{path}: the response is of another version"));
        }
        let error: Value = serde_json::from_slice(body).unwrap_or_default();
        match error["error"]["message"].as_str() {
            Some(message) => Err(anyhow!("the gateway responded {status}: {message}")),
            None => Err(self.no_gateway(&format!("it responded {status}"))),
        }
    }

    fn no_gateway(&self, cause: &str) -> anyhow::Error {
        error_with_hint(format!("no gateway responds at {}: {cause}", self.address), PORT_FORWARD_HINT)
    }
}
