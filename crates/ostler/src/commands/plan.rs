//! `ostler plan`: the decision and the objects of every service in the files, offline or against a cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use api::manifest::Document;
use plan::gang::PodGroupSchema;
use plan::topology::Autoscalers;
use plan::{Plan, Snapshot};
use serde_json::Value;

use super::gates::FeatureGates;
use crate::connect::{self, ConnectArgs};
use crate::live::Live;
use crate::report::errors::hinted;
use crate::{catalog, files, fleet, output, report};

/// Every service is feasible: 0; one is not: 2; bad input: 1.
const INFEASIBLE: u8 = 2;
/// Kinds that live in a namespace, of those that a plan reads.
const NAMESPACED: [&str; 3] = ["InferenceService", "ServingRuntime", "BaseModel"];

/// Without --kubeconfig, --context, --cluster or --nodes nothing is known of nodes: then every class counts, with a warning.
#[derive(clap::Args)]
pub(crate) struct PlanArgs {
    /// Files and folders with services, and runtimes, models and classes of your own; `-` reads standard input
    #[arg(short, long = "filename", required = true, num_args = 1.., value_name = "FILES")]
    filenames: Vec<PathBuf>,
    /// A cluster as files: `kubectl get nodes,pods,… -A -o yaml`; its services are not planned
    #[arg(long, num_args = 1.., value_name = "FILES", conflicts_with_all = ["kubeconfig", "context"])]
    cluster: Vec<PathBuf>,
    /// A cluster in shorthand, as `ostler up --nodes` takes it: `8×H100-80G ×2, 4×MI300X`
    #[arg(long, value_name = "NODES", conflicts_with_all = ["kubeconfig", "context", "cluster"])]
    nodes: Option<PathBuf>,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Namespace of the objects in the files that state none
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Leave out the shipped runtimes, models and classes
    #[arg(long)]
    no_catalog: bool,
    /// table for people, json for programs, yaml for `kubectl apply -f -` (the objects only)
    #[arg(short, long, value_enum, value_name = "FORM", default_value_t = Output::Table)]
    output: Output,
    /// Show every rejected candidate
    #[arg(long)]
    all: bool,
    /// Volcano of the cluster, for services that are scheduled as gangs
    #[arg(long, value_name = "VERSION", value_parser = volcano)]
    volcano: Option<PodGroupSchema>,
    /// The cluster has KEDA, for services that scale by requests
    #[arg(long)]
    keda: bool,
    #[command(flatten)]
    gates: FeatureGates,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Table,
    Json,
    Yaml,
}

fn volcano(version: &str) -> Result<PodGroupSchema, String> {
    PodGroupSchema::of_version(version).ok_or_else(|| "a version is written 1.14 or v1.15.1".to_owned())
}

/// What services are planned with, and the namespace of those that state none.
struct Surroundings {
    supply: Vec<Document>,
    /// Read from a cluster: what cannot be read there is nobody's input, and takes no part.
    live: Option<Live>,
    namespace: Option<String>,
}

pub(super) async fn run(args: PlanArgs) -> Result<ExitCode> {
    let given = files::read_valid(&args.filenames)?;
    let around = surroundings(&args).await?;
    let plan = plan::plan(&snapshot(&args, given, &around)?);
    print(&plan, &args)?;
    Ok(if plan.feasible() { ExitCode::SUCCESS } else { ExitCode::from(INFEASIBLE) })
}

async fn surroundings(args: &PlanArgs) -> Result<Surroundings> {
    let shipped = || if args.no_catalog { Ok(Vec::new()) } else { catalog::documents() };
    if args.connect.kubeconfig.is_none() && args.connect.context.is_none() {
        let mut supply = shipped()?;
        supply.extend(files::read_all(&args.cluster)?);
        let stated = args.nodes.as_deref().map(fleet::stated::read).transpose()?;
        let nodes = stated.into_iter().flat_map(|(nodes, _)| nodes).enumerate();
        supply.extend(nodes.map(|(place, value)| Document { source: "--nodes".to_owned(), index: place + 1, value }));
        return Ok(Surroundings { supply, live: None, namespace: args.namespace.clone() });
    }
    let connection = connect::connect(&args.connect).await?;
    let live = Live::read(&connection.client).await?;
    // A cluster that has what is on offer says itself what is on offer; one without us gets what we would bring.
    let supply = if live.offered.is_empty() { shipped()? } else { Vec::new() };
    Ok(Surroundings { supply, live: Some(live), namespace: args.namespace.clone().or(Some(connection.namespace)) })
}

fn snapshot(args: &PlanArgs, given: Vec<Document>, around: &Surroundings) -> Result<Snapshot> {
    let count = given.len();
    let mut snapshot = Snapshot::from_documents(&[], &around.supply)?;
    for document in around.live.iter().flat_map(Live::documents) {
        if let Err(problem) = snapshot.add_supply(&document) {
            output::tell(&format!("warning: left out: {problem}"));
        }
    }
    for document in given {
        snapshot.add(&in_namespace(document, around.namespace.as_deref()))?;
    }
    snapshot.accelerator_aware = args.gates.accelerator_aware();
    snapshot.pod_groups = args.volcano.unwrap_or_default();
    if args.keda {
        snapshot.autoscalers = Autoscalers::Keda;
    }
    if snapshot.services.is_empty() {
        let names: Vec<String> = args.filenames.iter().map(|path| path.display().to_string()).collect();
        let hint = "a plan needs an InferenceService of ome.io/v1beta1 or fusioninfer.io/v1alpha1";
        let documents = if count == 1 { "1 document".to_owned() } else { format!("{count} documents") };
        return Err(hinted(format!("{}: no InferenceService in {documents}", names.join(", ")), hint));
    }
    Ok(snapshot)
}

/// The document with a namespace, where its kind has one and it states none.
fn in_namespace(mut document: Document, namespace: Option<&str>) -> Document {
    if let Some(namespace) = namespace
        && NAMESPACED.contains(&document.kind())
        && document.namespace().is_none_or(str::is_empty)
    {
        document.value["metadata"]["namespace"] = namespace.into();
    }
    document
}

fn print(plan: &Plan, args: &PlanArgs) -> Result<()> {
    output::print(&match args.output {
        Output::Table => report::plan::render(plan, args.all),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(plan)?),
        Output::Yaml => yaml(plan)?,
    })
}

/// One document per object, in apply order; why a service has none stands as a comment in its place.
fn yaml(plan: &Plan) -> Result<String> {
    let mut documents = Vec::new();
    for service in &plan.services {
        if !service.feasible {
            let message = service.message.replace('\n', " ");
            documents.push(format!("# {}/{}: {}: {message}\n", service.namespace, service.name, service.reason));
        }
        for object in &service.objects {
            documents.push(serde_saphyr::to_string::<Value>(object)?);
        }
    }
    Ok(documents.join("---\n"))
}
