//! The fields by which an engine differs from the one that a requester needs.

use std::collections::BTreeSet;

use apimachinery::object;
use serde_json::Value;

use crate::identity::without_ignored_fields;
use crate::nominal::NominalProvider;
use crate::provider::Provider;

/// Fields that the API server, the scheduler or admission sets in a Pod that does not state them.
const DEFAULTED_FIELDS: [&str; 22] = [
    "apiVersion",
    "defaultMode",
    "dnsPolicy",
    "enableServiceLinks",
    "failureThreshold",
    "imagePullPolicy",
    "nodeName",
    "periodSeconds",
    "protocol",
    "resources",
    "requests",
    "restartPolicy",
    "schedulerName",
    "scheme",
    "securityContext",
    "serviceAccount",
    "serviceAccountName",
    "successThreshold",
    "terminationGracePeriodSeconds",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "timeoutSeconds",
];
/// End of the path of the requests of a container.
const REQUESTS_PATH: &str = "resources.requests";
/// Start of the name of the volume with the token of the service account.
const TOKEN_VOLUME: &str = "kube-api-access-";
/// Variable that follows from the accelerators.
const DEVICES_VARIABLE: &str = "CUDA_VISIBLE_DEVICES";
/// Fields whose value identifies an item of a list.
const ITEM_KEYS: [&str; 2] = ["name", "mountPath"];
/// Start of the path of fields of the engine's container.
const ENGINE_PATH: &str = "containers[inference-server].";
/// Maximum number of characters of a value in a message.
const MAX_VALUE: usize = 60;

/// A field by which an engine differs from the one that a requester needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Path of the field in the spec of the Pod; that of a field of the engine's container starts below the container.
    pub field: String,
    /// Value of the engine.
    pub actual: Option<String>,
    /// Value that the requester needs.
    pub needed: Option<String>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Difference { field, actual, needed } = self;
        match (actual, needed) {
            (Some(actual), Some(needed)) => write!(f, "{field}: {actual}, not {needed}"),
            (None, Some(needed)) => write!(f, "{field}: absent, not {needed}"),
            (Some(actual), None) => write!(f, "{field}: {actual}, not absent"),
            (None, None) => write!(f, "{field}"),
        }
    }
}

/// Returns the fields by which a provider Pod differs from the nominal provider of a requester: accelerators, annotations, then
/// fields of the spec in the order of their names. Fields that the API server sets by default are not compared.
pub(super) fn differences(nominal: &NominalProvider, provider: &Provider, pod: &Value) -> Vec<Difference> {
    let mut differences = Vec::new();
    let has_accelerators = nominal.accelerators == provider.accelerators;
    if !has_accelerators {
        let list = |accelerators: &BTreeSet<String>| accelerators.iter().cloned().collect::<Vec<_>>().join(",");
        differences.push(Difference {
            field: "accelerators".to_owned(),
            actual: Some(list(&provider.accelerators)),
            needed: Some(list(&nominal.accelerators)),
        });
    }
    for (key, needed) in &nominal.annotations {
        let actual = pod["metadata"]["annotations"][key].as_str();
        if actual != Some(needed) {
            differences.push(Difference {
                field: format!("annotations[{key}]"),
                actual: actual.map(str::to_owned),
                needed: Some(needed.clone()),
            });
        }
    }
    let (needed, actual) = (without_ignored_fields(&nominal.spec), without_ignored_fields(&pod["spec"]));
    let mut walk = Walk { skips_devices: !has_accelerators, differences };
    walk.compare("", &needed, &actual);
    walk.differences
}

/// A comparison in progress.
struct Walk {
    skips_devices: bool,
    differences: Vec<Difference>,
}

// === impl Walk ===

impl Walk {
    fn compare(&mut self, path: &str, needed: &Value, actual: &Value) {
        match (needed, actual) {
            (Value::Object(needed), Value::Object(actual)) => {
                let fields: BTreeSet<&String> = needed.keys().chain(actual.keys()).collect();
                for field in fields {
                    // Requests that are not stated equal the limits.
                    let is_defaulted = DEFAULTED_FIELDS.contains(&field.as_str()) || path.ends_with(REQUESTS_PATH);
                    if is_defaulted && !needed.contains_key(field) {
                        continue;
                    }
                    let child = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
                    self.compare(&child, value_of(needed.get(field)), value_of(actual.get(field)));
                }
            }
            (Value::Array(_), _) | (_, Value::Array(_)) => self.compare_lists(path, needed, actual),
            _ if needed == actual => {}
            _ => self.add(path, needed, actual),
        }
    }

    fn compare_lists(&mut self, path: &str, needed: &Value, actual: &Value) {
        let key_field = ITEM_KEYS.iter().find(|field| {
            let mut items = object::items(Some(needed)).chain(object::items(Some(actual)));
            items.all(|item| item[**field].is_string())
        });
        let items = |list: &Value| -> Vec<(String, Value)> {
            let key = |(index, item): (usize, &Value)| match key_field {
                Some(field) => (object::text(item, &format!("/{field}")).to_owned(), item.clone()),
                None => (index.to_string(), item.clone()),
            };
            object::items(Some(list)).enumerate().map(key).collect()
        };
        let (needed, actual) = (items(needed), items(actual));
        let find = |items: &[(String, Value)], key: &str| {
            items.iter().find(|(other, _)| other == key).map(|(_, item)| item.clone()).unwrap_or_default()
        };
        let added = actual.iter().filter(|(key, _)| !needed.iter().any(|(other, _)| other == key));
        let keys = needed.iter().chain(added).map(|(key, _)| key.as_str());
        for key in keys.filter(|key| !(self.skips_devices && *key == DEVICES_VARIABLE)).collect::<Vec<_>>() {
            let (needed, actual) = (find(&needed, key), find(&actual, key));
            if !(needed.is_null() && is_token_volume(&actual)) {
                self.compare(&format!("{path}[{key}]"), &needed, &actual);
            }
        }
    }

    fn add(&mut self, path: &str, needed: &Value, actual: &Value) {
        let field = path.strip_prefix(ENGINE_PATH).unwrap_or(path).to_owned();
        self.differences.push(Difference { field, actual: format_value(actual), needed: format_value(needed) });
    }
}

fn value_of(value: Option<&Value>) -> &Value {
    value.unwrap_or(&Value::Null)
}

fn is_token_volume(item: &Value) -> bool {
    object::text(item, "/name").starts_with(TOKEN_VOLUME)
}

fn format_value(value: &Value) -> Option<String> {
    let text = match value {
        Value::Null => return None,
        Value::String(text) => text.clone(),
        value => value.to_string(),
    };
    let mut short: String = text.chars().take(MAX_VALUE).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    Some(short)
}
