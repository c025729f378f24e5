//! The subcommands, one file each, and what several of them use: `object_reference` (`KIND/NAME` arguments),
//! `target_service` (the service that a command changes), `leader_election_args`,
//! `namespace_argument`, `request_memory`, `time_limit`, `control_fields`, `objective_window`,
//! `session_header`, `access_log`.

mod access_log;
mod actuation;
mod catalog;
mod control_fields;
mod crds;
mod engine;
mod explain;
mod feature_gates;
mod gateway;
mod launcher;
mod leader_election_args;
mod lint;
mod namespace_argument;
mod object_reference;
mod objective_window;
mod operator;
mod peers;
mod pending_rollout;
mod picker;
mod plan;
mod plan_diff;
mod redecide;
mod request_memory;
mod requester;
mod rollout;
mod rollout_change;
mod scale;
mod session_header;
mod target_service;
mod time_limit;
mod up;

use anyhow::Result;
use clap::Subcommand;

use crate::exit::Exit;
use crate::logging;
use crate::requester_args::RequesterArgs;

/// A subcommand with its arguments.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a local cluster: Kubernetes API, controllers and gateway
    Up(up::UpArgs),
    /// Show the selected runtime, accelerators and objects of a service; change nothing
    Plan(plan::PlanArgs),
    /// Explain why a service is not ready, a class is empty or a runtime is not selected
    Explain(explain::ExplainArgs),
    /// Re-run selection for a service that retains an earlier selection
    Redecide(redecide::RedecideArgs),
    /// Manage the rollout of a service: status, history, pause, resume, undo
    Rollout(rollout::RolloutArgs),
    /// Set the number of replicas of a role or component
    Scale(scale::ScaleArgs),
    /// Validate manifests without a cluster
    Lint(lint::LintArgs),
    /// List and show the shipped runtimes, accelerator classes and models
    Catalog(catalog::CatalogArgs),
    /// Print the CustomResourceDefinitions as YAML
    Crds,
    /// Run the controllers against a Kubernetes cluster
    Operator(operator::OperatorArgs),
    /// Run the controller of dual pods: put idle engines to sleep and wake them for other Pods
    Actuation(actuation::ActuationArgs),
    Gateway(Box<gateway::GatewayArgs>),
    /// Run the endpoint picker of an InferencePool (ext_proc server)
    Picker(Box<picker::PickerArgs>),
    /// Run a simulated OpenAI-compatible engine
    Engine(engine::EngineArgs),
    /// Run the requester of a dual pod: report its accelerators and the readiness of its engine
    Requester(RequesterArgs),
    /// Run the launcher of dual pods: start and stop engines in one Pod over HTTP
    Launcher(crate::launcher_args::LauncherArgs),
}

impl Command {
    /// Returns the log filter that applies unless `--log-level` or the environment sets another.
    pub(crate) fn default_log_filter(&self) -> &'static str {
        match self {
            Command::Picker(args) => args.default_log_filter(),
            Command::Gateway(args) if !args.runs_gateway() => logging::WARN,
            Command::Operator(_)
            | Command::Actuation(_)
            | Command::Gateway(_)
            | Command::Engine(_)
            | Command::Requester(_)
            | Command::Launcher(_) => logging::INFO,
            _ => logging::WARN,
        }
    }

    /// Returns whether the command runs once per Pod and does little, so that one thread serves it with less memory.
    pub(crate) fn is_single_threaded(&self) -> bool {
        matches!(self, Command::Requester(_) | Command::Launcher(_))
    }
}

/// Runs the command.
pub(crate) async fn run(command: Command) -> Result<Exit> {
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
        Command::Actuation(args) => actuation::run(args).await,
        Command::Gateway(args) => gateway::run(*args).await,
        Command::Picker(args) => picker::run(*args).await,
        Command::Engine(args) => engine::run(args).await,
        Command::Requester(args) => requester::run(args).await,
        Command::Launcher(args) => launcher::run(args).await,
    }
}
