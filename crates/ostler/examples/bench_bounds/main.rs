//! Measures deletions of many objects, the memory of the watch history, and how long CPU-heavy requests delay the gateway and
//! other tasks of the runtime, in memory and with a data directory.
//!
//! `cargo run --release -p ostler --example bench_bounds [--small] [FILTER]`. `--small` divides the sizes by ten and measures
//! one round. Each round compares the gateway with itself without load, immediately before, and the results are medians of the
//! rounds, because the CPUs of a virtual machine vary. The data directory is created beside the program, since the directory of
//! temporary files may not be on a disk.

mod host_cpu;
mod probe;
mod result;
mod servers;
mod workloads;

use std::fmt::{Display, Formatter};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use embedded::ports::ServerPorts;
use embedded::{DEFAULT_HISTORY_SIZE, DataDirectory, DirectoryLock, Server, Store, StoreSettings};
use mimalloc::MiMalloc;
use tokio::runtime::Runtime;

use host_cpu::HostCpu;
use probe::{Latencies, LatencyProbe};
use result::{Result, print};
use servers::ProbedServers;
use workloads::{WORKLOADS, Workload};

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Async workers of the runtime, as on a host with two CPUs.
const WORKERS: usize = 2;
/// Interval between two round trips of the probe of the runtime.
const TASK_INTERVAL: Duration = Duration::from_millis(1);
/// Interval between two requests to the gateway.
const GATEWAY_INTERVAL: Duration = Duration::from_millis(2);
/// Time without load before each round.
const IDLE_TIME: Duration = Duration::from_secs(2);

/// Where a server stores its objects.
#[derive(Clone, Copy)]
enum Storage {
    Memory,
    /// A journal that is synced to the disk, as with `ostler up --data-dir`.
    Directory,
}

/// A directory that is removed on drop.
struct TemporaryDirectory(PathBuf);

/// The runtime that is measured, and what its workloads are divided by.
struct Bench {
    runtime: Runtime,
    servers: ProbedServers,
    divisor: usize,
}

/// Results of a workload.
struct Round {
    seconds: f64,
    task: Latencies,
    gateway: Latencies,
    /// Ratio of the gateway's 99th percentile to the one without load.
    ratio: f64,
    /// Share of the CPU time that the hypervisor gave to other machines, in percent.
    steal: f64,
}

fn main() -> Result {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_small = arguments.iter().any(|argument| argument == "--small");
    let (divisor, rounds) = if is_small { (10, 1) } else { (1, 3) };
    let filter = arguments.iter().find(|argument| !argument.starts_with("--")).map_or("", String::as_str);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build()?;
    let servers = runtime.block_on(ProbedServers::start())?;
    let bench = Bench { runtime, servers, divisor };
    print(
        "                                seconds   task: p50, p99, worst ms   gateway: p50, p99, worst ms (p99 / idle)   steal",
    )?;
    for storage in [Storage::Memory, Storage::Directory] {
        for workload in WORKLOADS {
            let name = format!("{storage}, {}", workload.name);
            if !name.contains(filter) {
                continue;
            }
            let rounds = (0..rounds).map(|_| bench.measure(workload, storage)).collect::<Result<Vec<Round>>>()?;
            print(&format!("{name:<30} {}", Round::median(&rounds)))?;
        }
    }
    Ok(())
}

// === impl Bench ===

impl Bench {
    /// Runs a workload on a new server.
    fn measure(&self, workload: &Workload, storage: Storage) -> Result<Round> {
        let directory = TemporaryDirectory::new()?;
        let server = storage.server(&directory)?;
        let size = workload.size / self.divisor;
        (workload.prepare)(&server, size)?;
        let host = HostCpu::read()?;
        let idle = self.probe_gateway()?;
        std::thread::sleep(IDLE_TIME);
        let idle = idle.finish()?;
        let tasks = LatencyProbe::start(TASK_INTERVAL, self.servers.echo_round_trip()?);
        let gateway = self.probe_gateway()?;
        let start = Instant::now();
        self.runtime.block_on((workload.run)(server.clone(), size))?;
        let seconds = start.elapsed().as_secs_f64();
        let (task, gateway) = (tasks.finish()?, gateway.finish()?);
        let steal = HostCpu::read()?.steal_since(&host);
        // Only now: thousands of deallocations delay allocations of other threads.
        drop(server);
        let ratio = gateway.p99.as_secs_f64() / idle.p99.as_secs_f64();
        Ok(Round { seconds, task, gateway, ratio, steal })
    }

    fn probe_gateway(&self) -> Result<LatencyProbe> {
        Ok(LatencyProbe::start(GATEWAY_INTERVAL, self.servers.gateway_round_trip()?))
    }
}

// === impl Round ===

impl Round {
    /// Returns the median of each value.
    fn median(rounds: &[Self]) -> Self {
        fn median<T: Copy + PartialOrd>(rounds: &[Round], value: impl Fn(&Round) -> T) -> T {
            let mut values: Vec<T> = rounds.iter().map(value).collect();
            values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
            values[values.len() / 2]
        }
        let latencies = |of: fn(&Round) -> Latencies| Latencies {
            p50: median(rounds, |round| of(round).p50),
            p99: median(rounds, |round| of(round).p99),
            worst: median(rounds, |round| of(round).worst),
        };
        Self {
            seconds: median(rounds, |round| round.seconds),
            task: latencies(|round| round.task),
            gateway: latencies(|round| round.gateway),
            ratio: median(rounds, |round| round.ratio),
            steal: median(rounds, |round| round.steal),
        }
    }
}

impl Display for Round {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { seconds, task, gateway, ratio, steal } = self;
        write!(formatter, "{seconds:>8.2}   {task}   {gateway} ({ratio:.1})   {steal:.1} %")
    }
}

// === impl Storage ===

impl Storage {
    fn server(self, directory: &TemporaryDirectory) -> Result<Server> {
        let store = match self {
            Storage::Memory => Store::new(DEFAULT_HISTORY_SIZE),
            Storage::Directory => {
                DataDirectory::new(DirectoryLock::acquire(&directory.0)?).open_store(StoreSettings::default())?
            }
        };
        Ok(Server::with_store(&ServerPorts::default(), store))
    }
}

impl Display for Storage {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Storage::Memory => "memory",
            Storage::Directory => "data-dir",
        })
    }
}

// === impl TemporaryDirectory ===

impl TemporaryDirectory {
    fn new() -> Result<Self> {
        let directory = std::env::current_exe()?.with_extension(format!("data.{}", std::process::id()));
        std::fs::create_dir(&directory)?;
        Ok(Self(directory))
    }
}

impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}
