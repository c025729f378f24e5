//! `ostler explain KIND/NAME`: explains the state of an object in the cluster and suggests changes.

use std::collections::BTreeSet;

use ::actuation::{ClusterView, Settings, watched_kinds};
use anyhow::Result;
use api::dual_pods::GPU_MAP;
use jiff::Timestamp;
use kube::Client;
use picker::PoolDetails;
use serde_json::Value;

use super::object_reference::{AcceptedObjects, FoundObject, ObjectReference, ObjectType};
use crate::cluster_objects::{self, ClusterObjects};
use crate::connect::{self, ConnectArgs, Connection};
use crate::exit::Exit;
use crate::gateway_debug::{GatewayDebug, GatewayDebugArgs};
use crate::gpu_map;
use crate::output::{self, OutputFormat};
use crate::pod_diagnostics;
use crate::report::explain::pool::LiveDetails;
use crate::report::explain::service::{self, ServiceContext};
use crate::report::explain::{Explanation, actuation, class, model, pool, render, runtime, service_pods};

/// Namespace in which `deploy/` installs the controller of dual pods. That of `ostler up` is `gpu_map::NAMESPACE`.
const CONTROLLER_NAMESPACE: &str = "ome-system";

#[derive(clap::Args)]
pub(crate) struct ExplainArgs {
    /// Object: inferenceservice/, acceleratorclass/, runtime/, model/, backendpool/, usecase/, pod/ or node/NAME
    ///
    /// Of a BackendPool, LLMUseCaseSet or LLMUseCase, it explains who gets which share of the engines, what waits and what was rejected. Of a Pod, it explains how dual pods serve it; of a node, which engines of dual pods use its GPUs.
    #[arg(value_name = "KIND/NAME")]
    object: String,
    /// Name of the object, if the first argument is only the kind
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// Use this namespace [default: that of the context]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Print the explanation in this format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    #[command(flatten)]
    gateway: GatewayDebugArgs,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(super) async fn run(args: ExplainArgs) -> Result<Exit> {
    let reference = ObjectReference::parse(&args.object, args.name.as_deref(), AcceptedObjects::Any)?;
    let Connection { client, namespace } = connect::connect(&args.connect).await?;
    let namespace = args.namespace.unwrap_or(namespace);
    let object = reference.read(&client, &namespace).await?;
    let explanation = match object.kind.object_type {
        ObjectType::Pool | ObjectType::UseCases => explain_pools(&args.gateway, &args.connect, &object.value).await?,
        _ => explain(&client, &namespace, &object).await?,
    };
    let text = match args.output {
        OutputFormat::Text => render(&explanation),
        OutputFormat::Json => serde_json::to_string_pretty(&explanation)?,
    };
    output::print_line(&text)?;
    Ok(Exit::Success)
}

/// Explains a BackendPool or use cases with what the gateway knows about their pools, or with their status if none responds.
async fn explain_pools(gateway: &GatewayDebugArgs, connect: &ConnectArgs, object: &Value) -> Result<Explanation> {
    let live = match gateway.known_gateway(connect)? {
        None => LiveDetails::Unavailable("no gateway is known".to_owned()),
        Some(gateway) => read_details(&gateway, object).await,
    };
    Ok(pool::explain(object, &live, Timestamp::now()))
}

/// Reads the details of the pools of an object.
async fn read_details(gateway: &GatewayDebug, object: &Value) -> LiveDetails {
    let mut pools = Vec::new();
    for name in pool::pool_names(object) {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        match gateway.get::<PoolDetails>(&format!("/debug/pools/{namespace}/{name}")).await {
            Ok(details) => pools.extend(details),
            Err(error) => return LiveDetails::Unavailable(error.to_string()),
        }
    }
    let creation = object["metadata"]["creationTimestamp"].as_str().filter(|_| object["kind"] == "BackendPool");
    if creation.is_some_and(|creation| pools.iter().any(|pool| pool.creation_timestamp != creation)) {
        return LiveDetails::Unavailable(format!(
            "the gateway at {} serves another pool of this name",
            gateway.address
        ));
    }
    LiveDetails::Gateway { address: gateway.address.to_string(), pools }
}

/// Explains the object. Of services, it also reads events and logs of Pods with problems.
async fn explain(client: &Client, namespace: &str, found: &FoundObject) -> Result<Explanation> {
    let (object, now) = (&found.value, Timestamp::now());
    Ok(match found.kind.object_type {
        ObjectType::OmeService | ObjectType::RoleBasedService => {
            let objects = read_objects(client, namespace).await?;
            let pods = service_pods(object, &objects);
            let diagnostics = pod_diagnostics::collect(client, namespace, &pods).await;
            service::explain(object, ServiceContext::new(object, &objects, diagnostics, now))
        }
        ObjectType::Class => class::explain(object, &read_objects(client, namespace).await?, now),
        ObjectType::Runtime => runtime::explain(object, &read_objects(client, namespace).await?, now),
        ObjectType::Model => model::explain(object, &read_objects(client, namespace).await?, now),
        ObjectType::Pod => {
            let view = read_dual_pods(client, namespace).await?;
            let events = pod_diagnostics::events(client, namespace, object).await;
            actuation::explain_pod(object, &view, &events, now)
        }
        ObjectType::Node => {
            let view = read_dual_pods(client, namespace).await?;
            actuation::explain_node(object, &view, namespace, &Settings::default(), now)
        }
        ObjectType::Pool | ObjectType::UseCases => {
            pool::explain(object, &LiveDetails::Unavailable("no gateway was queried".to_owned()), now)
        }
    })
}

async fn read_objects(client: &Client, namespace: &str) -> Result<ClusterObjects> {
    let objects = ClusterObjects::read(client, namespace).await?;
    print_notes(&objects.notes());
    Ok(objects)
}

/// Reads the objects that the controller of dual pods reads. Its settings are assumed to be the defaults.
async fn read_dual_pods(client: &Client, namespace: &str) -> Result<ClusterView> {
    let namespaces = BTreeSet::from([namespace, CONTROLLER_NAMESPACE, gpu_map::NAMESPACE]);
    let (objects, notes) =
        cluster_objects::read_kinds(client, &watched_kinds(), namespace, (GPU_MAP, &namespaces)).await?;
    print_notes(&notes);
    let mut maps = objects.iter().filter(|(kind, _)| kind.kind == "ConfigMap").flat_map(|(_, maps)| maps);
    let is_deployed = maps.any(|map| map["metadata"]["namespace"] == CONTROLLER_NAMESPACE);
    let controller_namespace = if is_deployed { CONTROLLER_NAMESPACE } else { gpu_map::NAMESPACE };
    Ok(ClusterView::new(objects, controller_namespace, Settings::default()))
}

fn print_notes(notes: &[String]) {
    notes.iter().for_each(|note| output::print_message(&format!("note: {note}")));
}
