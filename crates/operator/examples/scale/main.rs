//! A large cluster for an operator that runs as a process of its own; `cargo xtask bench scale` starts both sides. The API
//! server has no controllers: Deployments get their Pods, and Pods their nodes, from here. Prints `name value` lines.
//!
//! `scale KUBECONFIG PHASE [name=value…]`, the phases in order: `furnish`, then with the operator running `rollout`,
//! `edits`, `flips`, `cordon`, `quiet`.

mod client;
mod cluster;
mod furnish;
mod probes;
mod rollout;
mod workloads;

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write as _;

use client::Cluster;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Named numbers, in the order they were measured.
#[derive(Default)]
struct Figures(Vec<(String, f64)>);

/// Sizes of a phase, by name.
struct Sizes(BTreeMap<String, usize>);

impl Figures {
    fn add(&mut self, name: &str, value: f64) {
        self.0.push((name.to_owned(), value));
    }

    /// The middle and the slow end of times in milliseconds.
    fn add_times(&mut self, name: &str, mut times: Vec<f64>) {
        times.sort_by(f64::total_cmp);
        let at = |part: usize| times.get(times.len() * part / 100).copied().unwrap_or(f64::NAN);
        self.add(&format!("{name}_p50_ms"), at(50));
        self.add(&format!("{name}_p99_ms"), at(99));
    }
}

impl Sizes {
    fn get(&self, name: &str, default: usize) -> usize {
        self.0.get(name).copied().unwrap_or(default)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    rustls::crypto::ring::default_provider().install_default().ok();
    let mut words = std::env::args().skip(1);
    let (Some(kubeconfig), Some(phase)) = (words.next(), words.next()) else {
        return Err("usage: scale KUBECONFIG furnish|rollout|edits|flips|cordon|quiet [name=value…]".into());
    };
    let pair = |word: String| -> Result<(String, usize)> {
        let (name, value) = word.split_once('=').ok_or_else(|| format!("{word}: not name=value"))?;
        Ok((name.to_owned(), value.parse()?))
    };
    let sizes = Sizes(words.map(pair).collect::<Result<_>>()?);
    let cluster = Cluster::connect(kubeconfig.as_ref()).await?;
    let figures = match phase.as_str() {
        "furnish" => furnish::run(&cluster, &sizes).await?,
        "rollout" => rollout::run(&cluster, &sizes).await?,
        "edits" => probes::edits(&cluster, &sizes).await?,
        "flips" => probes::flips(&cluster, &sizes).await?,
        "cordon" => probes::cordon(&cluster, &sizes).await?,
        "quiet" => probes::quiet(&cluster, &sizes).await?,
        other => return Err(format!("{other}: no phase of that name").into()),
    };
    let mut out = std::io::stdout().lock();
    for (name, value) in figures.0 {
        writeln!(out, "{name} {value:.3}")?;
    }
    Ok(())
}
