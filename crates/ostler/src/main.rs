//! The `ostler` binary: command-line parsing, and wiring of the library crates. One file per subcommand.
//!
//! Standard output carries data, standard error carries messages. An error is one line with its cause, followed by a
//! `hint:` line if there is a remedy.

mod admission;
mod apply;
mod background_tasks;
mod catalog;
mod cluster_listing;
mod cluster_objects;
mod commands;
mod connect;
mod container_exit;
#[cfg(test)]
mod container_fixture;
mod demo;
mod exit;
mod files;
mod gateway_debug;
mod gpu_map;
mod gpus;
mod host_node;
mod host_runtime;
mod images;
mod launcher_args;
mod launcher_container;
mod listener;
mod local_cluster;
mod logging;
mod manifest_validation;
mod metrics_server;
mod model_weights;
mod node_devices;
mod node_groups;
mod node_memories;
mod open_files;
mod output;
mod pod_diagnostics;
mod progress;
mod report;
mod requester_args;
mod requester_container;
mod requester_validation;
mod shutdown;
mod simulated_container;
mod simulated_devices;
mod start_nodes;
mod state_directory;
mod stub_container;

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser};

use commands::Command;
use exit::Exit;
use logging::LogArgs;
use mimalloc::MiMalloc;

/// The allocator of glibc holds twice the memory after large objects, and delays other threads when they are freed.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// Run LLM inference services on Kubernetes
///
/// Selects runtimes and accelerators, deploys engines, and routes requests to them.
#[derive(Parser)]
#[command(name = "ostler", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    log: LogArgs,
}

const EXAMPLES: &str = "\
Examples:
  ostler up --demo                         Start a local cluster with sample services and send one request
  ostler up -f service.yaml                Start a local cluster and apply a manifest
  ostler up -f service.yaml --nodes this   Do the same with engines that are installed on this host
  ostler plan -f service.yaml              Show the selected runtime and the objects; change nothing
  ostler explain inferenceservice/chat     Show why a service is not ready and what would help

Commands connect to the cluster of --kubeconfig, $KUBECONFIG or a running `ostler up`, in this order.
`ostler plan` connects only with --kubeconfig, --context or --diff.
Installed on PATH as `kubectl-ostler`, the binary is the kubectl plugin `kubectl ostler`.";

fn main() -> Exit {
    let Cli { command, log } = match parse() {
        Ok(cli) => cli,
        Err(error) => return report_usage_error(&error),
    };
    log.init(command.default_log_filter());
    open_files::raise_limit();
    let mut runtime = if command.is_single_threaded() {
        tokio::runtime::Builder::new_current_thread()
    } else {
        tokio::runtime::Builder::new_multi_thread()
    };
    match runtime.enable_all().build() {
        Ok(runtime) => runtime.block_on(run(command)),
        Err(error) => {
            output::print_message(&format!("error: failed to start the async runtime: {error}"));
            Exit::Failure
        }
    }
}

async fn run(command: Command) -> Exit {
    // Fails only if a provider is installed already; nothing else in this process installs one.
    rustls::crypto::ring::default_provider().install_default().ok();
    match commands::run(command).await {
        Ok(exit) => exit,
        Err(error) if output::is_stdout_closed(&error) => Exit::Success,
        Err(error) => {
            output::print_message(&report::errors::render(&error));
            Exit::Failure
        }
    }
}

fn parse() -> Result<Cli, clap::Error> {
    let program = std::env::args_os().next().unwrap_or_default();
    let is_kubectl_plugin = Path::new(&program).file_stem() == Some(OsStr::new("kubectl-ostler"));
    let name = if is_kubectl_plugin { "kubectl ostler" } else { "ostler" };
    Cli::from_arg_matches(&Cli::command().bin_name(name).try_get_matches_from(arguments())?)
}

/// Returns the arguments. A program named `requester` is `ostler requester`: Pods of dual pods run `/app/requester`.
fn arguments() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = std::env::args_os().collect();
    if arguments.first().is_some_and(|program| Path::new(program).file_stem() == Some(OsStr::new("requester"))) {
        arguments.insert(1, "requester".into());
    }
    arguments
}

/// Prints help and version to standard output, and usage errors to standard error.
fn report_usage_error(error: &clap::Error) -> Exit {
    let is_output =
        [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand];
    if is_output.contains(&error.kind()) {
        output::print(&error.to_string()).ok();
        return Exit::Success;
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    output::print_message(&report::usage_error::render(error, &Cli::command(), &args));
    Exit::Failure
}
