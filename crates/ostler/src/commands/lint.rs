//! `ostler lint`: validates manifests without a cluster.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::Result;
use api::{Document, Finding, Severity, fusioninfer, lint_document, ome};
use operator::{AdmissionContext, validate_picker_config};
use plan::{Service, Snapshot};

use crate::exit::Exit;
use crate::report::names::format_count;
use crate::{catalog, files, output, report};

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

/// Kind of accelerator classes.
const CLASS: &str = "AcceleratorClass";

/// Runs the command. It fails if any finding is an error; warnings do not change the exit code.
pub(super) fn run(args: LintArgs) -> Result<Exit> {
    let mut counts = FindingCounts::default();
    let documents = read_documents(&args.filenames, &mut counts)?;
    let mut context = admission_context(&args, &documents)?;
    for document in &documents {
        for finding in findings(document, &context) {
            counts.add(finding.severity);
            output::print_line(&finding.render(document))?;
        }
        // Like `kubectl apply`: of two conflicting objects, the second is rejected.
        if !document.is_kind(ome::API_VERSION, CLASS) {
            context.add(&document.value);
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

fn findings(document: &Document, context: &AdmissionContext) -> Vec<Finding> {
    let mut findings: Vec<Finding> = lint_document(document)
        .into_iter()
        .chain(context.validate(document))
        .chain(validate_picker_config(document))
        .collect();
    if findings.iter().all(|finding| finding.severity != Severity::Error) {
        findings.extend(check_roles(document));
    }
    findings
}

/// Plans a role-based service, which needs no cluster. Returns the reason why it cannot be deployed, if any, and its
/// warnings. The schema checks types and names.
fn check_roles(document: &Document) -> Vec<Finding> {
    let Ok(Some(service @ Service::RoleBased(_))) = Service::from_document(document) else { return Vec::new() };
    let plan = plan::plan_service(&Snapshot::default(), &service);
    let hint = plan::code::error::ALL.iter().find(|code| **code == plan.reason.as_str()).map(|code| code.remedy());
    let error = (!plan.feasible)
        .then(|| Finding { hint: hint.map(str::to_owned), ..Finding::error("spec.roles", plan.message.clone()) });
    let warnings = plan.warnings.iter().map(|warning| Finding::warning("spec.roles", warning.message.clone()));
    error.into_iter().chain(warnings).collect()
}

/// Returns the objects that the documents are compared with: the shipped objects except those that the documents replace,
/// and the documents' classes and role-based objects.
fn admission_context(args: &LintArgs, documents: &[Document]) -> Result<AdmissionContext> {
    let mut context = AdmissionContext::default();
    let key = |document: &Document| {
        (
            document.api_version().to_owned(),
            document.kind().to_owned(),
            document.namespace().map(str::to_owned),
            document.name().to_owned(),
        )
    };
    let replaced_objects: BTreeSet<_> = documents.iter().map(key).collect();
    let shipped_objects = if args.no_catalog { Vec::new() } else { catalog::documents()? };
    shipped_objects
        .iter()
        .filter(|document| !replaced_objects.contains(&key(document)))
        .for_each(|document| context.add(&document.value));
    let is_relevant = |document: &&Document| {
        document.is_kind(ome::API_VERSION, CLASS) || document.api_version() == fusioninfer::API_VERSION
    };
    documents.iter().filter(is_relevant).for_each(|document| context.add(&document.value));
    Ok(context)
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
