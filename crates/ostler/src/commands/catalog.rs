//! `ostler catalog`: lists, shows and checks the shipped objects, and describes other models.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Result;
use api::Document;
use serde_json::{Value, json};

use crate::catalog::{self, CatalogKind, Filter, Planner};
use crate::exit::Exit;
use crate::report::table::table;

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
    /// List models and classes whose sources are unknown or older than a year
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
                ShowOutput::Yaml => placement_comment(&documents, &objects)? + &to_yaml(&objects)?,
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
        ListOutput::Json => to_json(&objects),
        ListOutput::Yaml => to_yaml(&objects),
    }
}

/// Returns comments with the classes that a model runs on, cheapest first, and the reasons for the others; empty for other objects.
fn placement_comment(documents: &[Document], objects: &[&Document]) -> Result<String> {
    let Some(model) = objects.iter().find(|object| CatalogKind::Models.matches(object)) else {
        return Ok(String::new());
    };
    let mut placements = Vec::new();
    let mut rejections: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    // Other models do not matter.
    let is_other = |document: &&Document| CatalogKind::Models.matches(document) && document.name() != model.name();
    let supply: Vec<Document> = documents.iter().filter(|document| !is_other(document)).cloned().collect();
    for class in documents.iter().filter(|document| CatalogKind::Classes.matches(document)).map(Document::name) {
        match Planner::with_class(&supply, class)?.place(model.name()) {
            Ok(placement) => placements.push(placement),
            Err(reason) => rejections.entry(reason).or_default().push(class),
        }
    }
    placements.sort_by(|a, b| {
        let price = |placement: &catalog::Placement| placement.eligibility.price_per_hour.unwrap_or(f64::INFINITY);
        price(a).total_cmp(&price(b)).then_with(|| a.class.cmp(&b.class))
    });
    let rows: Vec<Vec<String>> = placements
        .iter()
        .map(|placement| {
            let price = placement.eligibility.price_per_hour;
            let price = price.map_or_else(|| "no price".to_owned(), |price| format!("${price:.2}/h"));
            vec![placement.to_string(), price, placement.runtime.clone()]
        })
        .collect();
    let mut comment = String::new();
    for line in table(&["ACCELERATORS", "PRICE", "RUNTIME"], &rows).lines() {
        let _ = writeln!(comment, "# {line}");
    }
    for (reason, classes) in rejections {
        let _ = writeln!(comment, "# Not on {}: {reason}", classes.join(", "));
    }
    Ok(comment)
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

fn today() -> jiff::civil::Date {
    jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date()
}
