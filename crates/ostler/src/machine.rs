//! A whole cluster on this machine: embedded Kubernetes, operator and gateway, wired together in one process.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use api::manifest::Document;
use apimachinery::status::Status;
use embedded::cluster::Cluster;
use embedded::ports::{Loopback, Ports, SystemClock, SystemRandom};
use embedded::serve;
use kube::Client;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::fleet;
use crate::gate::Gate;
use crate::home::Home;
use crate::output;
use crate::runner::MachineRunner;

/// Field manager of the shipped catalogue.
const CATALOGUE: &str = "ostler-catalogue";

/// Where the servers listen; bound before anything starts, so that a busy port ends nothing half-way.
pub(crate) struct Listeners {
    pub api: std::net::TcpListener,
    pub gateway: std::net::TcpListener,
    pub metrics: std::net::TcpListener,
}

/// The running parts.
pub(crate) struct Machine {
    pub cluster: Cluster,
    /// Talks to the API server by function call.
    pub client: Client,
    pub api: SocketAddr,
    pub gateway: SocketAddr,
    pub metrics: SocketAddr,
    stop: CancellationToken,
}

/// The tasks behind a [`Machine`]; none ends before it is stopped, unless it fails.
pub(crate) struct Parts(JoinSet<Result<()>>);

impl Machine {
    /// Starts everything on what the folder keeps, and installs our definitions and the shipped catalogue. Writes the
    /// kubeconfig.
    pub(crate) async fn start(
        nodes: Vec<Value>,
        options: operator::Options,
        listeners: Listeners,
        home: &Home,
        runner: MachineRunner,
    ) -> Result<(Self, Parts)> {
        let (store, credentials) = (home.store()?, home.credentials()?);
        let fleet: BTreeSet<String> = nodes.iter().map(name).collect();
        let admission = Arc::new(Gate::default());
        let cluster = Cluster::start_on(store, ports(admission.clone(), runner), nodes, home.folders());
        let server = cluster.server().clone();
        dismiss(&server, &fleet);
        admission.open(server.clone());
        let client = Client::new(server.router(), "default");
        let shipped = crate::catalog::documents()?;
        let options = operator::Options { known_classes: crate::catalog::classes(&shipped), ..options };
        install(&server, shipped)?;

        let (api, gateway) = (listeners.api.local_addr()?, listeners.gateway.local_addr()?);
        let metrics = listeners.metrics.local_addr()?;
        let kubeconfig = home.kubeconfig();
        let text = serve::kubeconfig(&credentials, &format!("https://{api}"));
        serve::write_kubeconfig(&kubeconfig, &text).with_context(|| kubeconfig.display().to_string())?;

        let stop = CancellationToken::new();
        let mut parts = Parts(JoinSet::new());
        let token = stop.clone();
        parts
            .0
            .spawn(async move { serve::serve(server, listeners.api, &credentials, token).await.context("API server") });
        parts.operator(&client, options, TcpListener::from_std(listeners.metrics)?, &stop);
        parts.gateway(&client, TcpListener::from_std(listeners.gateway)?, &stop);
        Ok((Self { cluster, client, api, gateway, metrics, stop }, parts))
    }

    /// Ends every container and every task that was started.
    pub(crate) async fn stop(self, mut parts: Parts) {
        self.stop.cancel();
        self.cluster.stop().await;
        while parts.0.join_next().await.is_some() {}
    }
}

impl Parts {
    /// The operator and its metrics.
    fn operator(
        &mut self,
        client: &Client,
        options: operator::Options,
        metrics: TcpListener,
        stop: &CancellationToken,
    ) {
        let (counted, token) = (Arc::clone(&options.metrics), stop.clone());
        self.0.spawn(async move { operator::metrics::serve(metrics, counted, token).await.context("metrics") });
        let (client, token) = (client.clone(), stop.clone());
        self.0.spawn(async move { operator::run(client, options, token).await.context("operator") });
    }

    /// The gateway, and the watch that tells it of engines.
    fn gateway(&mut self, client: &Client, listener: TcpListener, stop: &CancellationToken) {
        let pools = Arc::new(picker::Pools::new(fastrand::u64(..)));
        let (client, known, token) = (client.clone(), Arc::clone(&pools), stop.clone());
        self.0.spawn(async move {
            picker::watch::run(client, known, token).await;
            Ok(())
        });
        let token = stop.clone();
        self.0.spawn(async move { picker::gateway::serve(listener, pools, token).await.context("gateway") });
    }

    /// Waits until a part fails, which none should.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        loop {
            match self.0.join_next().await {
                Some(Ok(Err(error))) => return error,
                Some(Err(error)) => return anyhow::Error::new(error).context("a part of ostler ended"),
                Some(Ok(Ok(()))) => {}
                None => return anyhow::anyhow!("every part of ostler ended"),
            }
        }
    }
}

fn ports(admission: Arc<Gate>, runner: MachineRunner) -> Ports {
    Ports {
        clock: Arc::new(SystemClock),
        random: Arc::new(SystemRandom),
        admission,
        runner: Arc::new(runner),
        network: Arc::new(Loopback),
    }
}

/// Simulated nodes of an earlier start that this one does not have are gone.
fn dismiss(server: &embedded::Server, fleet: &BTreeSet<String>) {
    let is_simulated = |node: &Value| node["metadata"]["annotations"][fleet::SIMULATED] == "true";
    for node in server.list("nodes").iter().filter(|node| is_simulated(node) && !fleet.contains(&name(node))) {
        if let Err(error) = server.delete("nodes", "", &name(node), None) {
            tracing::warn!(%error, "a node of an earlier start stays");
        }
    }
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Definitions first: the catalogue's kinds are among them, and they are those of this program.
fn install(server: &embedded::Server, shipped: Vec<Document>) -> Result<()> {
    const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
    for crd in api::crds().into_iter().chain(api::neighbours::crds()) {
        put(server, DEFINITIONS, serde_json::to_value(crd)?).context("installing definitions")?;
    }
    // Where the base set of classes is written.
    if server.get("namespaces", "", operator::NAMESPACE).is_none() {
        let namespace = serde_json::json!({"metadata": {"name": operator::NAMESPACE}});
        server.create("namespaces", namespace).context("namespaces")?;
    }
    for document in shipped {
        let kind = server.registry().by_kind(document.api_version(), document.kind());
        let resource = kind.with_context(|| format!("catalogue: {} is not defined", document.kind()))?.qualified();
        offer(server, &resource, &document.value).with_context(|| format!("catalogue: {resource}"))?;
    }
    Ok(())
}

/// Brings a shipped object up to date, but for what people have changed in the one that is there.
fn offer(server: &embedded::Server, resource: &str, object: &Value) -> Result<(), Status> {
    match server.apply(resource, object, CATALOGUE) {
        Err(status) if status.code == 409 => {
            let name = name(object);
            output::tell(&format!("note: {resource}/{name} stays as it was edited: {}", status.message));
            output::tell(&format!("hint: for the shipped one, `kubectl delete {resource}/{name}` and start again"));
            Ok(())
        }
        applied => applied.map(|_| ()),
    }
}

fn put(server: &embedded::Server, resource: &str, object: Value) -> Result<(), Status> {
    let [namespace, name] = ["namespace", "name"].map(|field| object["metadata"][field].as_str().unwrap_or(""));
    match server.get(resource, namespace, name) {
        Some(_) => server.update(resource, object),
        None => server.create(resource, object),
    }
    .map(|_| ())
}
