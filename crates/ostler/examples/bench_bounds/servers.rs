//! Servers in the measured runtime, and their clients.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Error, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use cluster::NamespacedName;
use picker::{Endpoint, Pool, PromptTokenRange, Scheduler, SchedulingPolicy, UseCase};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::sync::CancellationToken;

use crate::result::Result;

/// Addresses of servers in the runtime that probes use.
#[derive(Clone, Copy)]
pub(crate) struct ProbedServers {
    /// Returns each byte that it receives.
    echo: SocketAddr,
    /// The native gateway, in front of a simulated engine that responds without delay.
    gateway: SocketAddr,
}

// === impl ProbedServers ===

impl ProbedServers {
    pub(crate) async fn start() -> Result<Self> {
        let [echo, engine, gateway] = [bind().await?, bind().await?, bind().await?];
        let servers = Self { echo: echo.local_addr()?, gateway: gateway.local_addr()? };
        tokio::spawn(async move {
            while let Ok((mut connection, _)) = echo.accept().await {
                tokio::spawn(async move {
                    let mut byte = [0];
                    while connection.read_exact(&mut byte).await.is_ok() && connection.write_all(&byte).await.is_ok() {}
                });
            }
        });
        let scheduler = Arc::new(Scheduler::new(SchedulingPolicy::default(), 1));
        scheduler.replace(vec![pool(&scheduler, engine.local_addr()?)]);
        let config = engine::Config { timing: engine::Timing::instant(), ..engine::Config::new("chat") };
        tokio::spawn(engine::serve(engine, config, engine::RequestMemory::default(), CancellationToken::new()));
        tokio::spawn(picker::serve_gateway(
            gateway,
            scheduler,
            picker::GatewayOptions::default(),
            CancellationToken::new(),
        ));
        Ok(servers)
    }

    /// Returns a client that sends one byte and receives it.
    pub(crate) fn echo_round_trip(self) -> Result<impl FnMut() -> std::io::Result<()> + Send> {
        let mut connection = connect(self.echo)?;
        Ok(move || {
            connection.write_all(&[1])?;
            connection.read_exact(&mut [0])
        })
    }

    /// Returns a client that sends a chat completion and receives the response, over one connection.
    pub(crate) fn gateway_round_trip(self) -> Result<impl FnMut() -> std::io::Result<()> + Send> {
        let mut connection = BufReader::new(connect(self.gateway)?);
        let body =
            json!({"model": "chat", "max_tokens": 16, "messages": [{"role": "user", "content": "Hello"}]}).to_string();
        let length = body.len();
        let request = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        Ok(move || {
            connection.get_mut().write_all(request.as_bytes())?;
            read_response(&mut connection)
        })
    }
}

async fn bind() -> std::io::Result<tokio::net::TcpListener> {
    tokio::net::TcpListener::bind("127.0.0.1:0").await
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    let connection = TcpStream::connect(address)?;
    connection.set_nodelay(true)?;
    Ok(connection)
}

/// Returns a pool with one endpoint and the use case `chat`.
fn pool(scheduler: &Scheduler, address: SocketAddr) -> Pool {
    let endpoint = Endpoint {
        address,
        pod: "engine".to_owned(),
        prompt_tokens: PromptTokenRange::default(),
        uid: String::new(),
        labels: BTreeMap::new(),
        state: scheduler.endpoint_state(address, ""),
    };
    let key = NamespacedName::new("default", "pool");
    let mut pool = Pool::new(key, scheduler.default_scheduling(), vec![Arc::new(endpoint)]);
    pool.use_cases.insert("chat".to_owned(), UseCase::implicit("chat"));
    pool
}

/// Reads a response with a `content-length`.
fn read_response(connection: &mut BufReader<TcpStream>) -> std::io::Result<()> {
    let (mut head, mut length) = (String::new(), None);
    loop {
        let start = head.len();
        if connection.read_line(&mut head)? == 0 {
            return Err(Error::other("the gateway closed the connection"));
        }
        match head[start..].trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().ok(),
            None if head[start..].trim_end().is_empty() => break,
            _ => {}
        }
    }
    let length = length.filter(|_| head.starts_with("HTTP/1.1 200 "));
    let length: usize = length.ok_or_else(|| Error::other(format!("unexpected response: {head}")))?;
    connection.read_exact(&mut vec![0; length])
}
