//! `ostler up`: a whole cluster on this machine, until Ctrl-C.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use api::manifest::Document;
use clap::ValueEnum;
use embedded::node::process::ProcessRunner;
use embedded::node::processes::Processes;
use serde_json::Value;

use super::gates::FeatureGates;
use super::{bind_error, interrupted};
use crate::gpus::Gpus;
use crate::home::{self, Home};
use crate::images::Images;
use crate::machine::{Listeners, Machine};
use crate::report::errors::hinted;
use crate::runner::MachineRunner;
use crate::{apply, demo, files, fleet, output, progress, report};

#[derive(clap::Args)]
pub(crate) struct UpArgs {
    /// Files and folders of manifests to apply
    #[arg(short, long = "filename", num_args = 1.., value_name = "FILES")]
    filenames: Vec<PathBuf>,
    /// Nodes: shorthand (`this` for this machine, `8×H100-80G ×2` for simulated ones), or a file of it or of Node manifests
    #[arg(long, value_name = "NODES")]
    nodes: Option<PathBuf>,
    /// What stands for images on this machine: `images: {vllm/vllm-openai: {entrypoint: [/opt/vllm/bin/vllm, serve]}}`; a
    /// `vllm` on PATH, or of $OSTLER_VLLM, is found without it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Folder that keeps the cluster over restarts; without it everything is in memory
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Address of the Kubernetes API
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:6443")]
    api: SocketAddr,
    /// Address of the gateway
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    gateway: SocketAddr,
    /// Address of the operator's metrics; port 0 is any free one
    #[arg(long, default_value = "127.0.0.1:0")]
    metrics: SocketAddr,
    /// Make no accelerator classes from the labels of nodes
    #[arg(long)]
    no_discovery: bool,
    /// Apply a sample fleet, send one request and show why it was answered as it was
    #[arg(long)]
    demo: bool,
    /// End after the demo's answer
    #[arg(long, requires = "demo")]
    once: bool,
    /// How the demo's outcome is printed
    #[arg(short, long, value_enum, value_name = "FORM", default_value_t = Output::Text)]
    output: Output,
    #[command(flatten)]
    gates: FeatureGates,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

pub(super) async fn run(args: UpArgs) -> Result<ExitCode> {
    let started = Instant::now();
    let stop = interrupted()?;
    // Everything that can be wrong with the input is found before anything starts.
    let documents = files::read_valid(&args.filenames)?;
    let (nodes, gpus) = nodes(&args)?;
    let here = nodes.iter().find(|node| node["metadata"]["annotations"]["ostler.dev/this-machine"] == "true");
    let node = here.and_then(|node| node["metadata"]["name"].as_str()).map(str::to_owned);
    let images = Images::read(args.config.as_deref())?;
    let home = home::of(args.data_dir.clone())?;
    let listeners = Listeners {
        api: bind(args.api, "--api")?,
        gateway: bind(args.gateway, "--gateway")?,
        metrics: bind(args.metrics, "--metrics")?,
    };
    let kubeconfig = home.kubeconfig();
    let processes = ProcessRunner { processes: processes(&home)? };
    let found_at = std::path::absolute(&kubeconfig).ok();
    let runner = MachineRunner { node, gpus, images, kubeconfig: found_at, processes };
    let engines = runner.node.is_some().then(|| engines(&runner.images));

    let options = operator::Options { discovery: !args.no_discovery, ..args.gates.options() };
    let (machine, mut parts) = Machine::start(nodes, options, listeners, &home, runner).await?;
    let session = async {
        serve(&args, &machine, &documents, &home, engines.as_deref(), started).await?;
        if !args.once {
            std::future::pending::<()>().await;
        }
        Ok(())
    };
    let outcome = tokio::select! {
        outcome = session => outcome,
        () = stop.cancelled() => Ok(()),
        error = parts.failed() => Err(error),
    };
    machine.stop(parts).await;
    std::fs::remove_file(&kubeconfig).ok();
    outcome.map(|()| ExitCode::SUCCESS)
}

async fn serve(
    args: &UpArgs,
    machine: &Machine,
    documents: &[Document],
    home: &Home,
    engines: Option<&str>,
    started: Instant,
) -> Result<()> {
    let kubeconfig = &home.kubeconfig();
    let version = env!("CARGO_PKG_VERSION");
    output::tell(&format!("ostler {version} · embedded Kubernetes · data {}", home.describe()));
    output::tell(&format!("  nodes     {}", report::fleet::nodes(&machine.cluster.server().list("nodes"))));
    engines.into_iter().for_each(output::tell);
    apply::documents(&machine.client, documents).await?;
    if args.demo {
        let manifests = demo::manifests()?;
        apply::documents(&machine.client, &manifests).await?;
        let (services, others) = manifests.iter().partition::<Vec<_>, _>(|one| one.kind() == "InferenceService");
        let [services, others] = [services, others].map(|all| all.iter().map(|one| one.name().to_owned()).collect());
        let names = progress::Names { services, others };
        progress::until_ready(machine.cluster.server(), &names).await;
    }
    let (api, gateway) = (machine.api, machine.gateway);
    output::tell(&format!("  metrics   http://{}/metrics", machine.metrics));
    if args.output == Output::Text {
        let kubeconfig = kubeconfig.display();
        output::print_line(&format!("ready: api=https://{api} gateway=http://{gateway} kubeconfig={kubeconfig}"))?;
    }
    let program = std::env::args().next().unwrap_or_else(|| "ostler".to_owned());
    let here = report::demo::Here { program: &program, gateway, kubeconfig };
    if args.demo {
        let outcome = demo::ask(machine, started).await?;
        match args.output {
            Output::Json => output::print_line(&serde_json::to_string(&outcome)?)?,
            Output::Text => output::print_line(&report::demo::render(&outcome, here, args.once))?,
        }
        return Ok(());
    }
    output::tell(&report::demo::invitation(here));
    if !documents.is_empty() {
        progress::follow(machine.cluster.server()).await;
    }
    Ok(())
}

fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener> {
    if !address.ip().is_loopback() {
        return Err(hinted(
            format!("{address} is not a loopback address"),
            format!("`ostler up` serves this machine only: {flag} 127.0.0.1:{}", address.port()),
        ));
    }
    let listener = TcpListener::bind(address).map_err(|error| bind_error(address, flag, &error))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The list of processes, after those that an earlier `ostler up` left behind are ended.
fn processes(home: &Home) -> Result<Processes> {
    let (processes, left) = home.processes()?;
    if left.ended > 0 {
        let those = if left.ended == 1 { "process" } else { "processes" };
        output::tell(&format!("ended {} {those} that an earlier `ostler up` left behind", left.ended));
    }
    if left.remain > 0 {
        output::tell(&format!("warning: {} processes of an earlier `ostler up` could not be ended", left.remain));
    }
    Ok(processes)
}

/// What runs for real on this machine.
fn engines(images: &Images) -> String {
    match images.vllm() {
        Some(path) => {
            format!("  engines   vLLM: {}; others are simulated unless --config names a program", path.display())
        }
        None => {
            "  engines   no `vllm` on PATH (or in $OSTLER_VLLM): engines are simulated unless --config names a program"
                .to_owned()
        }
    }
}

/// Node objects from `--nodes`, or the demo's fleet; with the accelerators of this machine, where it is one of them.
fn nodes(args: &UpArgs) -> Result<(Vec<Value>, Gpus)> {
    let Some(path) = &args.nodes else {
        return Ok((fleet::nodes(&fleet::parse(demo::FLEET)?, &Gpus::default()), Gpus::default()));
    };
    fleet::stated::read(path)
}
