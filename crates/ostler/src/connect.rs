//! Finding the cluster: `--kubeconfig`, `$KUBECONFIG`, a running `ostler up`, then the user's default.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};

use crate::report::errors::hinted;

#[derive(clap::Args, Clone, Default)]
pub(crate) struct ConnectArgs {
    /// Kubeconfig of the cluster; otherwise $KUBECONFIG, a running `ostler up`, ~/.kube/config
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// Contexts that a hint names.
const CONTEXTS: usize = 12;

/// A cluster, and the namespace that its context names.
pub(crate) struct Connection {
    pub client: Client,
    pub namespace: String,
}

/// The cluster that the arguments and the environment name.
pub(crate) async fn connect(args: &ConnectArgs) -> Result<Connection> {
    let config = config(args).await?;
    let namespace = config.default_namespace.clone();
    Ok(Connection { client: Client::try_from(config)?, namespace })
}

/// A client for that cluster.
pub(crate) async fn client(args: &ConnectArgs) -> Result<Client> {
    Ok(connect(args).await?.client)
}

async fn config(args: &ConnectArgs) -> Result<kube::Config> {
    let options = KubeConfigOptions { context: args.context.clone(), ..Default::default() };
    let file = match (&args.kubeconfig, from_environment()) {
        (Some(path), _) => read(path)?,
        (None, true) => Kubeconfig::from_env().context("$KUBECONFIG")?.unwrap_or_default(),
        (None, false) => match running() {
            Some(path) => read(&path)?,
            None => return nowhere(&options).await,
        },
    };
    if let Some(context) = &args.context {
        known_context(&file, context)?;
    }
    let proxied = names_a_proxy(&file, options.context.as_ref());
    let config = kube::Config::from_custom_kubeconfig(file, &options).await.context("kubeconfig")?;
    Ok(if proxied { config } else { direct(config) })
}

/// Whether the cluster of the context has a proxy of its own.
fn names_a_proxy(file: &Kubeconfig, context: Option<&String>) -> bool {
    let named = file.contexts.iter().find(|one| Some(&one.name) == context.or(file.current_context.as_ref()));
    let cluster = named.and_then(|one| one.context.as_ref()).map(|context| &context.cluster);
    file.clusters.iter().filter(|one| Some(&one.name) == cluster).any(|one| {
        one.cluster.as_ref().and_then(|cluster| cluster.proxy_url.as_ref()).is_some_and(|proxy| !proxy.is_empty())
    })
}

/// As with curl and kubectl, a proxy of the environment does not lead to this machine.
fn direct(mut config: kube::Config) -> kube::Config {
    let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']);
    if host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()) {
        config.proxy_url = None;
    }
    config
}

/// A context that is not there is answered by those that are.
fn known_context(file: &Kubeconfig, context: &str) -> Result<()> {
    let mut names: Vec<&str> = file.contexts.iter().map(|known| known.name.as_str()).collect();
    if names.contains(&context) {
        return Ok(());
    }
    names.sort_unstable();
    let hint = match names.len() {
        0 => "the kubeconfig has no context; name another file with --kubeconfig".to_owned(),
        1..=CONTEXTS => format!("it has {}", names.join(", ")),
        more => format!("it has {} and {} more", names[..CONTEXTS].join(", "), more - CONTEXTS),
    };
    Err(hinted(format!("kubeconfig: there is no context `{context}`"), hint))
}

fn read(path: &Path) -> Result<Kubeconfig> {
    Kubeconfig::read_from(path).with_context(|| format!("kubeconfig {}", path.display()))
}

/// `$KUBECONFIG` set to nothing is not set, as for kubectl.
fn from_environment() -> bool {
    std::env::var_os("KUBECONFIG").is_some_and(|paths| !paths.is_empty())
}

/// What kube finds by itself: the user's file, or the account of the Pod that we run in.
async fn nowhere(options: &KubeConfigOptions) -> Result<kube::Config> {
    if let Some(context) = &options.context {
        let file = Kubeconfig::read().context("kubeconfig")?;
        known_context(&file, context)?;
        return kube::Config::from_kubeconfig(options).await.context("kubeconfig");
    }
    kube::Config::infer()
        .await
        .map_err(|_| hinted("no cluster to talk to", "name one with --kubeconfig, or start one with `ostler up`"))
}

fn running() -> Option<PathBuf> {
    Some(runtime_directory().join("kubeconfig")).filter(|path| path.is_file())
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
