//! `ostler catalog`: lists, shows and checks the shipped objects, and describes other models.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use api::Document;
use serde_json::{Value, json};

use crate::catalog::{self, CatalogKind, Filter};
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
        #[command(flatten)]
        filter: Filter,
        /// Print a table, or the manifests as JSON or YAML
        #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = ListOutput::Table)]
        output: ListOutput,
    },
    /// Print a shipped object as a manifest for `kubectl apply -f -`
    ///
    /// The YAML of a model starts with comments that list the accelerators it runs on, with runtime and price, and why it does not
    /// run on others.
    Show {
        /// Name of the object
        ///
        /// Runtimes are also found by their names in specification 001, such as `mistral-7b-instruct-rt`.
        name: String,
        /// Print the manifest as JSON or YAML
        #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t = ShowOutput::Yaml)]
        output: ShowOutput,
    },
    /// Print a ClusterBaseModel for the files of a model
    ///
    /// Reads the `config.json`, and the size and the number of parameters from the safetensors files or their index in the same
    /// directory.
    Add {
        /// The `config.json` of the model, or its directory
        path: PathBuf,
        /// Name of the object [default: name of the directory]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// URI of the files, such as `hf://org/name` or `pvc://claim/path`
        #[arg(long, value_name = "URI")]
        storage: Option<String>,
    },
    /// List facts of models and classes without a source, or with one older than a year
    Check {
        /// Compare with this date, as YYYY-MM-DD [default: today]
        #[arg(long, value_name = "DATE")]
        date: Option<jiff::civil::Date>,
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
        CatalogCommand::List { kind, filter, output } => list(&documents, kind, &filter, output)?,
        CatalogCommand::Show { name, output } => {
            let objects = catalog::find(&documents, &name)?;
            match output {
                ShowOutput::Json => to_json(&objects)?,
                ShowOutput::Yaml => catalog::placement_comment(&documents, &objects)? + &to_yaml(&objects)?,
            }
        }
        CatalogCommand::Add { path, name, storage } => {
            serde_saphyr::to_string(&catalog::read_model(&path, name.as_deref(), storage.as_deref())?)?
        }
        CatalogCommand::Check { date } => catalog::check(&documents, date.unwrap_or_else(today)),
    };
    writeln!(std::io::stdout().lock(), "{}", text.trim_end())?;
    Ok(Exit::Success)
}

fn list(documents: &[Document], kind: Option<CatalogKind>, filter: &Filter, output: ListOutput) -> Result<String> {
    let kinds = kind.map_or_else(|| CatalogKind::ALL.to_vec(), |kind| vec![kind]);
    let objects = filter.select(documents, &kinds)?;
    match output {
        ListOutput::Table => catalog::tables(&objects, &kinds),
        ListOutput::Json => to_json_list(&objects),
        ListOutput::Yaml => to_yaml(&objects),
    }
}

/// Serializes the objects as a `List`, as `kubectl get` does.
fn to_json_list(documents: &[&Document]) -> Result<String> {
    let items: Vec<&Value> = documents.iter().map(|document| &document.value).collect();
    Ok(serde_json::to_string_pretty(&json!({"apiVersion": "v1", "kind": "List", "items": items}))?)
}

/// Serializes the objects with one name: one without a wrapper, as `kubectl get KIND NAME` does.
fn to_json(documents: &[&Document]) -> Result<String> {
    match documents {
        [document] => Ok(serde_json::to_string_pretty(&document.value)?),
        documents => to_json_list(documents),
    }
}

fn to_yaml(documents: &[&Document]) -> Result<String> {
    let texts = documents.iter().map(|document| serde_saphyr::to_string(&document.value));
    Ok(texts.collect::<Result<Vec<_>, _>>()?.join("---\n"))
}

fn today() -> jiff::civil::Date {
    jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date()
}
