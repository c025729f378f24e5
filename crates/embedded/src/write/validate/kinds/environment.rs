//! The variables of containers, and the fields of a Pod that they may show.

use apimachinery::status::Cause;

use super::super::names::{config_key_hints, key_hints, subdomain_hints};
use super::field::Field;

const NAME: &str = "a valid environment variable name must consist only of printable ASCII characters other than '='";
const ONE_SOURCE: &str =
    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
const SOURCES: [&str; 5] = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
const FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const FILE_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
/// What a Pod can be asked for, of which variables and files show a part.
const KNOWN: [&str; 4] = ["metadata.labels", "metadata.annotations", "status.phase", "spec.restartPolicy"];

/// Whether a field is shown in a variable or in a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    Variable,
    File,
}

/// `env` and `envFrom` of a container.
pub(super) fn causes(container: &Field<'_>) -> Vec<Cause> {
    let mut causes: Vec<Cause> = container.get("env").each().flat_map(|variable| one(&variable)).collect();
    for from in container.get("envFrom").each() {
        let given = ["configMapRef", "secretRef"].map(|name| from.get(name)).into_iter().filter(Field::is_set);
        match given.collect::<Vec<_>>().as_slice() {
            [] => causes.push(from_nothing(&from, "must specify one of: `configMapRef` or `secretRef`")),
            [source] => causes.extend(source.get("name").ruled(subdomain_hints)),
            _ => causes.push(from_nothing(&from, "may not have more than one field specified at a time")),
        }
    }
    causes
}

fn from_nothing(field: &Field<'_>, hint: &str) -> Cause {
    Cause::invalid(&field.path, &"".into(), hint)
}

fn one(variable: &Field<'_>) -> Vec<Cause> {
    let (name, from) = (variable.get("name"), variable.get("valueFrom"));
    let mut causes = Vec::new();
    if name.is_empty() {
        causes.push(name.required());
    } else if !name.text().chars().all(|c| (' '..='~').contains(&c) && c != '=') {
        causes.push(name.invalid(NAME));
    }
    if !from.is_set() {
        return causes;
    }
    let given: Vec<_> = SOURCES.iter().map(|source| from.get(source)).filter(Field::is_set).collect();
    for source in &given {
        causes.extend(match source.path.rsplit('.').next() {
            Some("fieldRef") => field_reference(source, Shown::Variable),
            Some("resourceFieldRef") => resource_reference(source),
            Some("configMapKeyRef" | "secretKeyRef") => key_reference(source),
            _ => Vec::new(),
        });
    }
    if !variable.get("value").is_empty() {
        if !given.is_empty() {
            causes.push(from_nothing(&from, "may not be specified when `value` is not empty"));
        }
    } else if given.len() > 1 {
        causes.push(from_nothing(&from, "may not have more than one field specified at a time"));
    } else if given.is_empty() {
        causes.push(from_nothing(&from, ONE_SOURCE));
    }
    causes
}

fn key_reference(reference: &Field<'_>) -> Vec<Cause> {
    let (name, key) = (reference.get("name"), reference.get("key"));
    let mut causes = name.ruled(subdomain_hints);
    if key.is_empty() {
        causes.push(key.required());
    } else {
        causes.extend(key.ruled(config_key_hints));
    }
    causes
}

/// A field of the Pod.
pub(super) fn field_reference(reference: &Field<'_>, shown: Shown) -> Vec<Cause> {
    let path = reference.get("fieldPath");
    let text = path.text();
    if text.is_empty() {
        return vec![path.required()];
    }
    let subscript = text.strip_suffix("']").and_then(|text| text.split_once("['"));
    if let Some((whole, key)) = subscript.filter(|(whole, _)| KNOWN[..2].contains(whole)) {
        // Whatever letters the key of an annotation is written in.
        let key_text = if whole.ends_with("annotations") { key.to_lowercase() } else { key.to_owned() };
        let hints = key_hints(&key_text);
        return hints.iter().map(|hint| Cause::invalid(&reference.path, &key.into(), hint)).collect();
    }
    let allowed = if shown == Shown::Variable { &FIELDS[..] } else { &FILE_FIELDS[..] };
    if allowed.contains(&text) {
        Vec::new()
    } else if FIELDS.contains(&text) || KNOWN.contains(&text) {
        vec![path.not_supported(allowed)]
    } else {
        let hint = format!("error converting fieldPath: field label not supported: {text}");
        vec![path.invalid(&hint)]
    }
}

/// A request or limit of the container.
pub(super) fn resource_reference(reference: &Field<'_>) -> Vec<Cause> {
    let resource = reference.get("resource");
    if resource.is_empty() {
        return vec![resource.required()];
    }
    let is_pages = resource.text().contains(".hugepages-");
    (!is_pages).then(|| resource.one_of(&RESOURCES)).flatten().into_iter().collect()
}
