//! Starts and stops the control plane.

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
use crate::components::{Components, Controllers};
use crate::kwok_stages;
use crate::loopback::LoopbackAddress;
use crate::objects::{apply, dynamic_api};
use crate::process::Process;
use crate::retry::retry_transient_errors;

/// Audit policy that logs every request of a service account.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  userGroups: [\"system:serviceaccounts\"]
  namespaces: []
- level: None
";

/// A running control plane. Dropping it stops all processes.
pub struct RealCluster {
    /// Client with the credentials of the administrator.
    pub client: Client,
    /// Kubeconfig file of the administrator.
    pub kubeconfig: PathBuf,
    pub(crate) binaries: Binaries,
    pub(crate) directory: PathBuf,
    pub(crate) certificates: Certificates,
    pub(crate) loopback: LoopbackAddress,
    url: String,
    /// Processes in start order; they are stopped in reverse order.
    processes: Vec<Process>,
}

/// A client that authenticates as a service account.
#[derive(Clone)]
pub struct ServiceAccountClient {
    /// Client with the token of the service account.
    pub client: Client,
    /// User name, as in the audit log.
    pub user: String,
}

// === impl RealCluster ===

impl RealCluster {
    /// Starts all [`Components`], without nodes. State and logs are written to `directory`.
    ///
    /// # Errors
    /// The component that failed to start, with the end of its log.
    pub async fn start(binaries: Binaries, directory: PathBuf) -> Result<Self> {
        Self::start_components(Components::all(), binaries, directory).await
    }

    /// Starts the given [`Components`]. State and logs are written to `directory`.
    ///
    /// # Errors
    /// The component that failed to start, with the end of its log.
    pub async fn start_components(components: Components, binaries: Binaries, directory: PathBuf) -> Result<Self> {
        std::fs::create_dir_all(&directory)?;
        remove_previous_state(&directory)?;
        let mut loopback = LoopbackAddress::reserve()?;
        let certificates = Certificates::generate(directory.join("pki"), loopback.address)?;
        let port = loopback.next_port()?;
        let url = format!("https://{}", loopback.socket_address(port));
        let kubeconfig = directory.join("kubeconfig");
        std::fs::write(&kubeconfig, admin_kubeconfig(&certificates, &url)?)?;
        let client = Client::try_from(client_config(&kubeconfig).await?)?;
        let mut cluster =
            Self { client, kubeconfig, binaries, directory, certificates, loopback, url, processes: Vec::new() };
        let etcd = cluster.start_etcd().await?;
        cluster.start_apiserver(components, port, &etcd).await?;
        cluster.start_controllers(components.controllers)?;
        if components.scheduler {
            cluster.start_scheduler()?;
        }
        if components.nodes {
            cluster.start_kwok()?;
        }
        if components.controllers.creates_service_accounts() {
            cluster.wait_for_default_service_account().await?;
        }
        Ok(cluster)
    }

