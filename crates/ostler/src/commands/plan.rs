//! `ostler plan`: the decision and the objects of every service in the files, without a cluster.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use plan::{Plan, Snapshot};
use serde_json::Value;

use crate::report::errors::hinted;
use crate::{catalog, files, report};

/// Every service is feasible: 0; one is not: 2; bad input: 1.
const INFEASIBLE: u8 = 2;
const ACCELERATOR_AWARE: &str = "AcceleratorAwareScheduling";

#[derive(clap::Args)]
pub(crate) struct PlanArgs {
    /// Files and folders with services, and runtimes, models and classes of your own; `-` reads standard input
    #[arg(short, long = "filename", required = true, num_args = 1.., value_name = "FILES")]
    filenames: Vec<PathBuf>,
    /// A cluster as it is: `kubectl get nodes,pods,… -o yaml`; its services are not planned
    #[arg(long, num_args = 1.., value_name = "FILES")]
    cluster: Vec<PathBuf>,
    /// Leave out the shipped runtimes, models and classes
    #[arg(long)]
    no_catalog: bool,
    /// table for people, json for programs, yaml for `kubectl apply -f -` (the objects only)
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// Show every rejected candidate
    #[arg(long)]
    all: bool,
    /// Switches such as AcceleratorAwareScheduling=false
    #[arg(long, value_name = "GATE=BOOL,…", value_delimiter = ',')]
    feature_gates: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    Table,
    Json,
    Yaml,
}

pub(super) fn run(args: PlanArgs) -> Result<ExitCode> {
    let mut supply = if args.no_catalog { Vec::new() } else { catalog::documents()? };
    supply.extend(files::read_all(&args.cluster)?);
    let given = files::read_valid(&args.filenames)?;
    let mut snapshot = Snapshot::from_documents(&given, &supply)?;
    snapshot.accelerator_aware = accelerator_aware(&args.feature_gates)?;
    if snapshot.services.is_empty() {
        let names: Vec<String> = args.filenames.iter().map(|path| path.display().to_string()).collect();
        let hint = "a plan needs an InferenceService of ome.io/v1beta1 or fusioninfer.io/v1alpha1";
        return Err(hinted(format!("{}: no InferenceService among {} documents", names.join(", "), given.len()), hint));
    }
    let plan = plan::plan(&snapshot);
    print(&plan, &args)?;
    Ok(if plan.feasible() { ExitCode::SUCCESS } else { ExitCode::from(INFEASIBLE) })
}

fn print(plan: &Plan, args: &PlanArgs) -> Result<()> {
    let text = match args.output {
        Output::Table => report::plan::render(plan, args.all),
        Output::Json => format!("{}\n", serde_json::to_string_pretty(plan)?),
        Output::Yaml => yaml(plan)?,
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(())
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

fn accelerator_aware(gates: &[String]) -> Result<bool> {
    let mut aware = true;
    for gate in gates {
        aware = match gate.split_once('=') {
            Some((ACCELERATOR_AWARE, "true")) => true,
            Some((ACCELERATOR_AWARE, "false")) => false,
            _ => {
                return Err(hinted(
                    format!("--feature-gates {gate}: not a gate"),
                    format!("{ACCELERATOR_AWARE}=true or =false"),
                ));
            }
        };
    }
    Ok(aware)
}
