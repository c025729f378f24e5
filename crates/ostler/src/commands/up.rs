//! `ostler up`: runs a local cluster until Ctrl-C.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use api::Document;
use embedded::{ProcessRuntime, ProcessTracker};
use picker::GatewayOptions;
use tokio_util::sync::CancellationToken;

use super::feature_gates::FeatureGates;
use super::time_limit::TimeLimit;
use crate::exit::Exit;
use crate::host_runtime::{HostRuntime, SimulatedImages};
use crate::images::Images;
use crate::local_cluster::{Listeners, LocalCluster};
use crate::output::{self, OutputFormat};
use crate::progress::{MessageOutput, ServiceKey};
use crate::report::actuation_demo::ModelStart;
use crate::report::demo::{ServiceOutcome, SessionInfo};
use crate::report::errors::error_with_hint;
use crate::shutdown::shutdown_token;
use crate::simulated_container::EngineEnvironment;
use crate::start_nodes::StartNodes;
use crate::state_directory::{self, StateDirectory};
use crate::{apply, catalog, demo, host_node, listener, manifest_validation, node_groups, progress, report};

/// Maximum time to wait for the decisions before the example commands are printed.
const DECISION_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(clap::Args)]
pub(crate) struct UpArgs {
    /// Apply the manifests of these files or directories
    #[arg(short, long = "filename", num_args = 1.., value_name = "FILES")]
    filenames: Vec<PathBuf>,
    /// Run these nodes: `this` host, simulated `8×H100-80G ×2`, or those of a file
    ///
    /// `this+2×L4` is this host with two simulated GPUs instead of its own.
    /// A file contains such groups, one per line, or Node manifests. By default, the nodes of the data directory, or three
    /// simulated nodes.
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
    /// Name the selected endpoint in response headers of the gateway
    ///
    /// Every response has the headers `x-ostler-endpoint`, `x-ostler-pod` and `x-ostler-decision`.
    #[arg(long)]
    debug_headers: bool,
    /// Complete requests of the gateway for at most this long after Ctrl-C; 0 means no limit
    ///
    /// The engines run until then. A second Ctrl-C ends `ostler up` immediately.
    #[arg(long, value_name = "DURATION", default_value = "2s")]
    drain_timeout: TimeLimit,
    /// Let simulated engines take the time to load weights of their size
    ///
    /// An engine starts in 5 s plus its weights at 2 GB/s, and wakes up in the time that copying them takes. By default, engines
    /// start and wake up immediately.
    #[arg(long)]
    load_times: bool,
    /// Do not create accelerator classes from node labels
    #[arg(long)]
    no_discovery: bool,
    /// Run a demo: `services` sends a request to sample services; in `actuation`, models take turns on one GPU
    ///
    /// `services` explains how the request was routed. `actuation` runs on one simulated GPU unless --nodes is set, and engines take
    /// the time of --load-times; it prints how each model started.
    #[arg(long, value_enum, value_name = "DEMO", num_args = 0..=1, default_missing_value = "services")]
    demo: Option<Demo>,
    /// Exit after the demo
    #[arg(long, requires = "demo")]
    once: bool,
    /// Print the result of the demo in this format
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = OutputFormat::Text)]
    output: OutputFormat,
    #[command(flatten)]
    gates: FeatureGates,
}

/// A demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Demo {
    /// Sample services and a request
    Services,
    /// Dual pods: engines sleep and wake up
    Actuation,
}

/// What `ostler up` shows and does once the cluster has started.
struct Session<'a> {
    args: &'a UpArgs,
    local_cluster: &'a LocalCluster,
    documents: &'a [Document],
    state_directory: &'a StateDirectory,
    /// Which engines run as processes of this host, if it is a node.
    engines: Option<&'a str>,
    /// Images whose containers on the node of this host are simulated.
    simulated_images: &'a SimulatedImages,
    start_time: Instant,
    messages: MessageOutput,
}