    /// Starts etcd and returns its client URL.
    async fn start_etcd(&mut self) -> Result<String> {
        let (port, peer_port) = (self.loopback.next_port()?, self.loopback.next_port()?);
        let [client_url, peer_url] =
            [port, peer_port].map(|port| format!("http://{}", self.loopback.socket_address(port)));
        let mut command = self.component_command("etcd");
        command.arg("--data-dir").arg(self.directory.join("etcd"));
        command.args(["--name", "real", "--unsafe-no-fsync", "--log-level", "warn"]);
        command.args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url]);
        command.args(["--listen-peer-urls", &peer_url, "--initial-advertise-peer-urls", &peer_url]);
        command.arg("--initial-cluster").arg(format!("real={peer_url}"));
        let address = self.loopback.socket_address(port);
        self.spawn("etcd", &mut command)?.wait_until_listening(address).await?;
        Ok(client_url)
    }

    async fn start_apiserver(&mut self, components: Components, port: u16, etcd: &str) -> Result<()> {
        let policy = self.directory.join("audit-policy.yaml");
        std::fs::write(&policy, AUDIT_POLICY)?;
        let pki = self.certificates.clone();
        let mut command = self.component_command("kube-apiserver");
        command.arg(format!("--etcd-servers={etcd}")).arg(format!("--secure-port={port}"));
        command.arg(format!("--bind-address={}", self.loopback.address));
        command.args(["--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=RBAC"]);
        // Endpoints must not contain loopback addresses, so the server's own address is not published; the default
        // advertise address would require a network interface.
        command.args(["--endpoint-reconciler-type=none", "--advertise-address=192.0.2.1", "--allow-privileged"]);
        // No kube-proxy forwards cluster IPs, so the API server must call Services at their endpoints.
        command.arg("--enable-aggregator-routing=true");
        command.arg("--enable-admission-plugins=OwnerReferencesPermissionEnforcement");
        if !components.controllers.creates_service_accounts() {
            command.arg("--disable-admission-plugins=ServiceAccount");
        }
        for (flag, file) in [
            ("--tls-cert-file", pki.certificate("apiserver")),
            ("--tls-private-key-file", pki.key("apiserver")),
            ("--client-ca-file", pki.ca_certificate()),
            ("--requestheader-client-ca-file", pki.ca_certificate()),
            ("--proxy-client-cert-file", pki.certificate("front-proxy")),
            ("--proxy-client-key-file", pki.key("front-proxy")),
            ("--service-account-key-file", pki.public_key("sa")),
            ("--service-account-signing-key-file", pki.key("sa")),
            ("--audit-policy-file", policy),
            ("--audit-log-path", self.audit_log()),
        ] {
            command.arg(flag).arg(file);
        }
        // Disable log rotation, because tests read the complete log.
        command.arg("--audit-log-maxsize=0");
        command.args(["--requestheader-allowed-names=front-proxy", "--requestheader-username-headers=X-Remote-User"]);
        command.args([
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        ]);
        command.arg("--service-account-issuer=https://kubernetes.default.svc");
        let client = self.client.clone();
        let ready = async || client.request_text(get_request("/readyz")).await.is_ok();
        self.spawn("kube-apiserver", &mut command)?.wait_until("readiness", ready).await
    }

    fn start_controllers(&mut self, controllers: Controllers) -> Result<()> {
        let mut command = self.controller_command("kube-controller-manager");
        command.args(["--leader-elect=false", "--secure-port=0", "--cluster-cidr=10.244.0.0/16"]);
        // On a busy host, kwok may renew node leases late, but that must not mark simulated nodes as failed.
        command.arg("--node-monitor-grace-period=1h");
        if let Controllers::Only(names) = controllers {
            command.arg(format!("--controllers={names}"));
        }
        command.arg("--service-account-private-key-file").arg(self.certificates.key("sa"));
        command.arg("--root-ca-file").arg(self.certificates.ca_certificate());
        self.spawn("kube-controller-manager", &mut command).map(|_| ())
    }

    fn start_scheduler(&mut self) -> Result<()> {
        let mut command = self.controller_command("kube-scheduler");
        command.args(["--leader-elect=false", "--secure-port=0"]);
        self.spawn("kube-scheduler", &mut command).map(|_| ())
    }

    /// Starts kwok, which simulates the kubelets.
    fn start_kwok(&mut self) -> Result<()> {
        let stages = self.directory.join("kwok-stages.yaml");
        std::fs::write(&stages, kwok_stages::STAGES)?;
        let port = self.loopback.next_port()?;
        let address = self.loopback.socket_address(port);
        let mut command = self.controller_command("kwok");
        command.arg("--config").arg(stages).args(["--manage-all-nodes=true", "--node-lease-duration-seconds=40"]);
        command.arg(format!("--server-address={address}")).args(["--node-ip=127.0.0.1", "--cidr=10.244.0.0/16"]);
        self.spawn("kwok", &mut command).map(|_| ())
    }

    async fn wait_for_default_service_account(&mut self) -> Result<()> {
        let accounts = dynamic_api(&self.client, "serviceaccounts", "v1", "default");
        crate::wait_until("the default ServiceAccount", accounts, |found| found.contains_key("default"))
            .await
            .map(|_| ())
    }

    /// Returns a client that authenticates as the existing service account `name`.
    ///
    /// # Errors
    /// The API server issues no token.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<ServiceAccountClient> {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}});
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token");
        let body = serde_json::to_vec(&body)?;
        let request = || http::Request::post(&path).header("content-type", "application/json").body(body.clone());
        let request_token = async || self.client.request(request().map_err(kube::Error::HttpError)?).await;
        let response: Value = retry_transient_errors(request_token).await?;
        let token = response["status"]["token"].as_str().context("the TokenRequest response has no token")?.to_owned();
        let mut config = kube::Config::new(self.url.parse()?);
        config.root_cert = client_config(&self.kubeconfig).await?.root_cert;
        config.auth_info.token = Some(token.into());
        Ok(ServiceAccountClient {
            client: Client::try_from(config)?,
            user: format!("system:serviceaccount:{namespace}:{name}"),
        })
    }

    /// Applies every object, in order.
    ///
    /// # Errors
    /// The first object that the API server rejects.
    pub async fn apply(&self, objects: &[Value]) -> Result<()> {
        for object in objects {
            apply(&self.client, object).await?;
        }
        Ok(())
    }

    /// Applies CustomResourceDefinitions and waits until they are established and discoverable.
    ///
    /// # Errors
    /// The first definition that the API server rejects.
    pub async fn apply_definitions(&self, definitions: &[Value]) -> Result<()> {
        self.apply(definitions).await?;
        let names: Vec<&str> =
            definitions.iter().filter_map(|definition| definition["metadata"]["name"].as_str()).collect();
        let definitions_api = dynamic_api(&self.client, "customresourcedefinitions.apiextensions.k8s.io", "v1", "");
        let established = |object: &Value| {
            let conditions = object["status"]["conditions"].as_array();
            conditions.is_some_and(|all| {
                all.iter().any(|condition| condition["type"] == "Established" && condition["status"] == "True")
            })
        };
        crate::wait_until("established CustomResourceDefinitions", definitions_api, |found| {
            names.iter().all(|name| found.get(*name).is_some_and(established))
        })
        .await?;
        for definition in definitions {
            self.wait_until_discovered(definition).await?;
        }
        Ok(())
    }

    /// Waits until discovery returns the kind of `definition`. Discovery cannot be watched, so this function polls.
    async fn wait_until_discovered(&self, definition: &Value) -> Result<()> {
        let spec = &definition["spec"];
        let (group, kind) =
            (spec["group"].as_str().unwrap_or_default(), spec["names"]["kind"].as_str().unwrap_or_default());
        let version = spec["versions"][0]["name"].as_str().unwrap_or_default();
        let gvk = kube::core::GroupVersionKind::gvk(group, version, kind);
        let start = std::time::Instant::now();
        while kube::discovery::pinned_kind(&self.client, &gvk).await.is_err() {
            anyhow::ensure!(
                start.elapsed().as_secs() < crate::TIMEOUT_SECONDS,
                "timed out waiting until kind {kind} of group {group} is served"
            );
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        Ok(())
    }

    /// Returns the path of the audit log with the requests of service accounts.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        self.directory.join("audit.log")
    }

    /// Returns the directory of the components' log files.
    #[must_use]
    pub fn log_directory(&self) -> PathBuf {
        self.directory.join("logs")
    }

    /// Returns the command of the binary `name`, without arguments.
    pub(crate) fn component_command(&self, name: &str) -> Command {
        let mut command = Command::new(self.binaries.path(name));
        command.env_remove("KUBECONFIG");
        // Connect directly to local addresses, without a proxy.
        for proxy in ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env_remove(proxy).env_remove(proxy.to_lowercase());
        }
        command
    }

    /// Returns the command of the binary `name` with `--kubeconfig`.
    pub(crate) fn controller_command(&self, name: &str) -> Command {
        let mut command = self.component_command(name);
        command.arg("--kubeconfig").arg(&self.kubeconfig);
        command
    }

    /// Starts a process that stops with the cluster.
    pub(crate) fn spawn(&mut self, name: &str, command: &mut Command) -> Result<&mut Process> {
        self.processes.push(Process::start(name, command, &self.log_directory())?);
        self.processes.last_mut().context("no process")
    }
}

