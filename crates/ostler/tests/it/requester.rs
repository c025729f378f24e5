//! `ostler requester` as a process, with the ports of a Pod.

use std::net::{Ipv4Addr, TcpStream};
use std::process::{Child, Stdio};

use rstest::rstest;

use crate::session::{ostler, send, wait_until};

/// Memory limit of the documented requester: 250Mi.
const MEMORY_LIMIT_KIB: u64 = 250 << 10;
/// CPU limit of the documented requester, in clock ticks per second: 200m.
const CPU_LIMIT_TICKS: u64 = 20;

/// A requester that listens on a loopback address of its own, so that its ports are free.
struct Requester {
    process: Child,
    address: Ipv4Addr,
}

impl Requester {
    fn start(number: u8, args: &[&str], variables: &[(&str, &str)]) -> Requester {
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, 100 + number, high, low);
        let flag = format!("--address={address}");
        let mut command = ostler(&["requester", "--mock-gpus=GPU-a", &flag]);
        let process = command.args(args).envs(variables.iter().copied()).stderr(Stdio::null()).spawn().unwrap();
        Requester { process, address }
    }

    /// Waits until a port is served, and returns the status code of a request.
    fn get(&self, port: u16, path: &str) -> u16 {
        let address = format!("{}:{port}", self.address);
        wait_until("a connection", || TcpStream::connect(&address).ok());
        let response = send(&address, &format!("GET {path} HTTP/1.0\r\n\r\n"));
        response.split(' ').nth(1).unwrap().parse().unwrap()
    }

    fn proc_file(&self, name: &str) -> String {
        std::fs::read_to_string(format!("/proc/{}/{name}", self.process.id())).unwrap()
    }

    /// Returns the most memory that it has used.
    fn memory_kib(&self) -> u64 {
        let status = self.proc_file("status");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().strip_suffix(" kB").unwrap().parse().unwrap()
    }

    /// Returns the CPU time that it has used.
    fn cpu_ticks(&self) -> u64 {
        let stat = self.proc_file("stat");
        // User and system time are the fields 14 and 15; the third one follows the name in parentheses.
        let fields = stat.rsplit(')').next().unwrap().split_whitespace().skip(11).take(2);
        fields.map(|field| field.parse::<u64>().unwrap()).sum()
    }
}

impl Drop for Requester {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

// spec: DP-32
#[rstest]
#[case::flags(
    1,
    &["--probes-port=8081", "--spi-port=8082", "--metrics-port=8083", "--debug-port=8084"],
    &[],
    &[(8081, "/ready", 503), (8082, "/v1/dual-pods/accelerators", 200), (8083, "/metrics", 200), (8084, "/debug/state", 200),
        (8081, "/metrics", 404), (8082, "/ready", 404)],
)]
#[case::variables(
    2,
    &[],
    &[("PROBES_PORT", "9081"), ("SPI_PORT", "9082")],
    &[(9081, "/ready", 503), (9082, "/v1/dual-pods/accelerators", 200)],
)]
fn each_interface_has_its_port(
    #[case] number: u8,
    #[case] args: &[&str],
    #[case] variables: &[(&str, &str)],
    #[case] expected: &[(u16, &str, u16)],
) {
    let requester = Requester::start(number, args, variables);
    for (port, path, status) in expected {
        assert_eq!(requester.get(*port, path), *status, "{port}{path}");
    }
}

/// The probe of the documented requester is sent at most once a second.
// spec: DP-41
#[test]
fn requester_needs_no_more_than_its_limits() {
    const SECONDS: u64 = 20;
    let requester = Requester::start(3, &["--probes-port=8081", "--spi-port=8082"], &[]);
    for _ in 0..SECONDS {
        requester.get(8081, "/ready");
        requester.get(8082, "/v1/dual-pods/accelerators");
    }
    let (memory_kib, cpu_ticks) = (requester.memory_kib(), requester.cpu_ticks());
    assert!(memory_kib < MEMORY_LIMIT_KIB, "{memory_kib} KiB");
    assert!(cpu_ticks < SECONDS * CPU_LIMIT_TICKS, "{cpu_ticks} ticks");
}
