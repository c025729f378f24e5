//! Load test of an operator that runs as a separate process; `cargo xtask bench scale` starts both. The API server has
//! no controllers: this program creates the Pods of Deployments and schedules them. Prints `name value` lines.
//!
//! Usage: `scale KUBECONFIG PHASE [name=value…]`. Phases in order: `setup`, then with a running operator `rollout`,
//! `edits`, `flips`, `cordon`, `quiet`.

mod client;
mod cluster;
mod measurements;
mod parameters;
mod probes;
mod result;
mod rollout;
mod setup;
mod workloads;

use client::Cluster;
use parameters::Parameters;
use result::Result;

#[tokio::main]
async fn main() -> Result<()> {
    rustls::crypto::ring::default_provider().install_default().ok();
    let mut arguments = std::env::args().skip(1);
    let (Some(kubeconfig), Some(phase)) = (arguments.next(), arguments.next()) else {
        return Err("usage: scale KUBECONFIG setup|rollout|edits|flips|cordon|quiet [name=value…]".into());
    };
    let parameters = Parameters::parse(arguments)?;
    let cluster = Cluster::connect(kubeconfig.as_ref()).await?;
    let measurements = match phase.as_str() {
        "setup" => setup::run(&cluster, &parameters).await?,
        "rollout" => rollout::run(&cluster, &parameters).await?,
        "edits" => probes::edits(&cluster, &parameters).await?,
        "flips" => probes::flips(&cluster, &parameters).await?,
        "cordon" => probes::cordon(&cluster, &parameters).await?,
        "quiet" => probes::quiet(&cluster, &parameters).await?,
        other => return Err(format!("unknown phase `{other}`").into()),
    };
    measurements.print()
}
