//! `ostler operator`: the controllers, against any Kubernetes cluster.

use std::process::ExitCode;

use anyhow::Result;

use super::interrupted;
use crate::connect::{self, ConnectArgs};

#[derive(clap::Args)]
pub(crate) struct OperatorArgs {
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(super) async fn run(args: OperatorArgs) -> Result<ExitCode> {
    let client = connect::client(&args.connect).await?;
    operator::run(client, operator::Options::default(), interrupted()).await?;
    Ok(ExitCode::SUCCESS)
}