pub(super) async fn run(args: UpArgs) -> Result<Exit> {
    let start_time = Instant::now();
    let shutdown = shutdown_token()?;
    // All input is validated before anything starts.
    let documents = manifest_validation::read_valid(&args.filenames)?;
    manifest_validation::validate_together(&documents, &catalog::documents()?)?;
    let documents = manifest_validation::without_duplicates(documents);
    let is_actuation_demo = args.demo == Some(Demo::Actuation);
    let demo_nodes = is_actuation_demo.then(|| PathBuf::from(demo::actuation::NODES));
    let nodes = args.nodes.as_ref().or(demo_nodes.as_ref());
    let given_nodes = nodes.map(|nodes| node_groups::input::read(nodes)).transpose()?;
    let images = Images::read(args.config.as_deref())?;
    let state_directory = state_directory::open(args.data_dir.clone())?;
    let listeners = Listeners {
        api: bind(args.api, "--api")?,
        gateway: bind(args.gateway, "--gateway")?,
        metrics: bind(args.metrics, "--metrics")?,
    };
    let kubeconfig = state_directory.kubeconfig();
    let store = state_directory.open_store()?;
    let start_nodes = StartNodes::new(given_nodes, &store)?;
    let runtime = HostRuntime {
        node: host_node::find(&start_nodes.nodes).map(str::to_owned),
        images,
        simulated_images: SimulatedImages::default(),
        kubeconfig: std::path::absolute(&kubeconfig).ok(),
        processes: ProcessRuntime { tracker: open_process_tracker(&state_directory)? },
        engines: EngineEnvironment { load_times: args.load_times || is_actuation_demo, ..EngineEnvironment::default() },
        end: CancellationToken::new(),
    };
    let simulated_images = runtime.simulated_images.clone();
    let engines = runtime.node.is_some().then(|| engine_summary(&runtime.images));

    let options = operator::Options { discovery: !args.no_discovery, ..args.gates.options() };
    let gateway_options = GatewayOptions {
        drain_timeout: args.drain_timeout.duration(),
        // The demo prints them.
        debug_headers: args.debug_headers || args.demo.is_some(),
        ..GatewayOptions::default()
    };
    let (local_cluster, mut tasks) =
        LocalCluster::start(store, start_nodes, options, gateway_options, listeners, &state_directory, runtime).await?;
    let session = Session {
        args: &args,
        local_cluster: &local_cluster,
        documents: &documents,
        state_directory: &state_directory,
        engines: engines.as_deref(),
        simulated_images: &simulated_images,
        start_time,
        messages: MessageOutput::stderr(),
    };
    let result = tokio::select! {
        result = session.run() => result,
        () = shutdown.cancelled() => Ok(()),
        failure = local_cluster.cluster.failed() => Err(report::task_status::failure_error(&failure)),
        error = tasks.failed() => Err(error),
    };
    local_cluster.stop(tasks).await;
    std::fs::remove_file(&kubeconfig).ok();
    result.map(|()| Exit::Success)
}

// === impl Session ===

