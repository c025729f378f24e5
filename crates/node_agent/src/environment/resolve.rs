//! Resolves the environment variables of a container: `envFrom`, then `env`.

use std::collections::BTreeMap;

use apimachinery::{expand_variables, object};
use base64::Engine;
use serde_json::Value;

use super::downward::{pod_field, resource_field};
use super::error::EnvironmentError;
use super::host_address::replace_hostname;
use super::object_source::ObjectSource;

/// Variables in the order of their first definition.
#[derive(Default)]
struct Variables {
    names: Vec<String>,
    values: BTreeMap<String, String>,
}

/// Returns all variables of a container in order; the last definition of a name wins. The `status` of `pod` contains
/// its address.
pub(crate) fn resolve(
    container: &Value,
    pod: &Value,
    sources: &dyn ObjectSource,
) -> Result<Vec<(String, String)>, EnvironmentError> {
    let mut variables = Variables::default();
    let hostname = match object::text(pod, "/spec/hostname") {
        "" => object::name(pod),
        hostname => hostname,
    };
    variables.set("HOSTNAME", hostname.to_owned());
    for source in object::items(container.get("envFrom")) {
        for (key, value) in env_from(source, sources)? {
            variables.set(&format!("{}{key}", object::text(source, "/prefix")), value);
        }
    }
    for entry in object::items(container.get("env")) {
        let name = object::text(entry, "/name");
        let value = match entry.get("valueFrom").filter(|from| !from.is_null()) {
            Some(from) => value_from(from, container, pod, sources)?,
            None => Some(expand_variables(object::text(entry, "/value"), &variables.values)),
        };
        if let Some(value) = value {
            variables.set(name, replace_hostname(value, pod, sources)?);
        }
    }
    Ok(variables.into_vec())
}

/// Returns the variables of an `envFrom` source: all keys of a ConfigMap or Secret.
fn env_from(source: &Value, sources: &dyn ObjectSource) -> Result<BTreeMap<String, String>, EnvironmentError> {
    let is_optional = |reference: &Value| reference.get("optional") == Some(&Value::Bool(true));
    if let Some(reference) = source.get("configMapRef") {
        let name = object::text(reference, "/name");
        return match sources.config_map(name) {
            Some(map) => Ok(object::string_map(map.get("data"))),
            None if is_optional(reference) => Ok(BTreeMap::new()),
            None => Err(EnvironmentError::NotFound(format!("configmap \"{name}\" not found"))),
        };
    }
    if let Some(reference) = source.get("secretRef") {
        let name = object::text(reference, "/name");
        return match sources.secret(name) {
            Some(secret) => Ok(object::string_map(secret.get("data"))
                .into_iter()
                .map(|(k, v)| (k, decode_secret_value(&v)))
                .collect()),
            None if is_optional(reference) => Ok(BTreeMap::new()),
            None => Err(EnvironmentError::NotFound(format!("secret \"{name}\" not found"))),
        };
    }
    Ok(BTreeMap::new())
}

/// Returns the value of `valueFrom`, `None` for an optional reference to a missing object.
fn value_from(
    from: &Value,
    container: &Value,
    pod: &Value,
    sources: &dyn ObjectSource,
) -> Result<Option<String>, EnvironmentError> {
    if let Some(field) = from.get("fieldRef") {
        return Ok(Some(pod_field(object::text(field, "/fieldPath"), pod)));
    }
    if let Some(field) = from.get("resourceFieldRef") {
        return Ok(Some(resource_field(field, container, pod, sources)));
    }
    let (reference, kind) = match (from.get("configMapKeyRef"), from.get("secretKeyRef")) {
        (Some(reference), _) => (reference, "configmap"),
        (None, Some(reference)) => (reference, "secret"),
        (None, None) => return Ok(None),
    };
    let (name, key) = (object::text(reference, "/name"), object::text(reference, "/key"));
    let source = if kind == "configmap" { sources.config_map(name) } else { sources.secret(name) };
    let not_found = |message: String| match reference.get("optional") {
        Some(Value::Bool(true)) => Ok(None),
        _ => Err(EnvironmentError::NotFound(message)),
    };
    let Some(source) = source else { return not_found(format!("{kind} \"{name}\" not found")) };
    let Some(value) = source.get("data").and_then(|data| data.get(key)?.as_str()) else {
        let kind_name = if kind == "configmap" { "ConfigMap" } else { "Secret" };
        return not_found(format!("couldn't find key {key} in {kind_name} {}/{name}", object::namespace(pod)));
    };
    Ok(Some(if kind == "secret" { decode_secret_value(value) } else { value.to_owned() }))
}

