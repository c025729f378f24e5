//! `ostler catalog`: what is shipped.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use api::manifest::Document;
use serde_json::{Value, json};

use crate::catalog::{self, Kind};

#[derive(clap::Args)]
pub(crate) struct CatalogArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// What is shipped, and what it is for
    List {
        /// One kind only
        kind: Option<Kind>,
        /// table for people; json and yaml are the manifests
        #[arg(short, long, value_enum, default_value_t = ListOutput::Table)]
        output: ListOutput,
    },
    /// A shipped object as a manifest, ready for `kubectl apply -f -`
    Show {
        /// As in the list, or as specification 001 names runtimes (`mistral-7b-instruct-rt`)
        name: String,
        #[arg(short, long, value_enum, default_value_t = ShowOutput::Yaml)]
        output: ShowOutput,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ListOutput {
    Table,
    Json,
    Yaml,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ShowOutput {
    Json,
    Yaml,
}

pub(super) fn run(args: CatalogArgs) -> Result<ExitCode> {
    let documents = catalog::documents()?;
    let text = match args.action {
        Action::List { kind, output } => list(&documents, kind, output)?,
        Action::Show { name, output } => {
            let found = catalog::find(&documents, &name)?;
            match output {
                ShowOutput::Json => json_of(&found)?,
                ShowOutput::Yaml => yaml_of(&found)?,
            }
        }
    };
    writeln!(std::io::stdout().lock(), "{}", text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

fn list(documents: &[Document], kind: Option<Kind>, output: ListOutput) -> Result<String> {
    let kinds = kind.map_or_else(|| Kind::ALL.to_vec(), |kind| vec![kind]);
    if output == ListOutput::Table {
        return catalog::tables(documents, &kinds);
    }
    let listed: Vec<&Document> =
        documents.iter().filter(|document| kinds.iter().any(|kind| kind.holds(document))).collect();
    if output == ListOutput::Json { json_of(&listed) } else { yaml_of(&listed) }
}

/// One object as it is, several as a `List`.
fn json_of(documents: &[&Document]) -> Result<String> {
    let items: Vec<&Value> = documents.iter().map(|document| &document.value).collect();
    Ok(match items.as_slice() {
        [one] => serde_json::to_string_pretty(one)?,
        several => serde_json::to_string_pretty(&json!({"apiVersion": "v1", "kind": "List", "items": several}))?,
    })
}

fn yaml_of(documents: &[&Document]) -> Result<String> {
    let texts = documents.iter().map(|document| serde_saphyr::to_string(&document.value));
    Ok(texts.collect::<Result<Vec<_>, _>>()?.join("---\n"))
}
