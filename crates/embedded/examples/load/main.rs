//! Load generator for any Kubernetes API server, which it accesses over HTTPS with a kubeconfig. Prints measurements as
//! `name value` lines. `cargo xtask bench load` runs it against the embedded API server and against kube-apiserver.
//!
//! Usage: `load KUBECONFIG PHASE [name=value…]`. The phases are `ready`, `create`, `patch`, `list`, `fanout` and
//! `soak`.

mod connection;
mod fanout;
mod framing;
mod list;
mod measurements;
mod phase_options;
mod result;
mod soak;
mod target;
mod watch_reader;
mod writes;

use measurements::Measurements;
use phase_options::PhaseOptions;
use result::Result;
use target::LoadTarget;

// A single-threaded runtime, so that the load generator uses as little CPU time of the host as possible.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    rustls::crypto::ring::default_provider().install_default().ok();
    let mut arguments = std::env::args().skip(1);
    let (Some(kubeconfig), Some(phase)) = (arguments.next(), arguments.next()) else {
        return Err("usage: load KUBECONFIG ready|create|patch|list|fanout|soak [name=value…]".into());
    };
    let target = LoadTarget::from_kubeconfig(kubeconfig.as_ref()).await?;
    let options = PhaseOptions::parse(arguments)?;
    let measurements: Measurements = match phase.as_str() {
        "ready" => target.wait_ready().await?,
        "create" => writes::create(&target, &options).await?,
        "patch" => writes::patch(&target, &options).await?,
        "list" => list::run(&target, &options).await?,
        "fanout" => fanout::run(&target, &options).await?,
        "soak" => soak::run(&target, &options).await?,
        _ => return Err(format!("unknown phase {phase}").into()),
    };
    measurements.print()
}
