//! The catalogue as tables: what there is, what it is for, what it costs.

use anyhow::Result;
use api::manifest::Document;
use api::ome::{AcceleratorClass, ClusterBaseModel, ClusterServingRuntime, Component, SupportedModelFormat};
use decide::reason::Count;
use decide::supply::SizeRange;

use super::{Kind, find};
use crate::report::fleet::table;

const NOTHING: &str = "–";

type Row = fn(&Document) -> Result<Vec<String>>;

/// One table per kind.
pub(crate) fn tables(documents: &[Document], kinds: &[Kind]) -> Result<String> {
    let tables: Vec<String> = kinds.iter().map(|kind| one(documents, *kind)).collect::<Result<_>>()?;
    Ok(tables.join("\n\n"))
}

fn one(documents: &[Document], kind: Kind) -> Result<String> {
    let (header, row): (&[&str], Row) = match kind {
        Kind::Runtimes => (&["RUNTIME", "ENGINE", "SERVES", "SIZE", "QUANTIZATION", "LAYOUT", "BY ITSELF"], runtime),
        Kind::Classes => (&["CLASS", "MEMORY", "CAPABILITY", "GB/S", "TFLOPS", "RESOURCE", "$/H", "TIER"], class),
        Kind::Models => (&["MODEL", "ARCHITECTURE", "SIZE", "QUANTIZATION", "CONTEXT", "FROM"], model),
    };
    let mut of_kind: Vec<_> = documents.iter().filter(|document| kind.holds(document)).collect();
    of_kind.sort_by_key(|document| document.name());
    let rows: Vec<_> = of_kind.into_iter().map(row).collect::<Result<_>>()?;
    Ok(table(header, &rows))
}

fn runtime(document: &Document) -> Result<Vec<String>> {
    let spec = document.parse::<ClusterServingRuntime>()?.spec;
    let of = |field: fn(&SupportedModelFormat) -> Option<&String>| {
        let mut values: Vec<&str> = spec.supported_model_formats.iter().filter_map(field).map(String::as_str).collect();
        values.dedup();
        if values.is_empty() { NOTHING.to_owned() } else { values.join(", ") }
    };
    let range = spec.model_size_range.unwrap_or_default();
    let range = SizeRange { min: range.min.map(|size| size.0), max: range.max.map(|size| size.0) };
    let alone = spec.supported_model_formats.iter().any(|entry| entry.auto_select == Some(true));
    Ok(vec![
        document.name().to_owned(),
        find::engine(document.name()).to_owned(),
        of(|entry| entry.model_architecture.as_ref()),
        range.to_string(),
        of(|entry| entry.quantization.as_ref()),
        layout(spec.engine_config.as_ref(), spec.decoder_config.as_ref()),
        if alone { "yes" } else { "when named" }.to_owned(),
    ])
}

/// `prefill + decode, 2 nodes each`
fn layout(engine: Option<&Component>, decoder: Option<&Component>) -> String {
    let parts = if decoder.is_some() { "prefill + decode" } else { "one engine" };
    let workers = engine.and_then(|engine| engine.worker.as_ref()).and_then(|worker| worker.size).unwrap_or(0);
    match (workers, decoder) {
        (0, _) => parts.to_owned(),
        (workers, None) => format!("{parts}, {} nodes", workers + 1),
        (workers, Some(_)) => format!("{parts}, {} nodes each", workers + 1),
    }
}

fn class(document: &Document) -> Result<Vec<String>> {
    let spec = document.parse::<AcceleratorClass>()?.spec;
    let able = spec.capabilities;
    let cost = spec.cost.unwrap_or_default();
    let text = |value: Option<String>| value.unwrap_or_else(|| NOTHING.to_owned());
    Ok(vec![
        document.name().to_owned(),
        text(able.memory.map(|memory| memory.to_string())),
        text(able.compute_capability),
        text(able.memory_bandwidth.map(|bandwidth| bandwidth.as_f64().to_string())),
        text(able.performance.and_then(|performance| performance.fp16).map(|tflops| tflops.to_string())),
        text(spec.resources.into_iter().next().map(|resource| resource.name)),
        text(cost.per_hour.map(|price| format!("{:.2}", price.as_f64()))),
        text(cost.tier),
    ])
}

fn model(document: &Document) -> Result<Vec<String>> {
    let spec = document.parse::<ClusterBaseModel>()?.spec.0;
    let text = |value: Option<String>| value.unwrap_or_else(|| NOTHING.to_owned());
    Ok(vec![
        document.name().to_owned(),
        text(spec.model_architecture),
        text(spec.model_parameter_size.map(|size| Count(size.0).to_string())),
        text(spec.quantization),
        text(spec.max_tokens.map(|tokens| format!("{}K", tokens / 1024))),
        text(spec.storage.and_then(|storage| storage.storage_uri)),
    ])
}
