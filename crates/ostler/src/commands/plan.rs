//! `ostler plan`: prints the decision and the objects of services, offline or against a cluster.

use std::path::PathBuf;

use anyhow::Result;
use api::{Document, ome};
use cluster::Kind;
use operator::kinds;
use plan::AutoscalerSupport;
use plan::PodGroupSchema;
use plan::{Claim, Plan, Snapshot};
use serde_json::Value;

use super::feature_gates::FeatureGates;
use super::plan_diff::{self, DiffInput};
use crate::cluster_objects::{self, ClusterObjects};
use crate::connect::{self, ConnectArgs};
use crate::exit::Exit;
use crate::report::errors::error_with_hint;
use crate::report::names::format_count;
use crate::{catalog, files, manifest_validation, node_groups, output, report};

/// The cluster-scoped kinds of the catalog.
const CLUSTER_SUPPLY_KINDS: [Kind; 3] =
    [kinds::CLUSTER_SERVING_RUNTIME, kinds::CLUSTER_BASE_MODEL, kinds::ACCELERATOR_CLASS];
/// The namespaced kinds that a plan reads.
const NAMESPACED_KINDS: [&str; 3] = ["InferenceService", "ServingRuntime", "BaseModel"];
/// API version of Nodes and Pods.
const CORE_API_VERSION: &str = "v1";

#[derive(clap::Args)]
#[command(
    after_help = NOTE,
    mut_arg("kubeconfig", |arg| arg.help("Plan for the cluster of this kubeconfig [default with --context or --diff: $KUBECONFIG]")),
    mut_arg("context", |arg| arg.help("Plan for the cluster of this context of the kubeconfig"))
)]
pub(crate) struct PlanArgs {
    /// Read services, runtimes, models and classes from these paths; `-` is stdin
    ///
    /// The `config.json` of a model, or its directory, is a model, and a service with it unless the other files contain one.
    #[arg(short, long = "filename", required_unless_present = "diff", num_args = 1.., value_name = "FILES")]
    filenames: Vec<PathBuf>,
    /// Show what applying would change in the cluster, and which Pods would restart
    ///
    /// Without files, show what the operator of this version would change for the services of the cluster, or of the
    /// namespace that `--namespace` sets. Deployments and LeaderWorkerSets have the rollout strategy that the operator would
    /// choose. Nothing is written: read permissions suffice. The revision history is not shown.
    #[arg(long, conflicts_with_all = ["cluster", "nodes", "volcano", "keda", "all"])]
    diff: bool,
    /// Endpoint picker image for --diff [default: that of the running operator]
    #[arg(long, value_name = "IMAGE", requires = "diff")]
    picker_image: Option<String>,
    /// Read cluster objects from these files, from `kubectl get nodes,… -A -o yaml`
    ///
    /// Services in these files are not planned; they claim the accelerators in their status.
    #[arg(long, num_args = 1.., value_name = "FILES", conflicts_with_all = ["kubeconfig", "context"])]
    cluster: Vec<PathBuf>,
    /// Plan for these simulated nodes, such as `8×H100-80G ×2, 4×MI300X`
    #[arg(long, value_name = "NODES", conflicts_with_all = ["kubeconfig", "context", "cluster"])]
    nodes: Option<PathBuf>,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Use this namespace for objects that do not set one
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Ignore the shipped runtimes, models and classes
    #[arg(long)]
    no_catalog: bool,
    /// Print in this format; yaml prints only the objects, for `kubectl apply -f -`
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = Output::Table)]
    output: Output,
    /// Show all candidates and settings
    #[arg(long)]
    all: bool,
    /// Plan gangs for this version of Volcano
    #[arg(long, value_name = "VERSION", value_parser = parse_volcano_version)]
    volcano: Option<PodGroupSchema>,
    /// Plan for a cluster with KEDA, for services that scale by requests
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

/// The objects that services are planned with, and the default namespace.
struct PlanInput {
    supply: Vec<Document>,
    /// Objects of the cluster. Invalid ones are ignored with a warning, since the user did not pass them.
    cluster_objects: Option<ClusterObjects>,
    namespace: Option<String>,
}

const NOTE: &str = "\
Without --kubeconfig, --context, --cluster or --nodes, the command reads no cluster, also if $KUBECONFIG is set. The nodes are
unknown then: all classes are considered, with a warning. With --diff, the command always connects to a cluster.

Exit codes: 0 if all services are feasible, 2 if one is not, 1 for errors. They do not depend on the differences of --diff.";

fn parse_volcano_version(version: &str) -> Result<PodGroupSchema, String> {
    PodGroupSchema::from_volcano_version(version).ok_or_else(|| "expected a version such as 1.14 or v1.15.1".to_owned())
}

