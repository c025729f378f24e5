//! `ostler operator`: the controllers, against any Kubernetes cluster.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result};
use operator::admission::webhook::{Target, Webhook};
use operator::{Options, Seat};
use tokio::net::TcpListener;

use super::gates::FeatureGates;
use super::{bind_error, interrupted};
use crate::catalog;
use crate::connect::{self, ConnectArgs};
use crate::report::errors::hinted;

#[derive(clap::Args)]
pub(crate) struct OperatorArgs {
    /// Work only while holding the lease `ostler-operator`, so that several replicas may run
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    leader_elect: bool,
    /// Namespace of that lease; the context's, or the Pod's own, without it
    #[arg(long, value_name = "NAMESPACE")]
    leader_elect_namespace: Option<String>,
    /// Serve the admission webhook at this address, and configure the cluster to ask it
    #[arg(long, value_name = "ADDRESS")]
    webhook: Option<SocketAddr>,
    /// The Service that leads to the webhook; without it the cluster calls the address itself
    #[arg(long, value_name = "NAMESPACE/NAME", requires = "webhook")]
    webhook_service: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    gates: FeatureGates,
    /// Namespace of the operator: the base set of accelerator classes is read there
    #[arg(long, env = "POD_NAMESPACE", default_value = operator::NAMESPACE)]
    operator_namespace: String,
    /// Make no accelerator classes from the labels of nodes
    #[arg(long)]
    no_discovery: bool,
    /// Name of the Pod that this operator is, in its namespace: the pickers of routers run the same image
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    operator_pod: Option<String>,
    /// Image of the endpoint pickers of routers; without it the operator's own
    #[arg(long, env = "OSTLER_PICKER_IMAGE", value_name = "IMAGE")]
    picker_image: Option<String>,
    /// Address of the metrics
    #[arg(long, default_value = "127.0.0.1:9464")]
    metrics: SocketAddr,
}

pub(super) async fn run(args: OperatorArgs) -> Result<ExitCode> {
    let stop = interrupted()?;
    let webhook = args.webhook.map(|address| webhook(address, args.webhook_service.as_deref())).transpose()?;
    let listener =
        TcpListener::bind(args.metrics).await.map_err(|error| bind_error(args.metrics, "--metrics", &error))?;
    let client = connect::client(&args.connect).await?;
    client.apiserver_version().await.context("the Kubernetes API does not answer")?;
    let picker_image = picker_image(&client, &args).await;
    let namespace = args.leader_elect_namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let seat = Seat { namespace, identity: identity(), terms: Default::default() };
    let options = Options {
        seat: args.leader_elect.then_some(seat),
        namespace: args.operator_namespace,
        discovery: !args.no_discovery,
        known_classes: catalog::classes(&catalog::documents()?),
        picker_image,
        webhook,
        ..args.gates.options()
    };
    let scrapes = operator::metrics::serve(listener, Arc::clone(&options.metrics), stop.clone());
    tokio::select! {
        ended = operator::run(client, options, stop) => ended.context("operator")?,
        ended = scrapes => ended.context("metrics")?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What is stated, else the image of the operator's own Pod, else that of this release.
async fn picker_image(client: &kube::Client, args: &OperatorArgs) -> String {
    if let Some(stated) = &args.picker_image {
        return stated.clone();
    }
    let own = match &args.operator_pod {
        Some(pod) => operator::own_image(client.clone(), &args.operator_namespace, pod).await,
        None => None,
    };
    own.unwrap_or_else(|| plan::PICKER_IMAGE.to_owned())
}

/// The Pod's name, and something that two processes of one host do not share.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "ostler".to_owned());
    format!("{host}_{:016x}", fastrand::u64(..))
}

fn webhook(address: SocketAddr, service: Option<&str>) -> Result<Webhook> {
    let listener = std::net::TcpListener::bind(address).map_err(|error| bind_error(address, "--webhook", &error))?;
    let target = match service {
        Some(service) => {
            let (namespace, name) = service
                .split_once('/')
                .filter(|(a, b)| !a.is_empty() && !b.is_empty())
                .ok_or_else(|| hinted(format!("--webhook-service {service}: not a Service"), "write NAMESPACE/NAME"))?;
            Target::Service { namespace: namespace.to_owned(), name: name.to_owned() }
        }
        None if address.ip().is_unspecified() => {
            return Err(hinted(
                format!("--webhook {address}: no address that a cluster can call"),
                "name the Service that leads here with --webhook-service, or one address of this machine",
            ));
        }
        None => Target::Url(listener.local_addr()?),
    };
    Ok(Webhook { listener: Arc::new(listener), target })
}
