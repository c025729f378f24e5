//! Reading manifests: YAML or JSON, many documents, errors that say where.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// One resource of a source.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// File name, URL or `-`.
    pub source: String,
    /// Position in the source, from 1; items of a List share their list's.
    pub index: usize,
    pub value: Value,
}

/// Why a document cannot be used. Prints as `bad.yaml, document 2 (InferenceService default/llama), spec.engine: cause`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ManifestError {
    pub source_name: String,
    pub document: usize,
    /// `Kind namespace/name` where known.
    pub object: Option<Box<str>>,
    /// Field path where known.
    pub path: Option<String>,
    pub cause: String,
    pub hint: Option<String>,
}

impl fmt::Display for ManifestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, document {}", self.source_name, self.document)?;
        if let Some(object) = &self.object {
            write!(f, " ({object})")?;
        }
        if let Some(path) = &self.path {
            write!(f, ", {path}")?;
        }
        write!(f, ": {}", self.cause)
    }
}

/// A name in a message: one that is no name may be a megabyte.
fn shown(name: &str) -> String {
    match name.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// Letters of a Kubernetes name.
const LONGEST_NAME: usize = 253;

/// Reads every resource of `text`. Empty documents are skipped but counted; `List`s are flattened.
///
/// # Errors
/// The first document that is not YAML, or is no Kubernetes object.
pub fn read(source_name: &str, text: &str) -> Result<Vec<Document>, ManifestError> {
    read_each(source_name, text).into_iter().try_fold(Vec::new(), |mut documents, read| {
        documents.extend(read?);
        Ok(documents)
    })
}

/// Reads every document of `text` by itself, so that one that is broken does not take the others with it. Empty
/// documents hold no resource, a `List` holds several.
#[must_use]
pub fn read_each(source_name: &str, text: &str) -> Vec<Result<Vec<Document>, ManifestError>> {
    let text = normalised(text);
    let read = |(index, chunk): (usize, Chunk)| {
        let place = Place { source: source_name, index: index + 1, first_line: chunk.first_line };
        let mut documents = Vec::new();
        if let Some(value) = place.parse(&chunk.text)? {
            place.flatten(value, &mut documents)?;
        }
        Ok(documents)
    };
    split(&text).into_iter().enumerate().map(read).collect()
}

impl Document {
    pub fn api_version(&self) -> &str {
        self.text("/apiVersion")
    }

    pub fn kind(&self) -> &str {
        self.text("/kind")
    }

    /// `None` where the manifest states none; callers know the default.
    pub fn namespace(&self) -> Option<&str> {
        self.value.pointer("/metadata/namespace").and_then(Value::as_str)
    }

    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// Whether this is an object of that group, version and kind.
    pub fn is(&self, api_version: &str, kind: &str) -> bool {
        self.api_version() == api_version && self.kind() == kind
    }

    /// The typed resource.
    ///
    /// # Errors
    /// The field that does not fit, with its path.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ManifestError> {
        serde_path_to_error::deserialize(&self.value).map_err(|error| {
            let path = error.path().to_string();
            let cause = error.into_inner().to_string();
            ManifestError { hint: hint_for(&cause), path: (path != ".").then_some(path), cause, ..self.error() }
        })
    }

    /// `InferenceService default/llama`.
    pub fn object(&self) -> String {
        let name = shown(self.name());
        match self.namespace() {
            Some(namespace) => format!("{} {}/{name}", self.kind(), shown(namespace)),
            None => format!("{} {name}", self.kind()),
        }
    }

    /// An error about this document, for the caller to complete.
    pub fn error(&self) -> ManifestError {
        ManifestError {
            source_name: self.source.clone(),
            document: self.index,
            object: Some(self.object().into()),
            path: None,
            cause: String::new(),
            hint: None,
        }
    }

    fn text(&self, pointer: &str) -> &str {
        self.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }
}

/// Where in which source we are reading.
struct Place<'a> {
    source: &'a str,
    index: usize,
    first_line: usize,
}

