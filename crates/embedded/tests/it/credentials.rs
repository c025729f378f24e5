//! Who is let in: the certificate or the token of the kubeconfig, from this machine, and nobody else.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use embedded::serve::{Credentials, ServeError, kubeconfig, serve, write_kubeconfig};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ListParams};
use kube::config::Kubeconfig;
use rstest::rstest;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A server on a free port, and its kubeconfig.
struct Served {
    address: SocketAddr,
    text: String,
    stop: CancellationToken,
    task: JoinHandle<Result<(), ServeError>>,
}

// === impl Served ===

impl Served {
    fn start() -> Self {
        let credentials = Credentials::generate().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let text = kubeconfig(&credentials, &format!("https://{address}"));
        let stop = CancellationToken::new();
        let task = tokio::spawn({
            let (server, stop) = (crate::server(), stop.clone());
            async move { serve(server, listener, &credentials, stop).await }
        });
        Self { address, text, stop, task }
    }

    /// The value of a field of the kubeconfig.
    fn field(&self, name: &str) -> String {
        let line = self.text.lines().find_map(|line| line.trim_start().strip_prefix(name)?.strip_prefix(": "));
        line.unwrap().to_owned()
    }

    /// What comes back for `request`, sent over TLS as it is.
    async fn says(&self, request: String) -> String {
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
            let mut socket = connected(address);
            let mut stream = rustls::Stream::new(&mut tls, &mut socket);
            // A server that has heard enough closes while the client still speaks.
            let _ = stream.write_all(request.as_bytes());
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            String::from_utf8_lossy(&answer).into_owned()
        };
        tokio::task::spawn_blocking(exchange).await.unwrap()
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

/// A server that does not answer at all fails a test instead of keeping it.
fn connected(address: SocketAddr) -> TcpStream {
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
#[case::certificate(&["token"], true)]
#[case::token(&["client-certificate-data", "client-key-data"], true)]
#[case::nothing(&["token", "client-certificate-data", "client-key-data"], false)]
#[tokio::test]
async fn a_certificate_or_a_token_opens(#[case] without: &[&str], #[case] opens: bool) {
    let served = Served::start();
    let kept = |line: &&str| !without.iter().any(|field| line.trim_start().starts_with(&format!("{field}:")));
    let mut text = served.text.lines().filter(kept).collect::<Vec<_>>().join("\n");
    if !opens {
        text = text.replace("  user:\ncontexts", "  user: {}\ncontexts");
    }
    match namespaces(&text).await {
        Ok(count) => assert!(opens && count == 4),
        Err(kube::Error::Api(status)) => assert!(!opens && status.code == 401, "{status:?}"),
        Err(other) => panic!("{other:?}"),
    }
    served.end().await;
}

/// The certificate of another authority, and a token with one letter wrong.
#[tokio::test]
async fn what_another_server_gave_opens_nothing() {
    let (served, other) = (Served::start(), Served::start());
    let own_certificate = format!("client-certificate-data: {}", served.field("client-certificate-data"));
    let own_key = format!("client-key-data: {}", served.field("client-key-data"));
    let foreign = served
        .text
        .replace(&own_certificate, &format!("client-certificate-data: {}", other.field("client-certificate-data")))
        .replace(&own_key, &format!("client-key-data: {}", other.field("client-key-data")));
    assert!(namespaces(&foreign).await.is_err(), "a certificate of another authority");

    let token = served.field("token");
    let wrong = format!("{}{}", &token[..token.len() - 1], if token.ends_with('A') { 'B' } else { 'A' });
    let answer = served.says(get("127.0.0.1", &wrong, "")).await;
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    served.end().await;
    other.end().await;
}

/// A GET that asks to close afterwards.
fn get(host: &str, token: &str, more: &str) -> String {
    format!(
        "GET /api/v1/namespaces HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n{more}Connection: close\r\n\r\n"
    )
}

#[rstest]
#[case::ours("127.0.0.1:6443", "", "200")]
#[case::by_name("localhost", "", "200")]
#[case::by_short_address("[::1]", "", "200")]
#[case::rebound("evil.example.com", "", "403")]
#[case::disguised("127.0.0.1.evil.example.com", "", "403")]
#[case::from_a_page("127.0.0.1", "Origin: https://evil.example.com\r\n", "403")]
#[case::from_no_page("127.0.0.1", "Origin: null\r\n", "403")]
#[tokio::test]
async fn no_web_page_is_served(#[case] host: &str, #[case] more: &str, #[case] code: &str) {
    let served = Served::start();
    let answer = served.says(get(host, &served.field("token"), more)).await;
    assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{answer}");
    served.end().await;
}

/// As much as kube-apiserver reads, and not more.
#[rstest]
#[case::largest(3 * 1024 * 1024, "201")]
#[case::too_large(3 * 1024 * 1024 + 1, "413")]
#[tokio::test]
async fn bodies_have_a_bound(#[case] size: usize, #[case] code: &str) {
    let served = Served::start();
    let frame = r#"{"metadata":{"name":"large"},"data":{"k":""}}"#;
    let body = frame.replace("\"\"", &format!("\"{}\"", "x".repeat(size - frame.len())));
    let head =
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    let token = served.field("token");
    let rest = format!("Content-Length: {size}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n{body}");
    let answer = served.says(format!("{head}{rest}")).await;
    // What is stored may be smaller than what is read: etcd's bound, as there.
    let shown: String = answer.chars().take(400).collect();
    assert!(answer.starts_with(&format!("HTTP/1.1 {code} ")), "{shown}");
    served.end().await;
}

#[tokio::test]
async fn heads_have_a_bound() {
    let served = Served::start();
    let more = format!("X-Long: {}\r\n", "x".repeat(2 * 1024 * 1024));
    let answer = served.says(get("localhost", &served.field("token"), &more)).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    served.end().await;
}

#[tokio::test]
async fn plain_http_is_told_so() {
    let served = Served::start();
    let address = served.address;
    let answer = tokio::task::spawn_blocking(move || {
        let mut socket = connected(address);
        socket.write_all(b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer
    });
    let answer = answer.await.unwrap();
    assert!(answer.starts_with("HTTP/1.0 400 Bad Request\r\n"), "{answer}");
    assert!(answer.ends_with("Client sent an HTTP request to an HTTPS server.\n"), "{answer}");
    served.end().await;
}

/// Time passes by itself here: nothing else is going on.
#[tokio::test(start_paused = true)]
async fn who_says_nothing_is_not_waited_for() {
    let served = Served::start();
    let mut silent = tokio::net::TcpStream::connect(served.address).await.unwrap();
    let mut nothing = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut silent, &mut nothing).await.unwrap();
    assert!(nothing.is_empty());
    served.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let begun = futures::stream::iter([Ok::<_, std::io::Error>("{")]);
    let stalled = futures::StreamExt::chain(begun, futures::stream::pending());
    let request =
        http::Request::post("/api/v1/namespaces/default/configmaps").header("Content-Type", "application/json");
    let request = request.body(axum::body::Body::from_stream(stalled)).unwrap();
    let answer = tower::ServiceExt::oneshot(crate::server().router(), request).await.unwrap();
    assert_eq!(answer.status(), 408);
}

#[tokio::test]
async fn only_this_machine_is_served() {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let credentials = Credentials::generate().unwrap();
    let refused = serve(crate::server(), listener, &credentials, CancellationToken::new()).await;
    assert!(matches!(refused, Err(ServeError::NotLoopback(_))), "{refused:?}");
}

#[test]
fn a_kubeconfig_is_its_owners_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, "old").unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    write_kubeconfig(&path, "new").unwrap();
    assert_eq!((mode(&path), std::fs::read_to_string(&path).unwrap().as_str()), (0o600, "new"));
}
