//! The `ostler` binary: one file per subcommand, wiring only.
//!
//! stdout is data, stderr is talk. Errors are one line with the cause, and a `hint:` where there is a remedy.

mod apply;
mod catalog;
mod commands;
mod connect;
mod demo;
mod files;
mod fleet;
mod gate;
mod gpus;
mod home;
mod idle;
mod images;
mod live;
mod machine;
mod output;
mod progress;
mod report;
mod runner;
mod this_machine;

use std::ffi::OsStr;
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser};
use tracing_subscriber::EnvFilter;

use commands::Command;

/// Matches models to runtimes and accelerators, lays engines out, and routes requests to them.
#[derive(Parser)]
#[command(name = "ostler", version, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  ostler up --demo                         a cluster on this machine, a small fleet, one answer and why
  ostler up -f service.yaml                the same cluster with a service of yours
  ostler up -f service.yaml --nodes this   the same on this machine itself, with engines installed here
  ostler plan -f service.yaml              what would be decided and made; nothing is changed anywhere
  ostler explain inferenceservice/chat     why it is not ready, and what would help

Every command talks to the cluster of --kubeconfig, $KUBECONFIG or a running `ostler up`, in this order.
As `kubectl-ostler` on PATH, the same binary answers to `kubectl ostler`.";

#[tokio::main]
async fn main() -> ExitCode {
    let command = match parse() {
        Ok(cli) => cli.command,
        Err(usage) => return refuse(&usage),
    };
    let filter = EnvFilter::try_from_env("OSTLER_LOG").unwrap_or_else(|_| EnvFilter::new(command.log()));
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    log.with_ansi(std::io::stderr().is_terminal()).log_internal_errors(false).init();
    // The first provider wins; nothing else in this process installs one.
    rustls::crypto::ring::default_provider().install_default().ok();
    match commands::run(command).await {
        Ok(code) => code,
        Err(error) if output::is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            output::tell(&report::errors::render(&error));
            ExitCode::FAILURE
        }
    }
}

fn parse() -> Result<Cli, clap::Error> {
    let called = std::env::args_os().next().unwrap_or_default();
    let plugin = Path::new(&called).file_stem() == Some(OsStr::new("kubectl-ostler"));
    let name = if plugin { "kubectl ostler" } else { "ostler" };
    Cli::from_arg_matches(&Cli::command().bin_name(name).try_get_matches()?)
}

/// Help and version are data and no error. 2 says "infeasible" here, so a wrong flag is 1 like any other bad input.
fn refuse(usage: &clap::Error) -> ExitCode {
    let asked =
        [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion, ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand];
    if asked.contains(&usage.kind()) {
        output::print(&usage.to_string()).ok();
        return ExitCode::SUCCESS;
    }
    let words: Vec<String> = std::env::args().skip(1).collect();
    output::tell(&report::usage::render(usage, &words));
    ExitCode::FAILURE
}
