//! The annotation `server-patch`: a strategic merge patch in YAML.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use api::dual_pods::CONTAINER;
use apimachinery::{MergeSchema, apply_strategic_merge_patch, builtin_merge_schema};
use serde_json::{Map, Value};

/// Why a patch does not result in a provider. Messages have the wording of the deployed controller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The text is not YAML, or contains a key twice.
    #[error("failed to convert server patch yaml to json: {0}")]
    InvalidYaml(String),
    /// A field is unknown.
    #[error("failed to unmarshal patched pod: unknown field \"{0}\"")]
    UnknownField(String),
    /// A field has a value of the wrong type.
    #[error("failed to unmarshal patched pod: {field} must be {expected}")]
    WrongType {
        /// Path of the field.
        field: String,
        /// Expected type.
        expected: &'static str,
    },
    /// A directive or list element of the patch is invalid.
    #[error("failed to apply server patch: {0}")]
    Rejected(String),
    /// There is no container for the engine.
    #[error("container \"inference-server\" not found in spec.containers")]
    ContainerMissing,
    /// The engine has no readiness probe.
    #[error("the inference server container has no readinessProbe: spec.containers[{0}].readinessProbe")]
    ProbeMissing(usize),
    /// The readiness probe is of another type.
    #[error("the readinessProbe is not an HTTPGet: spec.containers[{0}].readinessProbe")]
    ProbeNotHttp(usize),
    /// The port of the readiness probe is neither a number nor the name of a port.
    #[error("unsupported readinessProbe port {port}: spec.containers[{container}].readinessProbe.httpGet.port")]
    UnsupportedPort {
        /// The port, as JSON.
        port: String,
        /// Index of the container.
        container: usize,
    },
    /// In launcher mode, the engine has the port of the launcher.
    #[error(
        "port {port} is that of the launcher, use another one: spec.containers[{container}].readinessProbe.httpGet.port"
    )]
    LauncherPort {
        /// The port.
        port: u16,
        /// Index of the container.
        container: usize,
    },
    /// In launcher mode, the engine is started with a variable whose value only the kubelet knows.
    #[error("the reference to variable {variable}, which has no `value`, is not supported in mode launcher: {field}")]
    UnresolvedVariable {
        /// Path of the field with the reference.
        field: String,
        /// Name of the variable.
        variable: String,
    },
}

/// A parsed patch.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Patch(Value);

// === impl Patch ===

impl Patch {
    /// Parses a patch and replaces `{{ .NodeName }}`. Other braces are retained, because chat templates contain them.
    ///
    /// # Errors
    /// The text is no YAML mapping, has duplicate keys, or a field that a patch of a Pod does not have.
    pub(super) fn parse(text: &str, node_name: &str) -> Result<Patch, PatchError> {
        let patch: Value = serde_saphyr::from_str(&replace_node_name(text, node_name)).map_err(yaml_error)?;
        let Value::Object(fields) = &patch else {
            return Err(PatchError::WrongType { field: "the patch".to_owned(), expected: "an object" });
        };
        check_fields("", fields, &["apiVersion", "kind", "metadata", "spec", "$patch"])?;
        if let Some(metadata) = object(&patch, "metadata")? {
            check_fields("metadata.", metadata, &["labels", "annotations", "$patch"])?;
        }
        let patch = Patch(patch);
        for field in ["labels", "annotations"] {
            check_strings(field, &patch.0["metadata"][field])?;
        }
        object(&patch.0, "spec")?;
        Ok(patch)
    }

    /// Returns the labels that the patch sets.
    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        apimachinery::object::string_map(self.0.pointer("/metadata/labels"))
    }

    /// Returns the names of the resources in `list` (`limits` or `requests`) that the patch states for the engine.
    pub(super) fn resource_names(&self, list: &str) -> Vec<&str> {
        let containers = self.0["spec"]["containers"].as_array().into_iter().flatten();
        let engine = containers.into_iter().find(|container| container["name"] == CONTAINER);
        let resources = engine.and_then(|engine| engine["resources"][list].as_object());
        resources.into_iter().flatten().map(|(name, _)| name.as_str()).collect()
    }

    /// Returns `pod` with the patch applied.
    ///
    /// # Errors
    /// A directive or a list element of the patch is invalid.
    pub(super) fn apply(&self, pod: &Value) -> Result<Value, PatchError> {
        static SCHEMA: LazyLock<MergeSchema> = LazyLock::new(|| builtin_merge_schema("", "Pod"));
        apply_strategic_merge_patch(&SCHEMA, pod, &self.0).map_err(|status| PatchError::Rejected(status.message))
    }
}

