//! Selects the cluster: `--kubeconfig`, `$KUBECONFIG`, a running `ostler up`, then the default kubeconfig.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cluster::{CREDENTIAL_PLUGIN_TIMEOUT, CredentialPluginError, credential_plugin};
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError, LoadDataError, NamedCluster};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::report::errors::error_with_hint;

#[derive(clap::Args, Clone, Default)]
pub(crate) struct ConnectArgs {
    /// Use this kubeconfig [default: $KUBECONFIG, a running `ostler up`, ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Use this context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
}

/// Name of the extension of a cluster in a kubeconfig that contains the address of the metrics listener of its gateway.
pub(crate) const GATEWAY_EXTENSION: &str = "ostler.io/gateway";

/// Maximum number of contexts that a hint lists.
const MAX_CONTEXTS: usize = 12;

/// A client of the cluster, and the default namespace of its context.
pub(crate) struct Connection {
    pub client: Client,
    pub namespace: String,
}

/// Connects to the cluster that the arguments and the environment select.
pub(crate) async fn connect(args: &ConnectArgs) -> Result<Connection> {
    let config = client_config(args).await?;
    let namespace = config.default_namespace.clone();
    Ok(Connection { client: new_client(config).await?, namespace })
}

/// Returns a client of the cluster that the arguments and the environment select.
pub(crate) async fn client(args: &ConnectArgs) -> Result<Client> {
    Ok(connect(args).await?.client)
}

/// Creates a client. `kube` runs the credential plugin of the kubeconfig and waits for it without a limit.
async fn new_client(config: kube::Config) -> Result<Client> {
    let Some(plugin) = credential_plugin(&config.auth_info) else { return Ok(cluster::new_client(config)?) };
    let (runtime, (sender, receiver)) = (Handle::current(), oneshot::channel());
    // Not a thread of the runtime: the end of the process would wait for it.
    std::thread::spawn(move || {
        let _context = runtime.enter();
        sender.send(cluster::new_client(config)).ok();
    });
    match timeout(CREDENTIAL_PLUGIN_TIMEOUT, receiver).await {
        Ok(result) => Ok(result.context("the credential plugin of the kubeconfig")??),
        Err(_) => Err(CredentialPluginError::Timeout { plugin }.into()),
    }
}

/// Returns the address of the metrics listener of the gateway, if the kubeconfig of the cluster contains it: that of `ostler up` does.
pub(crate) fn gateway_metrics(args: &ConnectArgs) -> Result<Option<SocketAddr>> {
    let Some(file) = kubeconfig(args)? else { return Ok(None) };
    let cluster = named_cluster(&file, args.context.as_ref()).and_then(|entry| entry.cluster.as_ref());
    let mut extensions = cluster.and_then(|cluster| cluster.extensions.as_ref()).into_iter().flatten();
    let extension = extensions.find(|extension| extension.name == GATEWAY_EXTENSION);
    Ok(extension.and_then(|extension| extension.extension["metrics"].as_str()?.parse().ok()))
}

/// Returns the kubeconfig that the arguments and the environment select, or `None` for the default of the `kube` crate.
fn kubeconfig(args: &ConnectArgs) -> Result<Option<Kubeconfig>> {
    Ok(match (&args.kubeconfig, has_kubeconfig_variable()) {
        (Some(path), _) => Some(read(path)?),
        (None, true) => Some(Kubeconfig::from_env().map_err(readable).context("$KUBECONFIG")?.unwrap_or_default()),
        (None, false) => running_local_cluster().map(|path| read(&path)).transpose()?,
    })
}

async fn client_config(args: &ConnectArgs) -> Result<kube::Config> {
    let options = KubeConfigOptions { context: args.context.clone(), ..Default::default() };
    let Some(file) = kubeconfig(args)? else { return default_config(&options).await };
    if let Some(context) = &args.context {
        check_context(&file, context)?;
    }
    let has_proxy = has_proxy_url(&file, options.context.as_ref());
    let config = kube::Config::from_custom_kubeconfig(file, &options).await.map_err(readable).context("kubeconfig")?;
    Ok(if has_proxy { config } else { without_loopback_proxy(config) })
}

/// Returns whether the kubeconfig sets `proxy-url` for the cluster of the context.
fn has_proxy_url(file: &Kubeconfig, context: Option<&String>) -> bool {
    let cluster = named_cluster(file, context).and_then(|entry| entry.cluster.as_ref());
    cluster.and_then(|cluster| cluster.proxy_url.as_ref()).is_some_and(|proxy| !proxy.is_empty())
}

/// Returns the cluster of the context, by default of the current one.
fn named_cluster<'f>(file: &'f Kubeconfig, context: Option<&String>) -> Option<&'f NamedCluster> {
    let named_context =
        file.contexts.iter().find(|entry| Some(&entry.name) == context.or(file.current_context.as_ref()))?;
    let cluster = &named_context.context.as_ref()?.cluster;
    file.clusters.iter().find(|entry| entry.name == *cluster)
}