impl Drop for RealCluster {
    fn drop(&mut self) {
        while let Some(process) = self.processes.pop() {
            drop(process);
        }
    }
}

/// Removes the state and logs of a previous cluster in the same directory.
fn remove_previous_state(directory: &Path) -> Result<()> {
    for path in ["etcd", "logs"].map(|name| directory.join(name)).iter().filter(|path| path.exists()) {
        std::fs::remove_dir_all(path)?;
    }
    let log = directory.join("audit.log");
    if log.exists() { Ok(std::fs::remove_file(log)?) } else { Ok(()) }
}

/// Returns the client configuration of a kubeconfig file, without a proxy from the environment.
async fn client_config(kubeconfig: &Path) -> Result<kube::Config> {
    let file = Kubeconfig::read_from(kubeconfig)?;
    let mut config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.proxy_url = None;
    Ok(config)
}

fn get_request(path: &str) -> http::Request<Vec<u8>> {
    let mut request = http::Request::new(Vec::new());
    *request.uri_mut() = path.parse().unwrap_or_default();
    request
}

fn admin_kubeconfig(pki: &Certificates, url: &str) -> Result<String> {
    let data = |path: &Path| std::fs::read(path).map(|bytes| STANDARD.encode(bytes));
    let (ca, certificate, key) =
        (data(&pki.ca_certificate())?, data(&pki.certificate("admin"))?, data(&pki.key("admin"))?);
    Ok(format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: real\nclusters:\n- name: real\n  cluster: {{server: \"{url}\", certificate-authority-data: {ca}}}\nusers:\n- name: admin\n  user: {{client-certificate-data: {certificate}, client-key-data: {key}}}\ncontexts:\n- name: real\n  context: {{cluster: real, user: admin}}\n"
    ))
}
