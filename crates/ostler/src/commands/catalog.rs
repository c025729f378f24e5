//! `ostler catalog`: lists and shows the shipped objects.

use std::io::Write;

use anyhow::Result;
use api::Document;
use serde_json::{Value, json};

use crate::catalog::{self, CatalogKind};
use crate::exit::Exit;

#[derive(clap::Args)]
pub(crate) struct CatalogArgs {
    #[command(subcommand)]
    action: CatalogCommand,
}

#[derive(clap::Subcommand)]
enum CatalogCommand {
    /// List the shipped objects
    List {
        /// List only this kind
        kind: Option<CatalogKind>,
        /// Print a table, or the manifests as JSON or YAML
        #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = ListOutput::Table)]
        output: ListOutput,
    },
    /// Print a shipped object as a manifest for `kubectl apply -f -`
    Show {
        /// Name of the object
        ///
        /// Runtimes are also found by their names in specification 001, such as `mistral-7b-instruct-rt`.
        name: String,
        /// Print the manifest as JSON or YAML
        #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = ShowOutput::Yaml)]
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

pub(super) fn run(args: CatalogArgs) -> Result<Exit> {
    let documents = catalog::documents()?;
    let text = match args.action {
        CatalogCommand::List { kind, output } => list(&documents, kind, output)?,
        CatalogCommand::Show { name, output } => {
            let objects = catalog::find(&documents, &name)?;
            match output {
                ShowOutput::Json => to_json(&objects)?,
                ShowOutput::Yaml => to_yaml(&objects)?,
            }
        }
    };
    writeln!(std::io::stdout().lock(), "{}", text.trim_end())?;
    Ok(Exit::Success)
}

fn list(documents: &[Document], kind: Option<CatalogKind>, output: ListOutput) -> Result<String> {
    let kinds = kind.map_or_else(|| CatalogKind::ALL.to_vec(), |kind| vec![kind]);
    if output == ListOutput::Table {
        return catalog::tables(documents, &kinds);
    }
    let objects: Vec<&Document> =
        documents.iter().filter(|document| kinds.iter().any(|kind| kind.matches(document))).collect();
    if output == ListOutput::Json { to_json(&objects) } else { to_yaml(&objects) }
}

/// Serializes one object without a wrapper, and several objects as a `List`.
fn to_json(documents: &[&Document]) -> Result<String> {
    let items: Vec<&Value> = documents.iter().map(|document| &document.value).collect();
    Ok(match items.as_slice() {
        [item] => serde_json::to_string_pretty(item)?,
        items => serde_json::to_string_pretty(&json!({"apiVersion": "v1", "kind": "List", "items": items}))?,
    })
}

fn to_yaml(documents: &[&Document]) -> Result<String> {
    let texts = documents.iter().map(|document| serde_saphyr::to_string(&document.value));
    Ok(texts.collect::<Result<Vec<_>, _>>()?.join("---\n"))
}
