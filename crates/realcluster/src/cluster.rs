//! Starting and stopping.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::binaries::Binaries;
use crate::certificates::Certificates;
use crate::objects::{apply, resource};
use crate::parts::{Controllers, Parts};
use crate::process::Process;

/// Who may ask for what is enforced, also for owner references; every answer to an account is logged.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  userGroups: [\"system:serviceaccounts\"]
  namespaces: []
- level: None
";

/// A running control plane; it ends with this value.
pub struct RealCluster {
    /// The administrator's.
    pub client: Client,
    /// The administrator's.
    pub kubeconfig: PathBuf,
    pub(crate) binaries: Binaries,
    pub(crate) folder: PathBuf,
    pub(crate) certificates: Certificates,
    url: String,
    /// In order of start; they are ended the other way round.
    processes: Vec<Process>,
}

/// An account of the cluster.
#[derive(Clone)]
pub struct Account {
    pub client: Client,
    /// As the audit log has it.
    pub user: String,
}

// === impl RealCluster ===

impl RealCluster {
    /// All of [`Parts`], without nodes. State and logs go to `folder`.
    ///
    /// # Errors
    /// What did not start, with its last words.
    pub async fn start(binaries: Binaries, folder: PathBuf) -> Result<Self> {
        Self::start_parts(Parts::all(), binaries, folder).await
    }

