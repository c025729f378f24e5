//! `ostler explain KIND/NAME`: explains the state of an object in the cluster and suggests changes.

use anyhow::Result;
use jiff::Timestamp;
use kube::Client;

use super::object_reference::{AcceptedObjects, FoundObject, ObjectReference, ObjectType};
use crate::cluster_objects::ClusterObjects;
use crate::connect::{self, ConnectArgs, Connection};
use crate::exit::Exit;
use crate::output::{self, OutputFormat};
use crate::pod_diagnostics;
use crate::report::explain::service::{self, ServiceContext};
use crate::report::explain::{Explanation, class, model, render, runtime, service_pods};

#[derive(clap::Args)]
pub(crate) struct ExplainArgs {
    /// Object: inferenceservice/NAME, acceleratorclass/NAME, runtime/NAME or model/NAME
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
    let objects = ClusterObjects::read(&client, &namespace).await?;
    objects.notes().iter().for_each(|note| output::print_message(&format!("note: {note}")));
    let explanation = explain(&client, &namespace, &object, &objects).await;
    let text = match args.output {
        OutputFormat::Text => render(&explanation),
        OutputFormat::Json => serde_json::to_string_pretty(&explanation)?,
    };
    output::print_line(&text)?;
    Ok(Exit::Success)
}

/// Explains the object. Of services, it also reads events and logs of Pods with problems.
async fn explain(client: &Client, namespace: &str, object: &FoundObject, objects: &ClusterObjects) -> Explanation {
    let (object_type, object, now) = (object.kind.object_type, &object.value, Timestamp::now());
    match object_type {
        ObjectType::OmeService | ObjectType::RoleBasedService => {
            let pods = service_pods(object, objects);
            let diagnostics = pod_diagnostics::collect(client, namespace, &pods).await;
            service::explain(object, ServiceContext::new(object, objects, diagnostics, now))
        }
        ObjectType::Class => class::explain(object, objects, now),
        ObjectType::Runtime => runtime::explain(object, objects, now),
        ObjectType::Model => model::explain(object, objects, now),
    }
}
