//! `ostler catalog`: what is shipped.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use api::manifest::Document;

use crate::report::errors::hinted;
use crate::report::fleet::table;

#[derive(clap::Args)]
pub(crate) struct CatalogArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// One line per shipped object
    List,
    /// A shipped object as YAML
    Show { name: String },
}

pub(super) fn run(args: CatalogArgs) -> Result<ExitCode> {
    let documents = crate::catalog::documents()?;
    let mut out = std::io::stdout().lock();
    match args.action {
        Action::List => writeln!(out, "{}", list(&documents))?,
        Action::Show { name } => {
            let found: Vec<_> = documents.iter().filter(|document| document.name() == name).collect();
            if found.is_empty() {
                return Err(hinted(
                    format!("nothing called {name:?} is shipped"),
                    "`ostler catalog list` shows the names",
                ));
            }
            for document in found {
                writeln!(out, "---\n{}", serde_saphyr::to_string(&document.value)?.trim_end())?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(documents: &[Document]) -> String {
    let rows: Vec<_> = documents.iter().map(|d| vec![d.kind().to_owned(), d.name().to_owned()]).collect();
    table(&["KIND", "NAME"], &rows)
}
