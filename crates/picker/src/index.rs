//! From objects to pools: which Pods are endpoints, which use case holds a model name, and what status says so.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use api::inference::{BackendPool, ImplicitUseCases, LLMUseCase, LLMUseCaseSet, PoolRef, UseCase as ApiUseCase};
use cluster::Condition;
use serde_json::Value;

use crate::code;
use crate::{
    pool::{Endpoint, Load, Pool, PoolKey, Prompts},
    use_case::{Target, UseCase},
};

/// Annotations of Pods that are for prompts of some sizes: tokens, both bounds inclusive.
const PROMPT_TOKENS_MIN: &str = "ome.io/prompt-tokens-min";
const PROMPT_TOKENS_MAX: &str = "ome.io/prompt-tokens-max";

/// The objects the index is made of, as the API server delivers them.
#[derive(Debug, Clone, Default)]
pub struct Objects {
    pub pools: Vec<Arc<Value>>,
    pub sets: Vec<Arc<Value>>,
    pub use_cases: Vec<Arc<Value>>,
    pub pods: Vec<Arc<Value>>,
}

/// What follows from the objects.
#[derive(Debug, Default)]
pub struct Index {
    pub pools: Vec<Pool>,
    /// Conditions of every pool.
    pub pool_conditions: BTreeMap<PoolKey, Vec<Condition>>,
    /// Conditions of every set and use case, with the object.
    pub declarations: Vec<(Arc<Value>, Vec<Condition>)>,
}

/// A set or a single use case, read alike (GW-2).
struct Declaration {
    object: Arc<Value>,
    created: String,
    namespace: String,
    pool_refs: Vec<PoolRef>,
    use_cases: Vec<ApiUseCase>,
}

/// Builds the index. `load` finds the load of an address; everything else follows from `objects`.
pub fn build(objects: &Objects, load: impl Fn(SocketAddr) -> Arc<Load>) -> Index {
    let mut pools: BTreeMap<PoolKey, Pool> = BTreeMap::new();
    for object in &objects.pools {
        if let Some(pool) = pool(object, &objects.pods, &load) {
            pools.insert(pool.key.clone(), pool);
        }
    }
    let mut declarations: Vec<Declaration> = objects.sets.iter().filter_map(set).collect();
    declarations.extend(objects.use_cases.iter().filter_map(single));
    // Older objects keep a name; equal times are decided by name, so that every replica agrees.
    declarations.sort_by_cached_key(|declaration| {
        (
            declaration.created.clone(),
            declaration.namespace.clone(),
            text(&declaration.object, "/metadata/name").to_owned(),
        )
    });
    let declarations = declarations
        .into_iter()
        .map(|declaration| (declaration.object.clone(), declare(&mut pools, &declaration)))
        .collect();
    let pool_conditions = pools.values().map(|pool| (pool.key.clone(), vec![pool_condition(pool)])).collect();
    Index { pools: pools.into_values().collect(), pool_conditions, declarations }
}

