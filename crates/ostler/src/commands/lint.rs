//! `ostler lint`: validates manifests without a cluster.

use std::path::PathBuf;

use anyhow::Result;
use api::{Document, Finding, Severity, ome};
use cluster::kind_and_name;
use decide::code::outcome;
use plan::code::error;
use plan::{ServicePlan, Snapshot};
use serde_json::Value;

use crate::exit::Exit;
use crate::manifest_validation::{self, is_error, namespace, without_duplicates};
use crate::report::names::format_count;
use crate::{catalog, cluster_objects, files, output, report, requester_validation};

/// Reasons why a service cannot be planned that concern one field.
const FIELDS: [(api::Code, &str); 3] = [
    (outcome::MODEL_NOT_FOUND, "spec.model.name"),
    (outcome::MODEL_DISABLED, "spec.model.name"),
    (outcome::RUNTIME_NOT_FOUND, "spec.runtime.name"),
];

#[derive(clap::Args)]
pub(crate) struct LintArgs {
    /// Validate the manifests of these files or directories; `-` is standard input
    ///
    /// The `config.json` of a model, or its directory, is a model.
    #[arg(short, long = "filename", required = true, num_args = 1.., value_name = "FILES")]
    filenames: Vec<PathBuf>,
    /// Do not compare with the shipped runtimes and classes
    #[arg(long)]
    no_catalog: bool,
}

/// Numbers of findings by severity.
#[derive(Default)]
struct FindingCounts {
    errors: usize,
    warnings: usize,
}

/// Runs the command. It fails if any finding is an error; warnings do not change the exit code.
pub(super) fn run(args: LintArgs) -> Result<Exit> {
    let mut counts = FindingCounts::default();
    let documents = read_documents(&args.filenames, &mut counts)?;
    let shipped = if args.no_catalog { Vec::new() } else { catalog::documents()? };
    let mut findings = manifest_validation::findings(&documents, &shipped);
    add_plan_findings(&documents, &shipped, &mut findings)?;
    for (document, findings) in documents.iter().zip(findings) {
        for finding in findings {
            counts.add(finding.severity);
            output::print_line(&finding.render(document))?;
        }
    }
    let FindingCounts { errors, warnings } = counts;
    output::print_message(&format!(
        "{}: {}, {}",
        format_count(documents.len(), "document"),
        format_count(errors, "error"),
        format_count(warnings, "warning")
    ));
    Ok(if errors == 0 { Exit::Success } else { Exit::Failure })
}

/// Reads all files. A file that cannot be read or parsed is a finding.
fn read_documents(paths: &[PathBuf], counts: &mut FindingCounts) -> Result<Vec<Document>> {
    let (models, manifests): (Vec<PathBuf>, Vec<PathBuf>) =
        paths.iter().cloned().partition(|path| catalog::is_model(path));
    let models = models.iter().map(|path| catalog::model_document(path).map(|model| vec![model]));
    let files = files::manifests(&manifests)?;
    let mut documents = Vec::new();
    for result in files.iter().map(|file| files::read(file)).chain(models) {
        match result {
            Ok(file_documents) => documents.extend(file_documents),
            Err(error) => {
                counts.add(Severity::Error);
                output::print_line(&report::errors::render_finding(&error))?;
            }
        }
    }
    Ok(documents)
}

/// Plans the services with the valid documents and the shipped objects, and adds the reasons why a service cannot be planned,
/// whatever the cluster has.
fn add_plan_findings(documents: &[Document], shipped: &[Document], findings: &mut [Vec<Finding>]) -> Result<()> {
    let is_valid = |findings: &[Finding]| !findings.iter().any(is_error);
    let valid = documents.iter().zip(findings.iter()).filter(|(_, findings)| is_valid(findings));
    let valid = without_duplicates(valid.map(|(document, _)| document.clone()).collect());
    let snapshot = Snapshot::from_documents(&valid, shipped)?;
    let plans = plan::plan(&snapshot).services;
    for (document, findings) in documents.iter().zip(findings).filter(|(_, findings)| is_valid(findings)) {
        let is_planned = |plan: &&ServicePlan| {
            document.is_kind(&plan.api_version, &plan.kind)
                && document.name() == plan.name
                && namespace(document) == plan.namespace
        };
        let with_shipped = !shipped.is_empty();
        let plan = plans.iter().find(is_planned).into_iter();
        findings.extend(plan.flat_map(|plan| plan_findings(plan, with_shipped)));
    }
    Ok(())
}

/// Returns the reason why the service cannot be planned: an error if it is the same in every cluster. Of a role-based service, also
/// returns the warnings, which need no cluster. `with_shipped`: whether the service was planned with the shipped objects.
fn plan_findings(plan: &ServicePlan, with_shipped: bool) -> Vec<Finding> {
    let is_role_based = plan.api_version != ome::API_VERSION;
    let path = if is_role_based { "spec.roles" } else { "" };
    let warnings = plan.warnings.iter().filter(|_| is_role_based);
    let reason = (!plan.feasible).then(|| reason_finding(plan, path, with_shipped)).flatten();
    let requesters = plan.objects.iter().flat_map(|object| requester_findings(object, path));
    let warnings = warnings.map(|warning| Finding::warning(path, warning.message.clone()));
    reason.into_iter().chain(warnings).chain(requesters).collect()
}

/// Returns why the controller of dual pods would not serve the requesters of a planned object.
fn requester_findings(object: &Value, path: &str) -> Vec<Finding> {
    let document = cluster_objects::document(object.clone());
    let findings = requester_validation::findings(&document).into_iter();
    let of_service = |finding: Finding| Finding {
        path: path.to_owned(),
        message: format!("{}, {}: {}", kind_and_name(object), finding.path, finding.message),
        ..finding
    };
    findings.map(of_service).collect()
}

fn reason_finding(plan: &ServicePlan, path: &str, with_shipped: bool) -> Option<Finding> {
    let is_reason = |code: &&api::Code| code.as_str() == plan.reason;
    if let Some(code) = error::ALL.iter().find(is_reason) {
        let depends_on_cluster = error::DEPENDS_ON_CLUSTER.contains(code);
        let finding = if depends_on_cluster { Finding::warning } else { Finding::error };
        return Some(finding(path, plan.message.clone()).with_hint(code.remedy()));
    }
    let field = FIELDS.iter().find(|(code, _)| is_reason(&code)).map_or("spec", |(_, field)| field);
    with_shipped.then(|| {
        Finding::warning(field, plan.message.clone()).with_hint(
            "ignore this if the cluster has other models, runtimes or classes, which this command does not read",
        )
    })
}

// === impl FindingCounts ===

impl FindingCounts {
    fn add(&mut self, severity: Severity) {
        match severity {
            Severity::Error => self.errors += 1,
            Severity::Warning => self.warnings += 1,
        }
    }
}
