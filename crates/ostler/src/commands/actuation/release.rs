//! `ostler actuation release`: ends all bindings before the controller of dual pods is removed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actuation::ReleaseSummary;
use anyhow::{Context, Result};
use cluster::{LeaderElector, SystemClock};

use crate::commands::leader_election_args::identity;
use crate::commands::namespace_argument::parse_namespace;
use crate::commands::time_limit::parse_duration;
use crate::connect::{self, ConnectArgs};
use crate::exit::Exit;
use crate::output;
use crate::report::errors::error_with_hint;
use crate::report::names::format_count;
use crate::shutdown::shutdown_token;

/// How long to wait for the Lease: longer than that of a controller that was killed is valid.
const LEASE_TIMEOUT: Duration = Duration::from_secs(20);

/// Delete all providers and remove the finalizers of the controller
///
/// Stop the controller first: the command acquires its lease. Requesters remain, without an engine and not ready.
#[derive(clap::Args)]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Release only this namespace; repeat it for several [default: all]
    #[arg(short, long = "namespace", value_name = "NAMESPACE", value_parser = parse_namespace)]
    namespaces: Vec<String>,
    /// Namespace of the controller's lease
    #[arg(long, value_name = "NAMESPACE", default_value = operator::DEFAULT_NAMESPACE, value_parser = parse_namespace)]
    leader_elect_namespace: String,
    /// Name of the controller's lease
    #[arg(long, value_name = "NAME", default_value = actuation::LEASE_NAME)]
    leader_elect_resource_name: String,
    /// Wait at most this long for the deletion of providers
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = parse_duration)]
    timeout: Duration,
}

pub(super) async fn run(args: ReleaseArgs) -> Result<Exit> {
    let shutdown = shutdown_token()?;
    let client = connect::client(&args.connect).await?;
    let lease = format!("{}/{}", args.leader_elect_namespace, args.leader_elect_resource_name);
    let elector = LeaderElector {
        client,
        clock: Arc::new(SystemClock),
        namespace: args.leader_elect_namespace,
        name: args.leader_elect_resource_name,
        identity: identity(),
        timings: Default::default(),
        on_lease_read: Arc::new(|| {}),
    };
    let is_leading = AtomicBool::new(false);
    let work = |client| {
        is_leading.store(true, Ordering::Relaxed);
        actuation::release(client, &args.namespaces, args.timeout)
    };
    let is_late = async {
        tokio::time::sleep(LEASE_TIMEOUT).await;
        if is_leading.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    };
    let result = tokio::select! {
        result = elector.run(shutdown, work) => result,
        () = is_late => return Err(error_with_hint(
            format!("failed to acquire Lease {lease} of the controller within {} s", LEASE_TIMEOUT.as_secs()),
            "stop the controller, for example with `kubectl -n ome-system scale deployment/ostler-actuation --replicas=0`",
        )),
    };
    let Some(result) = result else { return Ok(Exit::Interrupted) };
    let summary = result.context("failed to release all Pods")?;
    output::print_line(&render(&summary))?;
    Ok(Exit::Success)
}

fn render(summary: &ReleaseSummary) -> String {
    let ReleaseSummary { providers, requesters, unreachable } = summary;
    let (providers, requesters) = (format_count(*providers, "provider"), format_count(*requesters, "requester"));
    let mut text = format!("deleted {providers}, released {requesters}");
    for name in unreachable {
        text.push_str(&format!("\nPod {name} does not respond: once deleted, it ends with its grace period"));
    }
    text
}
