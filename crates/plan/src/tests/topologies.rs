//! Properties of all topologies: plans two random services in one namespace and checks all objects.

use std::collections::{BTreeMap, BTreeSet};

use api::parse_manifest;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::gang::PodGroupSchema;
use crate::replicas::AutoscalerSupport;
use crate::{Plan, Snapshot, names};

type Labels = BTreeMap<String, String>;

/// A Pod that a workload will create, with the labels that controllers add.
#[derive(Debug)]
struct ExpectedPod {
    service: String,
    workload: String,
    replica: String,
    is_leader: bool,
    labels: Labels,
    annotations: Value,
    gang: Option<String>,
}

/// Generates role-based services.
fn roles() -> impl Strategy<Value = Value> {
    let kind = prop_oneof![Just("worker"), Just("prefiller"), Just("decoder")];
    let role = ("[a-z][a-z0-9]{0,8}", kind, 0u32..4, 1u32..4, any::<bool>());
    let role = role.prop_map(|(name, kind, replicas, nodes, spread)| {
        let container = json!({"name": "e", "image": "vllm/vllm-openai", "args": ["--model", "m"],
            "resources": {"limits": {"nvidia.com/gpu": "8"}}});
        json!({"name": name, "componentType": kind, "replicas": replicas, "multinode": {"nodeCount": nodes, "spread": spread},
            "template": {"metadata": {"labels": {"team": "a"}}, "spec": {"containers": [container]}}})
    });
    let policy = prop_oneof![
        Just(json!({})),
        Just(json!({"gangPolicy": "All"})),
        Just(json!({"gangPolicy": "MinimumAvailable"}))
    ];
    (prop::collection::vec(role, 1..4), policy, prop::option::of(router())).prop_map(|(mut roles, policy, router)| {
        let mut seen = BTreeSet::new();
        roles.extend(router);
        roles.retain(|role| seen.insert(role["name"].to_string()));
        json!({"apiVersion": "fusioninfer.io/v1alpha1", "spec": {"roles": roles, "schedulingStrategy": policy}})
    })
}

/// Generates routers of any strategy, with or without a route.
fn router() -> impl Strategy<Value = Value> {
    const STRATEGIES: [&str; 5] =
        ["prefix-cache", "kv-cache-utilization", "queue-size", "lora-affinity", "pd-disaggregation"];
    let rules = prop_oneof![Just(json!([])), Just(json!([{}, {"backendRefs": [{"name": "own"}]}]))];
    let route = prop::option::of(rules.prop_map(|rules| json!({"parentRefs": [{"name": "g"}], "rules": rules})));
    ("[a-z][a-z0-9]{0,40}", prop::sample::select(&STRATEGIES), route).prop_map(|(name, strategy, route)| {
        let mut router = json!({"name": name, "componentType": "router", "strategy": strategy});
        if let Some(route) = route {
            router["httproute"] = route;
        }
        router
    })
}

/// Generates services with an engine and optionally decoder, router and workers.
fn components() -> impl Strategy<Value = Value> {
    let component = (0u32..4, 0u32..4, prop::option::of(0u32..3), any::<bool>()).prop_map(|(min, additional, workers, own_worker_command)| {
        let runner = json!({"image": "vllm/vllm-openai", "args": ["--model", "m"], "resources": {"limits": {"nvidia.com/gpu": "8"}}});
        let mut component = json!({"minReplicas": min, "maxReplicas": min + additional, "runner": runner});
        if let Some(size) = workers {
            component["worker"] = json!({"size": size});
            if own_worker_command {
                component["leader"] = json!({"runner": {"command": ["vllm", "serve", "--node-rank", "$(LWS_WORKER_INDEX)"]}});
                component["worker"]["runner"] = json!({"command": ["vllm", "serve", "--node-rank", "$(LWS_WORKER_INDEX)"]});
            }
        }
        component
    });
    let router = Just(json!({"runner": {"image": "router"}, "minReplicas": 2}));
    let gang = prop_oneof![Just(None), Just(Some("true")), Just(Some("false"))];
    (component.clone(), prop::option::of(component), prop::option::of(router), gang).prop_map(
        |(engine, decoder, router, gang)| {
            let mut service = json!({"apiVersion": "ome.io/v1beta1", "spec": {"engine": engine}});
            for (name, component) in [("decoder", decoder), ("router", router)] {
                if let Some(component) = component {
                    service["spec"][name] = component;
                }
            }
            if let Some(gang) = gang {
                service["metadata"] = json!({"annotations": {"ome.io/gang": gang}});
            }
            service
        },
    )
}

fn service() -> impl Strategy<Value = Value> {
    prop_oneof![roles(), components()]
}

fn name() -> impl Strategy<Value = String> {
    "[a-z]([a-z0-9-]{0,30}[a-z0-9])?"
}

