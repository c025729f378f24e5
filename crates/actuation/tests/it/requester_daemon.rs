//! The requester over sockets.

use std::net::SocketAddr;
use std::time::Duration;

use actuation::{RequesterDaemon, RequesterOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A requester that runs.
struct Running {
    probes: SocketAddr,
    spi: SocketAddr,
    others: Vec<SocketAddr>,
    terminate: CancellationToken,
    task: JoinHandle<std::io::Result<()>>,
}

impl Running {
    async fn start(edit: impl FnOnce(&mut RequesterOptions)) -> Running {
        let mut options = RequesterOptions {
            address: [127, 0, 0, 1].into(),
            probes_port: 0,
            spi_port: 0,
            metrics_port: Some(0),
            debug_port: Some(0),
            mock_accelerators: Some(vec!["GPU-a".to_owned(), "GPU-b".to_owned()]),
            hold: true,
            grace_period: Duration::from_secs(3600),
        };
        edit(&mut options);
        let daemon = RequesterDaemon::bind(options).await.unwrap();
        let [probes, spi, others @ ..] =
            daemon.addresses().unwrap().try_into().map(|all: [SocketAddr; 4]| all).unwrap();
        let terminate = CancellationToken::new();
        let task = tokio::spawn(daemon.run(terminate.clone()));
        Running { probes, spi, others: others.to_vec(), terminate, task }
    }
}

/// Returns the status code and the body of a response.
async fn request(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: r\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    stream.write_all(format!("{head}Content-Type: text/plain\r\n\r\n{body}").as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn status(address: SocketAddr, method: &str, path: &str) -> u16 {
    request(address, method, path, "").await.0
}

// spec: DP-105
#[tokio::test]
async fn accelerators_are_reported() {
    let requester = Running::start(|_| {}).await;
    let accelerators = request(requester.spi, "GET", "/v1/dual-pods/accelerators", "").await;
    assert_eq!(accelerators, (200, r#"["GPU-a","GPU-b"]"#.to_owned()));
    let (code, state) = request(requester.others[1], "GET", "/debug/state", "").await;
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    assert_eq!((code, &state["accelerators"][1], &state["held"]), (200, &"GPU-b".into(), &true.into()));
    let (_, metrics) = request(requester.others[0], "GET", "/metrics", "").await;
    assert!(
        metrics.contains("\nostler_requester_ready 0\n") && metrics.contains("\nostler_requester_accelerators 2\n")
    );
}

// spec: DP-33, DP-62
#[tokio::test]
async fn readiness_follows_the_controller() {
    let requester = Running::start(|_| {}).await;
    assert_eq!(status(requester.probes, "GET", "/ready").await, 503);
    for (path, expected) in [("/v1/become-ready", 200), ("/v1/become-ready", 200), ("/v1/become-unready", 503)] {
        assert_eq!(status(requester.spi, "POST", path).await, 200);
        assert_eq!(status(requester.probes, "GET", "/ready").await, expected);
    }
    assert_eq!(status(requester.spi, "GET", "/v1/become-ready").await, 405);
    assert_eq!(status(requester.spi, "GET", "/ready").await, 404, "the probe has a port of its own");
}

// spec: DP-65
#[tokio::test]
async fn accelerators_are_held_until_the_engine_sleeps() {
    let requester = Running::start(|_| {}).await;
    status(requester.spi, "GET", "/v1/dual-pods/accelerators").await;
    requester.terminate.cancel();
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    assert_eq!(status(requester.spi, "POST", "/v1/become-unready").await, 200, "it serves after the signal");
    assert!(!requester.task.is_finished());
    assert_eq!(status(requester.spi, "POST", "/v1/dual-pods/release").await, 200);
    requester.task.await.unwrap().unwrap();
}

/// Cases in which no controller releases the requester.
#[tokio::test]
async fn requester_that_holds_nothing_ends_at_once() {
    let not_asked = Running::start(|_| {}).await;
    let without_hold = Running::start(|options| options.hold = false).await;
    status(without_hold.spi, "GET", "/v1/dual-pods/accelerators").await;
    let grace_is_over = Running::start(|options| options.grace_period = Duration::from_secs(1)).await;
    status(grace_is_over.spi, "GET", "/v1/dual-pods/accelerators").await;
    for requester in [not_asked, without_hold, grace_is_over] {
        requester.terminate.cancel();
        requester.task.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn log_of_the_engine_is_copied_once() {
    let requester = Running::start(|_| {}).await;
    for (path, body, expected) in [
        ("/v1/set-log?startPos=0", "line\n", 200),
        ("/v1/set-log?startPos=0", "line\n", 200),
        ("/v1/set-log?startPos=9", "gap", 400),
        ("/v1/set-log", "", 400),
        ("/v1/set-log?startPos=-1", "", 400),
    ] {
        assert_eq!(request(requester.spi, "POST", path, body).await.0, expected, "{path}");
    }
}
