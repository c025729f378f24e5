//! A raw HTTP/1.1 client: what is on the wire is what is compared.

use std::{net::SocketAddr, time::Duration};

use engine::{Config, Timing};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

/// What comes soon is waited for as long as this, however busy the machine is.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    stop: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// An engine like the recorded one: served name `tiny`, model `/models/base`.
pub(crate) fn tiny() -> Config {
    Config {
        served_names: vec!["tiny".to_owned()],
        max_model_len: 1024,
        keep_alive: Duration::from_secs(3600),
        timing: Timing::instant(),
        ..Config::new("/models/base")
    }
}

pub(crate) async fn start(config: Config) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(engine::serve(listener, config, stop.clone()));
    Running { address, stop }
}

/// Head and de-chunked body.
pub(crate) struct Answer {
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn status(&self) -> &str {
        self.head.lines().next().unwrap().split_once(' ').unwrap().1
    }
}

pub(crate) async fn call(address: SocketAddr, method: &str, path: &str, body: &str) -> Answer {
    let mut stream = send(address, method, path, body).await;
    let mut text = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut text)).await.expect("the answer does not end").unwrap();
    let text = String::from_utf8(text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let body = if head.contains("transfer-encoding: chunked") { dechunk(body) } else { body.to_owned() };
    Answer { head: head.replace("connection: close\r\n", "").replace("\r\nconnection: close", ""), body }
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

fn dechunk(mut body: &str) -> String {
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