/// Plans the given services at `generation`.
fn plan_services(services: &[(String, Value)], generation: i64, schema: PodGroupSchema) -> Plan {
    let mut snapshot = Snapshot::default();
    for (index, (name, service)) in services.iter().enumerate() {
        let mut service = service.clone();
        service["kind"] = json!("InferenceService");
        for (field, value) in
            [("name", json!(name)), ("uid", json!(format!("uid-{index}"))), ("generation", json!(generation))]
        {
            service["metadata"][field] = value;
        }
        for document in parse_manifest("manifests.yaml", &service.to_string()).unwrap() {
            snapshot.add(&document).unwrap();
        }
    }
    snapshot.pod_group_schema = schema;
    snapshot.autoscaler_support = AutoscalerSupport::HpaAndKeda;
    crate::plan(&snapshot)
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn labels(value: &Value) -> Labels {
    crate::owner::string_map(Some(value))
}

/// Returns the Pod templates of an object with the index of the first Pod and the number of Pods.
fn templates(object: &Value) -> Vec<(&Value, u64, u64)> {
    if let Some(template) = object.pointer("/spec/template") {
        return vec![(template, 0, 1)];
    }
    let Some(group) = object.pointer("/spec/leaderWorkerTemplate") else { return Vec::new() };
    let size = group["size"].as_u64().unwrap();
    match group.get("leaderTemplate") {
        Some(leader) => vec![(leader, 0, 1), (&group["workerTemplate"], 1, size - 1)],
        None => vec![(&group["workerTemplate"], 0, 1)],
    }
}

/// Returns the Pods of all workloads; two replicas for workloads with an autoscaler.
fn pods(plan: &Plan) -> Vec<ExpectedPod> {
    let mut pods = Vec::new();
    for service in &plan.services {
        for object in &service.objects {
            let group = object["kind"] == "LeaderWorkerSet";
            let workload = text(object, "/metadata/name").to_owned();
            for replica in 0..object["spec"]["replicas"].as_u64().unwrap_or(2) {
                for (template, first, count) in templates(object) {
                    for index in first..first + count {
                        let mut labels = labels(&template["metadata"]["labels"]);
                        if group {
                            let replica_labels = [
                                ("name", workload.clone()),
                                ("group-index", replica.to_string()),
                                ("worker-index", index.to_string()),
                            ];
                            labels.extend(
                                replica_labels
                                    .map(|(key, value)| (format!("leaderworkerset.sigs.k8s.io/{key}"), value)),
                            );
                        }
                        let annotations = template["metadata"]["annotations"].clone();
                        let gang = annotations["scheduling.k8s.io/group-name"].as_str().map(str::to_owned);
                        let replica = format!("{workload}/{replica}");
                        pods.push(ExpectedPod {
                            service: service.name.clone(),
                            workload: workload.clone(),
                            replica,
                            is_leader: index == 0,
                            labels,
                            annotations,
                            gang,
                        });
                    }
                }
            }
        }
    }
    pods
}

fn select<'a>(pods: &'a [ExpectedPod], selector: &Value) -> Vec<&'a ExpectedPod> {
    let selector = labels(selector);
    assert!(!selector.is_empty());
    pods.iter().filter(|pod| selector.iter().all(|(key, value)| pod.labels.get(key) == Some(value))).collect()
}

fn check_selectors(plan: &Plan, pods: &[ExpectedPod]) -> Result<(), TestCaseError> {
    for service in &plan.services {
        for object in &service.objects {
            let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
            let spec = &object["spec"];
            let selected = match kind {
                "Deployment" | "PodDisruptionBudget" => select(pods, &spec["selector"]["matchLabels"]),
                "Service" | "BackendPool" => select(pods, &spec["selector"]),
                "InferencePool" => select(pods, &spec["selector"]["matchLabels"]),
                _ => continue,
            };
            prop_assert!(
                selected.iter().all(|pod| pod.service == service.name),
                "{kind} {name} selects Pods of another service"
            );
            let is_correct = selected.iter().all(|pod| match kind {
                "Deployment" | "PodDisruptionBudget" => pod.workload == name,
                "InferencePool" => pod.is_leader && !pod.workload.ends_with("-epp"),
                _ => pod.is_leader,
            });
            // A role without replicas has a pool but no Pods.
            let is_complete = !selected.is_empty() || ["BackendPool", "InferencePool"].contains(&kind);
            prop_assert!(is_correct && is_complete, "{kind} {name} selects {selected:?}");
        }
    }
    Ok(())
}

fn pod_text(pod: &ExpectedPod) -> String {
    format!("{pod:?}")
}

