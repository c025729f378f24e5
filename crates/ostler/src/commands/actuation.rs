//! `ostler actuation`: runs the controller of dual pods against a Kubernetes cluster.

mod gpu_map;
mod release;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actuation::{ControllerOptions, LauncherSettings, Mode, Settings};
use anyhow::{Context, Result};

use super::leader_election_args::LeaderElectionArgs;
use super::namespace_argument::parse_namespace;
use super::time_limit::parse_duration;
use crate::connect::{self, ConnectArgs};
use crate::exit::Exit;
use crate::listener;
use crate::metrics_server::{self, MonitoredController};
use crate::shutdown::shutdown_token;

/// Run the controller that puts idle engines to sleep and wakes them
///
/// A Pod with the annotation `dual-pods.llm-d.ai/server-patch` requests accelerators. The controller runs its engine in another Pod
/// on the same node, puts the engine to sleep when the Pod is deleted, and wakes it for the next Pod that needs the same engine on
/// the same accelerators.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ActuationArgs {
    #[command(subcommand)]
    command: Option<ActuationCommand>,
    #[command(flatten)]
    controller: ControllerArgs,
}

#[derive(clap::Subcommand)]
enum ActuationCommand {
    GpuMap(gpu_map::GpuMapArgs),
    Release(release::ReleaseArgs),
}

#[derive(clap::Args)]
struct ControllerArgs {
    #[command(flatten)]
    leader_election: LeaderElectionArgs,
    /// Use the lease of this name
    ///
    /// Controllers in one namespace that watch different namespaces need different leases.
    #[arg(long, value_name = "NAME", default_value = actuation::LEASE_NAME)]
    leader_elect_resource_name: String,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Watch and write only this namespace; repeat it for several [default: all]
    #[arg(short, long = "namespace", value_name = "NAMESPACE", value_parser = parse_namespace)]
    namespaces: Vec<String>,
    /// Use the gpu-map of this namespace where a namespace has none
    ///
    /// The default is the namespace of the context.
    #[arg(long, env = "POD_NAMESPACE", value_name = "NAMESPACE", value_parser = parse_namespace)]
    controller_namespace: Option<String>,
    #[command(flatten)]
    settings: SettingsArgs,
    /// Serve metrics on this address
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9465")]
    metrics: SocketAddr,
}

#[derive(clap::Args)]
struct SettingsArgs {
    /// Let this many engines sleep on each accelerator while another one is awake
    #[arg(long, value_name = "NUMBER", default_value_t = Settings::default().sleeper_limit)]
    sleeper_limit: usize,
    /// Delete engines that have been asleep for this long; 0 retains them
    #[arg(long, value_name = "DURATION", default_value = "0", value_parser = parse_duration)]
    sleeper_ttl: Duration,
    /// Let a sleeping engine retain this much accelerator memory, in MiB
    ///
    /// Requesters without nvidia-smi report no memory, which is then not checked.
    #[arg(long, value_name = "MIB", default_value_t = Settings::default().residue_mib)]
    sleeper_memory: u64,
    /// Drain requests for at most this long before sleep; 0 aborts them
    ///
    /// The grace period of the requester minus 5 s is a limit, too.
    #[arg(long, value_name = "DURATION", default_value = "20s", value_parser = parse_duration)]
    drain: Duration,
    /// Delete engines whose completion differs after waking
    ///
    /// It is compared with the completion when the engine was first ready.
    #[arg(long)]
    verify_completion: bool,
    /// Run engines as Pods (`direct`), or as instances of a Pod that can run several (`launcher`)
    ///
    /// The annotation `dual-pods.llm-d.ai/mode` of a requester has precedence.
    #[arg(long, value_name = "MODE", default_value = "direct")]
    mode: Mode,
    /// Copy `ostler` from this image into launchers
    #[arg(long, value_name = "IMAGE", default_value_t = LauncherSettings::default().image)]
    launcher_image: String,
    /// Let a launcher run this many engines
    #[arg(long, value_name = "NUMBER", default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    launcher_instances: u16,
}

// === impl SettingsArgs ===

impl SettingsArgs {
    fn settings(&self) -> Settings {
        Settings {
            sleeper_limit: self.sleeper_limit,
            sleeper_ttl: Some(self.sleeper_ttl).filter(|ttl| !ttl.is_zero()),
            drain: self.drain,
            verify_completion: self.verify_completion,
            residue_mib: self.sleeper_memory,
            mode: self.mode,
            launcher: LauncherSettings {
                image: self.launcher_image.clone(),
                max_instances: self.launcher_instances.into(),
            },
            ..Settings::default()
        }
    }
}

pub(super) async fn run(args: ActuationArgs) -> Result<Exit> {
    match args.command {
        None => run_controller(args.controller).await,
        Some(ActuationCommand::GpuMap(args)) => gpu_map::run(args).await,
        Some(ActuationCommand::Release(args)) => release::run(args).await,
    }
}

async fn run_controller(args: ControllerArgs) -> Result<Exit> {
    let shutdown = shutdown_token()?;
    let listener = listener::bind(args.metrics, "--metrics").await?;
    let client = connect::client(&args.connect).await?;
    client.apiserver_version().await.context("the Kubernetes API server does not respond")?;
    let options = ControllerOptions {
        leader_election: args.leader_election.options(&client, args.leader_elect_resource_name),
        namespaces: args.namespaces,
        namespace: args.controller_namespace.unwrap_or_else(|| client.default_namespace().to_owned()),
        settings: args.settings.settings(),
        metrics: Arc::default(),
        health: Arc::default(),
        client,
    };
    let metrics = Arc::clone(&options.metrics);
    let controller =
        MonitoredController { render_metrics: Arc::new(move || metrics.render()), health: Arc::clone(&options.health) };
    let run_controller = async |stop| actuation::run_controller(options, stop).await.context("controller");
    metrics_server::run_monitored(shutdown, listener, controller, run_controller).await?;
    Ok(Exit::Success)
}
