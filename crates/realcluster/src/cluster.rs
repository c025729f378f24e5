//! Starting and stopping.

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
use crate::patience::patiently;
use crate::place::Place;
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
    pub(crate) place: Place,
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
        forget_an_earlier_run(&folder)?;
        let mut place = Place::take()?;
        let certificates = Certificates::make(folder.join("pki"), place.address)?;
        let port = place.port()?;
        let url = format!("https://{}", place.at(port));
        let kubeconfig = folder.join("kubeconfig");
        std::fs::write(&kubeconfig, admin_kubeconfig(&certificates, &url)?)?;
        let client = Client::try_from(config(&kubeconfig).await?)?;
        let mut cluster =
            Self { client, kubeconfig, binaries, folder, certificates, place, url, processes: Vec::new() };
        let etcd = cluster.start_etcd().await?;
        cluster.start_apiserver(parts, port, &etcd).await?;
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

    /// Where clients find it.
    async fn start_etcd(&mut self) -> Result<String> {
        let (port, peer_port) = (self.place.port()?, self.place.port()?);
        let [own, peer] = [port, peer_port].map(|port| format!("http://{}", self.place.at(port)));
        let mut command = self.command("etcd");
        command.arg("--data-dir").arg(self.folder.join("etcd"));
        command.args(["--name", "real", "--unsafe-no-fsync", "--log-level", "warn"]);
        command.args(["--listen-client-urls", &own, "--advertise-client-urls", &own]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.arg("--initial-cluster").arg(format!("real={peer}"));
        let address = self.place.at(port);
        self.keep("etcd", &mut command)?.listens(address).await?;
        Ok(own)
    }

    async fn start_apiserver(&mut self, parts: Parts, port: u16, etcd: &str) -> Result<()> {
        let policy = self.folder.join("audit-policy.yaml");
        std::fs::write(&policy, AUDIT_POLICY)?;
        let pki = self.certificates.clone();
        let mut command = self.command("kube-apiserver");
        command.arg(format!("--etcd-servers={etcd}")).arg(format!("--secure-port={port}"));
        command.arg(format!("--bind-address={}", self.place.address));
        command.args(["--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=RBAC"]);
        // A loopback address may not stand in Endpoints; one of its own choice asks for a network, which may be away.
        command.args(["--endpoint-reconciler-type=none", "--advertise-address=192.0.2.1", "--allow-privileged"]);
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
        // Whole, from the first request to the last.
        command.arg("--audit-log-maxsize=0");
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
        let mut command = self.controller("kube-controller-manager");
        command.args(["--leader-elect=false", "--secure-port=0", "--cluster-cidr=10.244.0.0/16"]);
        // kwok is not scheduled in time on a busy machine; no node here is ever lost.
        command.arg("--node-monitor-grace-period=1h");
        if let Controllers::Only(names) = controllers {
            command.arg(format!("--controllers={names}"));
        }
        command.arg("--service-account-private-key-file").arg(self.certificates.key("sa"));
        command.arg("--root-ca-file").arg(self.certificates.authority());
        self.keep("kube-controller-manager", &mut command).map(|_| ())
    }

    fn start_scheduler(&mut self) -> Result<()> {
        let mut command = self.controller("kube-scheduler");
        command.args(["--leader-elect=false", "--secure-port=0"]);
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
        let body = serde_json::to_vec(&body)?;
        let request = || http::Request::post(&path).header("content-type", "application/json").body(body.clone());
        let asked = async || self.client.request(request().map_err(kube::Error::HttpError)?).await;
        let answer: Value = patiently(asked).await?;
        let token = answer["status"]["token"].as_str().context("no token")?.to_owned();
        let mut own = kube::Config::new(self.url.parse()?);
        own.root_cert = config(&self.kubeconfig).await?.root_cert;
        own.auth_info.token = Some(token.into());
        Ok(Account { client: Client::try_from(own)?, user: format!("system:serviceaccount:{namespace}:{name}") })
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
        // Addresses of this machine are called directly, also those that are no loopback addresses.
        for proxy in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env_remove(proxy).env_remove(proxy.to_lowercase());
        }
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

/// A folder that is used again has another cluster from now on.
fn forget_an_earlier_run(folder: &Path) -> Result<()> {
    for earlier in ["etcd", "logs"].map(|name| folder.join(name)).iter().filter(|path| path.exists()) {
        std::fs::remove_dir_all(earlier)?;
    }
    let log = folder.join("audit.log");
    if log.exists() { Ok(std::fs::remove_file(log)?) } else { Ok(()) }
}

/// Without a proxy that the environment may name.
async fn config(kubeconfig: &Path) -> Result<kube::Config> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let mut config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.proxy_url = None;
    Ok(config)
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