pub(super) async fn run(args: PlanArgs) -> Result<Exit> {
    if args.diff {
        return run_diff(args).await;
    }
    let documents = read_documents(&args.filenames)?;
    let input = read_input(&args).await?;
    let plan = plan::plan_with_remedies(&snapshot(&args, documents, &input)?);
    print(&plan, &args)?;
    Ok(if plan.is_feasible() { Exit::Success } else { Exit::Infeasible })
}

/// Reads manifests. The `config.json` of a model, or its directory, becomes a model, and a service with it unless the manifests contain a
/// service.
fn read_documents(paths: &[PathBuf]) -> Result<Vec<Document>> {
    let (models, manifests): (Vec<PathBuf>, Vec<PathBuf>) =
        paths.iter().cloned().partition(|path| catalog::is_model(path));
    let mut documents = if manifests.is_empty() { Vec::new() } else { manifest_validation::read_valid(&manifests)? };
    let has_service = documents.iter().any(|document| document.kind() == "InferenceService");
    for path in models {
        let model = catalog::model_document(&path)?;
        let service = || Document {
            source: model.source.clone(),
            index: 1,
            value: cluster_objects::minimal_service("", model.name(), None),
        };
        documents.extend((!has_service).then(service));
        documents.push(model);
    }
    Ok(documents)
}

async fn run_diff(args: PlanArgs) -> Result<Exit> {
    if args.output == Output::Yaml {
        return Err(error_with_hint("--diff: the output format yaml is not supported", "use `-o table` or `-o json`"));
    }
    let documents = match args.filenames.as_slice() {
        [] => None,
        paths => Some(read_documents(paths)?),
    };
    let connection = connect::connect(&args.connect).await?;
    let namespace = args.namespace.clone().unwrap_or(connection.namespace);
    let documents = documents.map(|documents| documents_to_plan(documents, Some(&namespace), &[])).transpose()?;
    let diff = plan_diff::diff(DiffInput {
        client: connection.client,
        documents,
        catalog: if args.no_catalog { Vec::new() } else { catalog::documents()? },
        namespace: namespace.clone(),
        only_namespace: args.namespace,
        picker_image: args.picker_image,
        options: args.gates.options(),
    })
    .await?;
    output::print(&match args.output {
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&diff)?),
        Output::Table | Output::Yaml => diff.render(),
    })?;
    Ok(if diff.is_feasible() { Exit::Success } else { Exit::Infeasible })
}

async fn read_input(args: &PlanArgs) -> Result<PlanInput> {
    let catalog_documents = || if args.no_catalog { Ok(Vec::new()) } else { catalog::documents() };
    if args.connect.kubeconfig.is_none() && args.connect.context.is_none() {
        let mut supply = catalog_documents()?;
        let exported = files::read_all(&args.cluster)?;
        manifest_validation::reject_duplicates(&exported)?;
        supply.extend(exported);
        let nodes_flag = args.nodes.as_deref().map(node_groups::input::read).transpose()?;
        let nodes = nodes_flag.into_iter().flat_map(|(nodes, _)| nodes).enumerate();
        supply.extend(nodes.map(|(index, value)| Document { source: "--nodes".to_owned(), index: index + 1, value }));
        return Ok(PlanInput { supply, cluster_objects: None, namespace: args.namespace.clone() });
    }
    let connection = connect::connect(&args.connect).await?;
    let namespace = args.namespace.clone().unwrap_or(connection.namespace);
    let objects = ClusterObjects::read(&connection.client, &namespace).await?;
    objects.notes().iter().for_each(|note| output::print_message(&format!("note: {note}")));
    let supply = shipped_supply(catalog_documents()?, &objects);
    Ok(PlanInput { supply, cluster_objects: Some(objects), namespace: Some(namespace) })
}

/// Returns the part of the catalog that applies to the cluster: all of it if the cluster has no runtimes, models and
/// classes, otherwise the kinds that the user may not read.
fn shipped_supply(mut catalog: Vec<Document>, objects: &ClusterObjects) -> Vec<Document> {
    let unreadable: Vec<&str> =
        CLUSTER_SUPPLY_KINDS.into_iter().filter(|kind| !objects.is_readable(*kind)).map(|kind| kind.kind).collect();
    if !objects.supply.is_empty() {
        catalog.retain(|document| unreadable.contains(&document.kind()));
    }
    if !unreadable.is_empty() && !catalog.is_empty() {
        output::print_message(&format!("note: planning with the shipped {} objects", unreadable.join(", ")));
    }
    catalog
}

