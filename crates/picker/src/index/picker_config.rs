//! EndpointPickerConfigs that BackendPools refer to.

use std::sync::Arc;

use api::inference::PICKER_CONFIG_KEY;
use cluster::metadata_field;
use serde_json::Value;

use crate::{
    config::{ConfigError, parse_config},
    policy::SchedulingPolicy,
};

/// Preferred key of the configuration in a ConfigMap. A ConfigMap with a single key may use another one.
const DATA_KEY: &str = "config.yaml";

/// Why the configuration of a pool has no effect.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum PickerConfigError {
    /// The ConfigMaps are not listed.
    #[error("ConfigMaps are not listed: the gateway requires the permissions to list and to watch them.")]
    NotListed,
    /// The ConfigMap does not exist, or has no label.
    #[error("ConfigMap {0} with label {PICKER_CONFIG_KEY}=true not found in this namespace.")]
    NotFound(String),
    /// The ConfigMap has several keys, or none.
    #[error("ConfigMap {0} has no key {DATA_KEY}.")]
    NoData(String),
    /// The configuration is invalid.
    #[error("ConfigMap {name}, key {key}: {error}.")]
    Invalid { name: String, key: String, error: ConfigError },
}

/// Returns the policy that a BackendPool states by annotation, if any. `config_maps` is `None` until they are listed.
pub(super) fn policy(
    pool: &Value,
    config_maps: Option<&[Arc<Value>]>,
) -> Option<Result<SchedulingPolicy, PickerConfigError>> {
    let name = pool["metadata"]["annotations"][PICKER_CONFIG_KEY].as_str()?;
    let namespace = metadata_field(pool, "namespace");
    let is_named = |object: &&Arc<Value>| {
        metadata_field(object, "name") == name && metadata_field(object, "namespace") == namespace
    };
    Some(match config_maps.map(|config_maps| config_maps.iter().find(is_named)) {
        Some(Some(config_map)) => parse(config_map, name),
        Some(None) => Err(PickerConfigError::NotFound(name.to_owned())),
        None => Err(PickerConfigError::NotListed),
    })
}

fn parse(config_map: &Value, name: &str) -> Result<SchedulingPolicy, PickerConfigError> {
    let data = config_map["data"].as_object();
    let only_key = || data.filter(|data| data.len() == 1).and_then(|data| data.iter().next());
    let entry = data.and_then(|data| data.get_key_value(DATA_KEY)).or_else(only_key);
    let entry = entry.and_then(|(key, text)| Some((key, text.as_str()?)));
    let (key, text) = entry.ok_or_else(|| PickerConfigError::NoData(name.to_owned()))?;
    let invalid = |error| PickerConfigError::Invalid { name: name.to_owned(), key: key.clone(), error };
    Ok(parse_config(text).map_err(invalid)?.policy)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    const CONFIG: &str = "apiVersion: inference.networking.x-k8s.io/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- type: queue-scorer\n";

    fn result(annotation: Value, data: Value) -> Option<String> {
        let pool =
            json!({"metadata": {"namespace": "ns", "name": "p", "annotations": {PICKER_CONFIG_KEY: annotation}}});
        let other = json!({"metadata": {"namespace": "other", "name": "c"}, "data": {DATA_KEY: CONFIG}});
        let config_map = json!({"metadata": {"namespace": "ns", "name": "c"}, "data": data});
        let policy = policy(&pool, Some(&[Arc::new(other), Arc::new(config_map)]));
        policy.map(|policy| match policy {
            Ok(policy) => format!("reads metrics: {}", policy.reads_metrics()),
            Err(error) => error.to_string(),
        })
    }

    #[rstest]
    #[case::no_annotation(Value::Null, json!({}), None)]
    #[case::key(json!("c"), json!({DATA_KEY: CONFIG, "README": "x"}), Some("reads metrics: true"))]
    #[case::only_key(json!("c"), json!({"epp.yaml": CONFIG}), Some("reads metrics: true"))]
    #[case::missing(json!("d"), json!({}), Some("ConfigMap d with label ostler.io/picker-config=true not found in this namespace."))]
    #[case::several_keys(json!("c"), json!({"a": CONFIG, "b": CONFIG}), Some("ConfigMap c has no key config.yaml."))]
    #[case::no_data(json!("c"), Value::Null, Some("ConfigMap c has no key config.yaml."))]
    fn policy_is_read_from_the_config_map(
        #[case] annotation: Value,
        #[case] data: Value,
        #[case] expect: Option<&str>,
    ) {
        assert_eq!(result(annotation, data).as_deref(), expect);
    }

    #[test]
    fn error_names_the_config_map_and_the_key() {
        let error = result(json!("c"), json!({"epp.yaml": "kind: Pod"})).unwrap();
        assert!(error.starts_with("ConfigMap c, key epp.yaml: "), "{error}");
    }
}
