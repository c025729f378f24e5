//! `ostler lint`: manifests checked without a cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use api::lint::{self, Severity};

use crate::{files, output, report};

#[derive(clap::Args)]
pub(crate) struct LintArgs {
    /// Files and folders of manifests; `-` reads standard input
    #[arg(short, long = "filename", required = true, num_args = 1.., value_name = "FILES")]
    filenames: Vec<PathBuf>,
}

/// Exit code 1 if any finding is an error; warnings alone are 0.
pub(super) fn run(args: LintArgs) -> Result<ExitCode> {
    let (mut documents, mut errors, mut warnings) = (0, 0, 0);
    for file in files::manifests(&args.filenames)? {
        let read = match files::read(&file) {
            Ok(read) => read,
            Err(error) => {
                errors += 1;
                output::print_line(&report::errors::render(&error).replace("\nhint:", "\n  hint:"))?;
                continue;
            }
        };
        for document in read {
            documents += 1;
            for finding in lint::check(&document) {
                match finding.severity {
                    Severity::Error => errors += 1,
                    Severity::Warning => warnings += 1,
                }
                output::print_line(&finding.render(&document))?;
            }
        }
    }
    output::tell(&format!("{documents} documents: {errors} errors, {warnings} warnings"));
    Ok(if errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
