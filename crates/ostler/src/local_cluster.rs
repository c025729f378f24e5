//! The local cluster of `ostler up`: embedded Kubernetes, operator, controller of dual pods and gateway in one process.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;

use actuation::{ControllerOptions, Settings};
use anyhow::{Context, Result};
use api::Document;
use apimachinery::Status;
use cluster::{Health, SystemClock};
use embedded::ports::{Ports, ServerPorts, TcpNetwork};
use embedded::{Cluster, Store};
use kube::Client;
use picker::GatewayOptions;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::admission::OperatorAdmission;
use crate::background_tasks::BackgroundTasks;
use crate::connect;
use crate::gpu_map;
use crate::host_node;
use crate::host_runtime::HostRuntime;
use crate::metrics_server::{self, GatewayPages, MonitoredController};
use crate::node_devices::NodeDevices;
use crate::node_groups;
use crate::node_memories::NodeMemories;
use crate::output;
use crate::progress::TaskGroup;
use crate::report::errors::error_with_hint;
use crate::report::task_status::TaskOwner;
use crate::start_nodes::StartNodes;
use crate::state_directory::StateDirectory;

/// Field manager of the shipped definitions and of the objects of the shipped catalog.
const CATALOG_MANAGER: &str = "ostler-catalogue";
/// Field manager of the nodes that the embedded cluster registers, and of the definitions that earlier versions installed.
const NODE_MANAGER: &str = "kube-controller-manager";
/// Resource of the definitions.
const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Listeners of the servers. They are bound before anything starts, so a port in use is reported early.
pub(crate) struct Listeners {
    pub api: std::net::TcpListener,
    pub gateway: std::net::TcpListener,
    pub metrics: std::net::TcpListener,
}

/// A running cluster.
pub(crate) struct LocalCluster {
    pub cluster: Cluster,
    /// Client that calls the API server without a network connection.
    pub client: Client,
    pub api: SocketAddr,
    pub gateway: SocketAddr,
    pub metrics: SocketAddr,
    operator_health: Arc<Health>,
    actuation_health: Arc<Health>,
    scheduler: Arc<picker::Scheduler>,
    shutdown: CancellationToken,
    gateway_shutdown: CancellationToken,
    /// Cancelled when the gateway has completed its requests.
    gateway_drained: CancellationToken,
}

// === impl LocalCluster ===

