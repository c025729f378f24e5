//! Tests of authentication, and of limits for connections and requests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use embedded::{Credentials, ServeError, kubeconfig, serve, write_kubeconfig};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams};
use kube::config::Kubeconfig;
use rstest::rstest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// HTTPS server on a free port, with its kubeconfig.
struct TestServer {
    address: SocketAddr,
    kubeconfig: String,
    stop: CancellationToken,
    task: JoinHandle<Result<(), ServeError>>,
}

// === impl TestServer ===

impl TestServer {
    fn start() -> Self {
        let credentials = Credentials::generate().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let kubeconfig = kubeconfig(&credentials, &format!("https://{address}"), &[]);
        let stop = CancellationToken::new();
        let task = tokio::spawn({
            let (server, stop) = (crate::server(), stop.clone());
            async move { serve(server, listener, &credentials, stop).await }
        });
        Self { address, kubeconfig, stop, task }
    }

    /// Returns the value of a field of the kubeconfig.
    fn field(&self, name: &str) -> String {
        let line = self.kubeconfig.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(": "));
        line.unwrap().to_owned()
    }

    /// Sends `request` verbatim over TLS and returns the response.
    async fn send_raw(&self, request: String) -> String {
        let ca = base64::engine::general_purpose::STANDARD.decode(self.field("certificate-authority-data")).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(&ca).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let address = self.address;
        let exchange = move || {
            let name = ServerName::try_from("localhost").unwrap();
            let mut tls = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
            let mut socket = connect(address);
            let mut stream = rustls::Stream::new(&mut tls, &mut socket);
            // The server may close the connection before the request is sent completely.
            let _ = stream.write_all(request.as_bytes());
            let mut response = Vec::new();
            let _ = stream.read_to_end(&mut response);
            String::from_utf8_lossy(&response).into_owned()
        };
        tokio::task::spawn_blocking(exchange).await.unwrap()
    }

    async fn stop_server(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

/// Connects with a read timeout, so that the test fails if the server does not respond.
fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
    socket
}

async fn client(text: &str) -> kube::Client {
    let file = Kubeconfig::from_yaml(text).unwrap();
    let mut config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.unwrap();
    config.proxy_url = None;
    kube::Client::try_from(config).unwrap()
}

async fn namespaces(text: &str) -> Result<usize, kube::Error> {
    let list = Api::<Namespace>::all(client(text).await).list(&ListParams::default()).await?;
    Ok(list.items.len())
}

