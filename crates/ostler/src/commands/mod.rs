//! Subcommands, one file each.

mod catalog;
mod crds;
mod engine;
pub(crate) mod explain;
mod gates;
mod gateway;
mod lint;
mod operator;
mod picker;
mod plan;
mod redecide;
mod rollout;
mod scale;
mod target;
mod up;

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Subcommand;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::report::errors::hinted;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a whole cluster on this machine: Kubernetes API, controllers and gateway
    Up(up::UpArgs),
    /// Show what would be decided and made, offline or against a cluster; changes nothing
    Plan(plan::PlanArgs),
    /// Why an object is as it is: a service not ready, a class empty, a runtime never chosen
    Explain(explain::ExplainArgs),
    /// Accept what would be chosen today for a service that keeps its choice
    Redecide(redecide::RedecideArgs),
    /// How far a new revision of a service is; its history; pause, resume, undo
    Rollout(rollout::RolloutArgs),
    /// Set how many replicas a role or component of a service has
    Scale(scale::ScaleArgs),
    /// Check manifests without a cluster
    Lint(lint::LintArgs),
    /// What is shipped: runtimes, accelerator classes, models
    Catalog(catalog::CatalogArgs),
    /// Print the custom resource definitions as YAML
    Crds,
    /// Run the controllers against a Kubernetes cluster
    Operator(operator::OperatorArgs),
    /// Run the gateway against a Kubernetes cluster
    Gateway(gateway::GatewayArgs),
    /// Run the endpoint picker of one InferencePool, for a gateway that asks over ext_proc
    Picker(Box<picker::PickerArgs>),
    /// Run one simulated OpenAI engine
    Engine(engine::EngineArgs),
}

impl Command {
    /// What is logged where `OSTLER_LOG` says nothing.
    pub(crate) fn log(&self) -> &'static str {
        match self {
            Command::Picker(args) => args.log(),
            _ => "warn",
        }
    }
}

pub(crate) async fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Up(args) => up::run(args).await,
        Command::Plan(args) => plan::run(args).await,
        Command::Explain(args) => explain::run(args).await,
        Command::Redecide(args) => redecide::run(args).await,
        Command::Rollout(args) => rollout::run(args).await,
        Command::Scale(args) => scale::run(args).await,
        Command::Lint(args) => lint::run(args),
        Command::Crds => crds::run(),
        Command::Catalog(args) => catalog::run(args),
        Command::Operator(args) => operator::run(args).await,
        Command::Gateway(args) => gateway::run(args).await,
        Command::Picker(args) => picker::run(*args).await,
        Command::Engine(args) => engine::run(args).await,
    }
}

/// Exit code of a process that Ctrl-C ended, as a shell reports it.
const INTERRUPTED: i32 = 130;

/// Cancelled by Ctrl-C and by SIGTERM. Who asks a second time does not want to wait.
fn interrupted() -> Result<CancellationToken> {
    // Registered before anything starts, so that no signal finds us unprepared.
    let mut interrupt = signal(SignalKind::interrupt()).context("signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("signals")?;
    let stop = CancellationToken::new();
    let cancel = stop.clone();
    tokio::spawn(async move {
        let mut either = async || {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        either().await;
        cancel.cancel();
        either().await;
        std::process::exit(INTERRUPTED);
    });
    Ok(stop)
}

/// Says who wanted which address, and which flag chooses another.
fn bind_error(address: SocketAddr, flag: &str, error: &io::Error) -> anyhow::Error {
    let hint = match error.kind() {
        io::ErrorKind::AddrInUse => format!("another process listens there: choose another with {flag} 127.0.0.1:0"),
        _ => format!("choose another address with {flag}"),
    };
    hinted(format!("cannot listen on {address}: {error}"), hint)
}
