//! `ostler operator`: runs the controllers against a Kubernetes cluster.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use operator::{LeaderElection, Options, WebhookOptions, WebhookTarget};
use tokio_util::sync::CancellationToken;

use super::feature_gates::FeatureGates;
use crate::connect::{self, ConnectArgs};
use crate::exit::Exit;
use crate::report::errors::error_with_hint;
use crate::shutdown::shutdown_token;
use crate::{catalog, listener};

/// Timeout for open connections of the metrics server after the operator has stopped.
const METRICS_STOP_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub(crate) struct OperatorArgs {
    /// Reconcile only while holding a lease
    ///
    /// With leader election, several replicas may run.
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    leader_elect: bool,
    /// Create the lease in this namespace [default: that of the context or the Pod]
    #[arg(long, value_name = "NAMESPACE")]
    leader_elect_namespace: Option<String>,
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

/// Checks that the name of a namespace is a DNS label. The API server lists no objects of an invalid one, without an error.
fn parse_namespace(name: &str) -> Result<String, String> {
    let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let has_valid_ends = |name: &str| {
        name.bytes()
            .next()
            .zip(name.bytes().last())
            .is_some_and(|(first, last)| is_alphanumeric(first) && is_alphanumeric(last))
    };
    match name.len() <= 63 && has_valid_ends(name) && name.bytes().all(|byte| is_alphanumeric(byte) || byte == b'-') {
        true => Ok(name.to_owned()),
        false => Err("expected lowercase letters, digits and `-`".to_owned()),
    }
}

pub(super) async fn run(args: OperatorArgs) -> Result<Exit> {
    let shutdown = shutdown_token()?;
    let webhook = args.webhook.map(|address| webhook(address, args.webhook_service.as_deref())).transpose()?;
    let listener = listener::bind(args.metrics, "--metrics").await?;
    let client = connect::client(&args.connect).await?;
    client.apiserver_version().await.context("the Kubernetes API server does not respond")?;
    let picker_image = picker_image(&client, &args).await;
    let namespace = args.leader_elect_namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let leader_election = LeaderElection {
        namespace,
        name: args.leader_elect_resource_name,
        identity: identity(),
        timings: Default::default(),
    };
    let options = Options {
        leader_election: args.leader_elect.then_some(leader_election),
        namespace: args.operator_namespace,
        discovery: !args.no_discovery,
        namespaces: args.namespaces,
        known_classes: catalog::classes(&catalog::documents()?),
        picker_image,
        webhook,
        ..args.gates.options()
    };
    tracing::info!(address = %listener.local_addr()?, "serving metrics");
    let (metrics, health) = (Arc::clone(&options.metrics), Arc::clone(&options.health));
    let serve_metrics = async |stop| {
        // In its own task, so that probes get a response while the operator computes.
        tokio::spawn(operator::serve_metrics(listener, metrics, health, stop))
            .await
            .context("metrics")?
            .context("metrics")
    };
    let run_operator = async |stop| operator::run(client, options, stop).await.context("operator");
    run_with_metrics(shutdown, run_operator, serve_metrics).await?;
    Ok(Exit::Success)
}

/// Runs the operator until `shutdown`, and serves metrics until the operator has stopped. If one of them fails, the other
/// stops as after a shutdown.
async fn run_with_metrics(
    shutdown: CancellationToken,
    run_operator: impl AsyncFnOnce(CancellationToken) -> Result<()>,
    serve_metrics: impl AsyncFnOnce(CancellationToken) -> Result<()>,
) -> Result<()> {
    let stop_metrics = CancellationToken::new();
    let operator = async {
        let result = run_operator(shutdown.clone()).await;
        stop_metrics.cancel();
        result
    };
    let metrics = async {
        // A client that does not close its connection must not delay the exit.
        let is_late = async {
            stop_metrics.cancelled().await;
            tokio::time::sleep(METRICS_STOP_TIMEOUT).await;
        };
        let result = tokio::select! {
            result = serve_metrics(stop_metrics.clone()) => result,
            () = is_late => Ok(()),
        };
        shutdown.cancel();
        result
    };
    let (operator, metrics) = tokio::join!(operator, metrics);
    operator.and(metrics)
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

/// Returns the identity for leader election: the host name, and a random number that distinguishes processes of a host.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "ostler".to_owned());
    format!("{host}_{:016x}", fastrand::u64(..))
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use rstest::rstest;

    use super::*;

    /// Runs an operator that takes three seconds to stop, and returns the steps in order.
    async fn steps(metrics_fail: bool) -> (Result<()>, Vec<&'static str>) {
        let (steps, shutdown) = (Mutex::new(Vec::new()), CancellationToken::new());
        let step = |step| steps.lock().unwrap().push(step);
        let run_operator = async |stop: CancellationToken| {
            stop.cancelled().await;
            step("operator is stopping");
            tokio::time::sleep(Duration::from_secs(3)).await;
            step("operator stopped");
            Ok(())
        };
        let serve_metrics = async |stop: CancellationToken| {
            anyhow::ensure!(!metrics_fail, "address in use");
            stop.cancelled().await;
            step("metrics are stopping");
            // A connection remains open.
            std::future::pending().await
        };
        if !metrics_fail {
            shutdown.cancel();
        }
        let run = run_with_metrics(shutdown, run_operator, serve_metrics);
        let result = tokio::time::timeout(Duration::from_secs(5), run).await.unwrap();
        (result, steps.into_inner().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn metrics_are_served_until_the_operator_has_stopped() {
        let (result, steps) = steps(false).await;
        result.unwrap();
        assert_eq!(steps, ["operator is stopping", "operator stopped", "metrics are stopping"]);
    }

    #[tokio::test(start_paused = true)]
    async fn failing_metrics_server_stops_the_operator() {
        let (result, steps) = steps(true).await;
        assert_eq!(result.unwrap_err().to_string(), "address in use");
        assert_eq!(steps, ["operator is stopping", "operator stopped"]);
    }

    #[rstest]
    #[case("team-a", true)]
    #[case("0", true)]
    #[case("", false)]
    #[case("Team", false)]
    #[case("team_a", false)]
    #[case("-team", false)]
    #[case("a,b", false)]
    fn namespaces_are_dns_labels(#[case] name: &str, #[case] expect: bool) {
        assert_eq!(parse_namespace(name).is_ok(), expect);
    }
}
