//! Renders the catalog as tables, one per kind.

use anyhow::Result;
use api::Document;
use api::ome::{AcceleratorClass, ClusterBaseModel, ClusterServingRuntime, Component, SupportedModelFormat};
use decide::{DisplayCount, SizeRange};

use super::{CatalogKind, find};
use crate::report::table::table;

/// Cell of a value that the object does not set.
const UNSET: &str = "–";

type RowRenderer = fn(&Document) -> Result<Vec<String>>;

/// Renders one table per kind that the documents contain.
pub(crate) fn tables(documents: &[&Document], kinds: &[CatalogKind]) -> Result<String> {
    let is_listed = |kind: &&CatalogKind| documents.iter().any(|document| kind.matches(document));
    let kinds = kinds.iter().filter(is_listed);
    let tables: Vec<String> = kinds.map(|kind| table_of_kind(documents, *kind)).collect::<Result<_>>()?;
    Ok(tables.join("\n\n"))
}

fn table_of_kind(documents: &[&Document], kind: CatalogKind) -> Result<String> {
    let (header, row): (&[&str], RowRenderer) = match kind {
        CatalogKind::Runtimes => {
            (&["RUNTIME", "ENGINE", "SERVES", "SIZE", "QUANTIZATION", "TOPOLOGY", "AUTO-SELECT"], runtime)
        }
        CatalogKind::Classes => {
            (&["CLASS", "MEMORY", "CAPABILITY", "GB/S", "TFLOPS", "RESOURCE", "$/H", "TIER"], class)
        }
        CatalogKind::Models => (&["MODEL", "ARCHITECTURE", "SIZE", "QUANTIZATION", "CONTEXT", "SOURCE"], model),
    };
    let mut objects: Vec<_> = documents.iter().copied().filter(|document| kind.matches(document)).collect();
    objects.sort_by_key(|document| document.name());
    let rows: Vec<_> = objects.into_iter().map(row).collect::<Result<_>>()?;
    Ok(table(header, &rows))
}

fn runtime(document: &Document) -> Result<Vec<String>> {
    let spec = document.parse::<ClusterServingRuntime>()?.spec;
    let distinct_values = |field: fn(&SupportedModelFormat) -> Option<&String>| {
        let mut values: Vec<&str> = Vec::new();
        for value in spec.supported_model_formats.iter().filter_map(field) {
            if !values.contains(&value.as_str()) {
                values.push(value);
            }
        }
        match values.as_slice() {
            [] => UNSET.to_owned(),
            [first, second, third, _, ..] => format!("{first}, {second}, {third}, …"),
            values => values.join(", "),
        }
    };
    let range = spec.model_size_range.unwrap_or_default();
    let range = SizeRange { min: range.min.map(|size| size.0), max: range.max.map(|size| size.0) };
    let is_auto_selected = spec.supported_model_formats.iter().any(|entry| entry.auto_select == Some(true));
    Ok(vec![
        document.name().to_owned(),
        find::engine_name(document).to_owned(),
        distinct_values(|entry| entry.model_architecture.as_ref()),
        range.to_string(),
        distinct_values(|entry| entry.quantization.as_ref()),
        topology(spec.engine_config.as_ref(), spec.decoder_config.as_ref()),
        if is_auto_selected { "yes" } else { "no" }.to_owned(),
    ])
}

/// Formats the topology of a runtime: `prefill + decode, 2 nodes each`.
fn topology(engine: Option<&Component>, decoder: Option<&Component>) -> String {
    let components = if decoder.is_some() { "prefill + decode" } else { "one engine" };
    let workers = engine.and_then(|engine| engine.worker.as_ref()).and_then(|worker| worker.size).unwrap_or(0);
    match (workers, decoder) {
        (0, _) => components.to_owned(),
        (workers, None) => format!("{components}, {} nodes", workers + 1),
        (workers, Some(_)) => format!("{components}, {} nodes each", workers + 1),
    }
}

fn class(document: &Document) -> Result<Vec<String>> {
    let spec = document.parse::<AcceleratorClass>()?.spec;
    let capabilities = spec.capabilities;
    let cost = spec.cost.unwrap_or_default();
    let text = |value: Option<String>| value.unwrap_or_else(|| UNSET.to_owned());
    Ok(vec![
        document.name().to_owned(),
        text(capabilities.memory.map(|memory| memory.to_string())),
        text(capabilities.compute_capability),
        text(capabilities.memory_bandwidth.map(|bandwidth| bandwidth.as_f64().to_string())),
        text(capabilities.performance.and_then(|performance| performance.fp16).map(|tflops| tflops.to_string())),
        text(spec.resources.into_iter().next().map(|resource| resource.name)),
        text(cost.per_hour.map(|price| format!("{:.2}", price.as_f64()))),
        text(cost.tier),
    ])
}

fn model(document: &Document) -> Result<Vec<String>> {
    let spec = document.parse::<ClusterBaseModel>()?.spec.0;
    let text = |value: Option<String>| value.unwrap_or_else(|| UNSET.to_owned());
    Ok(vec![
        document.name().to_owned(),
        text(spec.model_architecture),
        text(spec.model_parameter_size.map(|size| DisplayCount(size.0).to_string())),
        text(spec.quantization),
        text(spec.max_tokens.map(context)),
        text(spec.storage.and_then(|storage| storage.storage_uri)),
    ])
}

/// Returns a number of tokens in multiples of 1,024.
fn context(tokens: i64) -> String {
    if tokens < 1024 { tokens.to_string() } else { format!("{}K", tokens / 1024) }
}
