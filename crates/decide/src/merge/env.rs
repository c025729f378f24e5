//! Merges environment variables by name. Entries are replaced as a whole, so that `value` and `valueFrom` never mix.

use std::collections::BTreeMap;

use serde_json::Value;

use super::origin::{Setting, SettingField, Sources};

/// Merged environment variables with their origins.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MergedEnv {
    /// `EnvVar`s as JSON.
    pub variables: Vec<Value>,
    /// Origin of each variable, in the same order.
    pub settings: Vec<Setting>,
}

/// Merges the variables of all sources. Variables of the runtime come first, then new ones of the accelerator configuration,
/// then new ones of the service.
#[must_use]
pub fn merge_env(sources: &Sources<&[Value]>) -> MergedEnv {
    let mut merged = MergedEnv::default();
    let mut indices: BTreeMap<String, usize> = BTreeMap::new();
    for (origin, variables) in sources.in_order() {
        // If a source repeats a name, the last entry takes precedence, as in the kubelet.
        for variable in overlay_env(&[], variables) {
            let value = display_value(&variable);
            match indices.get(name(&variable)) {
                Some(index) => {
                    merged.variables[*index] = variable;
                    merged.settings[*index].override_with(value, origin);
                }
                None => {
                    let name = name(&variable).to_owned();
                    merged.settings.push(Setting::new(SettingField::Env(name.clone()), value, origin));
                    indices.insert(name, merged.variables.len());
                    merged.variables.push(variable);
                }
            }
        }
    }
    merged
}

/// Overlays `upper` on `lower`: replaced entries keep their position, new ones follow in their order.
pub(crate) fn overlay_env(lower: &[Value], upper: &[Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::with_capacity(lower.len() + upper.len());
    let mut indices: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in lower.iter().chain(upper) {
        match indices.get(name(entry)).and_then(|index| merged.get_mut(*index)) {
            Some(known) => known.clone_from(entry),
            None => {
                indices.insert(name(entry), merged.len());
                merged.push(entry.clone());
            }
        }
    }
    merged
}

fn name(variable: &Value) -> &str {
    variable.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// Returns the value, or its source as JSON.
fn display_value(variable: &Value) -> String {
    match (variable.get("value"), variable.get("valueFrom")) {
        (Some(Value::String(text)), _) => text.clone(),
        (Some(other), _) if !other.is_null() => other.to_string(),
        (_, Some(source)) => format!("from {source}"),
        _ => String::new(),
    }
}

/// Replaces the value of the variable `name`.
pub fn replace_variable(env: &mut [Value], name: &str, value: &str) {
    for entry in env.iter_mut().filter(|entry| entry["name"] == name) {
        entry["value"] = value.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::origin::{Origin, OverriddenValue};
    use proptest::prelude::*;
    use serde_json::json;

    // spec: ACC-95
    // spec: ACC-86
    #[test]
    fn merges_in_order_of_precedence_and_stable_order() {
        let runtime = [json!({"name": "A", "value": "runtime"}), json!({"name": "B", "value": "runtime"})];
        let configuration =
            [json!({"name": "C", "value": "accelerator"}), json!({"name": "B", "value": "accelerator"})];
        let service = [json!({"name": "D", "valueFrom": {}}), json!({"name": "C", "value": "service"})];
        let merged = merge_env(&Sources { runtime: &runtime, configuration: &configuration, service: &service });
        let names: Vec<&str> = merged.variables.iter().filter_map(|entry| entry["name"].as_str()).collect();
        assert_eq!(names, ["A", "B", "C", "D"]);
        assert_eq!(merged.variables[1]["value"], "accelerator");
        assert_eq!(merged.variables[2]["value"], "service");
        let origins: Vec<Origin> = merged.settings.iter().map(|setting| setting.origin).collect();
        assert_eq!(origins, [Origin::Runtime, Origin::Configuration, Origin::Service, Origin::Service]);
        assert_eq!(
            merged.settings[2].overridden,
            [OverriddenValue { origin: Origin::Configuration, value: "accelerator".to_owned() }]
        );
    }

    #[test]
    fn stronger_source_replaces_duplicate_names() {
        let runtime = [json!({"name": "A", "value": "1"}), json!({"name": "A", "value": "2"})];
        let merged = merge_env(&Sources {
            runtime: &runtime,
            configuration: &[],
            service: &[json!({"name": "A", "value": "3"})],
        });
        assert_eq!(merged.variables, [json!({"name": "A", "value": "3"})]);
    }

    /// Generates variables of one source, with duplicate names and `valueFrom`.
    fn any_source() -> impl Strategy<Value = Vec<Value>> {
        let value = prop_oneof![
            "[a-c]".prop_map(|text| json!({"value": text})),
            "[a-c]".prop_map(|key| json!({"valueFrom": {"configMapKeyRef": {"name": "m", "key": key}}})),
        ];
        let variable = ("[A-E]", value).prop_map(|(name, mut variable)| {
            variable["name"] = name.into();
            variable
        });
        prop::collection::vec(variable, 0..5)
    }

    fn merged_variables(runtime: &[Value], configuration: &[Value], service: &[Value]) -> Vec<Value> {
        merge_env(&Sources { runtime, configuration, service }).variables
    }

    proptest! {
        #[test]
        fn variables_of_the_service_are_retained(runtime in any_source(), configuration in any_source(), service in any_source()) {
            let merged = merged_variables(&runtime, &configuration, &service);
            for variable in overlay_env(&[], &service) {
                prop_assert!(merged.contains(&variable), "{variable} in {merged:?}");
            }
        }

        #[test]
        fn merging_is_idempotent(runtime in any_source(), configuration in any_source(), service in any_source()) {
            let once = merged_variables(&runtime, &configuration, &service);
            prop_assert_eq!(&merged_variables(&once, &configuration, &service), &once);
            prop_assert_eq!(&merged_variables(&once, &[], &[]), &once);
        }

        #[test]
        fn names_are_unique_with_the_strongest_origin(runtime in any_source(), configuration in any_source(), service in any_source()) {
            let merged = merge_env(&Sources { runtime: &runtime, configuration: &configuration, service: &service });
            let names: Vec<&Value> = merged.variables.iter().map(|variable| &variable["name"]).collect();
            let source_variables = [runtime.as_slice(), &configuration, &service].concat();
            for (name, setting) in names.iter().zip(&merged.settings) {
                let has_name = |source: &[Value]| source.iter().any(|variable| variable["name"] == **name);
                let strongest = [(Origin::Service, &service), (Origin::Configuration, &configuration), (Origin::Runtime, &runtime)];
                let strongest = strongest.into_iter().find(|(_, source)| has_name(source)).map(|(origin, _)| origin);
                prop_assert_eq!(Some(setting.origin), strongest);
                prop_assert_eq!(names.iter().filter(|other| *other == name).count(), 1);
            }
            prop_assert!(source_variables.iter().all(|variable| names.contains(&&variable["name"])));
        }
    }
}
