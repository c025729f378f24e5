//! `ostler up`: runs a local cluster until Ctrl-C.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use api::Document;
use embedded::{ProcessRuntime, ProcessTracker};
use serde_json::Value;

use super::feature_gates::FeatureGates;
use crate::exit::Exit;
use crate::gpus::GpuInventory;
use crate::host_runtime::HostRuntime;
use crate::images::Images;
use crate::local_cluster::{Listeners, LocalCluster};
use crate::output::{self, OutputFormat};
use crate::report::errors::error_with_hint;
use crate::shutdown::shutdown_token;
use crate::state_directory::{self, StateDirectory};
use crate::{apply, demo, files, listener, node_groups, progress, report};

#[derive(clap::Args)]
pub(crate) struct UpArgs {
    /// Apply the manifests of these files or directories
    #[arg(short, long = "filename", num_args = 1.., value_name = "FILES")]
    filenames: Vec<PathBuf>,
    /// Run these nodes: `this` host, simulated `8×H100-80G ×2`, or those of a file
    ///
    /// A file contains such groups, one per line, or Node manifests.
    #[arg(long, value_name = "NODES")]
    nodes: Option<PathBuf>,
    /// Map images to programs of this host with this file
    ///
    /// Example: `images: {vllm/vllm-openai: {entrypoint: [/opt/vllm/bin/vllm, serve]}}`. `vllm` on PATH, or the program of
    /// $OSTLER_VLLM, is used without this file.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Persist the cluster in this directory [default: in memory]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Serve the Kubernetes API on this address
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6443")]
    api: SocketAddr,
    /// Serve the gateway on this address
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    gateway: SocketAddr,
    /// Serve the operator's metrics on this address; port 0 selects a free port
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    metrics: SocketAddr,
    /// Do not create accelerator classes from node labels
    #[arg(long)]
    no_discovery: bool,
    /// Apply sample services, send one request and explain how it was routed
    #[arg(long)]
    demo: bool,
    /// Exit after the demo
    #[arg(long, requires = "demo")]
    once: bool,
    /// Print the result of the demo in this format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    #[command(flatten)]
    gates: FeatureGates,
}

pub(super) async fn run(args: UpArgs) -> Result<Exit> {
    let start_time = Instant::now();
    let shutdown = shutdown_token()?;
    // All input is validated before anything starts.
    let documents = files::read_valid(&args.filenames)?;
    let (nodes, gpus) = read_nodes(&args)?;
    let host_node = nodes.iter().find(|node| node["metadata"]["annotations"]["ostler.dev/this-machine"] == "true");
    let node = host_node.and_then(|node| node["metadata"]["name"].as_str()).map(str::to_owned);
    let images = Images::read(args.config.as_deref())?;
    let state_directory = state_directory::open(args.data_dir.clone())?;
    let listeners = Listeners {
        api: bind(args.api, "--api")?,
        gateway: bind(args.gateway, "--gateway")?,
        metrics: bind(args.metrics, "--metrics")?,
    };
    let kubeconfig = state_directory.kubeconfig();
    let processes = ProcessRuntime { tracker: open_process_tracker(&state_directory)? };
    let absolute_path = std::path::absolute(&kubeconfig).ok();
    let runner = HostRuntime { node, gpus, images, kubeconfig: absolute_path, processes };
    let engines = runner.node.is_some().then(|| engine_summary(&runner.images));

    let options = operator::Options { discovery: !args.no_discovery, ..args.gates.options() };
    let (local_cluster, mut tasks) = LocalCluster::start(nodes, options, listeners, &state_directory, runner).await?;
    let session = async {
        run_session(&args, &local_cluster, &documents, &state_directory, engines.as_deref(), start_time).await?;
        if !args.once {
            std::future::pending::<()>().await;
        }
        Ok(())
    };
    let result = tokio::select! {
        result = session => result,
        () = shutdown.cancelled() => Ok(()),
        error = tasks.wait_for_failure() => Err(error),
    };
    local_cluster.stop(tasks).await;
    std::fs::remove_file(&kubeconfig).ok();
    result.map(|()| Exit::Success)
}

