//! `ostler lint`: validates manifests without a cluster.

use std::path::PathBuf;

use anyhow::Result;
use api::{Document, Finding, Severity, ome};
use decide::code::outcome;
use plan::code::error;
use plan::{ServicePlan, Snapshot};

use crate::exit::Exit;
use crate::manifest_validation::{self, is_error, namespace, without_duplicates};
use crate::report::names::format_count;
use crate::{catalog, files, output, report};

/// Reasons why a service cannot be planned that an object of the cluster may remove, and the fields that they concern.
const MISSING_OBJECTS: [(api::Code, &str); 3] = [
    (outcome::MODEL_NOT_FOUND, "spec.model.name"),
    (outcome::RUNTIME_NOT_FOUND, "spec.runtime.name"),
    (outcome::NO_ENGINE_CONTAINER, "spec"),
];

#[derive(clap::Args)]
pub(crate) struct LintArgs {
    /// Validate the manifests of these files or directories; `-` is standard input
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
    let mut documents = Vec::new();
    for file in files::manifests(paths)? {
        match files::read(&file) {
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

/// Returns the reason why the service cannot be planned, as a warning if the cluster may have what the manifests lack; other reasons
/// depend on nodes. `with_shipped`: whether the service was planned with the shipped objects. Of a role-based service, also returns the
/// warnings, which need no cluster.
fn plan_findings(plan: &ServicePlan, with_shipped: bool) -> Vec<Finding> {
    let is_role_based = plan.api_version != ome::API_VERSION;
    let path = if is_role_based { "spec.roles" } else { "" };
    let code = error::ALL.iter().find(|code| !plan.feasible && code.as_str() == plan.reason);
    let error = code.map(|code| {
        let finding = match error::DEPENDS_ON_CLUSTER.contains(code) {
            true => Finding::warning(path, plan.message.clone()),
            false => Finding::error(path, plan.message.clone()),
        };
        finding.with_hint(code.remedy())
    });
    let is_missing = |(code, _): &&(api::Code, &str)| with_shipped && !plan.feasible && code.as_str() == plan.reason;
    let missing = MISSING_OBJECTS.iter().find(is_missing);
    let missing = missing.map(|(_, field)| {
        Finding::warning(*field, plan.message.clone())
            .with_hint("ignore this if the cluster has the object, which this command does not read")
    });
    let warnings = plan.warnings.iter().filter(|_| is_role_based);
    error
        .into_iter()
        .chain(missing)
        .chain(warnings.map(|warning| Finding::warning(path, warning.message.clone())))
        .collect()
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