/// Removes a proxy that the environment sets if the API server is on a loopback address, as curl and kubectl do.
fn without_loopback_proxy(mut config: kube::Config) -> kube::Config {
    let host = config.cluster_url.host().unwrap_or_default().trim_matches(['[', ']']);
    if host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()) {
        config.proxy_url = None;
    }
    config
}

/// Checks that the kubeconfig has `context`. The hint of the error lists the contexts that exist.
fn check_context(file: &Kubeconfig, context: &str) -> Result<()> {
    let mut names: Vec<&str> = file.contexts.iter().map(|entry| entry.name.as_str()).collect();
    if names.contains(&context) {
        return Ok(());
    }
    names.sort_unstable();
    let hint = match names.len() {
        0 => "the kubeconfig has no contexts; choose another file with --kubeconfig".to_owned(),
        1..=MAX_CONTEXTS => format!("available contexts: {}", names.join(", ")),
        count => format!("available contexts: {} and {} more", names[..MAX_CONTEXTS].join(", "), count - MAX_CONTEXTS),
    };
    Err(error_with_hint(format!("kubeconfig: context `{context}` does not exist"), hint))
}

fn read(path: &Path) -> Result<Kubeconfig> {
    Kubeconfig::read_from(path).map_err(readable).with_context(|| format!("kubeconfig {}", path.display()))
}

/// Returns the error with plain paths instead of the debug output of the `kube` crate.
fn readable(error: KubeconfigError) -> anyhow::Error {
    let unreadable = match &error {
        KubeconfigError::ReadConfig(cause, path)
        | KubeconfigError::LoadCertificateAuthority(LoadDataError::ReadFile(cause, path))
        | KubeconfigError::LoadClientCertificate(LoadDataError::ReadFile(cause, path))
        | KubeconfigError::LoadClientKey(LoadDataError::ReadFile(cause, path)) => Some((cause, path)),
        _ => None,
    };
    match unreadable {
        Some((cause, path)) => {
            let hint = "set a kubeconfig with --kubeconfig, or start a cluster with `ostler up`";
            error_with_hint(format!("failed to read {}: {cause}", path.display()), hint)
        }
        None => error.into(),
    }
}

/// Returns whether `$KUBECONFIG` is set. An empty value counts as unset, as in kubectl.
fn has_kubeconfig_variable() -> bool {
    std::env::var_os("KUBECONFIG").is_some_and(|paths| !paths.is_empty())
}

/// Returns the default of the `kube` crate: `~/.kube/config`, or the ServiceAccount of the Pod that the process runs
/// in.
async fn default_config(options: &KubeConfigOptions) -> Result<kube::Config> {
    if let Some(context) = &options.context {
        let file = Kubeconfig::read().context("kubeconfig")?;
        check_context(&file, context)?;
        return kube::Config::from_kubeconfig(options).await.context("kubeconfig");
    }
    kube::Config::infer().await.map_err(|_| {
        error_with_hint("no cluster is configured", "set --kubeconfig, or start a cluster with `ostler up`")
    })
}

/// Returns the kubeconfig of a running `ostler up`.
fn running_local_cluster() -> Option<PathBuf> {
    Some(runtime_directory().join("kubeconfig")).filter(|path| path.is_file())
}

/// Returns the directory of the kubeconfig of `ostler up` without `--data-dir`. It is private to the user and does not
/// survive a reboot.
pub(crate) fn runtime_directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) => Path::new(&directory).join("ostler"),
        None => std::env::temp_dir().join(format!("ostler-{}", user_name())),
    }
}

fn user_name() -> String {
    std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "user".to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns a configuration whose credential plugin is the shell script.
    fn config(script: &str) -> kube::Config {
        let exec = json!({"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", script],
            "interactiveMode": "Never"});
        let mut config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        config.auth_info = serde_json::from_value(json!({"exec": exec})).unwrap();
        config
    }

    /// The paused time advances while the plugin runs.
    #[tokio::test(start_paused = true)]
    async fn credential_plugin_that_hangs_is_an_error_with_a_remedy() {
        let error = new_client(config("sleep 5")).await.err().unwrap();
        assert_eq!(
            crate::report::errors::render(&error),
            "error: kubeconfig: the credential plugin `sh` did not return credentials within 25 s\n\
             hint: run `sh` with its arguments in the kubeconfig to see what it waits for, for example a login, and then retry"
        );
    }

    #[tokio::test]
    async fn credential_plugin_provides_a_token() {
        let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
            "status": {"token": "secret"}});
        new_client(config(&format!("echo '{credential}'"))).await.unwrap();
        let error = new_client(config("exit 3")).await.err().unwrap();
        assert_eq!(
            crate::report::errors::render(&error),
            "error: kubeconfig: the credential plugin `sh` failed: exit status: 3\n\
             hint: run `sh` with its arguments in the kubeconfig to see why it fails, and then retry"
        );
    }
}
