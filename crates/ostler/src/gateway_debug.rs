//! Client of the debug endpoints of a gateway.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use http::Method;
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

/// Where the debug endpoints of a gateway are.
#[derive(clap::Args, Clone)]
pub(crate) struct GatewayDebugArgs {
    /// Read from the metrics listener of the gateway at this address [default: that of `ostler up`, 127.0.0.1:9466]
    ///
    /// The gateway responds to clients on its loopback interface only: run `kubectl port-forward` for one in a cluster.
    #[arg(long, value_name = "HOST:PORT")]
    pub gateway_metrics: Option<SocketAddr>,
}

/// The debug endpoints of a gateway.
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
    /// Sends a request and returns the value of the response.
    ///
    /// # Errors
    /// No gateway responds, or its response is an error.
    pub(crate) async fn send<T: DeserializeOwned>(&self, method: Method, path: &str, body: String) -> Result<T> {
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
        let failed = |cause: String| {
            error_with_hint(format!("no gateway responds at {}: {cause}", self.address), PORT_FORWARD_HINT)
        };
        let (status, body) = match timeout(REQUEST_TIMEOUT, response).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(failed(cluster::error_chain(error.as_ref()))),
            Err(_) => return Err(failed(format!("timed out after {} s", REQUEST_TIMEOUT.as_secs()))),
        };
        if status.is_success() {
            return serde_json::from_slice(&body)
                .with_context(|| format!("{uri}: the response is from another version"));
        }
        let error: Value = serde_json::from_slice(&body).unwrap_or_default();
        match error["error"]["message"].as_str() {
            Some(message) => Err(anyhow!("the gateway responded {status}: {message}")),
            None => Err(failed(format!("it responded {status}"))),
        }
    }
}
