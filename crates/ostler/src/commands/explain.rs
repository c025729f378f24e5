//! `ostler explain KIND/NAME`: explains the state of an object in the cluster and suggests changes.

use std::collections::BTreeSet;

use ::actuation::{ClusterView, Settings, watched_kinds};
use anyhow::Result;
use api::dual_pods::GPU_MAP;
use jiff::Timestamp;
use kube::Client;

use super::object_reference::{AcceptedObjects, FoundObject, ObjectReference, ObjectType};
use crate::cluster_objects::{self, ClusterObjects};
use crate::connect::{self, ConnectArgs, Connection};
use crate::exit::Exit;
use crate::gpu_map;
use crate::output::{self, OutputFormat};
use crate::pod_diagnostics;
use crate::report::explain::service::{self, ServiceContext};
use crate::report::explain::{Explanation, actuation, class, model, render, runtime, service_pods};

/// Namespace in which `deploy/` installs the controller of dual pods. That of `ostler up` is `gpu_map::NAMESPACE`.
const CONTROLLER_NAMESPACE: &str = "ome-system";

#[derive(clap::Args)]
pub(crate) struct ExplainArgs {
    /// Object: inferenceservice/, acceleratorclass/, runtime/, model/, pod/ or node/NAME
    ///
    /// Of a Pod, it explains how dual pods serve it; of a node, which engines of dual pods use its GPUs.
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
    connect: ConnectArgs,
}

pub(super) async fn run(args: ExplainArgs) -> Result<Exit> {
    let reference = ObjectReference::parse(&args.object, args.name.as_deref(), AcceptedObjects::Any)?;
    let Connection { client, namespace } = connect::connect(&args.connect).await?;
    let namespace = args.namespace.unwrap_or(namespace);
    let object = reference.read(&client, &namespace).await?;
    let explanation = explain(&client, &namespace, &object).await?;
    let text = match args.output {
        OutputFormat::Text => render(&explanation),
        OutputFormat::Json => serde_json::to_string_pretty(&explanation)?,
    };
    output::print_line(&text)?;
    Ok(Exit::Success)
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
