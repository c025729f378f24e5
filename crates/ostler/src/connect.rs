//! Finding the cluster: `--kubeconfig`, `$KUBECONFIG`, a running `ostler up`, then the user's default.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::report::errors::hinted;

#[derive(clap::Args, Clone, Default)]
pub(crate) struct ConnectArgs {
    /// Path of the kubeconfig
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long)]
    pub context: Option<String>,
}

/// A client for the cluster that the arguments and the environment name.
pub(crate) async fn client(args: &ConnectArgs) -> Result<kube::Client> {
    let options = KubeConfigOptions { context: args.context.clone(), ..Default::default() };
    let config = match kubeconfig(args) {
        Some(path) => {
            let file = Kubeconfig::read_from(&path).with_context(|| format!("kubeconfig {}", path.display()))?;
            kube::Config::from_custom_kubeconfig(file, &options).await.context("kubeconfig")?
        }
        None => kube::Config::infer().await.map_err(|_| {
            hinted("no cluster to talk to", "name one with --kubeconfig, or start one with `ostler up`")
        })?,
    };
    Ok(kube::Client::try_from(config)?)
}

fn kubeconfig(args: &ConnectArgs) -> Option<PathBuf> {
    let running = || runtime_directory().join("kubeconfig");
    args.kubeconfig.clone().or_else(|| Some(running()).filter(|path| path.is_file()))
}

/// Where `ostler up` keeps its kubeconfig without `--data-dir`: private to the user, gone after a reboot.
pub(crate) fn runtime_directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) => Path::new(&folder).join("ostler"),
        None => std::env::temp_dir().join(format!("ostler-{}", user())),
    }
}

fn user() -> String {
    std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "user".to_owned())
}