fn mode(path: &std::path::Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[rstest]
#[case::both(&[], true)]
#[case::certificate_only(&["token"], true)]
#[case::token_only(&["client-certificate-data", "client-key-data"], true)]
#[case::no_credentials(&["token", "client-certificate-data", "client-key-data"], false)]
#[tokio::test]
async fn certificate_or_token_authenticates(#[case] removed_fields: &[&str], #[case] is_authenticated: bool) {
    let server = TestServer::start();
    let is_retained =
        |line: &&str| !removed_fields.iter().any(|field| line.trim_start().starts_with(&format!("{field}:")));
    let mut text = server.kubeconfig.lines().filter(is_retained).collect::<Vec<_>>().join("\n");
    if !is_authenticated {
        text = text.replace("  user:\ncontexts", "  user: {}\ncontexts");
    }
    match namespaces(&text).await {
        Ok(count) => assert!(is_authenticated && count == 4),
        Err(kube::Error::Api(status)) => assert!(!is_authenticated && status.code == 401, "{status:?}"),
        Err(other) => panic!("{other:?}"),
    }
    server.stop_server().await;
}

/// Rejects the certificate of another authority and a token with one wrong character.
#[tokio::test]
async fn rejects_foreign_certificate_and_wrong_token() {
    let (server, other) = (TestServer::start(), TestServer::start());
    let own_certificate = format!("client-certificate-data: {}", server.field("client-certificate-data"));
    let own_key = format!("client-key-data: {}", server.field("client-key-data"));
    let foreign_kubeconfig = server
        .kubeconfig
        .replace(&own_certificate, &format!("client-certificate-data: {}", other.field("client-certificate-data")))
        .replace(&own_key, &format!("client-key-data: {}", other.field("client-key-data")));
    assert!(namespaces(&foreign_kubeconfig).await.is_err(), "a certificate of another authority");

    let token = server.field("token");
    let invalid_token = format!("{}{}", &token[..token.len() - 1], if token.ends_with('A') { 'B' } else { 'A' });
    let response = server.send_raw(get("127.0.0.1", &invalid_token, "")).await;
    assert!(response.starts_with("HTTP/1.1 401 "), "{response}");
    server.stop_server().await;
    other.stop_server().await;
}

/// Returns a GET request that closes the connection afterwards.
fn get(host: &str, token: &str, extra_headers: &str) -> String {
    format!(
        "GET /api/v1/namespaces HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n{extra_headers}Connection: close\r\n\r\n"
    )
}

#[rstest]
#[case::loopback_address("127.0.0.1:6443", "", "200")]
#[case::localhost("localhost", "", "200")]
#[case::ipv6_loopback("[::1]", "", "200")]
#[case::rebound_name("evil.example.com", "", "403")]
#[case::loopback_prefix("127.0.0.1.evil.example.com", "", "403")]
#[case::web_page("127.0.0.1", "Origin: https://evil.example.com\r\n", "403")]
#[case::opaque_origin("127.0.0.1", "Origin: null\r\n", "403")]
#[tokio::test]
async fn rejects_requests_from_web_pages(#[case] host: &str, #[case] extra_headers: &str, #[case] code: &str) {
    let server = TestServer::start();
    let response = server.send_raw(get(host, &server.field("token"), extra_headers)).await;
    assert!(response.starts_with(&format!("HTTP/1.1 {code} ")), "{response}");
    server.stop_server().await;
}

/// The limit equals that of kube-apiserver.
#[rstest]
#[case::largest(3 * 1024 * 1024, "201")]
#[case::too_large(3 * 1024 * 1024 + 1, "413")]
#[tokio::test]
async fn limits_request_body(#[case] size: usize, #[case] code: &str) {
    let server = TestServer::start();
    let template = r#"{"metadata":{"name":"large"},"data":{"k":""}}"#;
    let body = template.replace("\"\"", &format!("\"{}\"", "x".repeat(size - template.len())));
    let head =
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let token = server.field("token");
    let rest = format!("Content-Length: {size}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n{body}");
    let response = server.send_raw(format!("{head}{rest}")).await;
    // Print only the start of the response, because the body repeats the object.
    let start: String = response.chars().take(400).collect();
    assert!(response.starts_with(&format!("HTTP/1.1 {code} ")), "{start}");
    server.stop_server().await;
}

#[tokio::test]
async fn limits_request_headers() {
    let server = TestServer::start();
    let extra_headers = format!("X-Long: {}\r\n", "x".repeat(2 * 1024 * 1024));
    let response = server.send_raw(get("localhost", &server.field("token"), &extra_headers)).await;
    assert!(response.is_empty() || response.starts_with("HTTP/1.1 431 "), "{response}");
    server.stop_server().await;
}

#[tokio::test]
async fn plain_http_gets_error_response() {
    let server = TestServer::start();
    let address = server.address;
    let response = tokio::task::spawn_blocking(move || {
        let mut socket = connect(address);
        socket.write_all(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut response = String::new();
        socket.read_to_string(&mut response).unwrap();
        response
    });
    let response = response.await.unwrap();
    assert!(response.starts_with("HTTP/1.0 400 Bad Request\r\n"), "{response}");
    assert!(response.ends_with("Client sent an HTTP request to an HTTPS server.\n"), "{response}");
    server.stop_server().await;
}

/// Neither a client that sends nothing nor one that sends the first byte of a TLS record occupies a connection.
#[rstest]
#[case::no_byte(&[])]
#[case::incomplete_record(&[22])]
#[tokio::test(start_paused = true)]
async fn silent_connection_times_out(#[case] sent: &[u8]) {
    let server = TestServer::start();
    let start = tokio::time::Instant::now();
    let mut socket = connect(server.address);
    socket.write_all(sent).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut connection = tokio::net::TcpStream::from_std(socket).unwrap();
    let mut received = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut connection, &mut received).await.unwrap();
    assert_eq!((start.elapsed().as_secs(), received), (10, Vec::new()));
    server.stop_server().await;
}

#[tokio::test(start_paused = true)]
async fn incomplete_body_times_out() {
    let first_chunk = futures::stream::iter([Ok::<_, std::io::Error>("{")]);
    let stalled_body = futures::StreamExt::chain(first_chunk, futures::stream::pending());
    let request =
        http::Request::post("/api/v1/namespaces/default/configmaps").header("Content-Type", "application/json");
    let request = request.body(axum::body::Body::from_stream(stalled_body)).unwrap();
    let response = tower::ServiceExt::oneshot(embedded::router(&crate::server()), request).await.unwrap();
    assert_eq!(response.status(), 408);
}

#[tokio::test]
async fn rejects_non_loopback_listener() {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let credentials = Credentials::generate().unwrap();
    let result = serve(crate::server(), listener, &credentials, CancellationToken::new()).await;
    assert!(matches!(result, Err(ServeError::NotLoopback(_))), "{result:?}");
}

#[test]
fn kubeconfig_is_private() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("kubeconfig");
    std::fs::write(&path, "old").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    write_kubeconfig(&path, "new").unwrap();
    assert_eq!((mode(&path), std::fs::read_to_string(&path).unwrap().as_str()), (0o600, "new"));
}
