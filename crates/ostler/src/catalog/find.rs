//! Finds shipped objects by name.

use anyhow::Result;
use api::Document;
use decide::Engine;
use serde_json::Value;

use super::CatalogKind;
use crate::report::errors::error_with_hint;

/// Name prefixes of runtimes. The tables of specification 001 use the suffix `-rt` instead; nine of their names exist for both
/// engines.
const ENGINE_PREFIXES: [&str; 2] = ["srt-", "vllm-"];

/// Returns the engine of a runtime.
pub(super) fn engine(runtime: &Document) -> Option<Engine> {
    let config = &runtime.value["spec"]["engineConfig"];
    let runner = [&config["runner"], &config["leader"]["runner"]].into_iter().find(|runner| runner.is_object())?;
    let words = |field: &str| runner[field].as_array().into_iter().flatten().filter_map(Value::as_str);
    let words = words("command").chain(words("args")).flat_map(str::split_whitespace);
    Engine::detect(runner["image"].as_str().unwrap_or_default(), words)
}

/// Returns the name of the engine of a runtime as its documentation writes it.
pub(super) fn engine_name(runtime: &Document) -> &'static str {
    match engine(runtime) {
        Some(Engine::Vllm) => "vLLM",
        Some(Engine::Sglang) => "SGLang",
        Some(Engine::TensorRt) => "TensorRT-LLM",
        Some(Engine::Triton) => "Triton",
        None => "–",
    }
}

/// Returns the name of a runtime in the tables of specification 001: `srt-llama-3-2-3b-instruct` is `llama-3-2-3b-instruct-rt`.
fn specification_name(runtime: &str) -> Option<String> {
    let name = ENGINE_PREFIXES.iter().find_map(|prefix| runtime.strip_prefix(prefix))?;
    Some(format!("{name}-rt"))
}

/// Finds the objects with `name` as object name, otherwise the runtime with that name in specification 001. If several
/// objects have this name, they are of different kinds.
pub(crate) fn find<'d>(documents: &'d [Document], name: &str) -> Result<Vec<&'d Document>> {
    let exact_matches: Vec<_> = documents.iter().filter(|document| document.name() == name).collect();
    if !exact_matches.is_empty() {
        return Ok(exact_matches);
    }
    let matches: Vec<_> =
        documents.iter().filter(|document| specification_name(document.name()).as_deref() == Some(name)).collect();
    match matches.as_slice() {
        [] => Err(unknown_name(&documents.iter().collect::<Vec<_>>(), name)),
        [_] => Ok(matches),
        candidates => Err(ambiguous_name(name, candidates)),
    }
}

fn ambiguous_name(name: &str, candidates: &[&Document]) -> anyhow::Error {
    let object = |document: &&Document| format!("{} ({})", document.name(), engine_name(document));
    let objects: Vec<_> = candidates.iter().map(object).collect();
    error_with_hint(
        format!("runtime {name:?} exists for {} engines: {}", candidates.len(), objects.join(", ")),
        format!("run `ostler catalog show {}`", candidates[0].name()),
    )
}

/// Finds the class with this name, or with this name after the vendor: `MI300X` is `amd-mi300x`.
pub(super) fn find_class<'d>(documents: &'d [Document], name: &str) -> Result<&'d Document> {
    let classes: Vec<_> = documents.iter().filter(|document| CatalogKind::Classes.matches(document)).collect();
    let without_vendor = |document: &&&Document| {
        document.name().split_once('-').is_some_and(|(_, product)| product.eq_ignore_ascii_case(name))
    };
    let class = classes.iter().find(|document| document.name() == name).or_else(|| classes.iter().find(without_vendor));
    class.copied().ok_or_else(|| unknown_name(&classes, name))
}

/// Returns the error that none of the documents has this name, with the nearest name.
fn unknown_name(documents: &[&Document], name: &str) -> anyhow::Error {
    let specification_names: Vec<String> =
        documents.iter().filter_map(|document| specification_name(document.name())).collect();
    let names = documents.iter().map(|document| document.name()).chain(specification_names.iter().map(String::as_str));
    let hint = match decide::nearest_name(name, names) {
        Some(nearest) => format!("did you mean {nearest:?}? `ostler catalog list` lists all names"),
        None => "`ostler catalog list` lists all names".to_owned(),
    };
    error_with_hint(format!("{name:?} is not in the catalog"), hint)
}