impl LocalCluster {
    /// Starts the cluster with the objects of the store, installs the CustomResourceDefinitions and the shipped catalog, and
    /// writes the kubeconfig.
    pub(crate) async fn start(
        store: Store,
        start_nodes: StartNodes,
        options: operator::Options,
        gateway_options: GatewayOptions,
        listeners: Listeners,
        state_directory: &StateDirectory,
        mut runtime: HostRuntime,
    ) -> Result<(Self, BackgroundTasks)> {
        let credentials = state_directory.credentials()?;
        let StartNodes { nodes, retains_others, accelerators } = start_nodes;
        let devices = NodeDevices { host: host_node::find(&nodes).map(|host| (host.to_owned(), accelerators)) };
        let node_names: BTreeSet<String> = nodes.iter().map(object_name).collect();
        let admission = Arc::new(OperatorAdmission::default());
        let devices = Arc::new(devices);
        let node_memories = Arc::new(NodeMemories::new(Arc::clone(&devices)));
        runtime.engines.node_memories = Some(Arc::clone(&node_memories));
        let shutdown = CancellationToken::new();
        runtime.end = shutdown.clone();
        let cluster = Cluster::start_with_store(
            store,
            ports(admission.clone(), runtime, Arc::clone(&devices)),
            nodes,
            state_directory.node_directories(),
        )
        .map_err(|error| error_with_hint(error.to_string(), "correct the node in the file of --nodes"))?;
        let server = cluster.server().clone();
        if !retains_others {
            delete_removed_nodes(&server, &node_names);
        }
        if let Err(status) = gpu_map::update(&server, &devices) {
            output::print_message(&format!("warning: ConfigMap default/gpu-map is not updated: {}", status.message));
        }
        admission.set_server(server.clone());
        node_memories.set_server(server.clone());
        let client = cluster::client_of_service(embedded::router(&server), "default");
        let catalog = crate::catalog::documents()?;
        let options = operator::Options { known_classes: crate::catalog::classes(&catalog), ..options };
        install(&server, catalog)?;

        let (api, gateway) = (listeners.api.local_addr()?, listeners.gateway.local_addr()?);
        let metrics = listeners.metrics.local_addr()?;
        let kubeconfig = state_directory.kubeconfig();
        let extension = (connect::GATEWAY_EXTENSION, serde_json::json!({"metrics": metrics.to_string()}));
        let text = embedded::kubeconfig(&credentials, &format!("https://{api}"), &[extension]);
        embedded::write_kubeconfig(&kubeconfig, &text).with_context(|| kubeconfig.display().to_string())?;

        let mut tasks = BackgroundTasks::new(shutdown.clone());
        let token = shutdown.clone();
        tasks.spawn("API server", async move { embedded::serve(server, listeners.api, &credentials, token).await });
        let operator_health = Arc::clone(&options.health);
        let actuation_options = actuation_options(&client);
        let actuation_health = Arc::clone(&actuation_options.health);
        let metrics_listener = TcpListener::from_std(listeners.metrics)?;
        let scheduler = spawn_pool_watch(&mut tasks, &client, &shutdown);
        let (scraped, debug) = (Arc::clone(&scheduler), picker::DebugPages::new(Arc::clone(&scheduler)));
        let gateway_pages =
            GatewayPages { render_metrics: Arc::new(move || scraped.render_metrics()), debug: Arc::new(debug) };
        spawn_metrics_server(&mut tasks, metrics_listener, &options, &actuation_options, gateway_pages, &shutdown);
        tasks.spawn("operator", operator::run(client.clone(), options, shutdown.clone()));
        tasks.spawn("controller of dual pods", actuation::run_controller(actuation_options, shutdown.clone()));
        let gateway_listener = TcpListener::from_std(listeners.gateway)?;
        let (gateway_shutdown, gateway_drained) = (shutdown.child_token(), CancellationToken::new());
        let serve =
            picker::serve_gateway(gateway_listener, Arc::clone(&scheduler), gateway_options, gateway_shutdown.clone());
        let drained = gateway_drained.clone().drop_guard();
        tasks.spawn("gateway", async move {
            let _drained = drained;
            serve.await
        });
        let local_cluster = Self {
            cluster,
            client,
            api,
            gateway,
            metrics,
            operator_health,
            actuation_health,
            scheduler,
            shutdown,
            gateway_shutdown,
            gateway_drained,
        };
        Ok((local_cluster, tasks))
    }

    /// Returns the background tasks of the embedded cluster, the operator, the controller of dual pods and the gateway.
    pub(crate) fn task_groups(&self) -> [TaskGroup; 4] {
        [
            TaskGroup { owner: TaskOwner::Cluster, statuses: self.cluster.task_statuses() },
            TaskGroup { owner: TaskOwner::Operator, statuses: self.operator_health.task_statuses() },
            TaskGroup { owner: TaskOwner::Actuation, statuses: self.actuation_health.task_statuses() },
            TaskGroup { owner: TaskOwner::Gateway, statuses: self.scheduler.task_statuses() },
        ]
    }

    /// Stops the gateway, and then all containers and tasks: engines complete the requests of the gateway while it drains.
    pub(crate) async fn stop(self, tasks: BackgroundTasks) {
        self.gateway_shutdown.cancel();
        self.gateway_drained.cancelled().await;
        self.shutdown.cancel();
        self.cluster.stop().await;
        tasks.join().await;
    }
}

/// Returns the options of the controller of dual pods, for all namespaces.
fn actuation_options(client: &Client) -> ControllerOptions {
    ControllerOptions {
        client: client.clone(),
        leader_election: None,
        namespaces: Vec::new(),
        namespace: gpu_map::NAMESPACE.to_owned(),
        settings: Settings::default(),
        metrics: Arc::default(),
        health: Arc::default(),
    }
}

