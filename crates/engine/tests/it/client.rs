//! A raw HTTP/1.1 client, so that tests compare the bytes on the wire.

use std::{net::SocketAddr, time::Duration};

use engine::{Config, RequestMemory, Timing};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

/// Timeout for a response; generous because the host may be busy.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(300);

/// An engine that stops when dropped.
pub(crate) struct RunningEngine {
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
}

/// Head and decoded body of a response.
pub(crate) struct Response {
    pub(crate) head: String,
    pub(crate) body: String,
}

// === impl RunningEngine ===

impl RunningEngine {
    /// Sends SIGTERM.
    pub(crate) fn stop(&self) {
        self.stop.cancel();
    }
}

impl Drop for RunningEngine {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

// === impl Response ===

impl Response {
    pub(crate) fn status(&self) -> &str {
        self.head.lines().next().unwrap().split_once(' ').unwrap().1
    }
}

/// Returns the configuration of the recorded engine: served name `tiny`, model `/models/base`.
pub(crate) fn recorded_config() -> Config {
    Config {
        served_model_names: vec!["tiny".to_owned()],
        max_model_len: 1024,
        keep_alive: Duration::from_secs(3600),
        timing: Timing::instant(),
        ..Config::new("/models/base")
    }
}

pub(crate) async fn start(config: Config) -> RunningEngine {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(engine::serve(listener, config, RequestMemory::default(), stop.clone()));
    RunningEngine { address, stop }
}

pub(crate) async fn call(address: SocketAddr, method: &str, path: &str, body: &str) -> Response {
    let mut stream = send(address, method, path, body).await;
    let mut text = Vec::new();
    tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut text)).await.expect("the response is incomplete").unwrap();
    let text = String::from_utf8(text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let body = if head.contains("transfer-encoding: chunked") { decode_chunked(body) } else { body.to_owned() };
    Response { head: head.replace("connection: close\r\n", "").replace("\r\nconnection: close", ""), body }
}

pub(crate) async fn send(address: SocketAddr, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

fn decode_chunked(mut body: &str) -> String {
    let mut text = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        text.push_str(&rest[..size]);
        body = rest.get(size + 2..).unwrap_or("");
        if size == 0 {
            break;
        }
    }
    text
}
