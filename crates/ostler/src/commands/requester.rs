//! `ostler requester`: runs in the Pod that requests the accelerators of a dual pod.

use actuation::{Accelerator, RequesterDaemon, list_accelerators};
use anyhow::{Result, anyhow};

use crate::exit::Exit;
use crate::output;
use crate::report::errors::error_with_hint;
use crate::requester_args::RequesterArgs;
use crate::shutdown::shutdown_token;

pub(super) async fn run(args: RequesterArgs) -> Result<Exit> {
    if args.list {
        return list().await;
    }
    let daemon = RequesterDaemon::bind(args.options());
    let hint = "choose other ports with --probes-port, --spi-port, --metrics-port and --debug-port";
    let daemon = daemon.await.map_err(|error| error_with_hint(error.to_string(), hint.to_owned()))?;
    let addresses: Vec<String> = daemon.addresses()?.iter().map(ToString::to_string).collect();
    tracing::info!(addresses = addresses.join(","), "requester is listening");
    daemon.run(shutdown_token()?).await?;
    Ok(Exit::Success)
}

async fn list() -> Result<Exit> {
    let found = list_accelerators().await.map_err(|error| anyhow!("no accelerators found: {error}"))?;
    let line = |accelerator: &Accelerator| {
        let index = accelerator.index.map_or_else(|| "-".to_owned(), |index| index.to_string());
        format!("{index}, {}\n", accelerator.uuid)
    };
    output::print(&found.iter().map(line).collect::<String>())?;
    Ok(Exit::Success)
}