/// Spawns the server of the metrics of operator, controller of dual pods and gateway.
fn spawn_metrics_server(
    tasks: &mut BackgroundTasks,
    listener: TcpListener,
    options: &operator::Options,
    actuation_options: &ControllerOptions,
    gateway_pages: GatewayPages,
    shutdown: &CancellationToken,
) {
    let (operator, actuation) = (Arc::clone(&options.metrics), Arc::clone(&actuation_options.metrics));
    let controllers = vec![
        MonitoredController {
            render_metrics: Arc::new(move || operator.render()),
            health: Arc::clone(&options.health),
        },
        MonitoredController {
            render_metrics: Arc::new(move || actuation.render()),
            health: Arc::clone(&actuation_options.health),
        },
    ];
    let stop = shutdown.clone();
    tasks.spawn("metrics", async move {
        metrics_server::serve(listener, controllers, Some(gateway_pages), stop).await;
        Ok::<_, Infallible>(())
    });
}

/// Spawns the watch of the backend pools. Returns the scheduler of the gateway.
fn spawn_pool_watch(
    tasks: &mut BackgroundTasks,
    client: &Client,
    shutdown: &CancellationToken,
) -> Arc<picker::Scheduler> {
    let scheduler = Arc::new(picker::Scheduler::new(picker::SchedulingPolicy::default(), fastrand::u64(..)));
    // There is no other implementation of the Gateway API.
    let options = picker::WatchOptions {
        served_gateways: picker::ServedGateways::All,
        ..picker::WatchOptions::new(Arc::new(SystemClock))
    };
    tasks.spawn("pools", picker::watch_pools(client.clone(), Arc::clone(&scheduler), options, shutdown.clone()));
    scheduler
}

fn ports(admission: Arc<OperatorAdmission>, runtime: HostRuntime, devices: Arc<NodeDevices>) -> Ports {
    Ports {
        server: ServerPorts { admission, ..ServerPorts::default() },
        runtime: Arc::new(runtime),
        network: Arc::new(TcpNetwork),
        devices,
    }
}

/// Deletes simulated nodes of an earlier start that are not in `node_names`.
fn delete_removed_nodes(server: &embedded::Server, node_names: &BTreeSet<String>) {
    let is_removed = |node: &Value| is_simulated_by_ostler(node) && !node_names.contains(&object_name(node));
    for node in server.list("nodes").iter().filter(|node| is_removed(node)) {
        let uid = Some(cluster::metadata_field(node, "uid"));
        if let Err(error) = server.delete("nodes", "", &object_name(node), uid) {
            tracing::warn!(name = object_name(node), %error, "failed to delete a node of an earlier start");
        }
    }
}

/// Returns whether an earlier start registered the simulated node. A user's copy has the same annotation, but another field
/// manager; a copy under another name with the field managers has another hostname.
fn is_simulated_by_ostler(node: &Value) -> bool {
    let metadata = &node["metadata"];
    let field = format!("f:{}", node_groups::SIMULATED_ANNOTATION);
    let mut entries = node["metadata"]["managedFields"].as_array().into_iter().flatten();
    metadata["annotations"][node_groups::SIMULATED_ANNOTATION] == "true"
        && metadata["labels"]["kubernetes.io/hostname"] == metadata["name"]
        && entries.any(|entry| {
            entry["manager"] == NODE_MANAGER && entry["fieldsV1"]["f:metadata"]["f:annotations"][&field].is_object()
        })
}

fn object_name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Installs the CustomResourceDefinitions of this release, which include the kinds of the catalog, and then the catalog. An
/// object that conflicts with one in the data directory is reported and does not prevent the start.
fn install(server: &embedded::Server, catalog: Vec<Document>) -> Result<()> {
    for crd in api::crds().into_iter().chain(api::integrations::crds()) {
        let crd = serde_json::to_value(crd)?;
        let name = object_name(&crd);
        skip_rejected(apply_definition(server, crd), CRDS, &name)
            .context("failed to install CustomResourceDefinitions")?;
    }
    // The namespace of the base set of accelerator classes.
    if server.get("namespaces", "", operator::DEFAULT_NAMESPACE).is_none() {
        let namespace = serde_json::json!({"metadata": {"name": operator::DEFAULT_NAMESPACE}});
        server.create("namespaces", namespace).context("namespaces")?;
    }
    for document in catalog {
        let Some(resource) = server.group_resource(document.api_version(), document.kind()) else {
            // Its CustomResourceDefinition was rejected.
            continue;
        };
        let result = apply_catalog_object(server, &resource, &document.value);
        skip_rejected(result, &resource, &object_name(&document.value))
            .with_context(|| format!("catalog: {resource}"))?;
    }
    Ok(())
}

