//! A kube-apiserver of this test's own, with its store and the two controllers without which deleting never ends.
//!
//! The binaries `etcd`, `kube-apiserver` and `kube-controller-manager` are those of the folder `$OSTLER_KUBERNETES`.
//! No other controller, no scheduler and no service accounts: nobody but the test writes.

use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Lets the one client in.
const TOKEN: &str = "differential";

pub(super) struct ControlPlane {
    folder: PathBuf,
    processes: Vec<Child>,
    api: u16,
}

// === impl ControlPlane ===

impl ControlPlane {
    /// Starts one and waits until it answers.
    pub(super) async fn start() -> Self {
        let folder = std::env::temp_dir().join(format!("ostler-differential-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let ports: [u16; 5] = free_ports();
        let mut plane = Self { folder, processes: Vec::new(), api: ports[2] };
        plane.store(ports[0], ports[1]);
        plane.answers(&format!("http://127.0.0.1:{}/health", ports[0])).await;
        plane.api_server(ports[0]);
        plane.answers(&format!("https://127.0.0.1:{}/readyz", plane.api)).await;
        plane.controllers(ports[3]);
        plane
    }

    pub(super) fn client(&self) -> kube::Client {
        let mut config = kube::Config::new(format!("https://127.0.0.1:{}", self.api).parse().unwrap());
        config.accept_invalid_certs = true;
        config.auth_info.token = Some(TOKEN.to_owned().into());
        kube::Client::try_from(config).unwrap()
    }

    fn store(&mut self, clients: u16, peers: u16) {
        let (clients, peers) = (format!("http://127.0.0.1:{clients}"), format!("http://127.0.0.1:{peers}"));
        let data = self.path("etcd");
        self.spawn(
            "etcd",
            &[
                "--name=one",
                "--unsafe-no-fsync",
                &format!("--data-dir={data}"),
                &format!("--listen-client-urls={clients}"),
                &format!("--advertise-client-urls={clients}"),
                &format!("--listen-peer-urls={peers}"),
                &format!("--initial-advertise-peer-urls={peers}"),
                &format!("--initial-cluster=one={peers}"),
            ],
        );
    }

    fn api_server(&mut self, store: u16) {
        let key = rcgen::KeyPair::generate().unwrap();
        let (private, public) = (self.file("sa.key", &key.serialize_pem()), self.file("sa.pub", &key.public_key_pem()));
        let tokens = self.file("tokens.csv", &format!("{TOKEN},admin,admin,system:masters\n"));
        let certificates = self.path("certificates");
        let (port, store) = (format!("--secure-port={}", self.api), format!("--etcd-servers=http://127.0.0.1:{store}"));
        self.spawn(
            "kube-apiserver",
            &[
                &store,
                &port,
                "--bind-address=127.0.0.1",
                "--endpoint-reconciler-type=none",
                "--service-cluster-ip-range=10.96.0.0/16",
                "--authorization-mode=RBAC",
                "--disable-admission-plugins=ServiceAccount",
                &format!("--cert-dir={certificates}"),
                &format!("--token-auth-file={tokens}"),
                "--service-account-issuer=https://kubernetes.default.svc",
                &format!("--service-account-key-file={public}"),
                &format!("--service-account-signing-key-file={private}"),
            ],
        );
    }

    fn controllers(&mut self, port: u16) {
        let server = format!("https://127.0.0.1:{}", self.api);
        let kubeconfig = self.file(
            "kubeconfig",
            &format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: it\nclusters: [{{name: it, cluster: {{server: \"{server}\", insecure-skip-tls-verify: true}}}}]\nusers: [{{name: it, user: {{token: {TOKEN}}}}}]\ncontexts: [{{name: it, context: {{cluster: it, user: it}}}}]\n"
            ),
        );
        self.spawn(
            "kube-controller-manager",
            &[
                &format!("--kubeconfig={kubeconfig}"),
                &format!("--secure-port={port}"),
                "--bind-address=127.0.0.1",
                "--leader-elect=false",
                "--controllers=garbage-collector-controller,namespace-controller",
            ],
        );
    }

    fn spawn(&mut self, name: &str, args: &[&str]) {
        let binaries = std::env::var_os("OSTLER_KUBERNETES").expect("OSTLER_KUBERNETES: a folder of binaries");
        let log = std::fs::File::create(self.folder.join(format!("{name}.log"))).unwrap();
        let mut command = Command::new(Path::new(&binaries).join(name));
        command.args(args).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.processes.push(command.spawn().unwrap_or_else(|error| panic!("{name}: {error}")));
    }

    /// Waits for a 200.
    async fn answers(&mut self, url: &str) {
        let mut config = kube::Config::new(url.rsplit_once('/').unwrap().0.parse().unwrap());
        config.accept_invalid_certs = true;
        config.auth_info.token = Some(TOKEN.to_owned().into());
        let client = kube::Client::try_from(config).unwrap();
        let path = format!("/{}", url.rsplit_once('/').unwrap().1);
        for _ in 0..600 {
            let request = http::Request::get(&path).body(Vec::new().into()).unwrap();
            if client.send(request).await.is_ok_and(|response| response.status() == 200) {
                return;
            }
            let ended = self.processes.iter_mut().any(|process| process.try_wait().unwrap().is_some());
            assert!(!ended, "the control plane ended; its words are in {}", self.folder.display());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{url} never answered; the control plane's words are in {}", self.folder.display());
    }

    fn path(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    fn file(&self, name: &str, text: &str) -> String {
        std::fs::File::create(self.folder.join(name)).unwrap().write_all(text.as_bytes()).unwrap();
        self.path(name)
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            process.kill().ok();
            process.wait().ok();
        }
        if !std::thread::panicking() {
            std::fs::remove_dir_all(&self.folder).ok();
        }
    }
}

/// Ports that nobody has at this moment.
fn free_ports<const N: usize>() -> [u16; N] {
    let held = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    held.map(|listener| listener.local_addr().unwrap().port())
}