fn pool(object: &Arc<Value>, pods: &[Arc<Value>], load: &impl Fn(SocketAddr) -> Arc<Load>) -> Option<Pool> {
    let parsed: BackendPool = read(object)?;
    let (namespace, name) = (text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    let mut pool = Pool {
        key: PoolKey { namespace: namespace.to_owned(), name: name.to_owned() },
        ready: Vec::new(),
        endpoints: 0,
        use_cases: BTreeMap::new(),
        implicit: parsed.spec.implicit_use_cases == Some(ImplicitUseCases::Allow),
        created: text(object, "/metadata/creationTimestamp").to_owned(),
    };
    // As for a Service, an empty selector selects nothing.
    let selector = &parsed.spec.selector;
    let selected = |pod: &&Arc<Value>| {
        let labels = &pod["metadata"]["labels"];
        !selector.is_empty() && selector.iter().all(|(key, value)| labels[key] == value.as_str())
    };
    let in_namespace = pods.iter().filter(|pod| text(pod, "/metadata/namespace") == namespace);
    for pod in in_namespace.filter(selected).filter(|pod| lives(pod)) {
        let ports: BTreeSet<u16> = parsed.spec.target_ports.iter().copied().collect();
        pool.endpoints += ports.len();
        let Some(ip) = ready_address(pod) else { continue };
        pool.ready.extend(ports.iter().map(|port| {
            let address = SocketAddr::new(ip, *port);
            Endpoint {
                address,
                pod: text(pod, "/metadata/name").to_owned(),
                prompts: prompts(pod),
                load: load(address),
            }
        }));
    }
    pool.ready.sort_by_key(|endpoint| endpoint.address);
    Some(pool)
}

/// What the Pod's annotations say of the prompts it is for; a bound that is no number is none.
pub(crate) fn prompts(pod: &Value) -> Prompts {
    let bound = |name: &str| pod["metadata"]["annotations"][name].as_str()?.parse().ok();
    Prompts { min: bound(PROMPT_TOKENS_MIN), max: bound(PROMPT_TOKENS_MAX) }
}

/// Whether a Pod is, or may become, an endpoint.
pub(crate) fn lives(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null() && !matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

pub(crate) fn ready_address(pod: &Value) -> Option<IpAddr> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let ready = conditions.iter().any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
    ready.then(|| text(pod, "/status/podIP").parse().ok())?
}

fn set(object: &Arc<Value>) -> Option<Declaration> {
    let parsed: LLMUseCaseSet = read(object)?;
    Some(declaration(object, parsed.spec.pool_ref, parsed.spec.use_cases))
}

fn single(object: &Arc<Value>) -> Option<Declaration> {
    let parsed: LLMUseCase = read(object)?;
    let use_case = parsed.spec.use_case();
    Some(declaration(object, parsed.spec.pool_ref, vec![use_case]))
}

fn declaration(object: &Arc<Value>, pool_refs: Vec<PoolRef>, use_cases: Vec<ApiUseCase>) -> Declaration {
    Declaration {
        object: Arc::clone(object),
        created: text(object, "/metadata/creationTimestamp").to_owned(),
        namespace: text(object, "/metadata/namespace").to_owned(),
        pool_refs,
        use_cases,
    }
}

/// Puts the use cases of one object onto its pools, and says what became of them.
fn declare(pools: &mut BTreeMap<PoolKey, Pool>, declaration: &Declaration) -> Vec<Condition> {
    let (mut missing, mut conflicts, mut weightless) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut found = BTreeSet::new();
    for reference in &declaration.pool_refs {
        let ours = reference.kind.as_deref().is_none_or(|kind| kind == "BackendPool");
        let key = PoolKey { namespace: declaration.namespace.clone(), name: reference.name.clone() };
        let Some(pool) = pools.get_mut(&key).filter(|_| ours) else {
            missing.insert(reference.name.clone());
            continue;
        };
        found.insert(reference.name.clone());
        for use_case in &declaration.use_cases {
            if !use_case.target_models.is_empty()
                && use_case.target_models.iter().all(|target| target.weight == Some(0))
            {
                weightless.insert(use_case.model_name.clone());
            } else if pool.use_cases.contains_key(&use_case.model_name) {
                conflicts.insert(format!("{} on pool {}", use_case.model_name, pool.key.name));
            } else {
                pool.use_cases.insert(use_case.model_name.clone(), active(use_case, &declaration.created));
            }
        }
    }
    vec![accepted(&conflicts, &weightless, &found, &missing), resolved(&missing)]
}

fn active(use_case: &ApiUseCase, created: &str) -> UseCase {
    let target = |target: &api::inference::TargetModel| Target {
        model: target.target_model_name.clone(),
        weight: target.weight.unwrap_or(1),
    };
    UseCase {
        model_name: use_case.model_name.clone(),
        critical: use_case.objective.is_some(),
        targets: use_case.target_models.iter().map(target).collect(),
        created: created.to_owned(),
    }
}

fn accepted(
    conflicts: &BTreeSet<String>,
    weightless: &BTreeSet<String>,
    found: &BTreeSet<String>,
    missing: &BTreeSet<String>,
) -> Condition {
    if !conflicts.is_empty() {
        let message = format!("An older object holds {}; those use cases are inactive.", joined(conflicts));
        return Condition::new("Accepted", false, code::MODEL_NAME_CONFLICT, message);
    }
    if !weightless.is_empty() {
        let message =
            format!("All target weights of {} are 0; give at least one a positive weight.", joined(weightless));
        return Condition::new("Accepted", false, code::INVALID_WEIGHTS, message);
    }
    match (found.is_empty(), missing.is_empty()) {
        (_, true) => Condition::new("Accepted", true, code::ACCEPTED, "All use cases are active."),
        (false, false) => {
            let message = format!("All use cases are active on {}; other pools are missing.", joined(found));
            Condition::new("Accepted", true, code::ACCEPTED, message)
        }
        (true, false) => {
            let message = format!("No use case is active until there is a BackendPool {}.", joined(missing));
            Condition::new("Accepted", false, code::POOL_NOT_FOUND, message)
        }
    }
}

fn resolved(missing: &BTreeSet<String>) -> Condition {
    match missing.is_empty() {
        true => Condition::new("ResolvedRefs", true, code::RESOLVED_REFS, "All pools exist."),
        false => Condition::new(
            "ResolvedRefs",
            false,
            code::POOL_NOT_FOUND,
            format!("No BackendPool {} in this namespace.", joined(missing)),
        ),
    }
}

fn pool_condition(pool: &Pool) -> Condition {
    match pool.ready.len() {
        0 if pool.endpoints == 0 => {
            Condition::new("Ready", false, code::NO_ENDPOINTS, "The selector matches no running Pod.")
        }
        0 => Condition::new("Ready", false, code::NO_READY_ENDPOINTS, "No selected Pod is ready."),
        ready => Condition::new(
            "Ready",
            true,
            code::ENDPOINTS_READY,
            format!("{ready} of {} endpoints are ready.", pool.endpoints),
        ),
    }
}

fn joined(names: &BTreeSet<String>) -> String {
    names.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// The typed object, or `None` for one that an API server without our schema let through.
fn read<T: serde::de::DeserializeOwned>(object: &Value) -> Option<T> {
    T::deserialize(object)
        .inspect_err(|error| tracing::warn!(name = text(object, "/metadata/name"), %error, "object not understood"))
        .ok()
}

pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pool(name: &str, ports: &[u16]) -> Arc<Value> {
        Arc::new(json!({"apiVersion": "inference.networking.x-k8s.io/v1alpha1", "kind": "BackendPool",
            "metadata": {"namespace": "ns", "name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"selector": {"app": "llama"}, "targetPorts": ports}}))
    }

    fn pod(name: &str, ip: &str, ready: bool) -> Arc<Value> {
        let ready = if ready { "True" } else { "False" };
        Arc::new(json!({"metadata": {"namespace": "ns", "name": name, "labels": {"app": "llama"}},
            "status": {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": ready}]}}))
    }

    fn set(name: &str, created: &str, pools: &[&str], models: &[&str]) -> Arc<Value> {
        let pools: Vec<Value> = pools.iter().map(|name| json!({"name": name})).collect();
        let models: Vec<Value> = models.iter().map(|name| json!({"modelName": name})).collect();
        Arc::new(json!({"apiVersion": "inference.networking.x-k8s.io/v1alpha1", "kind": "LLMUseCaseSet",
            "metadata": {"namespace": "ns", "name": name, "creationTimestamp": created},
            "spec": {"poolRef": pools, "useCases": models}}))
    }

    fn index(objects: &Objects) -> Index {
        build(objects, |_| Arc::default())
    }

    // spec: GW-18
    #[test]
    fn each_port_of_each_pod_is_an_endpoint() {
        let pods = vec![pod("a", "10.0.0.1", true), pod("b", "10.0.0.2", true), pod("c", "10.0.0.3", false)];
        let index = index(&Objects { pools: vec![pool("p", &[8000, 8001])], pods, ..Objects::default() });
        let pool = &index.pools[0];
        assert_eq!((pool.endpoints, pool.ready.len()), (6, 4));
        assert_eq!(pool.ready[1].address.to_string(), "10.0.0.1:8001");
    }

    #[test]
    fn a_pod_says_what_prompts_it_is_for() {
        let with = |annotations: Value| {
            let mut pod = (*pod("a", "10.0.0.1", true)).clone();
            pod["metadata"]["annotations"] = annotations;
            index(&Objects {
                pools: vec![super::tests::pool("p", &[1])],
                pods: vec![Arc::new(pod)],
                ..Objects::default()
            })
            .pools[0]
                .ready[0]
                .prompts
        };
        assert_eq!(with(json!({PROMPT_TOKENS_MAX: "2047"})), Prompts { min: None, max: Some(2047) });
        assert_eq!(
            with(json!({PROMPT_TOKENS_MIN: "4097", PROMPT_TOKENS_MAX: "x"})),
            Prompts { min: Some(4097), max: None }
        );
        assert_eq!(with(Value::Null), Prompts::default());
    }

    // spec: GW-33
    #[test]
    fn the_older_object_keeps_a_model_name() {
        let sets = vec![
            set("new", "2026-02-01T00:00:00Z", &["p"], &["m", "n"]),
            set("old", "2026-01-01T00:00:00Z", &["p"], &["m"]),
        ];
        let index = index(&Objects { pools: vec![pool("p", &[1])], sets, ..Objects::default() });
        let use_cases = &index.pools[0].use_cases;
        assert_eq!(use_cases["m"].created, "2026-01-01T00:00:00Z");
        assert!(use_cases.contains_key("n"), "only the conflicting use case is inactive");
        let reasons: Vec<&str> =
            index.declarations.iter().map(|(_, conditions)| conditions[0].reason.as_str()).collect();
        assert_eq!(reasons, ["Accepted", "ModelNameConflict"]);
    }

    // spec: GW-29
    // spec: GW-31
    #[test]
    fn a_missing_pool_is_told_and_the_others_are_served() {
        let sets = vec![set("s", "2026-01-01T00:00:00Z", &["p", "gone"], &["m"])];
        let index = index(&Objects { pools: vec![pool("p", &[1])], sets, ..Objects::default() });
        assert!(index.pools[0].use_cases.contains_key("m"));
        let told = |index: &Index| {
            let conditions = &index.declarations[0].1;
            conditions.iter().map(|one| format!("{}: {}", one.reason, one.message)).collect::<Vec<_>>()
        };
        assert_eq!(
            told(&index),
            [
                "Accepted: All use cases are active on p; other pools are missing.",
                "PoolNotFound: No BackendPool gone in this namespace."
            ]
        );
        let sets = vec![set("s", "2026-01-01T00:00:00Z", &["gone"], &["m"])];
        assert_eq!(
            told(&super::build(&Objects { sets, ..Objects::default() }, |_| Arc::default())),
            [
                "PoolNotFound: No use case is active until there is a BackendPool gone.",
                "PoolNotFound: No BackendPool gone in this namespace."
            ]
        );
    }

    // spec: GW-2
    #[test]
    fn a_single_use_case_is_a_set_of_one() {
        let mut one = (*set("s", "2026-01-01T00:00:00Z", &["p"], &[])).clone();
        one["kind"] = "LLMUseCase".into();
        one["spec"] = json!({"poolRef": [{"name": "p"}], "modelName": "m", "targetModels": [{"targetModelName": "t", "weight": 3}], "objective": {}});
        let index =
            index(&Objects { pools: vec![pool("p", &[1])], use_cases: vec![Arc::new(one)], ..Objects::default() });
        let use_case = &index.pools[0].use_cases["m"];
        assert_eq!((use_case.critical, use_case.targets[0].weight), (true, 3));
    }
}
