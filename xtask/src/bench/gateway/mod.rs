//! CPU time per request, and times to first token, of the native gateway and the endpoint picker, beside other gateways in the
//! same run.

mod backends;
mod envoy;
mod haproxy;
mod latency;
mod ostler;
mod peer;
mod peers;
mod python_routers;
mod table;
mod upstream_picker;

use std::time::Duration;

use anyhow::Result;

use super::directories::output_directory;
use super::options::{Options, Size};
use crate::epp::Epp;
use backends::{Backends, EngineKind};
use peer::Peer;
use peers::Availability;
use table::{BODY_SIZES, Measurement, Row};

pub(super) use latency::run as run_latency;

/// Number of engines while the gateways are idle.
const IDLE_ENGINES: u8 = 100;

/// Time until connections are open and metrics of the engines are known.
const WARM_UP: Duration = Duration::from_secs(1);
/// Time until all engines are known and their scrape intervals are those of idle engines.
const IDLE_SETTLE_TIME: Duration = Duration::from_secs(6);

/// Measures each gateway with each size in turn, so that other load on the host affects them equally.
pub(super) fn run(options: &Options) -> Result<()> {
    let small = options.size == Size::Small;
    let directory = output_directory("gateway")?;
    let upstream = upstream_picker::find(small);
    let upstream = upstream.as_ref();
    let definitions = upstream.map(|epp| epp.definitions.clone());
    let backends = Backends::start(&directory, ostler::binary(small)?, definitions, EngineKind::Instant)?;
    let peers = peers::start_all(&backends, upstream, small)?;
    let mut rows: Vec<Row> = peers.iter().map(Row::new).collect();
    let duration = Duration::from_secs(options.size.choose(4, 1));
    let rounds = options.size.choose(2, 1);
    for (body_bytes, name) in BODY_SIZES {
        for (peer, row) in peers.iter().zip(&mut rows) {
            let Availability::Running(peer) = peer else { continue };
            backends.send_requests(peer.address, body_bytes, WARM_UP)?;
            for _ in 0..rounds {
                let measurement = measure(&backends, peer, body_bytes, duration)?;
                eprintln!("{:<28} {name:>7} {measurement}", peer.name);
                row.record(body_bytes, measurement);
            }
        }
    }
    for (peer, row) in peers.iter().zip(&mut rows) {
        if let Availability::Running(peer) = peer {
            row.peak_mib = Some(peer.peak_mib()?);
        }
    }
    drop(peers);
    measure_idle(&backends, upstream, &mut rows, Duration::from_secs(options.size.choose(15, 3)))?;
    print!("{}", table::markdown(&rows));
    Ok(())
}

fn measure(backends: &Backends, peer: &Peer, body_bytes: usize, duration: Duration) -> Result<Measurement> {
    let before = peer.cpu_seconds()?;
    let results = backends.send_requests(peer.address, body_bytes, duration)?;
    let cpu_seconds = peer.cpu_seconds()? - before;
    Ok(Measurement {
        cpu_ms: cpu_seconds * 1000.0 / results.requests,
        requests_per_second: results.requests / duration.as_secs_f64(),
        p50_ms: results.p50_ms,
        p99_ms: results.p99_ms,
    })
}

/// Measures processes that have not received a request: those that observe engines.
fn measure_idle(backends: &Backends, upstream: Option<&Epp>, rows: &mut [Row], duration: Duration) -> Result<()> {
    backends.create_pool(IDLE_ENGINES)?;
    let peers = peers::start_observers(backends, upstream)?;
    std::thread::sleep(IDLE_SETTLE_TIME);
    let before: Vec<f64> = peers.iter().map(Peer::cpu_seconds).collect::<Result<_>>()?;
    std::thread::sleep(duration);
    for (peer, before) in peers.iter().zip(before) {
        if let Some(row) = rows.iter_mut().find(|row| row.name == peer.name) {
            let percent = (peer.cpu_seconds()? - before) / duration.as_secs_f64() * 100.0;
            row.idle = Some((percent, peer.resident_mib()?));
        }
    }
    Ok(())
}
