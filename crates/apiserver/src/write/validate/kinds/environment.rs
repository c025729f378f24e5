//! Validation of environment variables, and of references to Pod fields and container resources.

use apimachinery::StatusCause;

use super::super::names::{config_key_hints, label_key_hints, subdomain_hints};
use super::field::Field;

const INVALID_NAME_MESSAGE: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";
const SOURCE_REQUIRED_MESSAGE: &str =
    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`";
const SOURCES: [&str; 5] = ["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
const VARIABLE_FIELDS: [&str; 9] = [
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
/// Field labels that are valid for Pods but not necessarily supported in environment variables or files.
const SELECTABLE_FIELDS: [&str; 4] = ["metadata.labels", "metadata.annotations", "status.phase", "spec.restartPolicy"];

/// Where the value of a field reference is used: in an environment variable or in a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldRefTarget {
    /// An environment variable.
    Variable,
    /// A file of a volume.
    File,
}

/// Validates `env` and `envFrom` of a container.
pub(super) fn causes(container: &Field<'_>) -> Vec<StatusCause> {
    let mut causes: Vec<StatusCause> =
        container.get("env").items().flat_map(|variable| variable_causes(&variable)).collect();
    for value_source in container.get("envFrom").items() {
        let sources =
            ["configMapRef", "secretRef"].map(|name| value_source.get(name)).into_iter().filter(Field::is_set);
        match sources.collect::<Vec<_>>().as_slice() {
            [] => causes.push(source_cause(&value_source, "must specify one of: `configMapRef` or `secretRef`")),
            [source] => causes.extend(source.get("name").check(subdomain_hints)),
            _ => causes.push(source_cause(&value_source, "may not have more than one field specified at a time")),
        }
    }
    causes
}

fn source_cause(field: &Field<'_>, hint: &str) -> StatusCause {
    StatusCause::invalid(&field.path, &"".into(), hint)
}

fn variable_causes(variable: &Field<'_>) -> Vec<StatusCause> {
    let (name, value_source) = (variable.get("name"), variable.get("valueFrom"));
    let mut causes = Vec::new();
    if name.is_empty() {
        causes.push(name.required());
    } else if !name.text().chars().all(|c| (' '..='~').contains(&c) && c != '=') {
        causes.push(name.invalid(INVALID_NAME_MESSAGE));
    }
    if !value_source.is_set() {
        return causes;
    }
    let sources: Vec<_> = SOURCES.iter().map(|source| value_source.get(source)).filter(Field::is_set).collect();
    for source in &sources {
        causes.extend(match source.path.rsplit('.').next() {
            Some("fieldRef") => check_field_reference(source, FieldRefTarget::Variable),
            Some("resourceFieldRef") => check_resource_reference(source),
            Some("configMapKeyRef" | "secretKeyRef") => check_key_reference(source),
            _ => Vec::new(),
        });
    }
    if !variable.get("value").is_empty() {
        if !sources.is_empty() {
            causes.push(source_cause(&value_source, "may not be specified when `value` is not empty"));
        }
    } else if sources.len() > 1 {
        causes.push(source_cause(&value_source, "may not have more than one field specified at a time"));
    } else if sources.is_empty() {
        causes.push(source_cause(&value_source, SOURCE_REQUIRED_MESSAGE));
    }
    causes
}

fn check_key_reference(reference: &Field<'_>) -> Vec<StatusCause> {
    let (name, key) = (reference.get("name"), reference.get("key"));
    let mut causes = name.check(subdomain_hints);
    if key.is_empty() {
        causes.push(key.required());
    } else {
        causes.extend(key.check(config_key_hints));
    }
    causes
}

/// Validates a reference to a field of the Pod.
pub(super) fn check_field_reference(reference: &Field<'_>, target: FieldRefTarget) -> Vec<StatusCause> {
    let path = reference.get("fieldPath");
    let text = path.text();
    if text.is_empty() {
        return vec![path.required()];
    }
    let subscript = text.strip_suffix("']").and_then(|text| text.split_once("['"));
    if let Some((map_field, key)) = subscript.filter(|(map_field, _)| SELECTABLE_FIELDS[..2].contains(map_field)) {
        // Annotation keys are validated in lower case, because their domain is case-insensitive.
        let normalized_key = if map_field.ends_with("annotations") { key.to_lowercase() } else { key.to_owned() };
        let hints = label_key_hints(&normalized_key);
        return hints.iter().map(|hint| StatusCause::invalid(&reference.path, &key.into(), hint)).collect();
    }
    let allowed = if target == FieldRefTarget::Variable { &VARIABLE_FIELDS[..] } else { &FILE_FIELDS[..] };
    if allowed.contains(&text) {
        Vec::new()
    } else if VARIABLE_FIELDS.contains(&text) || SELECTABLE_FIELDS.contains(&text) {
        vec![path.not_supported(allowed)]
    } else {
        let hint = format!("error converting fieldPath: field label not supported: {text}");
        vec![path.invalid(&hint)]
    }
}

/// Validates a reference to a request or limit of the container.
pub(super) fn check_resource_reference(reference: &Field<'_>) -> Vec<StatusCause> {
    let resource = reference.get("resource");
    if resource.is_empty() {
        return vec![resource.required()];
    }
    let is_hugepages = resource.text().contains(".hugepages-");
    (!is_hugepages).then(|| resource.check_one_of(&RESOURCES)).flatten().into_iter().collect()
}
