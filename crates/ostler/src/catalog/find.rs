//! A shipped object by the name a person writes.

use anyhow::Result;
use api::manifest::Document;

use crate::report::errors::hinted;

/// Runtimes carry their engine before the name; the tables of specification 001 write `-rt` behind it instead, and use
/// nine of the names for either engine.
const ENGINES: [(&str, &str); 2] = [("srt-", "SGLang"), ("vllm-", "vLLM")];

/// The engine of a runtime, by its object's name.
pub(super) fn engine(name: &str) -> &'static str {
    ENGINES.iter().find(|(prefix, _)| name.starts_with(prefix)).map_or("–", |(_, engine)| engine)
}

/// Name of a runtime in the tables of specification 001: `srt-llama-3-2-3b-instruct` is `llama-3-2-3b-instruct-rt`.
fn table_name(object: &str) -> Option<String> {
    let name = ENGINES.iter().find_map(|(prefix, _)| object.strip_prefix(prefix))?;
    Some(format!("{name}-rt"))
}

/// The objects called `name`: as they are applied, else as the tables name them. Several only if they differ in kind.
pub(crate) fn find<'d>(documents: &'d [Document], name: &str) -> Result<Vec<&'d Document>> {
    let exact: Vec<_> = documents.iter().filter(|document| document.name() == name).collect();
    if !exact.is_empty() {
        return Ok(exact);
    }
    let listed: Vec<_> =
        documents.iter().filter(|document| table_name(document.name()).as_deref() == Some(name)).collect();
    match listed.as_slice() {
        [] => Err(unknown(documents, name)),
        [_] => Ok(listed),
        several => Err(ambiguous(name, several)),
    }
}

fn ambiguous(name: &str, several: &[&Document]) -> anyhow::Error {
    let object = |document: &&Document| format!("{} ({})", document.name(), engine(document.name()));
    let objects: Vec<_> = several.iter().map(object).collect();
    hinted(
        format!("{name:?} is shipped for {} engines: {}", several.len(), objects.join(", ")),
        format!("ostler catalog show {}", several[0].name()),
    )
}

fn unknown(documents: &[Document], name: &str) -> anyhow::Error {
    let tables: Vec<String> = documents.iter().filter_map(|document| table_name(document.name())).collect();
    let known = documents.iter().map(Document::name).chain(tables.iter().map(String::as_str));
    let hint = match decide::nearest::nearest(name, known) {
        Some(nearest) => format!("did you mean {nearest:?}? `ostler catalog list` shows all names"),
        None => "`ostler catalog list` shows the names".to_owned(),
    };
    hinted(format!("nothing called {name:?} is shipped"), hint)
}
