//! `ostler lint`: manifests checked without a cluster.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use api::lint::{self, Severity};

use crate::{files, report};

#[derive(clap::Args)]
pub(crate) struct LintArgs {
    /// Files and folders of manifests; `-` reads standard input
    #[arg(short, long = "filename", required = true, num_args = 1..)]
    filenames: Vec<PathBuf>,
}

/// Exit code 1 if any finding is an error; warnings alone are 0.
pub(super) fn run(args: LintArgs) -> Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    let (mut documents, mut errors, mut warnings) = (0, 0, 0);
    for file in files::manifests(&args.filenames)? {
        let read = match files::read(&file) {
            Ok(read) => read,
            Err(error) => {
                errors += 1;
                writeln!(out, "{}", report::errors::render(&error).replace("\nhint:", "\n  hint:"))?;
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
                writeln!(out, "{}", finding.render(&document))?;
            }
        }
    }
    eprintln!("{documents} documents: {errors} errors, {warnings} warnings");
    Ok(if errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
