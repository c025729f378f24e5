//! Clients in a closed loop: each sends its next request as soon as it has received the response.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;

use crate::{result::Result, workload::Workload};

/// Number of clients, each with one connection.
const CLIENTS: u64 = 64;

/// Maximum time of a response.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Sends requests for `duration`. Returns the number of responses and the latencies.
pub(crate) fn send(address: SocketAddr, body_bytes: usize, duration: Duration) -> Result<Vec<(&'static str, f64)>> {
    let workload = Workload::new(body_bytes);
    let end = Instant::now() + duration;
    let mut latencies = Vec::new();
    thread::scope(|scope| -> Result<()> {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let workload = &workload;
                scope.spawn(move || run_client(address, workload, Rng::with_seed(client), end))
            })
            .collect();
        for client in clients {
            latencies.extend(client.join().map_err(|_| "a client panicked")??);
        }
        Ok(())
    })?;
    latencies.sort_by(f64::total_cmp);
    let percentile = |percent: usize| latencies.get(latencies.len() * percent / 100).copied().unwrap_or(f64::NAN);
    Ok(vec![("requests", latencies.len() as f64), ("p50_ms", percentile(50)), ("p99_ms", percentile(99))])
}

/// Returns the latencies in milliseconds.
fn run_client(address: SocketAddr, workload: &Workload, mut rng: Rng, end: Instant) -> Result<Vec<f64>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    let (mut latencies, mut response) = (Vec::new(), Vec::new());
    while Instant::now() < end {
        let body = workload.body(&mut rng);
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nauthorization: Bearer key\r\nuser-agent: gateway-load\r\naccept: */*\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let request = [head.as_bytes(), &body].concat();
        let start = Instant::now();
        stream.write_all(&request)?;
        receive(&mut stream, &mut response)?;
        latencies.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(latencies)
}

/// Receives a response into `buffer`.
fn receive(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<()> {
    buffer.clear();
    let mut chunk = [0; 4096];
    loop {
        let length = stream.read(&mut chunk)?;
        if length == 0 {
            return Err("the gateway closed the connection".into());
        }
        buffer.extend_from_slice(&chunk[..length]);
        let Some(head_end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&buffer[..head_end]).to_ascii_lowercase();
        if !head.starts_with("http/1.1 200") {
            return Err(String::from_utf8_lossy(buffer).into_owned().into());
        }
        let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
        let is_complete = match header("content-length: ") {
            Some(length) => buffer.len() >= head_end + 4 + length.parse::<usize>()?,
            None => buffer.ends_with(b"0\r\n\r\n"),
        };
        if is_complete {
            return Ok(());
        }
    }
}
