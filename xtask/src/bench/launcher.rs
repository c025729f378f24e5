//! Benchmark of `ostler launcher`: time to create an instance while another one is being deleted, and memory.

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

/// Instances that are created while another one is being deleted.
const CREATIONS: usize = 100;
const DEADLINE: Duration = Duration::from_secs(30);
const INSTANCES: &str = "/v2/vllm/instances";
/// An engine that needs SIGKILL, which the launcher sends after a second.
const STUBBORN_ENGINE: &str =
    r#"{"command":["sh","-c","trap '' TERM; echo up; while :; do sleep 1; done"],"gpu_uuids":["GPU-1"]}"#;
const ENGINE: &str = r#"{"command":["sleep","9999"],"gpu_uuids":["GPU-2"]}"#;
/// Targets, printed with the results.
const TARGET_CREATE_MS: f64 = 10.0;
const TARGET_RESIDENT_MIB: f64 = 12.0;

pub(super) fn run(options: &Options) -> Result<()> {
    let creations = options.size.choose(CREATIONS, 5);
    let (mut samples, resident) = measure(&target_directory().join("release/ostler"), creations)?;
    samples.sort_by(f64::total_cmp);
    print_result("create during a deletion, median", median(samples.clone()), "ms", TARGET_CREATE_MS);
    print_result("create, worst", samples.last().copied().unwrap_or(f64::NAN), "ms", TARGET_CREATE_MS);
    print_result("launcher, resident memory", resident, "MiB", TARGET_RESIDENT_MIB);
    Ok(())
}

/// Returns the milliseconds of each creation, and the resident memory of the launcher afterwards.
fn measure(binary: &Path, creations: usize) -> Result<(Vec<f64>, f64)> {
    let directory = output_directory("launcher")?;
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let mut command = Command::new(binary);
    command.args(["launcher", "--address", "127.0.0.1", "--mock-gpus", "GPU-1,GPU-2", "--stop-timeout", "1"]);
    command.args(["--port", &port.to_string(), "--log-dir"]).arg(&directory);
    let mut launcher = MeasuredProcess::start(&mut command, &directory.join("launcher.log"))?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    wait_until(|| call(address, "GET", "/health", "").is_ok_and(|response| response.starts_with("HTTP/1.1 200")))?;
    let mut samples = Vec::with_capacity(creations);
    while samples.len() < creations {
        create_during_deletion(address, creations, &mut samples)?;
    }
    let mib = resident_mib(launcher.pid())?;
    launcher.stop()?;
    Ok((samples, mib))
}

/// Creates and deletes an instance repeatedly while another one ends.
fn create_during_deletion(address: SocketAddr, creations: usize, samples: &mut Vec<f64>) -> Result<()> {
    let (stubborn, other) = (format!("{INSTANCES}/stubborn"), format!("{INSTANCES}/other"));
    expect(address, "PUT", &stubborn, STUBBORN_ENGINE, "201")?;
    wait_until(|| call(address, "GET", &format!("{stubborn}/log"), "").is_ok_and(|log| log.ends_with("up\n")))?;
    std::thread::scope(|scope| {
        let deletion = scope.spawn(|| expect(address, "DELETE", &stubborn, "", "200"));
        while !deletion.is_finished() && samples.len() < creations {
            let start = Instant::now();
            expect(address, "PUT", &other, ENGINE, "201")?;
            samples.push(start.elapsed().as_secs_f64() * 1e3);
            expect(address, "DELETE", &other, "", "200")?;
        }
        deletion.join().map_err(|_| anyhow::anyhow!("the deletion panicked"))?
    })
}

fn wait_until(is_done: impl Fn() -> bool) -> Result<()> {
    let start = Instant::now();
    while !is_done() {
        if start.elapsed() > DEADLINE {
            bail!("ostler launcher does not answer");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Sends a request, and checks the status of the response.
fn expect(address: SocketAddr, method: &str, path: &str, body: &str, status: &str) -> Result<()> {
    let response = call(address, method, path, body)?;
    match response.split(' ').nth(1).context("no response")? == status {
        true => Ok(()),
        false => bail!("{method} {path}: {response}"),
    }
}

/// Sends a request, and returns the response.
fn call(address: SocketAddr, method: &str, path: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}
