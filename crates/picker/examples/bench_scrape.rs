//! Measures the CPU time of scraping 100 engines, idle and with a request in flight on each. The engines return metrics of the
//! size of vLLM's.
//!
//! `cargo run --release -p picker --example bench_scrape [--small]`. `--small` measures for a shorter time.

#[path = "gateway_load/metrics_page.rs"]
mod metrics_page;

use std::{collections::BTreeMap, io::Write as _, net::SocketAddr, sync::Arc, time::Duration};

use picker::{Endpoint, InFlight, Pool, PromptTokenRange, Scheduler, SchedulingPolicy};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use metrics_page::metrics_page;

const ENDPOINTS: u8 = 100;
/// Buckets of the metrics page, which then has 600 lines.
const METRIC_BUCKETS: u16 = 595;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let is_small = std::env::args().any(|argument| argument == "--small");
    let duration = Duration::from_secs(if is_small { 3 } else { 30 });
    let server = std::net::TcpListener::bind("0.0.0.0:0")?;
    server.set_nonblocking(true)?;
    let port = server.local_addr()?.port();
    // Only the thread of the scrapes is measured.
    std::thread::spawn(move || serve(server));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let [idle, busy] = runtime.block_on(measure(port, duration))?;
    let page = metrics_page("base", METRIC_BUCKETS).len();
    writeln!(
        std::io::stdout(),
        "scrape {ENDPOINTS} engines with {} KB of metrics: {idle:.1} % of a CPU while idle, {busy:.1} % with requests in flight",
        page / 1000
    )?;
    Ok(())
}

/// Returns the CPU time in percent while the endpoints are idle and while each has a request in flight.
async fn measure(port: u16, duration: Duration) -> Result<[f64; 2]> {
    let scheduler = Scheduler::new(SchedulingPolicy::default(), 1);
    // Every address of the loopback network reaches the same server.
    let endpoints: Vec<Arc<Endpoint>> =
        (1..=ENDPOINTS).map(|number| Arc::new(endpoint(&scheduler, ([127, 0, 0, number], port).into()))).collect();
    let key = cluster::NamespacedName::new("default", "pool");
    scheduler.replace(vec![Pool::new(key, scheduler.default_scheduling(), endpoints.clone())]);
    let mut percent = [0.0; 2];
    let mut in_flight: Vec<InFlight> = Vec::new();
    for percent in &mut percent {
        // Until the interval has changed on all endpoints.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let before = cpu_seconds()?;
        tokio::time::sleep(duration).await;
        *percent = 100.0 * (cpu_seconds()? - before) / duration.as_secs_f64();
        in_flight.extend(endpoints.iter().map(|endpoint| endpoint.state.begin(1)));
    }
    Ok(percent)
}

fn endpoint(scheduler: &Scheduler, address: SocketAddr) -> Endpoint {
    Endpoint {
        address,
        pod: address.to_string(),
        uid: String::new(),
        labels: BTreeMap::new(),
        prompt_tokens: PromptTokenRange::default(),
        state: scheduler.endpoint_state(address, ""),
    }
}

/// Returns the CPU time of this thread.
fn cpu_seconds() -> Result<f64> {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: u64 = statistics.split(' ').next().unwrap_or_default().parse()?;
    Ok(nanoseconds as f64 / 1e9)
}

fn serve(listener: std::net::TcpListener) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        let page = metrics_page("base", METRIC_BUCKETS);
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n", page.len());
        let response: Arc<str> = (head + &page).into();
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(respond(stream, Arc::clone(&response)));
        }
    })
}

/// Sends `response` for each request; a request arrives in one segment.
async fn respond(mut stream: TcpStream, response: Arc<str>) -> std::io::Result<()> {
    let mut buffer = [0; 4_096];
    while stream.read(&mut buffer).await? > 0 {
        stream.write_all(response.as_bytes()).await?;
    }
    Ok(())
}
