//! Environment variables merge by name; whole entries are replaced, so `value` never meets `valueFrom`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::origin::{Setting, Sources};

/// `EnvVar`s, and who stated each.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MergedEnv {
    pub variables: Vec<Value>,
    /// One per variable, in the same order.
    pub settings: Vec<Setting>,
}

/// Service over accelerator over runtime. Order: the runtime's, then what the accelerator adds, then the service.
#[must_use]
pub fn merge_env(sources: &Sources<&[Value]>) -> MergedEnv {
    let mut merged = MergedEnv::default();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (origin, variables) in sources.in_order() {
        // Of two entries of one name in one source the later counts, as for the kubelet.
        for variable in overlay_env(&[], variables) {
            let value = shown(&variable);
            match places.get(name(&variable)) {
                Some(at) => {
                    merged.variables[*at] = variable;
                    merged.settings[*at].override_with(value, origin);
                }
                None => {
                    places.insert(name(&variable).to_owned(), merged.variables.len());
                    merged.settings.push(Setting::new(format!("env {}", name(&variable)), value, origin));
                    merged.variables.push(variable);
                }
            }
        }
    }
    merged
}

/// `upper` over `lower`: entries keep their place, new names come last in the order written.
#[must_use]
pub fn overlay_env(lower: &[Value], upper: &[Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = Vec::with_capacity(lower.len() + upper.len());
    let mut places: BTreeMap<&str, usize> = BTreeMap::new();
    for entry in lower.iter().chain(upper) {
        match places.get(name(entry)).and_then(|place| merged.get_mut(*place)) {
            Some(known) => known.clone_from(entry),
            None => {
                places.insert(name(entry), merged.len());
                merged.push(entry.clone());
            }
        }
    }
    merged
}

fn name(variable: &Value) -> &str {
    variable.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// A plain value as it is, a source as JSON.
fn shown(variable: &Value) -> String {
    match (variable.get("value"), variable.get("valueFrom")) {
        (Some(Value::String(text)), _) => text.clone(),
        (Some(other), _) if !other.is_null() => other.to_string(),
        (_, Some(source)) => format!("from {source}"),
        _ => String::new(),
    }
}

/// Accelerators of one replica that plain variables state: tensor × pipeline parallelism.
#[must_use]
pub fn env_parallelism(env: &[Value]) -> Option<u32> {
    let number = |name: &str| {
        let entry = env.iter().rev().find(|entry| entry["name"] == name)?;
        entry["value"].as_str()?.parse::<u32>().ok().filter(|count| *count > 0)
    };
    let (tensor, pipeline) = (number("TENSOR_PARALLEL_SIZE"), number("PIPELINE_PARALLEL_SIZE"));
    (tensor.is_some() || pipeline.is_some()).then(|| tensor.unwrap_or(1).saturating_mul(pipeline.unwrap_or(1)))
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
    fn service_over_accelerator_over_runtime_in_a_stable_order() {
        let runtime = [json!({"name": "A", "value": "runtime"}), json!({"name": "B", "value": "runtime"})];
        let accelerator = [json!({"name": "C", "value": "accelerator"}), json!({"name": "B", "value": "accelerator"})];
        let service = [json!({"name": "D", "valueFrom": {}}), json!({"name": "C", "value": "service"})];
        let merged = merge_env(&Sources { runtime: &runtime, configuration: &accelerator, service: &service });
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
    fn a_name_twice_in_one_source_does_not_outlive_a_stronger_one() {
        let runtime = [json!({"name": "A", "value": "1"}), json!({"name": "A", "value": "2"})];
        let merged = merge_env(&Sources {
            runtime: &runtime,
            configuration: &[],
            service: &[json!({"name": "A", "value": "3"})],
        });
        assert_eq!(merged.variables, [json!({"name": "A", "value": "3"})]);
    }

    /// What one source states: names may stand twice, and values come from elsewhere too.
    fn source() -> impl Strategy<Value = Vec<Value>> {
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

    fn of(runtime: &[Value], configuration: &[Value], service: &[Value]) -> Vec<Value> {
        merge_env(&Sources { runtime, configuration, service }).variables
    }

    proptest! {
        #[test]
        fn a_users_value_is_never_lost(runtime in source(), tuning in source(), service in source()) {
            let merged = of(&runtime, &tuning, &service);
            // Of one name twice the later counts, as for the kubelet.
            for variable in overlay_env(&[], &service) {
                prop_assert!(merged.contains(&variable), "{variable} in {merged:?}");
            }
        }

        #[test]
        fn merging_twice_is_merging_once(runtime in source(), tuning in source(), service in source()) {
            let once = of(&runtime, &tuning, &service);
            prop_assert_eq!(&of(&once, &tuning, &service), &once);
            prop_assert_eq!(&of(&once, &[], &[]), &once);
        }

        #[test]
        fn every_name_stands_once_and_says_who_said_it(runtime in source(), tuning in source(), service in source()) {
            let merged = merge_env(&Sources { runtime: &runtime, configuration: &tuning, service: &service });
            let names: Vec<&Value> = merged.variables.iter().map(|variable| &variable["name"]).collect();
            let stated = [runtime.as_slice(), &tuning, &service].concat();
            for (name, setting) in names.iter().zip(&merged.settings) {
                let says = |source: &[Value]| source.iter().any(|variable| variable["name"] == **name);
                let strongest = [(Origin::Service, &service), (Origin::Configuration, &tuning), (Origin::Runtime, &runtime)];
                let strongest = strongest.into_iter().find(|(_, source)| says(source)).map(|(origin, _)| origin);
                prop_assert_eq!(Some(setting.origin), strongest);
                prop_assert_eq!(names.iter().filter(|other| *other == name).count(), 1);
            }
            prop_assert!(stated.iter().all(|variable| names.contains(&&variable["name"])));
        }
    }
}