/// Applies a definition like an object of the catalog.
fn apply_definition(server: &embedded::Server, definition: Value) -> Result<(), Status> {
    let live = server.get(CRDS, "", &object_name(&definition));
    match live.is_some_and(|live| is_managed_only_by(&live, NODE_MANAGER)) {
        true => server.update(CRDS, definition).map(|_| ()),
        false => apply_catalog_object(server, CRDS, &definition),
    }
}

/// Returns whether `manager` and no other client has written the object, apart from its status. Earlier releases created
/// definitions with an update, not with an apply.
fn is_managed_only_by(object: &Value, manager: &str) -> bool {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let managers: BTreeSet<Option<&str>> =
        entries.filter(|entry| entry["subresource"].is_null()).map(|entry| entry["manager"].as_str()).collect();
    managers == BTreeSet::from([Some(manager)])
}

/// Applies an object of the catalog. An object that a user has created or edited is not changed.
fn apply_catalog_object(server: &embedded::Server, resource: &str, object: &Value) -> Result<(), Status> {
    let name = object_name(object);
    let live = server.get(resource, cluster::metadata_field(object, "namespace"), &name);
    if live.is_some_and(|live| !cluster::is_managed_by(&live, CATALOG_MANAGER)) {
        report_retained(resource, &name, "was not created by `ostler up` and is not updated");
        return Ok(());
    }
    match server.apply(resource, object, CATALOG_MANAGER) {
        Err(status) if status.code == 409 => {
            report_retained(resource, &name, &format!("was edited and is not updated: {}", status.message));
            Ok(())
        }
        result => result.map(|_| ()),
    }
}

/// Reports an object that the API server rejects, because the data directory contains an incompatible object.
///
/// # Errors
/// Returns the errors of the server, such as a full disk, which affect all objects.
fn skip_rejected(result: Result<(), Status>, resource: &str, name: &str) -> Result<(), Status> {
    match result {
        Err(status) if (400..500).contains(&status.code) => {
            output::print_message(&format!("warning: {resource}/{name} is not updated: {}", status.message));
            output::print_message(&format!("hint: to install the shipped object, {}", remedy(resource, name)));
            Ok(())
        }
        result => result,
    }
}

/// Returns how a user replaces a stored object with the shipped one. The deletion of a definition would delete its objects.
fn remedy(resource: &str, name: &str) -> String {
    if resource != CRDS {
        return format!("run `kubectl delete {resource}/{name}` and restart `ostler up`");
    }
    if api::crds().iter().any(|definition| object_name(definition) == name) {
        return format!(
            "run `ostler crds | kubectl apply --server-side --force-conflicts --field-manager={CATALOG_MANAGER} -f -`"
        );
    }
    format!("run `kubectl delete {resource}/{name}`, which also deletes its objects, and restart `ostler up`")
}

/// Prints why a shipped object is not applied, and how to restore it.
fn report_retained(resource: &str, name: &str, cause: &str) {
    output::print_message(&format!("note: {resource}/{name} {cause}"));
    output::print_message(&format!("hint: to restore the shipped object, {}", remedy(resource, name)));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn definitions_of_other_clients_are_recognized() {
        let object = |entries: &[(&str, Option<&str>)]| {
            let entry =
                |(manager, subresource): &(&str, Option<&str>)| json!({"manager": manager, "subresource": subresource});
            json!({"metadata": {"managedFields": entries.iter().map(entry).collect::<Vec<_>>()}})
        };
        for (entries, expect) in [
            (vec![(NODE_MANAGER, None)], true),
            (vec![(NODE_MANAGER, None), ("apiserver", Some("status"))], true),
            (vec![(NODE_MANAGER, None), ("kubectl-edit", None)], false),
            (vec![("kubectl", None)], false),
            (vec![], false),
        ] {
            assert_eq!(is_managed_only_by(&object(&entries), NODE_MANAGER), expect, "{entries:?}");
        }
    }
}
