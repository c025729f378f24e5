//! Load test of an operator that runs as a separate process; `cargo xtask bench scale` starts both. The API server has
//! no controllers: this program creates the Pods of Deployments and schedules them. Prints `name value` lines.
//!
//! Usage: `scale KUBECONFIG PHASE [name=value…]`. Phases in order: `setup`, then with a running operator `rollout`,
//! `edits`, `flips`, `cordon`, `quiet`.

mod client;
mod cluster;
mod probes;
mod rollout;
mod setup;
mod workloads;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write as _;

use client::Cluster;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Measurements by name, in the order of measurement.
#[derive(Default)]
struct Measurements(Vec<(String, f64)>);

/// Parameters of a phase, by name.
struct Parameters(BTreeMap<String, usize>);

impl Measurements {
    fn add(&mut self, name: &str, value: f64) {
        self.0.push((name.to_owned(), value));
    }

    /// Adds the 50th and 99th percentiles of `durations`, in milliseconds.
    fn add_percentiles(&mut self, name: &str, mut times: Vec<f64>) {
        times.sort_by(f64::total_cmp);
        let percentile = |percent: usize| times.get(times.len() * percent / 100).copied().unwrap_or(f64::NAN);
        self.add(&format!("{name}_p50_ms"), percentile(50));
        self.add(&format!("{name}_p99_ms"), percentile(99));
    }
}

impl Parameters {
    fn get(&self, name: &str, default: usize) -> usize {
        self.0.get(name).copied().unwrap_or(default)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    rustls::crypto::ring::default_provider().install_default().ok();
    let mut arguments = std::env::args().skip(1);
    let (Some(kubeconfig), Some(phase)) = (arguments.next(), arguments.next()) else {
        return Err("usage: scale KUBECONFIG setup|rollout|edits|flips|cordon|quiet [name=value…]".into());
    };
    let parse_parameter = |argument: String| -> Result<(String, usize)> {
        let (name, value) =
            argument.split_once('=').ok_or_else(|| format!("invalid parameter `{argument}`, expected name=value"))?;
        Ok((name.to_owned(), value.parse()?))
    };
    let parameters = Parameters(arguments.map(parse_parameter).collect::<Result<_>>()?);
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
    let mut stdout = std::io::stdout().lock();
    for (name, value) in measurements.0 {
        writeln!(stdout, "{name} {value:.3}")?;
    }
    Ok(())
}
