//! Parsing of manifests: YAML or JSON with multiple documents, and errors with positions.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// One resource of a manifest.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// Source of the manifest: file name, URL or `-`.
    pub source: String,
    /// Number of the document in the source, starting at 1; items of a List have the number of the List.
    pub index: usize,
    /// The resource as JSON.
    pub value: Value,
}

/// Error for an invalid document, formatted as
/// `bad.yaml, document 2 (InferenceService default/llama), spec.engine: cause`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ManifestError {
    /// Source of the manifest: file name, URL or `-`.
    pub source_name: String,
    /// Number of the document in the source, starting at 1.
    pub document: usize,
    /// `Kind namespace/name`, if known.
    pub object: Option<Box<str>>,
    /// Field path or line, if known.
    pub path: Option<String>,
    /// Description of the problem.
    pub cause: String,
    /// How to fix it.
    pub hint: Option<String>,
}

/// Maximum length of a Kubernetes object name.
pub(crate) const MAX_NAME_LENGTH: usize = 253;

/// Parses one document of a source.
struct DocumentParser<'a> {
    source: &'a str,
    index: usize,
    first_line: usize,
}

/// The text of one document and the number of its first line in the source, starting at 1.
struct Chunk {
    text: String,
    first_line: usize,
}

/// Parses all resources of `text`. Empty documents are counted but skipped; `List`s are flattened.
///
/// # Errors
/// Fails on the first document that is not valid YAML or not a Kubernetes object.
pub fn parse_manifest(source_name: &str, text: &str) -> Result<Vec<Document>, ManifestError> {
    parse_each_document(source_name, text).into_iter().try_fold(Vec::new(), |mut documents, parsed| {
        documents.extend(parsed?);
        Ok(documents)
    })
}

/// Parses each document of `text` independently, so that an invalid document does not affect the others. The result has one
/// entry per document; empty documents have no resources, and a `List` has several.
#[must_use]
pub fn parse_each_document(source_name: &str, text: &str) -> Vec<Result<Vec<Document>, ManifestError>> {
    let text = normalize(text);
    let parse_chunk = |(index, chunk): (usize, Chunk)| {
        let parser = DocumentParser { source: source_name, index: index + 1, first_line: chunk.first_line };
        let mut documents = Vec::new();
        if let Some(value) = parser.parse(&chunk.text)? {
            parser.flatten(value, &mut documents)?;
        }
        Ok(documents)
    };
    split(&text).into_iter().enumerate().map(parse_chunk).collect()
}

// === impl ManifestError ===

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

// === impl Document ===

impl Document {
    /// Returns `apiVersion`, or the empty string.
    pub fn api_version(&self) -> &str {
        self.text("/apiVersion")
    }

    /// Returns `kind`, or the empty string.
    pub fn kind(&self) -> &str {
        self.text("/kind")
    }

    /// Returns `metadata.namespace`; `None` if unset, in which case the caller applies its default.
    pub fn namespace(&self) -> Option<&str> {
        self.value.pointer("/metadata/namespace").and_then(Value::as_str)
    }

    /// Returns `metadata.name`, or the empty string.
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// Reports whether the object has this group, version and kind.
    pub fn is_kind(&self, api_version: &str, kind: &str) -> bool {
        self.api_version() == api_version && self.kind() == kind
    }

    /// Deserializes the typed resource.
    ///
    /// # Errors
    /// Fails with the path of the first field of the wrong type.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ManifestError> {
        serde_path_to_error::deserialize(&self.value).map_err(|error| {
            let path = error.path().to_string();
            let cause = error.into_inner().to_string();
            ManifestError {
                hint: hint_for(&cause),
                path: (path != ".").then_some(path),
                cause,
                ..self.manifest_error()
            }
        })
    }

    /// Returns the object as `Kind namespace/name`, such as `InferenceService default/llama`.
    pub fn display_name(&self) -> String {
        let name = truncate_name(self.name());
        match self.namespace() {
            Some(namespace) => format!("{} {}/{name}", self.kind(), truncate_name(namespace)),
            None => format!("{} {name}", self.kind()),
        }
    }

    /// Creates an error about this document; the caller fills in its cause.
    pub fn manifest_error(&self) -> ManifestError {
        ManifestError {
            source_name: self.source.clone(),
            document: self.index,
            object: Some(self.display_name().into()),
            path: None,
            cause: String::new(),
            hint: None,
        }
    }

    fn text(&self, pointer: &str) -> &str {
        self.value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }
}

// === impl DocumentParser ===