    /// Some [`Parts`]. State and logs go to `folder`.
    ///
    /// # Errors
    /// What did not start, with its last words.
    pub async fn start_parts(parts: Parts, binaries: Binaries, folder: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&folder)?;
        let certificates = Certificates::make(folder.join("pki"))?;
        let [etcd_port, peer_port, port] = free_ports()?;
        let url = format!("https://127.0.0.1:{port}");
        let kubeconfig = folder.join("kubeconfig");
        std::fs::write(&kubeconfig, admin_kubeconfig(&certificates, &url)?)?;
        let options = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(Kubeconfig::read_from(&kubeconfig)?, &options).await?;
        let client = Client::try_from(config)?;
        let mut cluster = Self { client, kubeconfig, binaries, folder, certificates, url, processes: Vec::new() };
        cluster.start_etcd(etcd_port, peer_port).await?;
        cluster.start_apiserver(parts, port, etcd_port).await?;
        cluster.start_controllers(parts.controllers)?;
        if parts.scheduler {
            cluster.start_scheduler()?;
        }
        if parts.nodes {
            cluster.start_kwok()?;
        }
        if parts.controllers.make_accounts() {
            cluster.wait_for_default_account().await?;
        }
        Ok(cluster)
    }

    async fn start_etcd(&mut self, port: u16, peer_port: u16) -> Result<()> {
        let (own, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peer_port}"));
        let mut command = self.command("etcd");
        command.arg("--data-dir").arg(self.folder.join("etcd"));
        command.args(["--name", "real", "--unsafe-no-fsync", "--log-level", "warn"]);
        command.args(["--listen-client-urls", &own, "--advertise-client-urls", &own]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.arg("--initial-cluster").arg(format!("real={peer}"));
        self.keep("etcd", &mut command)?.listens(port).await
    }

    async fn start_apiserver(&mut self, parts: Parts, port: u16, etcd_port: u16) -> Result<()> {
        let policy = self.folder.join("audit-policy.yaml");
        std::fs::write(&policy, AUDIT_POLICY)?;
        let pki = self.certificates.clone();
        let mut command = self.command("kube-apiserver");
        command.arg(format!("--etcd-servers=http://127.0.0.1:{etcd_port}")).arg(format!("--secure-port={port}"));
        command.args([
            "--bind-address=127.0.0.1",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=RBAC",
        ]);
        // A loopback address may not stand in Endpoints.
        command.args(["--endpoint-reconciler-type=none", "--allow-privileged"]);
        // No node forwards cluster addresses here: Services of webhooks are called at their endpoints.
        command.arg("--enable-aggregator-routing=true");
        command.arg("--enable-admission-plugins=OwnerReferencesPermissionEnforcement");
        if !parts.controllers.make_accounts() {
            command.arg("--disable-admission-plugins=ServiceAccount");
        }
        for (flag, file) in [
            ("--tls-cert-file", pki.certificate("apiserver")),
            ("--tls-private-key-file", pki.key("apiserver")),
            ("--client-ca-file", pki.authority()),
            ("--requestheader-client-ca-file", pki.authority()),
            ("--proxy-client-cert-file", pki.certificate("front-proxy")),
            ("--proxy-client-key-file", pki.key("front-proxy")),
            ("--service-account-key-file", pki.public_key("sa")),
            ("--service-account-signing-key-file", pki.key("sa")),
            ("--audit-policy-file", policy),
            ("--audit-log-path", self.audit_log()),
        ] {
            command.arg(flag).arg(file);
        }
        command.args(["--requestheader-allowed-names=front-proxy", "--requestheader-username-headers=X-Remote-User"]);
        command.args([
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        ]);
        command.arg("--service-account-issuer=https://kubernetes.default.svc");
        let client = self.client.clone();
        let ready = async || client.request_text(http_get("/readyz")).await.is_ok();
        self.keep("kube-apiserver", &mut command)?.until("readiness", ready).await
    }

    fn start_controllers(&mut self, controllers: Controllers) -> Result<()> {
        let [port] = free_ports()?;
        let mut command = self.controller("kube-controller-manager");
        command.args(["--leader-elect=false", "--bind-address=127.0.0.1", "--cluster-cidr=10.244.0.0/16"]);
        command.arg(format!("--secure-port={port}"));
        if let Controllers::Only(names) = controllers {
            command.arg(format!("--controllers={names}"));
        }
        command.arg("--service-account-private-key-file").arg(self.certificates.key("sa"));
        command.arg("--root-ca-file").arg(self.certificates.authority());
        self.keep("kube-controller-manager", &mut command).map(|_| ())
    }

    fn start_scheduler(&mut self) -> Result<()> {
        let [port] = free_ports()?;
        let mut command = self.controller("kube-scheduler");
        command.args(["--leader-elect=false", "--bind-address=127.0.0.1"]);
        command.arg(format!("--secure-port={port}"));
        self.keep("kube-scheduler", &mut command).map(|_| ())
    }

    async fn wait_for_default_account(&mut self) -> Result<()> {
        let accounts = resource(&self.client, "serviceaccounts", "v1", "default");
        crate::until("the default account", accounts, |found| found.contains_key("default")).await.map(|_| ())
    }

    /// A client of service account `name`, which must exist.
    ///
    /// # Errors
    /// The API server gives no token.
    pub async fn account(&self, namespace: &str, name: &str) -> Result<Account> {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}});
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let request =
            http::Request::post(path).header("content-type", "application/json").body(serde_json::to_vec(&body)?)?;
        let answer: Value = self.client.request(request).await?;
        let token = answer["status"]["token"].as_str().context("no token")?.to_owned();
        let mut config = kube::Config::new(self.url.parse()?);
        config.root_cert = kube::Config::from_custom_kubeconfig(
            Kubeconfig::read_from(&self.kubeconfig)?,
            &KubeConfigOptions::default(),
        )
        .await?
        .root_cert;
        config.auth_info.token = Some(token.into());
        Ok(Account { client: Client::try_from(config)?, user: format!("system:serviceaccount:{namespace}:{name}") })
    }

    /// Applies every object, in order.
    ///
    /// # Errors
    /// The first refusal.
    pub async fn apply(&self, objects: &[Value]) -> Result<()> {
        for object in objects {
            apply(&self.client, object).await?;
        }
        Ok(())
    }

    /// Applies definitions and waits until they are served: whoever looks earlier may find nothing.
    ///
    /// # Errors
    /// The first refusal.
    pub async fn define(&self, definitions: &[Value]) -> Result<()> {
        self.apply(definitions).await?;
        let names: Vec<&str> = definitions.iter().filter_map(|one| one["metadata"]["name"].as_str()).collect();
        let all = resource(&self.client, "customresourcedefinitions.apiextensions.k8s.io", "v1", "");
        let established = |object: &Value| {
            let conditions = object["status"]["conditions"].as_array();
            conditions.is_some_and(|all| all.iter().any(|one| one["type"] == "Established" && one["status"] == "True"))
        };
        crate::until("established definitions", all, |found| {
            names.iter().all(|name| found.get(*name).is_some_and(established))
        })
        .await?;
        for definition in definitions {
            self.discovered(definition).await?;
        }
        Ok(())
    }

    /// Discovery follows a definition after a moment, and nothing tells when.
    async fn discovered(&self, definition: &Value) -> Result<()> {
        let spec = &definition["spec"];
        let (group, kind) =
            (spec["group"].as_str().unwrap_or_default(), spec["names"]["kind"].as_str().unwrap_or_default());
        let version = spec["versions"][0]["name"].as_str().unwrap_or_default();
        let gvk = kube::core::GroupVersionKind::gvk(group, version, kind);
        let began = std::time::Instant::now();
        while kube::discovery::pinned_kind(&self.client, &gvk).await.is_err() {
            anyhow::ensure!(began.elapsed().as_secs() < crate::SECONDS, "{kind} of {group} is not served");
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Where the requests of service accounts are logged.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        self.folder.join("audit.log")
    }

    /// Where output goes.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.folder.join("logs")
    }

    pub(crate) fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.binaries.path(name));
        command.env_remove("KUBECONFIG");
        command
    }

    /// Of a program that takes `--kubeconfig`.
    pub(crate) fn controller(&self, name: &str) -> Command {
        let mut command = self.command(name);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command
    }

    /// Starts a process that ends with the cluster.
    pub(crate) fn keep(&mut self, name: &str, command: &mut Command) -> Result<&mut Process> {
        self.processes.push(Process::start(name, command, &self.logs())?);
        self.processes.last_mut().context("just started")
    }
}

impl Drop for RealCluster {
    fn drop(&mut self) {
        while let Some(process) = self.processes.pop() {
            drop(process);
        }
    }
}

/// Ports that were free a moment ago.
pub(crate) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut listeners = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        *port = listener.local_addr()?.port();
        listeners.push(listener);
    }
    Ok(ports)
}

fn http_get(path: &str) -> http::Request<Vec<u8>> {
    let mut request = http::Request::new(Vec::new());
    *request.uri_mut() = path.parse().unwrap_or_default();
    request
}

fn admin_kubeconfig(pki: &Certificates, url: &str) -> Result<String> {
    let data = |path: &Path| std::fs::read(path).map(|bytes| STANDARD.encode(bytes));
    let (ca, certificate, key) = (data(&pki.authority())?, data(&pki.certificate("admin"))?, data(&pki.key("admin"))?);
    Ok(format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: real\nclusters:\n- name: real\n  cluster: {{server: \"{url}\", certificate-authority-data: {ca}}}\nusers:\n- name: admin\n  user: {{client-certificate-data: {certificate}, client-key-data: {key}}}\ncontexts:\n- name: real\n  context: {{cluster: real, user: admin}}\n"
    ))
}
