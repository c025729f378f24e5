//! Engines, a gateway, and a raw HTTP/1.1 client.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use cluster::NamespacedName;
use engine::{Config, Timing};
use picker::{Datastore, Endpoint, Pool, PromptTokenRange, TargetModel, UseCase};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
};
use tokio_util::sync::CancellationToken;

/// What comes soon is waited for as long as this, however busy the machine is: beyond it, it does not come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) struct Fleet {
    pub(crate) gateway: SocketAddr,
    pub(crate) engines: Vec<SocketAddr>,
    pub(crate) pools: Arc<Datastore>,
    stop: CancellationToken,
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub(crate) fn engine(names: &[&str]) -> Config {
    let served_names = names.iter().map(|name| (*name).to_owned()).collect();
    Config {
        served_model_names: served_names,
        timing: Timing::instant(),
        keep_alive: Duration::from_secs(3600),
        ..Config::new("/models/base")
    }
}

/// Looks again and again until `holds`.
pub(crate) async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let found = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, found).await.is_ok(), "waited in vain for {what}");
}

/// An address at which nobody listens, as long as the socket lives: no other test can have it meanwhile.
pub(crate) fn nobody() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

pub(crate) fn key() -> NamespacedName {
    NamespacedName { namespace: "ns".to_owned(), name: "pool".to_owned() }
}

/// A gateway before engines that a test plays: those of `listeners`.
pub(crate) async fn before(listeners: &[TcpListener]) -> Fleet {
    let mut fleet = start(Vec::new(), &[]).await;
    fleet.engines = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
    fleet.pools.replace(vec![pool(&fleet.pools, &fleet.engines, &[])]);
    fleet
}

/// A gateway whose one pool `ns/pool` holds `engines` and the use case `chat` with `targets`.
pub(crate) async fn start(engines: Vec<Config>, targets: &[(&str, u32)]) -> Fleet {
    let stop = CancellationToken::new();
    let mut addresses = Vec::new();
    for config in engines {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        addresses.push(listener.local_addr().unwrap());
        tokio::spawn(engine::serve(listener, config, stop.clone()));
    }
    let pools = Arc::new(Datastore::new(1));
    pools.replace(vec![pool(&pools, &addresses, targets)]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = listener.local_addr().unwrap();
    tokio::spawn(picker::serve_gateway(listener, Arc::clone(&pools), stop.clone()));
    Fleet { gateway, engines: addresses, pools, stop }
}

pub(crate) fn pool(pools: &Datastore, addresses: &[SocketAddr], targets: &[(&str, u32)]) -> Pool {
    let endpoint = |address: &SocketAddr| Endpoint {
        address: *address,
        pod: format!("pod-{}", address.port()),
        prompt_tokens: PromptTokenRange::default(),
        load: pools.load(*address),
    };
    let targets =
        targets.iter().map(|(model, weight)| TargetModel { model: (*model).to_owned(), weight: *weight }).collect();
    let use_case =
        UseCase { targets, creation_timestamp: "2026-01-01T00:00:00Z".to_owned(), ..UseCase::implicit("chat") };
    Pool {
        key: key(),
        ready_endpoints: addresses.iter().map(endpoint).collect(),
        endpoint_count: addresses.len(),
        use_cases: [("chat".to_owned(), use_case)].into(),
        allows_implicit_use_cases: false,
        creation_timestamp: String::new(),
    }
}

pub(crate) struct Answer {
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

pub(crate) async fn post(address: SocketAddr, path: &str, body: &str) -> Answer {
    receive(send(address, "POST", path, body).await).await
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Answer {
    receive(send(address, "GET", path, "").await).await
}

pub(crate) async fn send(address: SocketAddr, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(body.as_bytes()).await.unwrap();
    stream
}

pub(crate) async fn receive(mut stream: TcpStream) -> Answer {
    let mut text = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut text)).await.expect("the answer does not end").unwrap();
    let text = String::from_utf8(text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let body = if head.contains("transfer-encoding: chunked") { dechunk(body) } else { body.to_owned() };
    Answer { head: head.to_owned(), body }
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

pub(crate) async fn metric(engine: SocketAddr, series: &str) -> f64 {
    let page = get(engine, "/metrics").await.body;
    let line = page.lines().find(|line| line.starts_with(series)).unwrap();
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}
