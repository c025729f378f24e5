//! `ostler lint`: manifests checked without a cluster.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use api::lint::{self, Finding, Severity};
use api::manifest::Document;
use api::{fusioninfer, ome};
use operator::admission::{Landscape, pickers};
use plan::{Service, Snapshot};

use crate::{catalog, files, output, report};

#[derive(clap::Args)]
pub(crate) struct LintArgs {
    /// Files and folders of manifests; `-` reads standard input
    #[arg(short, long = "filename", required = true, num_args = 1.., value_name = "FILES")]
    filenames: Vec<PathBuf>,
    /// Compare with the given files only, not with the shipped runtimes and classes
    #[arg(long)]
    no_catalog: bool,
}

/// Exit code 1 if any finding is an error; warnings alone are 0.
pub(super) fn run(args: LintArgs) -> Result<ExitCode> {
    let (mut documents, mut errors, mut warnings) = (Vec::new(), 0, 0);
    for file in files::manifests(&args.filenames)? {
        match files::read(&file) {
            Ok(read) => documents.extend(read),
            Err(error) => {
                errors += 1;
                output::print_line(&report::errors::render(&error).replace("\nhint:", "\n  hint:"))?;
            }
        }
    }
    let mut landscape = landscape(&args, &documents)?;
    for document in &documents {
        let mut findings: Vec<Finding> = lint::check(document)
            .into_iter()
            .chain(landscape.check(document))
            .chain(pickers::check(document))
            .collect();
        if findings.iter().all(|finding| finding.severity != Severity::Error) {
            findings.extend(layout(document));
        }
        for finding in findings {
            match finding.severity {
                Severity::Error => errors += 1,
                Severity::Warning => warnings += 1,
            }
            output::print_line(&finding.render(document))?;
        }
        // In the order of `kubectl apply`: the second of two that clash is the one that is refused.
        if !document.is(ome::API_VERSION, CLASS) {
            landscape.add(&document.value);
        }
    }
    output::tell(&format!("{}: {errors} errors, {warnings} warnings", count(documents.len())));
    Ok(if errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A role-based service states its whole layout: what keeps it from being laid out, or does nothing, is seen without a
/// cluster. Types and names are the schema's to tell.
fn layout(document: &Document) -> Vec<Finding> {
    let Ok(Some(service @ Service::Roles(_))) = Service::read(document) else { return Vec::new() };
    let plan = plan::plan_service(&Snapshot::default(), &service);
    let hint = plan::code::refusal::ALL.iter().find(|code| **code == plan.reason.as_str()).map(|code| code.remedy());
    let refused = (!plan.feasible)
        .then(|| Finding { hint: hint.map(str::to_owned), ..Finding::error("spec.roles", plan.message.clone()) });
    let warnings = plan.warnings.iter().map(|warning| Finding::warning("spec.roles", warning.message.clone()));
    refused.into_iter().chain(warnings).collect()
}

const CLASS: &str = "AcceleratorClass";

/// What the documents will meet: the shipped objects, less those that they replace, and every class given.
fn landscape(args: &LintArgs, given: &[Document]) -> Result<Landscape> {
    let mut landscape = Landscape::default();
    let name = |document: &Document| {
        (
            document.api_version().to_owned(),
            document.kind().to_owned(),
            document.namespace().map(str::to_owned),
            document.name().to_owned(),
        )
    };
    let replaced: BTreeSet<_> = given.iter().map(name).collect();
    let shipped = if args.no_catalog { Vec::new() } else { catalog::documents()? };
    shipped.iter().filter(|one| !replaced.contains(&name(one))).for_each(|one| landscape.add(&one.value));
    let beside = |one: &&Document| one.is(ome::API_VERSION, CLASS) || one.api_version() == fusioninfer::API_VERSION;
    given.iter().filter(beside).for_each(|one| landscape.add(&one.value));
    Ok(landscape)
}

fn count(documents: usize) -> String {
    if documents == 1 { "1 document".to_owned() } else { format!("{documents} documents") }
}
