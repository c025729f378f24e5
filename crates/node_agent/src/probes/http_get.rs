//! `httpGet` probes over HTTP and HTTPS.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::Empty;
use hyper_util::rt::TokioIo;

use crate::insecure_tls;
use crate::network::Network;

/// The URL scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    /// HTTPS without certificate verification.
    Https,
}

/// Sends one request. Status codes from 200 to 399 mean success.
///
/// # Errors
/// The kubelet's message for the failed request.
pub(super) async fn get(
    network: &dyn Network,
    scheme: Scheme,
    address: SocketAddr,
    path: &str,
    headers: &[(String, String)],
) -> Result<(), String> {
    let scheme_name = if scheme == Scheme::Https { "https" } else { "http" };
    let url = format!("{scheme_name}://{address}{path}");
    let error_message = |error: &dyn std::fmt::Display| format!("Get \"{url}\": {error}");
    let mut stream = network.connect(address).await.map_err(|e| error_message(&e))?;
    if scheme == Scheme::Https {
        stream = insecure_tls::connect(stream, address.ip()).await.map_err(|e| error_message(&e))?;
    }
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(|e| error_message(&e))?;
    let mut request = http::Request::get(path).header("user-agent", "kube-probe/1.33").header("connection", "close");
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request = request.header("host", address.to_string());
    }
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let request = request.body(Empty::<Bytes>::new()).map_err(|e| error_message(&e))?;
    // A failure of the connection is reported by the response.
    let drive_connection = async {
        let _ = connection.await;
        std::future::pending::<std::convert::Infallible>().await
    };
    let status = tokio::select! {
        response = sender.send_request(request) => response.map_err(|e| error_message(&e))?.status(),
        never = drive_connection => match never {},
    };
    if (200..400).contains(&status.as_u16()) {
        return Ok(());
    }
    Err(format!("HTTP probe failed with statuscode: {}", status.as_u16()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn https_accepts_any_certificate() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let certificate = rcgen::generate_simple_self_signed(["other.example".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der());
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.cert.der().clone()], key.into())
            .unwrap();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
            for response in ["200 OK", "503 Unavailable"] {
                let (stream, _) = listener.accept().await.unwrap();
                let mut stream = acceptor.accept(stream).await.unwrap();
                let _ = stream.read(&mut [0; 1024]).await;
                let response = format!("HTTP/1.1 {response}\r\ncontent-length: 0\r\n\r\n");
                stream.write_all(response.as_bytes()).await.unwrap();
                stream.shutdown().await.ok();
            }
        });
        let probe = || get(&crate::network::TcpNetwork, Scheme::Https, address, "/", &[]);
        assert_eq!(probe().await, Ok(()));
        assert_eq!(probe().await, Err("HTTP probe failed with statuscode: 503".to_owned()));
    }
}
