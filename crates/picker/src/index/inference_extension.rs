//! InferenceObjectives and InferenceModelRewrites of the Gateway API Inference Extension.

use std::{collections::BTreeMap, sync::Arc};

use cluster::{NamespacedName, metadata_field};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    kinds::{BACKEND_POOL, INFERENCE_POOL},
    snapshot::Pool,
    use_case::{TargetModel, UseCase},
};

/// Objects of both API groups, those of the newer one first: it takes precedence if both have an object of the same name.
#[derive(Debug, Clone, Default)]
pub(crate) struct ExtensionObjects {
    /// InferenceObjectives.
    pub(crate) objectives: Vec<Arc<Value>>,
    /// InferenceModelRewrites.
    pub(crate) rewrites: Vec<Arc<Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObjectiveSpec {
    #[serde(default)]
    priority: i64,
    pool_ref: PoolReference,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RewriteSpec {
    pool_ref: PoolReference,
    rules: Vec<RewriteRule>,
}

#[derive(Deserialize)]
struct PoolReference {
    kind: Option<String>,
    name: String,
}

#[derive(Deserialize)]
struct RewriteRule {
    /// Without matches, the rule applies to all models.
    #[serde(default)]
    matches: Vec<RewriteMatch>,
    targets: Vec<RewriteTarget>,
}

#[derive(Deserialize)]
struct RewriteMatch {
    model: ModelMatch,
}

/// The only type of match is `Exact`.
#[derive(Deserialize)]
struct ModelMatch {
    value: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RewriteTarget {
    model_rewrite: String,
    weight: Option<u32>,
}

/// Adds the objectives and rewrites to the pools that they reference. Use cases of the same model name take precedence over rewrites,
/// and of several rewrites the oldest object, then the first rule.
pub(super) fn add_to_pools(pools: &mut BTreeMap<NamespacedName, Pool>, objects: &ExtensionObjects) {
    let objectives = specs::<ObjectiveSpec>(&objects.objectives);
    for (key, (_, spec)) in objectives {
        let Some(pool) = find_pool(pools, &key, &spec.pool_ref) else { continue };
        let limits = (i64::from(i32::MIN), i64::from(i32::MAX));
        let priority = i32::try_from(spec.priority.clamp(limits.0, limits.1)).unwrap_or_default();
        Arc::make_mut(&mut pool.objective_priorities).insert(key.name.clone(), priority);
    }
    let mut rewrites: Vec<_> = specs::<RewriteSpec>(&objects.rewrites).into_iter().collect();
    rewrites.sort_by(|(a, (created_a, _)), (b, (created_b, _))| (created_a, a).cmp(&(created_b, b)));
    for (key, (creation_timestamp, spec)) in &rewrites {
        let Some(pool) = find_pool(pools, key, &spec.pool_ref) else { continue };
        for rule in &spec.rules {
            let rewrite = |model: &str| UseCase {
                priority: pool.default_priority,
                is_rewrite: true,
                targets: rule.targets.iter().map(target_model).collect(),
                creation_timestamp: creation_timestamp.clone(),
                declared_by: format!("InferenceModelRewrite {key}"),
                ..UseCase::implicit(model)
            };
            if rule.matches.is_empty() && pool.default_rewrite.is_none() {
                pool.default_rewrite = Some(Arc::new(rewrite("")));
            }
            for RewriteMatch { model } in &rule.matches {
                let rewrite = rewrite(&model.value);
                pool.use_cases.entry(model.value.clone()).or_insert(rewrite);
            }
        }
    }
}

/// Returns the creation timestamps and specs of valid objects by namespace and name; the first object of a name counts.
fn specs<T: DeserializeOwned>(objects: &[Arc<Value>]) -> BTreeMap<NamespacedName, (String, T)> {
    let mut specs = BTreeMap::new();
    for object in objects {
        match T::deserialize(&object["spec"]) {
            Ok(spec) => {
                let created = metadata_field(object, "creationTimestamp").to_owned();
                specs.entry(NamespacedName::from_object(object)).or_insert((created, spec));
            }
            Err(error) => {
                let (namespace, name) = (metadata_field(object, "namespace"), metadata_field(object, "name"));
                tracing::warn!(kind = object["kind"].as_str(), namespace, name, %error, "ignoring invalid object");
            }
        }
    }
    specs
}

/// Returns the pool that an object of the same namespace references.
fn find_pool<'a>(
    pools: &'a mut BTreeMap<NamespacedName, Pool>,
    object: &NamespacedName,
    reference: &PoolReference,
) -> Option<&'a mut Pool> {
    let kind = reference.kind.as_deref().unwrap_or(INFERENCE_POOL);
    let is_pool = [INFERENCE_POOL, BACKEND_POOL.kind].contains(&kind);
    pools.get_mut(&NamespacedName::new(&object.namespace, &reference.name)).filter(|_| is_pool)
}

fn target_model(target: &RewriteTarget) -> TargetModel {
    TargetModel { model: target.model_rewrite.clone(), weight: target.weight.unwrap_or(1) }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::snapshot::tests::pool;

    fn object(kind: &str, name: &str, day: u8, spec: &Value) -> Arc<Value> {
        Arc::new(json!({
            "kind": kind,
            "metadata": {"namespace": "ns", "name": name, "creationTimestamp": format!("2026-01-{day:02}T00:00:00Z")},
            "spec": spec,
        }))
    }

    fn rewrite(name: &str, day: u8, rules: &Value) -> Arc<Value> {
        object("InferenceModelRewrite", name, day, &json!({"poolRef": {"name": "p"}, "rules": rules}))
    }

    /// Returns a rule that rewrites these models to one target.
    fn rule(models: &[&str], target: &str) -> Value {
        let matches: Vec<Value> =
            models.iter().map(|model| json!({"model": {"type": "Exact", "value": model}})).collect();
        json!({"matches": matches, "targets": [{"modelRewrite": target}]})
    }

    /// Returns the pool `ns/p`, with a use case of the model `declared`, after the objects have been added.
    fn pool_with(objects: &ExtensionObjects) -> Pool {
        let key = NamespacedName::new("ns", "p");
        let use_case = UseCase { priority: 7, ..UseCase::implicit("declared") };
        let use_cases = [("declared".to_owned(), use_case)].into();
        let mut pools = [(key.clone(), Pool { use_cases, ..pool(key.clone(), Vec::new()) })].into();
        add_to_pools(&mut pools, objects);
        pools.remove(&key).unwrap()
    }

    /// Columns: spec of the objective, priority of the pool's objective `o`.
    #[rstest]
    #[case::negative(json!({"poolRef": {"name": "p"}, "priority": -3}), Some(-3))]
    #[case::default(json!({"poolRef": {"name": "p", "kind": "InferencePool"}}), Some(0))]
    #[case::backend_pool(json!({"poolRef": {"name": "p", "kind": "BackendPool"}, "priority": 1}), Some(1))]
    #[case::large(json!({"poolRef": {"name": "p"}, "priority": 99_999_999_999_i64}), Some(i32::MAX))]
    #[case::other_pool(json!({"poolRef": {"name": "q"}, "priority": 1}), None)]
    #[case::other_kind(json!({"poolRef": {"name": "p", "kind": "Service"}, "priority": 1}), None)]
    #[case::invalid(json!({"priority": 1}), None)]
    fn objectives_state_priorities(#[case] spec: Value, #[case] expect: Option<i32>) {
        let objectives = vec![object("InferenceObjective", "o", 1, &spec)];
        let pool = pool_with(&ExtensionObjects { objectives, ..ExtensionObjects::default() });
        assert_eq!(pool.objective_priorities.get("o").copied(), expect);
    }

    #[test]
    fn object_of_the_newer_group_takes_precedence() {
        let objective =
            |priority| object("InferenceObjective", "o", 1, &json!({"poolRef": {"name": "p"}, "priority": priority}));
        let objects = ExtensionObjects { objectives: vec![objective(1), objective(2)], ..ExtensionObjects::default() };
        assert_eq!(pool_with(&objects).objective_priorities["o"], 1);
    }

    /// A use case precedes all rewrites, the oldest rewrite the others, and its first rule the following ones.
    #[test]
    fn first_rewrite_of_a_model_applies() {
        let rewrites = vec![
            rewrite("newer", 2, &json!([rule(&["a"], "of-newer"), rule(&["b"], "b-of-newer"), rule(&[], "other")])),
            rewrite("older", 1, &json!([rule(&["a", "declared"], "of-older"), rule(&["a"], "later-rule")])),
            rewrite("newest", 3, &json!([rule(&[], "later-default")])),
        ];
        let pool = pool_with(&ExtensionObjects { rewrites, ..ExtensionObjects::default() });
        let target = |model: &str| pool.use_cases[model].targets.first().map(|target| target.model.as_str());
        assert_eq!(["a", "b", "declared"].map(target), [Some("of-older"), Some("b-of-newer"), None]);
        assert_eq!(["a", "declared"].map(|model| pool.use_cases[model].is_rewrite), [true, false]);
        assert_eq!(pool.default_rewrite.unwrap().targets[0].model, "other");
    }

    #[test]
    fn targets_have_weights() {
        let targets = json!([{"modelRewrite": "v1", "weight": 90}, {"modelRewrite": "v2"}]);
        let rules = json!([{"matches": [{"model": {"value": "chat"}}], "targets": targets}]);
        let objects = ExtensionObjects { rewrites: vec![rewrite("r", 1, &rules)], ..ExtensionObjects::default() };
        let targets = pool_with(&objects).use_cases["chat"].targets.clone();
        assert_eq!(targets.iter().map(|target| target.weight).collect::<Vec<_>>(), [90, 1]);
    }
}