impl Session<'_> {
    /// Applies the manifests, runs the demo or shows the services, and then waits forever, unless the demo runs only once.
    /// Meanwhile, shows background tasks that fail or are restarted.
    async fn run(&self) -> Result<()> {
        tokio::select! {
            result = self.run_steps() => result,
            () = progress::watch_tasks(self.local_cluster.task_groups(), &self.messages) => Ok(()),
        }
    }

    async fn run_steps(&self) -> Result<()> {
        self.print_cluster();
        apply::documents(&self.local_cluster.client, self.documents).await?;
        if self.args.demo == Some(Demo::Services) {
            demo::deploy(self.local_cluster, &self.messages).await?;
        }
        self.print_addresses()?;
        match self.args.demo {
            Some(Demo::Services) => self.run_demo().await?,
            Some(Demo::Actuation) => self.run_actuation_demo().await?,
            None => self.show_services().await,
        }
        if !self.args.once {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    fn print_cluster(&self) {
        let (version, data) = (env!("CARGO_PKG_VERSION"), self.state_directory.describe());
        self.messages.print(&format!("ostler {version} · embedded Kubernetes · data {data}"));
        let nodes = self.local_cluster.cluster.server().list("nodes");
        self.messages.print(&format!("  nodes     {}", report::nodes::summary(&nodes)));
        self.engines.into_iter().for_each(|text| self.messages.print(text));
    }

    /// Prints the addresses of the servers. Scripts wait for the line on standard output, which means that the cluster is ready.
    fn print_addresses(&self) -> Result<()> {
        let LocalCluster { api, gateway, metrics, .. } = self.local_cluster;
        self.messages.print(&format!("  metrics   http://{metrics}/metrics"));
        if self.args.output == OutputFormat::Json {
            return Ok(());
        }
        let kubeconfig = self.state_directory.kubeconfig();
        let kubeconfig = kubeconfig.display();
        output::print_line(&format!("ready: api=https://{api} gateway=http://{gateway} kubeconfig={kubeconfig}"))
    }

    async fn run_demo(&self) -> Result<()> {
        let outcome = demo::run(self.local_cluster, self.start_time).await?;
        output::print_line(&match self.args.output {
            OutputFormat::Json => serde_json::to_string(&outcome)?,
            OutputFormat::Text => report::demo::render(&outcome, &self.info(), self.args.once),
        })
    }

    /// Runs the demo of dual pods, and prints each start as soon as it is complete.
    async fn run_actuation_demo(&self) -> Result<()> {
        let format = self.args.output;
        let print = |start: &ModelStart| {
            output::print_line(&match format {
                OutputFormat::Json => serde_json::to_string(start)?,
                OutputFormat::Text => report::actuation_demo::render(start),
            })
        };
        demo::actuation::run(self.local_cluster, &self.messages, &print).await?;
        if format == OutputFormat::Text && !self.args.once {
            output::print_line(&report::actuation_demo::next_steps(&self.info()))?;
        }
        Ok(())
    }

    /// Prints the decisions for the services of the manifests, and example commands. If manifests were applied, also shows the
    /// table of services until the session ends.
    async fn show_services(&self) {
        let server = self.local_cluster.cluster.server();
        let keys: Vec<ServiceKey> = self.documents.iter().filter_map(ServiceKey::of_document).collect();
        let services = progress::until_decided(server, &keys, DECISION_TIMEOUT).await;
        let outcomes: Vec<ServiceOutcome> =
            services.iter().map(|service| ServiceOutcome::from_service(service)).collect();
        let decided: Vec<ServiceOutcome> = outcomes.into_iter().filter(ServiceOutcome::has_decision).collect();
        if !decided.is_empty() {
            self.messages.print(&report::demo::decisions(&decided));
        }
        let service = keys.first().map(|key| (key.namespace.as_str(), key.name.as_str()));
        self.messages.print(&report::demo::next_steps(&self.info(), service));
        if !self.documents.is_empty() {
            progress::watch(server, self.simulated_images, &self.messages).await;
        }
    }

    fn info(&self) -> SessionInfo {
        SessionInfo {
            program: std::env::args().next().unwrap_or_else(|| "ostler".to_owned()),
            gateway: self.local_cluster.gateway,
            kubeconfig: self.state_directory.kubeconfig(),
        }
    }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use clap::Parser;
    use cluster::{Clock, SystemClock};
    use embedded::{DEFAULT_HISTORY_SIZE, Store, TaskStatuses};
    use operator::{WebhookOptions, WebhookTarget};

    use super::*;
    use crate::background_tasks::BackgroundTasks;

    /// After this time, a test that waits for a message fails.
    const TIMEOUT: Duration = Duration::from_secs(120);

    #[derive(clap::Parser)]
    struct TestCli {
        #[command(flatten)]
        args: UpArgs,
    }

    /// A clock that panics until it is repaired.
    #[derive(Default)]
    struct BrokenClock {
        is_repaired: AtomicBool,
    }

    impl Clock for BrokenClock {
        fn now(&self) -> jiff::Timestamp {
            assert!(self.is_repaired.load(Relaxed), "broken clock");
            SystemClock.now()
        }
    }

    fn loopback_listener() -> TcpListener {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        listener
    }

    /// Starts a cluster whose operator has `clock`. Its admission webhook is a supervised task that reads the clock.
    async fn start(state_directory: &StateDirectory, clock: Arc<BrokenClock>) -> (LocalCluster, BackgroundTasks) {
        let store = Store::new(DEFAULT_HISTORY_SIZE);
        let start_nodes = StartNodes::new(None, &store).unwrap();
        let webhook = loopback_listener();
        let target = WebhookTarget::Url(webhook.local_addr().unwrap());
        let webhook = Some(WebhookOptions { listener: Arc::new(webhook), target });
        let options = operator::Options { clock, webhook, ..operator::Options::default() };
        let [api, gateway, metrics] = [(); 3].map(|()| loopback_listener());
        let (gateway_options, listeners) = (GatewayOptions::default(), Listeners { api, gateway, metrics });
        let runtime = HostRuntime::default();
        let started =
            LocalCluster::start(store, start_nodes, options, gateway_options, listeners, state_directory, runtime)
                .await;
        started.unwrap()
    }

    #[tokio::test]
    async fn restarted_task_is_shown_during_the_demo() {
        let path = std::env::temp_dir().join(format!("ostler-up-test-{}", std::process::id()));
        // An earlier process with this id may not have removed it.
        std::fs::remove_dir_all(&path).ok();
        let state_directory = state_directory::open(Some(path.clone())).unwrap();
        let clock = Arc::new(BrokenClock::default());
        let (local_cluster, tasks) = start(&state_directory, Arc::clone(&clock)).await;
        let (messages, mut text) = progress::captured_output(false);
        let session = Session {
            args: &TestCli::parse_from(["up", "--demo", "--output=json"]).args,
            local_cluster: &local_cluster,
            documents: &[],
            state_directory: &state_directory,
            engines: None,
            simulated_images: &SimulatedImages::default(),
            start_time: Instant::now(),
            messages,
        };
        let task = "admission webhook of the operator";
        let shown = async {
            // No service is ready before the clock is repaired.
            let failure = format!("\n  {task}: panicked: broken clock; restarting in 1 s after 0 restarts\n");
            text.wait_for(|text| text.contains(&failure)).await.unwrap();
            clock.is_repaired.store(true, Relaxed);
            let restart = format!("\n  {task}: running after 1 restart\n");
            text.wait_for(|text| text.contains(&restart)).await.unwrap();
        };
        tokio::select! {
            () = shown => {}
            result = session.run() => panic!("the session ended: {result:?}"),
            () = tokio::time::sleep(TIMEOUT) => panic!("not shown"),
        }
        local_cluster.stop(tasks).await;
        std::fs::remove_dir_all(path).unwrap();
    }

    #[tokio::test]
    async fn tasks_of_cluster_controllers_and_gateway_are_watched() {
        let path = std::env::temp_dir().join(format!("ostler-up-tasks-test-{}", std::process::id()));
        std::fs::remove_dir_all(&path).ok();
        let state_directory = state_directory::open(Some(path.clone())).unwrap();
        let clock = Arc::new(BrokenClock { is_repaired: AtomicBool::new(true) });
        let (local_cluster, tasks) = start(&state_directory, clock).await;
        let expected = ["scheduler", "watch of nodes", "watch of nodes", "update of the pools"];
        for (mut group, expected) in local_cluster.task_groups().into_iter().zip(expected) {
            let is_watched = |statuses: &TaskStatuses| statuses.values().any(|status| status.name == expected);
            group.statuses.wait_for(is_watched).await.unwrap();
        }
        local_cluster.stop(tasks).await;
        std::fs::remove_dir_all(path).unwrap();
    }
}