impl DocumentParser<'_> {
    fn parse(&self, text: &str) -> Result<Option<Value>, ManifestError> {
        let parsed = serde_saphyr::from_str::<Option<Value>>(text);
        let value = parsed.map_err(|error| self.yaml_error(&error))?;
        Ok(value.filter(|value| !value.is_null()))
    }

    fn yaml_error(&self, error: &serde_saphyr::Error) -> ManifestError {
        let message = error.without_snippet().to_string();
        let cause = message.lines().next().unwrap_or_default().to_owned();
        let line = error.location().map(|location| location.line() as usize + self.first_line - 1);
        let path = line.map(|line| format!("line {line}"));
        let hint = hint_for_yaml(&cause);
        let cause = match strip_position(&cause) {
            // The parser's internal limits are not meaningful to users.
            limit if limit.starts_with("budget") => "the document is too large after alias expansion".to_owned(),
            message => format!("invalid YAML: {message}"),
        };
        ManifestError { path, hint, ..self.error(cause) }
    }

    fn flatten(&self, value: Value, documents: &mut Vec<Document>) -> Result<(), ManifestError> {
        let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
        if !value.is_object() {
            let hint = Some("a manifest must have apiVersion, kind and metadata".to_owned());
            return Err(ManifestError { hint, ..self.error("not a Kubernetes object".to_owned()) });
        }
        if let (Some("v1"), Some("List")) = (text("/apiVersion"), text("/kind")) {
            return self.flatten_list(value, documents);
        }
        let document = Document { source: self.source.to_owned(), index: self.index, value };
        for (pointer, field) in [("/apiVersion", "apiVersion"), ("/kind", "kind")] {
            if document.text(pointer).is_empty() {
                let hint = Some(format!("add `{field}:` at the top of the document"));
                return Err(ManifestError { hint, ..self.error(format!("`{field}` is missing")) });
            }
        }
        documents.push(document);
        Ok(())
    }

    fn flatten_list(&self, mut list: Value, documents: &mut Vec<Document>) -> Result<(), ManifestError> {
        let items = list.get_mut("items").map(Value::take).unwrap_or_default();
        let items = if items.is_null() { Vec::new() } else { self.items(items)? };
        items.into_iter().try_for_each(|item| self.flatten(item, documents))
    }

    fn items(&self, items: Value) -> Result<Vec<Value>, ManifestError> {
        match items {
            Value::Array(items) => Ok(items),
            _ => Err(self.error("`items` of a List must be an array".to_owned())),
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

/// Truncates a name for use in a message.
fn truncate_name(name: &str) -> String {
    match name.char_indices().nth(MAX_NAME_LENGTH) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// Removes a byte order mark and converts Windows line endings.
fn normalize(text: &str) -> String {
    text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n")
}

/// Splits at `---` lines as kubectl does, so that an invalid document does not affect the following ones. A leading `---`
/// starts the first document.
fn split(text: &str) -> Vec<Chunk> {
    let mut chunks = vec![Chunk { text: String::new(), first_line: 1 }];
    for (number, line) in text.lines().enumerate() {
        let is_separator = line == "---" || line.starts_with("--- ") || line.starts_with("---\t");
        if is_separator {
            let rest = line.trim_start_matches('-').trim_start();
            let content = if rest.starts_with('#') { "" } else { rest };
            chunks.push(Chunk { text: format!("{content}\n"), first_line: number + 1 });
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

/// Reports whether `text` has only comments, directives and blank lines.
fn is_blank(text: &str) -> bool {
    text.lines().map(str::trim_start).all(|line| line.is_empty() || line.starts_with(['#', '%']))
}

/// Removes the parser's position, which is relative to the document, and its advice to programmers. The
/// `Display` of its error writes them behind the message.
fn strip_position(message: &str) -> &str {
    let start = message.strip_prefix("error: ").unwrap_or(message);
    let ends = [" at line ", ", set "].iter().filter_map(|marker| start.find(marker));
    let end = ends.min().unwrap_or(start.len());
    start[..end].trim_end_matches(':')
}

/// Returns the hint for invalid YAML. Reads the message, since the parser reports errors of its scanner only as text.
fn hint_for_yaml(cause: &str) -> Option<String> {
    let hints = [
        ("duplicate", "keys of a map must be unique; remove the duplicate"),
        ("recursion", "reduce the nesting of the document"),
        ("budget", "remove nested aliases (`*name`) or split the file"),
        ("tab", "indent with spaces instead of tabs"),
    ];
    let hint = hints.iter().find(|(keyword, _)| cause.to_lowercase().contains(keyword));
    Some(hint.map_or("check the indentation and quoting around that line", |(_, hint)| hint).to_owned())
}

/// Returns the hint for a value of the wrong type. Reads the message, since the errors of `serde_json` keep no more than
/// that.
fn hint_for(cause: &str) -> Option<String> {
    let expects_string = cause.contains("expected a string");
    if expects_string && (cause.contains("integer") || cause.contains("floating") || cause.contains("boolean")) {
        return Some("put the value in quotes".to_owned());
    }
    if let Some((_, values)) = cause.split_once("expected one of ") {
        return Some(format!("use one of {}", values.replace('`', "")));
    }
    let missing = cause.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    missing.map(|field| format!("add `{field}`"))
}

#[cfg(test)]
mod tests;