/// Checks that each Pod of a gang is counted exactly once, and that `minMember` is the sum of the counts.
fn check_gangs(plan: &Plan, pods: &[ExpectedPod]) -> Result<(), TestCaseError> {
    for service in &plan.services {
        let members: Vec<&ExpectedPod> =
            pods.iter().filter(|pod| pod.service == service.name && pod.gang.is_some()).collect();
        let group = service.objects.iter().position(|object| object["kind"] == "PodGroup");
        prop_assert_eq!(group.is_some(), !members.is_empty(), "{}", service.name);
        let Some(index) = group else { continue };
        prop_assert_eq!(index, 0, "the PodGroup is created before its Pods");
        let object = &service.objects[index];
        prop_assert!(members.iter().all(|pod| pod.gang.as_deref() == Some(text(object, "/metadata/name"))));
        let minimum = object["spec"]["minMember"].as_u64().unwrap();
        let mut subgroup_counts: BTreeMap<String, u64> = BTreeMap::new();
        if let Some(policies) = object["spec"]["subGroupPolicy"].as_array() {
            let number = |policy: &Value, field: &str| policy[field].as_u64().unwrap();
            prop_assert_eq!(
                minimum,
                policies.iter().map(|one| number(one, "subGroupSize") * number(one, "minSubGroups")).sum::<u64>()
            );
            for policy in policies {
                let keys: Vec<&str> =
                    policy["matchLabelKeys"].as_array().unwrap().iter().map(|key| key.as_str().unwrap()).collect();
                let mut subgroups: BTreeMap<Vec<&String>, BTreeSet<&String>> = BTreeMap::new();
                let mut sizes: BTreeMap<Vec<&String>, u64> = BTreeMap::new();
                for pod in
                    select(pods, &policy["labelSelector"]["matchLabels"]).into_iter().filter(|pod| pod.gang.is_some())
                {
                    *subgroup_counts.entry(pod_text(pod)).or_default() += 1;
                    let values: Vec<&String> = keys.iter().map(|key| &pod.labels[*key]).collect();
                    subgroups.entry(values.clone()).or_default().insert(&pod.replica);
                    *sizes.entry(values).or_default() += 1;
                }
                prop_assert!(!subgroups.is_empty(), "a subgroup policy must select Pods");
                prop_assert!(subgroups.values().all(|replicas| replicas.len() == 1), "{subgroups:?}");
                prop_assert!(sizes.values().all(|size| *size == number(policy, "subGroupSize")), "{sizes:?}");
            }
            prop_assert!(members.iter().all(|pod| subgroup_counts.get(&pod_text(pod)) == Some(&1)));
        } else {
            let tasks = object["spec"]["minTaskMember"].as_object().unwrap();
            prop_assert_eq!(minimum, tasks.values().map(|count| count.as_u64().unwrap()).sum::<u64>());
            let task_names: BTreeSet<&str> =
                members.iter().map(|pod| pod.annotations["volcano.sh/task-spec"].as_str().unwrap()).collect();
            prop_assert_eq!(task_names, tasks.keys().map(String::as_str).collect::<BTreeSet<_>>());
        }
    }
    Ok(())
}

fn check_names_and_owners(plan: &Plan) -> Result<(), TestCaseError> {
    let mut seen = BTreeSet::new();
    for (index, service) in plan.services.iter().enumerate() {
        for object in &service.objects {
            let (kind, name) = (text(object, "/kind"), text(object, "/metadata/name"));
            let max_length =
                if kind == "LeaderWorkerSet" { names::LEADER_WORKER_SET_LENGTH } else { names::LABEL_LENGTH };
            prop_assert!(names::is_dns_1035(name) && name.len() <= max_length, "{kind} {name}");
            prop_assert!(seen.insert((kind, name)), "duplicate {kind} {name}");
            let owner = &object["metadata"]["ownerReferences"];
            prop_assert_eq!(owner.as_array().map(Vec::len), Some(1));
            prop_assert_eq!(
                (&owner[0]["uid"], &owner[0]["controller"]),
                (&json!(format!("uid-{index}")), &json!(true))
            );
            prop_assert_eq!(&owner[0]["name"], &json!(service.name));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]
    // spec: TOP-37
    // spec: TOP-52
    #[test]
    fn all_topologies(
        first in (name(), service()),
        second in (name(), service()),
        schema in prop_oneof![Just(PodGroupSchema::SubGroupPolicy), Just(PodGroupSchema::MinTaskMember)],
    ) {
        // Names must be unique.
        let services = if first.0 == second.0 { vec![first] } else { vec![first, second] };
        let plan = plan_services(&services, 1, schema);
        prop_assert!(plan.is_feasible(), "{:?}", plan.services.iter().map(|service| &service.message).collect::<Vec<_>>());
        let pods = pods(&plan);
        check_names_and_owners(&plan)?;
        check_selectors(&plan, &pods)?;
        check_gangs(&plan, &pods)?;
        // Plans are deterministic, and the generation does not change Pod templates.
        let bytes = |plan: &Plan| serde_json::to_string(plan).unwrap();
        prop_assert_eq!(bytes(&plan), bytes(&plan_services(&services, 1, schema)));
        let next_generation = plan_services(&services, 2, schema);
        for (service, next_generation) in plan.services.iter().zip(&next_generation.services) {
            for (object, next_generation) in service.objects.iter().zip(&next_generation.objects) {
                prop_assert_eq!(templates(object), templates(next_generation));
                prop_assert_eq!(&object["spec"], &next_generation["spec"]);
            }
        }
    }
}
