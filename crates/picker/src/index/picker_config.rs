//! EndpointPickerConfigs that pools refer to.

use std::{collections::HashMap, mem, sync::Arc};

use api::inference::PICKER_CONFIG_KEY;
use cluster::metadata_field;
use serde_json::Value;

use crate::{
    config::{ConfigError, parse_config},
    policy::SchedulingPolicy,
};

/// Preferred key of the configuration in a ConfigMap. A ConfigMap with a single key may use another one.
const DATA_KEY: &str = "config.yaml";

/// Policies of the configurations that pools state, by text. Parsing a configuration takes longer than building the rest of an
/// index, and an index is built for each change of a Pod.
#[derive(Debug, Default)]
pub(crate) struct ParsedConfigs {
    current: HashMap<String, Result<SchedulingPolicy, ConfigError>>,
    /// Those of the last index.
    previous: HashMap<String, Result<SchedulingPolicy, ConfigError>>,
}

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

/// Returns the policy that a pool states by annotation, if any. `config_maps` is `None` until they are listed.
pub(super) fn policy(
    pool: &Value,
    config_maps: Option<&[Arc<Value>]>,
    parsed: &mut ParsedConfigs,
) -> Option<Result<SchedulingPolicy, PickerConfigError>> {
    let name = pool["metadata"]["annotations"][PICKER_CONFIG_KEY].as_str()?;
    let namespace = metadata_field(pool, "namespace");
    let is_named = |object: &&Arc<Value>| {
        metadata_field(object, "name") == name && metadata_field(object, "namespace") == namespace
    };
    Some(match config_maps.map(|config_maps| config_maps.iter().find(is_named)) {
        Some(Some(config_map)) => parse(config_map, name, parsed),
        Some(None) => Err(PickerConfigError::NotFound(name.to_owned())),
        None => Err(PickerConfigError::NotListed),
    })
}

fn parse(config_map: &Value, name: &str, parsed: &mut ParsedConfigs) -> Result<SchedulingPolicy, PickerConfigError> {
    let data = config_map["data"].as_object();
    let only_key = || data.filter(|data| data.len() == 1).and_then(|data| data.iter().next());
    let entry = data.and_then(|data| data.get_key_value(DATA_KEY)).or_else(only_key);
    let entry = entry.and_then(|(key, text)| Some((key, text.as_str()?)));
    let (key, text) = entry.ok_or_else(|| PickerConfigError::NoData(name.to_owned()))?;
    let invalid = |error| PickerConfigError::Invalid { name: name.to_owned(), key: key.clone(), error };
    parsed.policy(text).map_err(invalid)
}

// === impl ParsedConfigs ===

impl ParsedConfigs {
    /// Begins a new index. Configurations that the last one did not use are forgotten.
    pub(super) fn begin_index(&mut self) {
        self.previous = mem::take(&mut self.current);
    }

    fn policy(&mut self, text: &str) -> Result<SchedulingPolicy, ConfigError> {
        if let Some(policy) = self.current.get(text) {
            return policy.clone();
        }
        let parse = || parse_config(text).map(|config| config.policy);
        let policy = self.previous.remove(text).unwrap_or_else(parse);
        self.current.insert(text.to_owned(), policy.clone());
        policy
    }
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
        let config_maps = [Arc::new(other), Arc::new(config_map)];
        let policy = policy(&pool, Some(&config_maps), &mut ParsedConfigs::default());
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
    fn unused_configurations_are_forgotten() {
        let mut parsed = ParsedConfigs::default();
        for (text, is_valid) in [(CONFIG, true), ("kind: Pod", false), (CONFIG, true)] {
            parsed.begin_index();
            for _ in 0..2 {
                assert_eq!(parsed.policy(text).is_ok(), is_valid);
            }
            assert_eq!(parsed.current.keys().collect::<Vec<_>>(), [text]);
        }
    }

    #[test]
    fn error_names_the_config_map_and_the_key() {
        let error = result(json!("c"), json!({"epp.yaml": "kind: Pod"})).unwrap();
        assert!(error.starts_with("ConfigMap c, key epp.yaml: "), "{error}");
    }
}
