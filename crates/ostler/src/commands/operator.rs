//! `ostler operator`: runs the controllers against a Kubernetes cluster.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, Result};
use operator::{Options, WebhookOptions, WebhookTarget};

use super::feature_gates::FeatureGates;
use super::leader_election_args::LeaderElectionArgs;
use super::namespace_argument::parse_namespace;
use crate::connect::{self, ConnectArgs};
use crate::exit::Exit;
use crate::metrics_server::{self, MonitoredController};
use crate::report::errors::error_with_hint;
use crate::shutdown::shutdown_token;
use crate::{catalog, listener};

#[derive(clap::Args)]
pub(crate) struct OperatorArgs {
    #[command(flatten)]
    leader_election: LeaderElectionArgs,
    /// Use the lease of this name
    ///
    /// Operators in one namespace that watch different namespaces need different leases; with the same one, only one of them
    /// works.
    #[arg(long, value_name = "NAME", default_value = operator::LEASE_NAME)]
    leader_elect_resource_name: String,
    /// Serve the admission webhook on this address and register it in the cluster
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "namespaces")]
    webhook: Option<SocketAddr>,
    /// Register the webhook through this Service [default: by its address]
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "webhook")]
    webhook_service: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    gates: FeatureGates,
    /// Watch and write only this namespace; repeat it for several [default: all]
    ///
    /// The operator then writes no cluster-scoped objects: it neither maintains accelerator classes nor serves the webhook.
    #[arg(short, long = "namespace", value_name = "NAMESPACE", value_parser = parse_namespace)]
    namespaces: Vec<String>,
    /// Use this namespace for the operator and the base set of accelerator classes
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE", default_value = operator::DEFAULT_NAMESPACE)]
    operator_namespace: String,
    /// Do not create accelerator classes from node labels
    #[arg(long)]
    no_discovery: bool,
    /// Read the operator's own image from this Pod
    ///
    /// The endpoint pickers of routers run this image.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    operator_pod: Option<String>,
    /// Run the endpoint pickers of routers with this image [default: the operator's]
    #[arg(long, env = "OSTLER_PICKER_IMAGE", value_name = "IMAGE")]
    picker_image: Option<String>,
    /// Serve metrics on this address
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9464")]
    metrics: SocketAddr,
}

pub(super) async fn run(args: OperatorArgs) -> Result<Exit> {
    let shutdown = shutdown_token()?;
    let webhook = args.webhook.map(|address| webhook(address, args.webhook_service.as_deref())).transpose()?;
    let listener = listener::bind(args.metrics, "--metrics").await?;
    let client = connect::client(&args.connect).await?;
    client.apiserver_version().await.context("the Kubernetes API server does not respond")?;
    let picker_image = picker_image(&client, &args).await;
    let options = Options {
        leader_election: args.leader_election.options(&client, args.leader_elect_resource_name),
        namespace: args.operator_namespace,
        discovery: !args.no_discovery,
        namespaces: args.namespaces,
        known_classes: catalog::classes(&catalog::documents()?),
        picker_image,
        webhook,
        ..args.gates.options()
    };
    let metrics = Arc::clone(&options.metrics);
    let controller =
        MonitoredController { render_metrics: Arc::new(move || metrics.render()), health: Arc::clone(&options.health) };
    let run_operator = async |stop| operator::run(client, options, stop).await.context("operator");
    metrics_server::run_monitored(shutdown, listener, controller, run_operator).await?;
    Ok(Exit::Success)
}

/// Returns the image of endpoint pickers: the flag, else the image of the operator's own Pod, else that of this release.
async fn picker_image(client: &kube::Client, args: &OperatorArgs) -> String {
    if let Some(image) = &args.picker_image {
        return image.clone();
    }
    let own_image = match &args.operator_pod {
        Some(pod) => operator::own_image(client.clone(), &args.operator_namespace, pod).await,
        None => None,
    };
    own_image.unwrap_or_else(|| plan::DEFAULT_PICKER_IMAGE.to_owned())
}

fn webhook(address: SocketAddr, service: Option<&str>) -> Result<WebhookOptions> {
    let listener = listener::bind_blocking(address, "--webhook")?;
    let target = match service {
        Some(service) => {
            let (namespace, name) = service
                .split_once('/')
                .filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty())
                .ok_or_else(|| {
                    error_with_hint(format!("--webhook-service {service}: invalid Service"), "write NAMESPACE/NAME")
                })?;
            WebhookTarget::Service { namespace: namespace.to_owned(), name: name.to_owned() }
        }
        None if address.ip().is_unspecified() => {
            return Err(error_with_hint(
                format!("--webhook {address}: the cluster cannot call an unspecified address"),
                "set the Service of the webhook with --webhook-service, or use one address of this host",
            ));
        }
        None => WebhookTarget::Url(listener.local_addr()?),
    };
    Ok(WebhookOptions { listener: Arc::new(listener), target })
}
