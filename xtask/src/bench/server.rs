//! Servers to put load on: our embedded one, and etcd with a kube-apiserver from a folder of binaries.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::process::{Running, cpu_seconds, peak_mib, resident_mib};
use super::{folder, target};

/// Ports of the kube-apiserver, and of etcd for clients and peers.
const PORTS: [u16; 3] = [26_790, 26_791, 26_792];

/// A server and what it consists of; ended when dropped, the first process first.
pub(super) struct Server {
    pub(super) name: &'static str,
    pub(super) kubeconfig: PathBuf,
    pub(super) start_ms: f64,
    processes: Vec<Running>,
}

// === impl Server ===

impl Server {
    /// The embedded API server by itself.
    pub(super) fn embedded() -> Result<Self> {
        let folder = folder("load")?;
        let kubeconfig = folder.join("kubeconfig");
        std::fs::remove_file(&kubeconfig).ok();
        let began = Instant::now();
        let mut command = Command::new(target().join("release/examples/serve"));
        command.arg("127.0.0.1:0").arg(&kubeconfig).arg("--bare");
        let server = Running::start(&mut command, &folder.join("serve.log"))?;
        while !kubeconfig.exists() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        ready(&kubeconfig)?;
        let start_ms = began.elapsed().as_secs_f64() * 1000.0;
        Ok(Self { name: "embedded", kubeconfig, start_ms, processes: vec![server] })
    }

    /// etcd, without fsync as nothing here is to last, and a kube-apiserver with it.
    pub(super) fn real(binaries: &Path) -> Result<Self> {
        let folder = folder("real")?;
        std::fs::remove_dir_all(folder.join("etcd")).ok();
        let kubeconfig = credentials(&folder)?;
        let [api, client, peer] = PORTS;
        let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let began = Instant::now();
        let mut etcd = Command::new(binaries.join("etcd"));
        etcd.args(["--name", "bench", "--unsafe-no-fsync", "--log-level", "warn", "--data-dir"])
            .arg(folder.join("etcd"));
        etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        etcd.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        etcd.args(["--initial-cluster", &format!("bench={peer}")]);
        let etcd = Running::start(&mut etcd, &folder.join("etcd.log"))?;
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
            server.arg(flag).arg(folder.join(file));
        }
        let server = Running::start(&mut server, &folder.join("kube-apiserver.log"))?;
        ready(&kubeconfig)?;
        let start_ms = began.elapsed().as_secs_f64() * 1000.0;
        Ok(Self { name: "kube-apiserver + etcd", kubeconfig, start_ms, processes: vec![server, etcd] })
    }

    pub(super) fn resident_mib(&self) -> Result<f64> {
        self.processes.iter().map(|process| resident_mib(process.pid())).sum()
    }

    /// User plus system time so far.
    pub(super) fn cpu_seconds(&self) -> Result<f64> {
        self.processes.iter().map(|process| cpu_seconds(process.pid())).sum()
    }

    pub(super) fn peak_mib(&self) -> Result<f64> {
        self.processes.iter().map(|process| peak_mib(process.pid())).sum()
    }

    /// One phase of the generator; its figures by name.
    pub(super) fn phase(&self, arguments: &[&str]) -> Result<Vec<(String, f64)>> {
        let output = load(&self.kubeconfig, arguments).output().context("the load generator")?;
        if !output.status.success() {
            bail!("{} {arguments:?}: {}", self.name, String::from_utf8_lossy(&output.stderr));
        }
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        Ok(figures(&output.stdout))
    }
}

/// `name value` lines.
pub(super) fn figures(output: &[u8]) -> Vec<(String, f64)> {
    let text = String::from_utf8_lossy(output).into_owned();
    let pair = |line: &str| Some((line.split_once(' ')?.0.to_owned(), line.split_once(' ')?.1.parse().ok()?));
    text.lines().filter_map(pair).collect()
}

fn load(kubeconfig: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(target().join("release/examples/load"));
    command.arg(kubeconfig).args(arguments);
    command
}

fn ready(kubeconfig: &Path) -> Result<()> {
    let output = load(kubeconfig, &["ready"]).output()?;
    if !output.status.success() {
        bail!("{}: {}", kubeconfig.display(), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}

/// A token, a key for service accounts, and a kubeconfig; the server makes its own certificate.
fn credentials(folder: &Path) -> Result<PathBuf> {
    let key = folder.join("accounts.key");
    let made = Command::new("openssl").args(["genrsa", "-out"]).arg(&key).arg("2048").output().context("openssl")?;
    if !made.status.success() {
        bail!("openssl genrsa: {}", String::from_utf8_lossy(&made.stderr));
    }
    let token = format!("{:x}{:x}", std::process::id(), began());
    std::fs::write(folder.join("tokens.csv"), format!("{token},bench,bench,system:masters\n"))?;
    let kubeconfig = folder.join("kubeconfig");
    let port = PORTS[0];
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: real\nclusters:\n- name: real\n  cluster: {{server: \"https://127.0.0.1:{port}\", insecure-skip-tls-verify: true}}\nusers:\n- name: real\n  user: {{token: \"{token}\"}}\ncontexts:\n- name: real\n  context: {{cluster: real, user: real}}\n"
    );
    std::fs::write(&kubeconfig, text)?;
    Ok(kubeconfig)
}

fn began() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos()
}