fn snapshot(args: &PlanArgs, documents: Vec<Document>, input: &PlanInput) -> Result<Snapshot> {
    let document_count = documents.len();
    let cluster_documents = input.cluster_objects.as_ref().map(ClusterObjects::documents).unwrap_or_default();
    // Nodes and Pods do not conflict with manifests, and a cluster has many of them.
    let is_compared = |document: &&Document| document.api_version() != CORE_API_VERSION;
    let existing: Vec<Document> = input.supply.iter().chain(&cluster_documents).filter(is_compared).cloned().collect();
    let documents = documents_to_plan(documents, input.namespace.as_deref(), &existing)?;
    let mut snapshot = Snapshot::from_documents(&[], &input.supply)?;
    for document in &cluster_documents {
        if let Err(error) = snapshot.add_supply(document) {
            output::print_message(&format!("warning: ignored: {error}"));
        }
    }
    snapshot.claims = live_claims(input);
    for document in &documents {
        snapshot.add(document)?;
    }
    add_discovered_classes(&mut snapshot, existing.iter().chain(&documents))?;
    snapshot.accelerator_aware = args.gates.accelerator_aware();
    snapshot.pod_group_schema = args.volcano.unwrap_or_default();
    if args.keda {
        snapshot.autoscaler_support = AutoscalerSupport::HpaAndKeda;
    }
    if snapshot.services.is_empty() {
        let names: Vec<String> = args.filenames.iter().map(|path| path.display().to_string()).collect();
        let hint = "add an InferenceService of ome.io/v1beta1 or fusioninfer.io/v1alpha1";
        let documents = format_count(document_count, "document");
        return Err(error_with_hint(format!("{}: no InferenceService in {documents}", names.join(", ")), hint));
    }
    Ok(snapshot)
}

/// Sets the default namespace and removes repeated documents.
///
/// # Errors
/// A document that conflicts with another one or with an existing object.
fn documents_to_plan(
    documents: Vec<Document>,
    namespace: Option<&str>,
    existing: &[Document],
) -> Result<Vec<Document>> {
    let documents: Vec<Document> =
        documents.into_iter().map(|document| with_default_namespace(document, namespace)).collect();
    manifest_validation::validate_together(&documents, existing)?;
    Ok(manifest_validation::without_duplicates(documents))
}

/// Adds the classes that the operator would create or update for the accelerators of nodes that no other class covers.
fn add_discovered_classes<'a>(snapshot: &mut Snapshot, documents: impl Iterator<Item = &'a Document>) -> Result<()> {
    if !snapshot.inventory.has_nodes() {
        return Ok(());
    }
    let is_class = |document: &&Document| document.is_kind(ome::API_VERSION, kinds::ACCELERATOR_CLASS.kind);
    let existing: Vec<&Value> = documents.filter(is_class).map(|document| &document.value).collect();
    let known_classes = operator::parse_known_classes(&catalog::classes(&catalog::documents()?));
    let discovered = decide::discover_classes(&snapshot.inventory, existing.iter().copied(), &known_classes);
    let is_changed = |class: &Value| {
        let is_same = |existing: &&Value| {
            existing["metadata"]["name"] == class["metadata"]["name"] && existing["spec"] == class["spec"]
        };
        !existing.iter().any(is_same)
    };
    let changed: Vec<Value> = discovered.into_iter().filter(is_changed).collect();
    if !changed.is_empty() {
        let names: Vec<&str> = changed.iter().filter_map(|class| class["metadata"]["name"].as_str()).collect();
        output::print_message(&format!(
            "note: planning with AcceleratorClasses discovered from nodes: {}",
            names.join(", ")
        ));
    }
    for value in changed {
        snapshot.add_supply(&Document { source: "discovered from nodes".to_owned(), index: 1, value })?;
    }
    Ok(())
}

/// Returns the accelerators that the services of the cluster, or of the files in `--cluster`, claim.
fn live_claims(input: &PlanInput) -> Vec<Claim> {
    match &input.cluster_objects {
        Some(objects) => objects.claims(),
        None => {
            let services = input.supply.iter().filter(|document| document.kind() == "InferenceService");
            services.filter_map(|service| Claim::from_status(&service.value)).collect()
        }
    }
}

/// Sets the namespace of a document of a namespaced kind without one.
fn with_default_namespace(mut document: Document, namespace: Option<&str>) -> Document {
    if let Some(namespace) = namespace
        && NAMESPACED_KINDS.contains(&document.kind())
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
        Output::Yaml => to_yaml(plan)?,
    })
}

/// Renders one document per object, in apply order. An infeasible service is a comment with the reason.
fn to_yaml(plan: &Plan) -> Result<String> {
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
