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
mod home;
mod machine;
mod progress;
mod report;
mod runner;

use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

use commands::Command;

/// Matches models to runtimes and accelerators, lays engines out, and routes requests to them.
#[derive(Parser)]
#[command(name = "ostler", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(usage) => {
            usage.print().ok();
            // 2 says "infeasible" here, so a wrong flag is 1 like any other bad input; --help is no error.
            return if usage.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let filter = EnvFilter::try_from_env("OSTLER_LOG").unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    // The first provider wins; nothing else in this process installs one.
    rustls::crypto::ring::default_provider().install_default().ok();
    match commands::run(cli.command).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{}", report::errors::render(&error));
            ExitCode::FAILURE
        }
    }
}
