//! Load on any Kubernetes API server, over HTTPS with a kubeconfig; `cargo xtask bench load` runs it against ours and a
//! kube-apiserver alike. Prints figures as `name value` lines.
//!
//! `load KUBECONFIG PHASE [name=value…]`, the phases: `create`, `patch`, `list`, `fanout`, `soak`.

mod connection;
mod fanout;
mod figures;
mod framing;
mod list;
mod reader;
mod soak;
mod target;
mod writes;

use std::collections::BTreeMap;
use std::error::Error;

use figures::Figures;
use target::Target;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Sizes of a phase, by name.
struct Sizes(BTreeMap<String, usize>);

impl Sizes {
    fn parse(words: impl Iterator<Item = String>) -> Result<Self> {
        let pair = |word: String| -> Result<(String, usize)> {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("{word}: not name=value"))?;
            Ok((name.to_owned(), value.parse()?))
        };
        Ok(Self(words.map(pair).collect::<Result<_>>()?))
    }

    fn get(&self, name: &str, default: usize) -> usize {
        self.0.get(name).copied().unwrap_or(default)
    }
}

// One thread: what runs beside the server takes as little of the machine as it can.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    rustls::crypto::ring::default_provider().install_default().ok();
    let mut words = std::env::args().skip(1);
    let (Some(kubeconfig), Some(phase)) = (words.next(), words.next()) else {
        return Err("usage: load KUBECONFIG create|patch|list|fanout|soak [name=value…]".into());
    };
    let target = Target::read(kubeconfig.as_ref()).await?;
    let sizes = Sizes::parse(words)?;
    let figures: Figures = match phase.as_str() {
        "ready" => target.ready().await?,
        "create" => writes::create(&target, &sizes).await?,
        "patch" => writes::patch(&target, &sizes).await?,
        "list" => list::run(&target, &sizes).await?,
        "fanout" => fanout::run(&target, &sizes).await?,
        "soak" => soak::run(&target, &sizes).await?,
        other => return Err(format!("{other}: no phase of that name").into()),
    };
    figures.print()
}
