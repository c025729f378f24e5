//! Traces in real time: simulated engines that serve HTTP, and clients that send the requests of a trace to a gateway.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use ::engine::{Config, RequestMemory, Timing};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::{
    engine::{KV_BLOCKS, TOKEN, WEIGHTS},
    kv_cache::BLOCK_TOKENS,
    statistics::percentile,
    trace::Trace,
};

/// Context of the engines, longer than the longest prompt.
const MAX_MODEL_LEN: usize = 131_072;

/// Maximum time of a request.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Event of a streamed completion.
const EVENT: &[u8] = b"\ndata: ";

/// Results of a replay by name.
pub(crate) type Results = BTreeMap<&'static str, f64>;

/// Serves `count` engines with the speed and memory of the simulated ones on `port` of 127.1.0.1, 127.1.0.2, …, until the process is
/// terminated.
pub(crate) async fn serve_engines(port: u16, count: u8) -> std::io::Result<()> {
    let memory = RequestMemory::default();
    let mut engines = JoinSet::new();
    for number in 1..=count {
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 1, 0, number)), port);
        let listener = TcpListener::bind(address).await?;
        engines.spawn(::engine::serve(listener, config(), memory.clone(), CancellationToken::new()));
    }
    while let Some(result) = engines.join_next().await {
        result??;
    }
    Ok(())
}

fn config() -> Config {
    let timing = Timing {
        prefill_tokens_per_second: 1.0 / TOKEN,
        decode_step: Duration::from_secs_f64(WEIGHTS),
        ..Timing::default()
    };
    Config {
        timing,
        block_size: BLOCK_TOKENS,
        num_gpu_blocks: KV_BLOCKS,
        max_model_len: MAX_MODEL_LEN,
        ..Config::new("base")
    }
}

/// Sends the requests of `trace` that are due within `duration` to the gateway at `address`, each on a connection of its own.
pub(crate) async fn replay(address: SocketAddr, trace: Trace, duration: Duration) -> Results {
    let (trace, start) = (Arc::new(trace), Instant::now());
    let mut clients = JoinSet::new();
    for (time, request) in trace.arrivals.clone() {
        let trace = Arc::clone(&trace);
        clients.spawn(async move {
            sleep_until(start + time).await;
            run_client(address, &trace, request, start + duration).await
        });
    }
    let (mut seconds, mut failures) = (Vec::new(), 0.0);
    while let Some(result) = clients.join_next().await {
        for time in result.unwrap_or_default() {
            match time {
                Some(time) => seconds.push(time),
                None => failures += 1.0,
            }
        }
    }
    let milliseconds = |seconds: &mut Vec<f64>, fraction| percentile(seconds, fraction) * 1000.0;
    BTreeMap::from([
        ("requests", seconds.len() as f64),
        ("failures", failures),
        ("p50_ms", milliseconds(&mut seconds, 0.5)),
        ("p99_ms", milliseconds(&mut seconds, 0.99)),
    ])
}

/// Sends a request and those that follow it before `end`. Returns their times to first token in seconds, `None` for failures.
async fn run_client(address: SocketAddr, trace: &Trace, first: usize, end: Instant) -> Vec<Option<f64>> {
    let (mut times, mut next) = (Vec::new(), Some(first));
    while let Some(request) = next.and_then(|position| trace.requests.get(position)) {
        let time = timeout(TIMEOUT, time_to_first_token(address, &request.body)).await;
        times.push(time.ok().and_then(Result::ok).flatten());
        let Some((following, pause)) = request.next.filter(|(_, pause)| Instant::now() + *pause < end) else { break };
        sleep(pause).await;
        next = Some(following);
    }
    times
}

/// Sends a request and reads the whole response. Returns `None` if it is no event stream.
async fn time_to_first_token(address: SocketAddr, body: &str) -> std::io::Result<Option<f64>> {
    let start = Instant::now();
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let length = body.len();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await?;
    let (mut response, mut first_token) = (Vec::new(), None);
    while stream.read_buf(&mut response).await? > 0 {
        if first_token.is_none() && response.windows(EVENT.len()).any(|bytes| bytes == EVENT) {
            first_token = Some(start.elapsed().as_secs_f64());
        }
    }
    Ok(first_token.filter(|_| response.starts_with(b"HTTP/1.1 200")))
}
