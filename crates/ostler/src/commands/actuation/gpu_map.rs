//! `ostler actuation gpu-map`: fills the ConfigMap gpu-map.

use std::collections::BTreeMap;
use std::time::Duration;

use actuation::{GpuDiscovery, NodeOutcome};
use anyhow::{Context, Result};

use crate::commands::namespace_argument::parse_namespace;
use crate::commands::time_limit::parse_duration;
use crate::connect::{self, ConnectArgs};
use crate::exit::Exit;
use crate::output;

/// Write the index of each GPU to the ConfigMap gpu-map
///
/// Runs a short Pod on each node with GPUs that has no complete entry. The Pod requests no GPU. Entries that a user wrote are
/// retained.
#[derive(clap::Args)]
pub(crate) struct GpuMapArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Namespace of the ConfigMap and the Pods [default: that of the context]
    #[arg(short, long, value_name = "NAMESPACE", value_parser = parse_namespace)]
    namespace: Option<String>,
    /// Image of the Pods, which contains ostler and a C library
    ///
    /// The container runtime adds nvidia-smi, which needs the C library: the shipped image does not suffice.
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// RuntimeClass of the Pods, such as `nvidia`
    #[arg(long, value_name = "NAME")]
    runtime_class: Option<String>,
    /// Wait at most this long for each Pod
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_duration)]
    timeout: Duration,
}

pub(super) async fn run(args: GpuMapArgs) -> Result<Exit> {
    let connection = connect::connect(&args.connect).await?;
    let discovery = GpuDiscovery {
        namespace: args.namespace.unwrap_or(connection.namespace),
        image: args.image,
        runtime_class: args.runtime_class,
        timeout: args.timeout,
    };
    let outcomes = actuation::discover_gpus(&connection.client, &discovery).await.context("failed to fill gpu-map")?;
    output::print_line(&render(&outcomes))?;
    let has_failed = outcomes.values().any(|outcome| matches!(outcome, NodeOutcome::Failed(_)));
    Ok(if has_failed { Exit::Failure } else { Exit::Success })
}

fn render(outcomes: &BTreeMap<String, NodeOutcome>) -> String {
    if outcomes.is_empty() {
        return "no node has GPUs".to_owned();
    }
    let line = |(node, outcome): (&String, &NodeOutcome)| {
        let outcome = match outcome {
            NodeOutcome::Complete => "already complete".to_owned(),
            NodeOutcome::Retained => {
                "retained the entry of a user, which has fewer GPUs than the node; delete it to replace it".to_owned()
            }
            NodeOutcome::Written(1) => "written, 1 GPU".to_owned(),
            NodeOutcome::Written(count) => format!("written, {count} GPUs"),
            NodeOutcome::Failed(cause) => format!("failed: {cause}"),
        };
        format!("node {node}: {outcome}")
    };
    outcomes.iter().map(line).collect::<Vec<_>>().join("\n")
}