impl Place<'_> {
    fn parse(&self, text: &str) -> Result<Option<Value>, ManifestError> {
        let parsed = serde_saphyr::from_str::<Option<Value>>(text);
        let value = parsed.map_err(|error| self.broken(&error))?;
        Ok(value.filter(|value| !value.is_null()))
    }

    fn broken(&self, error: &serde_saphyr::Error) -> ManifestError {
        let message = error.without_snippet().to_string();
        let cause = message.lines().next().unwrap_or_default().to_owned();
        let line = error.location().map(|at| at.line() as usize + self.first_line - 1);
        let at = line.map(|line| format!("line {line}"));
        let hint = hint_for_yaml(&cause);
        let told = match strip_position(&cause) {
            // Which of its budgets a parser has spent says nothing to a person.
            spent if spent.starts_with("budget") => "the document expands to more than a manifest can hold",
            other => &format!("not valid YAML: {other}"),
        };
        ManifestError { path: at, hint, ..self.error(told.to_owned()) }
    }

    fn flatten(&self, value: Value, into: &mut Vec<Document>) -> Result<(), ManifestError> {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
        if !value.is_object() {
            let hint = Some("a manifest starts with apiVersion, kind and metadata".to_owned());
            return Err(ManifestError { hint, ..self.error("not a Kubernetes object".to_owned()) });
        }
        if let (Some("v1"), Some("List")) = (text("/apiVersion"), text("/kind")) {
            return self.flatten_list(value, into);
        }
        let document = Document { source: self.source.to_owned(), index: self.index, value };
        for (pointer, field) in [("/apiVersion", "apiVersion"), ("/kind", "kind")] {
            if document.text(pointer).is_empty() {
                let hint = Some(format!("add `{field}:` at the top of the document"));
                return Err(ManifestError { hint, ..self.error(format!("`{field}` is missing")) });
            }
        }
        into.push(document);
        Ok(())
    }

    fn flatten_list(&self, mut list: Value, into: &mut Vec<Document>) -> Result<(), ManifestError> {
        let items = list.get_mut("items").map(Value::take).unwrap_or_default();
        let items = if items.is_null() { Vec::new() } else { self.items(items)? };
        items.into_iter().try_for_each(|item| self.flatten(item, into))
    }

    fn items(&self, items: Value) -> Result<Vec<Value>, ManifestError> {
        match items {
            Value::Array(items) => Ok(items),
            _ => Err(self.error("`items` of a List must be a list".to_owned())),
        }
    }

    fn error(&self, cause: String) -> ManifestError {
        ManifestError {
            source_name: self.source.to_owned(),
            document: self.index,
            object: None,
            path: None,
            cause,
            hint: None,
        }
    }
}

/// Text of one document and the line of the source it starts on, from 1.
struct Chunk {
    text: String,
    first_line: usize,
}

/// Windows line ends and a byte order mark are not the user's mistake.
fn normalised(text: &str) -> String {
    text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n")
}

/// Splits at `---` lines, as kubectl does, so that one broken document does not hide where the next begins.
/// A leading `---` opens the first document and does not count as one before it.
fn split(text: &str) -> Vec<Chunk> {
    let mut chunks = vec![Chunk { text: String::new(), first_line: 1 }];
    for (number, line) in text.lines().enumerate() {
        let separator = line == "---" || line.starts_with("--- ") || line.starts_with("---\t");
        if separator {
            let rest = line.trim_start_matches('-').trim_start();
            let kept = if rest.starts_with('#') { "" } else { rest };
            chunks.push(Chunk { text: format!("{kept}\n"), first_line: number + 1 });
        } else if let Some(chunk) = chunks.last_mut() {
            chunk.text.push_str(line);
            chunk.text.push('\n');
        }
    }
    if chunks.len() > 1 && chunks.first().is_some_and(|first| is_blank(&first.text)) {
        chunks.remove(0);
    }
    chunks
}

/// Only comments, directives and blank lines.
fn is_blank(text: &str) -> bool {
    text.lines().map(str::trim_start).all(|line| line.is_empty() || line.starts_with(['#', '%']))
}

/// The parser's own position, which counts from the document and not from the source.
fn strip_position(message: &str) -> &str {
    let start = message.strip_prefix("error: ").unwrap_or(message);
    // The reader's advice to programmers is cut too.
    let ends = [" at line ", ", set "].iter().filter_map(|mark| start.find(mark));
    let cut = ends.min().unwrap_or(start.len());
    start[..cut].trim_end_matches(':')
}

fn hint_for_yaml(cause: &str) -> Option<String> {
    let known = [
        ("duplicate", "a key may stand only once in a map; remove one of the two"),
        ("recursion", "the document is nested too deeply to be a manifest"),
        ("budget", "the document expands to too much; remove nested aliases (`*name`) and split the file"),
        ("tab", "YAML is indented with blanks, not tabs"),
    ];
    let found = known.iter().find(|(word, _)| cause.to_lowercase().contains(word));
    Some(found.map_or("check the indentation and quoting around that line", |(_, hint)| hint).to_owned())
}

/// What to do about a value of the wrong type.
fn hint_for(cause: &str) -> Option<String> {
    let wants_text = cause.contains("expected a string");
    if wants_text && (cause.contains("integer") || cause.contains("floating") || cause.contains("boolean")) {
        return Some("put the value in quotes".to_owned());
    }
    if let Some((_, known)) = cause.split_once("expected one of ") {
        return Some(format!("write one of {}", known.replace('`', "")));
    }
    let missing = cause.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    missing.map(|field| format!("add `{field}`"))
}

#[cfg(test)]
mod tests;