fn yaml_error(error: serde_saphyr::Error) -> PatchError {
    let message = error.without_snippet().to_string();
    PatchError::InvalidYaml(message.lines().next().unwrap_or_default().to_owned())
}

fn object<'a>(patch: &'a Value, field: &str) -> Result<Option<&'a Map<String, Value>>, PatchError> {
    match &patch[field] {
        Value::Null => Ok(None),
        Value::Object(members) => Ok(Some(members)),
        _ => Err(PatchError::WrongType { field: field.to_owned(), expected: "an object" }),
    }
}

fn check_fields(path: &str, fields: &Map<String, Value>, known: &[&str]) -> Result<(), PatchError> {
    let unknown = fields.keys().find(|name| !known.contains(&name.as_str()));
    unknown.map_or(Ok(()), |name| Err(PatchError::UnknownField(format!("{path}{name}"))))
}

/// Checks that `metadata.FIELD` is a map of strings and nulls.
fn check_strings(field: &str, map: &Value) -> Result<(), PatchError> {
    let wrong_type = |field: String, expected| Err(PatchError::WrongType { field, expected });
    match map {
        Value::Null => Ok(()),
        Value::Object(members) => match members.iter().find(|(_, value)| !value.is_string() && !value.is_null()) {
            Some((key, _)) => wrong_type(format!("metadata.{field}[{key}]"), "a string"),
            None => Ok(()),
        },
        _ => wrong_type(format!("metadata.{field}"), "an object"),
    }
}

/// Replaces `{{ .NodeName }}`, with any white space and the trim markers `{{-` and `-}}`.
fn replace_node_name(text: &str, node_name: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("{{") {
        let (before, expression) = rest.split_at(start);
        result.push_str(before);
        let end = expression.find("}}").map(|end| end + 2);
        match end.filter(|end| is_node_name(&expression[2..*end - 2])) {
            Some(end) => {
                result.push_str(node_name);
                rest = &expression[end..];
            }
            None => {
                result.push_str(&expression[..2]);
                rest = &expression[2..];
            }
        }
    }
    result.push_str(rest);
    result
}

fn is_node_name(expression: &str) -> bool {
    let expression = expression.strip_prefix('-').unwrap_or(expression);
    expression.strip_suffix('-').unwrap_or(expression).trim() == ".NodeName"
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    // spec: DP-15
    #[rstest]
    #[case::replaced("a: {{ .NodeName }}", "a: n-1")]
    #[case::without_spaces("a: x-{{.NodeName}}-{{- .NodeName -}}", "a: x-n-1-n-1")]
    #[case::chat_template(
        "a: {% for m in x %}{{ m.content }}{{ .NodeName }}{{",
        "a: {% for m in x %}{{ m.content }}n-1{{"
    )]
    #[case::other_variable("a: {{ .LocalVolume }}", "a: {{ .LocalVolume }}")]
    #[case::nested_braces("a: {{{{ .NodeName }}}}", "a: {{n-1}}")]
    fn node_name_is_replaced(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(replace_node_name(text, "n-1"), expected);
    }

    // spec: DP-35
    #[rstest]
    #[case::bad_yaml("a: [", "failed to convert server patch yaml to json: ")]
    #[case::duplicate_key(
        "spec: {hostNetwork: true, hostNetwork: false}",
        "failed to convert server patch yaml to json: "
    )]
    #[case::scalar("hello", "failed to unmarshal patched pod: the patch must be an object")]
    #[case::unknown_field("spce: {}", "failed to unmarshal patched pod: unknown field \"spce\"")]
    #[case::unknown_metadata(
        "metadata: {lables: {}}",
        "failed to unmarshal patched pod: unknown field \"metadata.lables\""
    )]
    #[case::label_number(
        "metadata: {labels: {a: 1}}",
        "failed to unmarshal patched pod: metadata.labels[a] must be a string"
    )]
    #[case::spec_is_a_list("spec: []", "failed to unmarshal patched pod: spec must be an object")]
    fn invalid_patches_are_rejected(#[case] text: &str, #[case] expected: &str) {
        let error = Patch::parse(text, "n").unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}
