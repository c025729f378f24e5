//! Invariants that hold after every action.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::dual_pods;
use serde_json::Value;

use crate::models::{EngineActivity, EngineModel};

/// Engines by the UID of their provider.
type Engines = BTreeMap<String, EngineModel>;

fn annotation<'a>(pod: &'a Value, key: &str) -> Option<&'a str> {
    pod["metadata"]["annotations"].get(key)?.as_str()
}

/// Panics if an invariant does not hold.
pub(crate) fn check(pods: &[Arc<Value>], engines: &Engines) {
    let providers: Vec<&Value> = pods.iter().map(AsRef::as_ref).filter(|pod| dual_pods::is_provider(pod)).collect();
    one_busy_engine_per_accelerator(engines, &providers);
    one_provider_per_requester(&providers);
    for pod in &providers {
        let is_bound = annotation(pod, dual_pods::REQUESTER).is_some();
        let finalizers = apimachinery::object::finalizers(pod);
        assert_eq!(finalizers.contains(&dual_pods::PROVIDER_FINALIZER), is_bound, "finalizer if and only if bound");
        let labels: BTreeMap<String, String> =
            serde_json::from_str(annotation(pod, dual_pods::POOL_LABELS).unwrap()).unwrap();
        let has_label = labels.keys().any(|key| apimachinery::object::label(pod, key).is_some());
        let uid = apimachinery::object::uid(pod);
        let engine = match annotation(pod, dual_pods::INSTANCE_ID) {
            Some(instance) => engines.get(&format!("{uid}/{instance}")),
            None => engines.get(uid),
        };
        let is_asleep = engine.is_some_and(|engine| engine.activity == EngineActivity::Asleep);
        if has_label {
            assert!(is_bound, "pools select {}, which is not bound", pod["metadata"]["name"]);
            assert!(!is_asleep, "pools select an engine that sleeps");
        }
    }
}

/// At most one engine per accelerator is loading or awake.
fn one_busy_engine_per_accelerator(engines: &Engines, providers: &[&Value]) {
    let mut users: BTreeMap<String, &Value> = BTreeMap::new();
    for pod in providers {
        for accelerator in busy_accelerators(pod, engines) {
            if let Some(other) = users.insert(accelerator.to_owned(), &pod["metadata"]["name"]) {
                panic!("{other} and {} are both awake on {accelerator}", pod["metadata"]["name"]);
            }
        }
    }
}

/// Returns the accelerators on which engines of a provider are loading or awake.
fn busy_accelerators(pod: &Value, engines: &Engines) -> Vec<String> {
    let uid = apimachinery::object::uid(pod);
    let is_busy = |key: &str| engines.get(key).is_some_and(EngineModel::is_busy);
    match annotation(pod, dual_pods::INSTANCES) {
        None if is_busy(uid) => {
            annotation(pod, dual_pods::ACCELERATORS).unwrap().split(',').map(str::to_owned).collect()
        }
        None => Vec::new(),
        Some(records) => {
            let records: BTreeMap<String, Value> = serde_json::from_str(records).unwrap();
            let busy = records.iter().filter(|(id, _)| is_busy(&format!("{uid}/{id}")));
            busy.flat_map(|(_, record)| apimachinery::object::strings(record.get("accelerators")))
                .map(str::to_owned)
                .collect()
        }
    }
}

fn one_provider_per_requester(providers: &[&Value]) {
    let mut bound = BTreeSet::new();
    for pod in providers {
        let Some(binding) = annotation(pod, dual_pods::REQUESTER) else { continue };
        let is_first = bound.insert(binding.split(' ').next().unwrap().to_owned());
        assert!(is_first, "two providers are bound to {binding}");
    }
}
