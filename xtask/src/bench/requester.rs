//! Benchmark of `ostler requester`: time until it answers, and memory.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::directories::{output_directory, target_directory};
use super::measured_process::{MeasuredProcess, resident_mib};
use super::options::Options;
use super::results::{median, print_result};

const STARTS: usize = 20;
const DEADLINE: Duration = Duration::from_secs(10);
/// Requests before the memory is measured.
const REQUESTS: usize = 100;
const ACCELERATORS: &str = "/v1/dual-pods/accelerators";
/// Targets, printed with the results.
const TARGET_ANSWER_MS: f64 = 30.0;
const TARGET_RESIDENT_MIB: f64 = 8.0;

pub(super) fn run(options: &Options) -> Result<()> {
    let binary = target_directory().join("release/ostler");
    let starts = options.size.choose(STARTS, 3);
    let mut samples = Vec::with_capacity(starts);
    let mut resident = 0.0_f64;
    for _ in 0..starts {
        let (answer_ms, mib) = measure(&binary)?;
        samples.push(answer_ms);
        resident = resident.max(mib);
    }
    let worst = samples.iter().copied().fold(f64::NAN, f64::max);
    print_result("requester answers, median", median(samples), "ms", TARGET_ANSWER_MS);
    print_result("requester answers, worst", worst, "ms", TARGET_ANSWER_MS);
    print_result("requester, resident memory", resident, "MiB", TARGET_RESIDENT_MIB);
    Ok(())
}

/// Returns the milliseconds from the start of a requester to its first answer, and its resident memory after some requests.
fn measure(binary: &Path) -> Result<(f64, f64)> {
    let [probes, spi] = [unused_port()?, unused_port()?];
    let mut command = Command::new(binary);
    command.args(["requester", "--address", "127.0.0.1", "--mock-gpus", "GPU-1,GPU-2"]);
    // Nobody releases the requester.
    command.args(["--hold", "false", "--probes-port", &probes.to_string(), "--spi-port", &spi.to_string()]);
    let start = Instant::now();
    let mut requester = MeasuredProcess::start(&mut command, &output_directory("requester")?.join("requester.log"))?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, spi));
    while get(address, ACCELERATORS).is_err() {
        if start.elapsed() > DEADLINE {
            bail!("ostler requester does not answer");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let answer_ms = start.elapsed().as_secs_f64() * 1e3;
    for _ in 0..REQUESTS {
        get(address, ACCELERATORS)?;
    }
    let mib = resident_mib(requester.pid())?;
    requester.stop()?;
    Ok((answer_ms, mib))
}

fn unused_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Sends a request, and checks the status of the response.
fn get(address: SocketAddr, path: &str) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    let status = response.split(' ').nth(1).context("no response")?;
    if status != "200" {
        bail!("{path}: status {status}");
    }
    Ok(())
}