/// Decodes the base64 value of a Secret.
fn decode_secret_value(value: &str) -> String {
    let bytes = base64::engine::general_purpose::STANDARD.decode(value).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

// === impl Variables ===

impl Variables {
    fn set(&mut self, name: &str, value: String) {
        if self.values.insert(name.to_owned(), value).is_none() {
            self.names.push(name.to_owned());
        }
    }

    fn into_vec(mut self) -> Vec<(String, String)> {
        let values = &mut self.values;
        self.names.into_iter().filter_map(|name| values.remove_entry(&name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::environment::object_source::FixedSource;

    fn pod() -> Value {
        json!({
            "metadata": {"name": "p", "namespace": "n", "labels": {"app.kubernetes.io/name": "x"}},
            "spec": {"nodeName": "node"}, "status": {"podIP": "127.16.0.1"},
        })
    }

    fn env(env: Value) -> Result<Vec<(String, String)>, EnvironmentError> {
        let container = json!({"env": env, "resources": {"limits": {"cpu": "1500m", "memory": "2Gi"}}});
        resolve(&container, &pod(), &FixedSource)
            .map(|variables| variables.into_iter().filter(|(name, _)| name != "HOSTNAME").collect())
    }

    #[rstest]
    #[case::label(json!({"fieldRef": {"fieldPath": "metadata.labels['app.kubernetes.io/name']"}}), "x")]
    #[case::name(json!({"fieldRef": {"fieldPath": "metadata.name"}}), "p")]
    #[case::address(json!({"fieldRef": {"fieldPath": "status.podIP"}}), "127.16.0.1")]
    #[case::node(json!({"fieldRef": {"fieldPath": "spec.nodeName"}}), "node")]
    #[case::config(json!({"configMapKeyRef": {"name": "settings", "key": "level"}}), "high")]
    #[case::secret(json!({"secretKeyRef": {"name": "hf", "key": "token"}}), "secret")]
    #[case::cpu(json!({"resourceFieldRef": {"resource": "limits.cpu"}}), "2")]
    #[case::node_allocatable(json!({"resourceFieldRef": {"resource": "limits.ephemeral-storage"}}), "9")]
    #[case::not_requested(json!({"resourceFieldRef": {"resource": "requests.ephemeral-storage"}}), "0")]
    #[case::memory(json!({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}), "2048")]
    fn resolves_references(#[case] from: Value, #[case] expect: &str) {
        let variables = env(json!([{"name": "V", "valueFrom": from}])).unwrap();
        assert_eq!(variables, [("V".to_owned(), expect.to_owned())]);
    }

    #[test]
    fn reports_missing_source() {
        let error = env(json!([{"name": "V", "valueFrom": {"secretKeyRef": {"name": "nope", "key": "k"}}}]));
        assert_eq!(error.unwrap_err().to_string(), "secret \"nope\" not found");
        let optional =
            json!([{"name": "V", "valueFrom": {"secretKeyRef": {"name": "nope", "key": "k", "optional": true}}}]);
        assert_eq!(env(optional).unwrap(), []);
    }

    #[test]
    fn replaces_host_name_with_address() {
        let variables =
            env(json!([{"name": "LEADER", "value": "l-0.l.n"}, {"name": "URL", "value": "$(LEADER):80"}])).unwrap();
        assert_eq!(variables[0].1, "127.16.0.9");
        assert_eq!(variables[1].1, "127.16.0.9:80");
        assert_eq!(env(json!([{"name": "IMAGE", "value": "a.b.c"}])).unwrap()[0].1, "a.b.c");
    }
}
