//! API servers under test: the embedded one, and a kube-apiserver with etcd from a directory of binaries.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::directories::{example, output_directory};
use super::measured_process::{MeasuredProcess, cpu_seconds, peak_mib, resident_mib};
use super::results::parse_results;

/// Ports of the kube-apiserver, and of etcd for clients and peers.
const PORTS: [u16; 3] = [26_790, 26_791, 26_792];

/// An API server and its processes, terminated in order when dropped.
pub(super) struct Server {
    pub(super) name: &'static str,
    pub(super) kubeconfig: PathBuf,
    pub(super) start_ms: f64,
    processes: Vec<MeasuredProcess>,
}

// === impl Server ===

impl Server {
    /// Starts the embedded API server without other components.
    pub(super) fn embedded() -> Result<Self> {
        let directory = output_directory("load")?;
        let kubeconfig = directory.join("kubeconfig");
        std::fs::remove_file(&kubeconfig).ok();
        let start = Instant::now();
        let mut command = Command::new(example("serve"));
        command.arg("127.0.0.1:0").arg(&kubeconfig).arg("--bare");
        let server = MeasuredProcess::start(&mut command, &directory.join("serve.log"))?;
        while !kubeconfig.exists() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        check_ready(&kubeconfig)?;
        let start_ms = start.elapsed().as_secs_f64() * 1000.0;
        Ok(Self { name: "embedded", kubeconfig, start_ms, processes: vec![server] })
    }

    /// Starts etcd, without fsync because durability is not measured, and a kube-apiserver.
    pub(super) fn real(binaries: &Path) -> Result<Self> {
        let directory = output_directory("real")?;
        std::fs::remove_dir_all(directory.join("etcd")).ok();
        let kubeconfig = write_credentials(&directory)?;
        let [api, client, peer] = PORTS;
        let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let start = Instant::now();
        let mut etcd = Command::new(binaries.join("etcd"));
        etcd.args(["--name", "bench", "--unsafe-no-fsync", "--log-level", "warn", "--data-dir"])
            .arg(directory.join("etcd"));
        etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        etcd.args(["--initial-cluster", &format!("bench={peer}")]);
        let etcd = MeasuredProcess::start(&mut etcd, &directory.join("etcd.log"))?;
        let mut server = Command::new(binaries.join("kube-apiserver"));
        server.args(["--etcd-servers", &client, "--bind-address", "127.0.0.1", "--secure-port", &api.to_string()]);
        server.args(["--endpoint-reconciler-type", "none", "--service-cluster-ip-range", "10.96.0.0/16"]);
        server.args(["--authorization-mode", "RBAC", "--service-account-issuer", "https://kubernetes.default.svc"]);
        for (flag, file) in [
            ("--cert-dir", "certificates"),
            ("--token-auth-file", "tokens.csv"),
            ("--service-account-key-file", "accounts.key"),
            ("--service-account-signing-key-file", "accounts.key"),
        ] {
            server.arg(flag).arg(directory.join(file));
        }
        let server = MeasuredProcess::start(&mut server, &directory.join("kube-apiserver.log"))?;
        check_ready(&kubeconfig)?;
        let start_ms = start.elapsed().as_secs_f64() * 1000.0;
        Ok(Self { name: "kube-apiserver + etcd", kubeconfig, start_ms, processes: vec![server, etcd] })
    }

    /// Returns the resident memory in MiB.
    pub(super) fn resident_mib(&self) -> Result<f64> {
        self.processes.iter().map(|process| resident_mib(process.pid())).sum()
    }

    /// Returns the user plus system CPU time in seconds.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        self.processes.iter().map(|process| cpu_seconds(process.pid())).sum()
    }

    /// Returns the peak resident memory in MiB.
    pub(super) fn peak_mib(&self) -> Result<f64> {
        self.processes.iter().map(|process| peak_mib(process.pid())).sum()
    }

    /// Runs one phase of the load generator; returns its results by name.
    pub(super) fn run_phase(&self, arguments: &[&str]) -> Result<Vec<(String, f64)>> {
        let output = load(&self.kubeconfig, arguments).output().context("failed to run the load generator")?;
        if !output.status.success() {
            bail!("{} {arguments:?}: {}", self.name, String::from_utf8_lossy(&output.stderr));
        }
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        Ok(parse_results(&output.stdout))
    }
}

fn load(kubeconfig: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(example("load"));
    command.arg(kubeconfig).args(arguments);
    command
}

fn check_ready(kubeconfig: &Path) -> Result<()> {
    let output = load(kubeconfig, &["ready"]).output()?;
    if !output.status.success() {
        bail!("{}: {}", kubeconfig.display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// Writes a token file, a service account key and a kubeconfig; the server generates its own certificate.
fn write_credentials(directory: &Path) -> Result<PathBuf> {
    let key = directory.join("accounts.key");
    let output = Command::new("openssl")
        .args(["genrsa", "-out"])
        .arg(&key)
        .arg("2048")
        .output()
        .context("failed to run openssl")?;
    if !output.status.success() {
        bail!("openssl genrsa: {}", String::from_utf8_lossy(&output.stderr));
    }
    let token = format!("{:x}{:x}", std::process::id(), nanoseconds_since_epoch());
    std::fs::write(directory.join("tokens.csv"), format!("{token},bench,bench,system:masters\n"))?;
    let kubeconfig = directory.join("kubeconfig");
    let port = PORTS[0];
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: real\nclusters:\n- name: real\n  cluster: {{server: \"https://127.0.0.1:{port}\", insecure-skip-tls-verify: true}}\nusers:\n- name: real\n  user: {{token: \"{token}\"}}\ncontexts:\n- name: real\n  context: {{cluster: real, user: real}}\n"
    );
    std::fs::write(&kubeconfig, text)?;
    Ok(kubeconfig)
}

fn nanoseconds_since_epoch() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos()
}
