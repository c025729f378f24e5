//! `ostler operator`: the controllers, against any Kubernetes cluster.

use std::process::ExitCode;

use anyhow::{Context, Result};
use operator::{Options, Seat};

use super::gates::FeatureGates;
use super::interrupted;
use crate::connect::{self, ConnectArgs};

#[derive(clap::Args)]
pub(crate) struct OperatorArgs {
    /// Work only while holding the lease `ostler-operator`, so that several replicas may run
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    leader_elect: bool,
    /// Namespace of that lease; the context's, or the Pod's own, without it
    #[arg(long, value_name = "NAMESPACE")]
    leader_elect_namespace: Option<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    #[command(flatten)]
    gates: FeatureGates,
}

pub(super) async fn run(args: OperatorArgs) -> Result<ExitCode> {
    let client = connect::client(&args.connect).await?;
    client.apiserver_version().await.context("the Kubernetes API does not answer")?;
    let namespace = args.leader_elect_namespace.unwrap_or_else(|| client.default_namespace().to_owned());
    let seat = Seat { namespace, identity: identity(), terms: Default::default() };
    let options = Options { seat: args.leader_elect.then_some(seat), ..args.gates.options() };
    operator::run(client, options, interrupted()?).await?;
    Ok(ExitCode::SUCCESS)
}

/// The Pod's name, and something that two processes of one host do not share.
fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "ostler".to_owned());
    format!("{host}_{:016x}", fastrand::u64(..))
}
