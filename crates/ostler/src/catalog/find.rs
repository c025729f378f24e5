//! Finds shipped objects by name.

use anyhow::Result;
use api::Document;

use crate::report::errors::error_with_hint;

/// Name prefixes of runtimes, and their engines. The tables of specification 001 use the suffix `-rt` instead; nine of their
/// names exist for both engines.
const ENGINE_PREFIXES: [(&str, &str); 2] = [("srt-", "SGLang"), ("vllm-", "vLLM")];

/// Returns the engine of a runtime, by the prefix of its name.
pub(super) fn engine(name: &str) -> &'static str {
    ENGINE_PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix)).map_or("–", |(_, engine)| engine)
}

/// Returns the name of a runtime in the tables of specification 001: `srt-llama-3-2-3b-instruct` is `llama-3-2-3b-instruct-rt`.
fn specification_name(runtime: &str) -> Option<String> {
    let name = ENGINE_PREFIXES.iter().find_map(|(prefix, _)| runtime.strip_prefix(prefix))?;
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
        [] => Err(unknown_name(documents, name)),
        [_] => Ok(matches),
        candidates => Err(ambiguous_name(name, candidates)),
    }
}

fn ambiguous_name(name: &str, candidates: &[&Document]) -> anyhow::Error {
    let object = |document: &&Document| format!("{} ({})", document.name(), engine(document.name()));
    let objects: Vec<_> = candidates.iter().map(object).collect();
    error_with_hint(
        format!("runtime {name:?} exists for {} engines: {}", candidates.len(), objects.join(", ")),
        format!("run `ostler catalog show {}`", candidates[0].name()),
    )
}

fn unknown_name(documents: &[Document], name: &str) -> anyhow::Error {
    let specification_names: Vec<String> =
        documents.iter().filter_map(|document| specification_name(document.name())).collect();
    let names = documents.iter().map(Document::name).chain(specification_names.iter().map(String::as_str));
    let hint = match decide::nearest_name(name, names) {
        Some(nearest) => format!("did you mean {nearest:?}? `ostler catalog list` lists all names"),
        None => "`ostler catalog list` lists all names".to_owned(),
    };
    error_with_hint(format!("{name:?} is not in the catalog"), hint)
}