async fn run_session(
    args: &UpArgs,
    local_cluster: &LocalCluster,
    documents: &[Document],
    state_directory: &StateDirectory,
    engines: Option<&str>,
    start_time: Instant,
) -> Result<()> {
    let kubeconfig = &state_directory.kubeconfig();
    let version = env!("CARGO_PKG_VERSION");
    output::print_message(&format!("ostler {version} · embedded Kubernetes · data {}", state_directory.describe()));
    output::print_message(&format!(
        "  nodes     {}",
        report::nodes::summary(&local_cluster.cluster.server().list("nodes"))
    ));
    engines.into_iter().for_each(output::print_message);
    apply::documents(&local_cluster.client, documents).await?;
    if args.demo {
        let manifests = demo::manifests()?;
        apply::documents(&local_cluster.client, &manifests).await?;
        let (services, routes) =
            manifests.iter().partition::<Vec<_>, _>(|document| document.kind() == "InferenceService");
        let [services, routes] =
            [services, routes].map(|documents| documents.iter().map(|document| document.name().to_owned()).collect());
        let names = progress::ObjectNames { services, routes };
        progress::until_ready(local_cluster.cluster.server(), &names).await;
    }
    let (api, gateway) = (local_cluster.api, local_cluster.gateway);
    output::print_message(&format!("  metrics   http://{}/metrics", local_cluster.metrics));
    if args.output == OutputFormat::Text {
        let kubeconfig = kubeconfig.display();
        output::print_line(&format!("ready: api=https://{api} gateway=http://{gateway} kubeconfig={kubeconfig}"))?;
    }
    let program = std::env::args().next().unwrap_or_else(|| "ostler".to_owned());
    let session = report::demo::SessionInfo { program: &program, gateway, kubeconfig };
    if args.demo {
        let outcome = demo::run(local_cluster, start_time).await?;
        match args.output {
            OutputFormat::Json => output::print_line(&serde_json::to_string(&outcome)?)?,
            OutputFormat::Text => output::print_line(&report::demo::render(&outcome, session, args.once))?,
        }
        return Ok(());
    }
    output::print_message(&report::demo::next_steps(session));
    if !documents.is_empty() {
        progress::watch(local_cluster.cluster.server()).await;
    }
    Ok(())
}

/// Binds a loopback address.
fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener> {
    if !address.ip().is_loopback() {
        return Err(error_with_hint(
            format!("{address} is not a loopback address"),
            format!("`ostler up` serves only this host; set {flag} 127.0.0.1:{}", address.port()),
        ));
    }
    let listener = listener::bind_blocking(address, flag)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Opens the process tracker and kills the processes that an earlier `ostler up` left running.
fn open_process_tracker(state_directory: &StateDirectory) -> Result<ProcessTracker> {
    let (processes, orphans) = state_directory.process_tracker()?;
    if orphans.killed > 0 {
        output::print_message(&format!("killed {} of an earlier `ostler up`", format_process_count(orphans.killed)));
    }
    if orphans.remaining > 0 {
        output::print_message(&format!(
            "warning: failed to kill {} of an earlier `ostler up`",
            format_process_count(orphans.remaining)
        ));
    }
    Ok(processes)
}

fn format_process_count(count: usize) -> String {
    if count == 1 { "1 process".to_owned() } else { format!("{count} processes") }
}

/// Describes which engines run as processes of this host.
fn engine_summary(images: &Images) -> String {
    match images.vllm() {
        Some(path) => {
            format!(
                "  engines   vLLM: {}; other engines are simulated unless --config maps their images",
                path.display()
            )
        }
        None => {
            "  engines   simulated unless --config maps their images: no `vllm` on PATH or in $OSTLER_VLLM".to_owned()
        }
    }
}

/// Returns the nodes of `--nodes`, by default those of the demo, and the GPUs of this host if it is one of the nodes.
fn read_nodes(args: &UpArgs) -> Result<(Vec<Value>, GpuInventory)> {
    let Some(path) = &args.nodes else {
        return Ok((
            node_groups::to_nodes(&node_groups::parse(demo::NODES)?, &GpuInventory::default()),
            GpuInventory::default(),
        ));
    };
    node_groups::input::read(path)
}
