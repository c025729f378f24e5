use super::pool_states::tests::NewStates;
use super::*;
use crate::endpoint::PromptTokenRange;
use rstest::rstest;
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

fn use_case_set(name: &str, created: &str, pools: &[&str], models: &[&str]) -> Arc<Value> {
    let pools: Vec<Value> = pools.iter().map(|name| json!({"name": name})).collect();
    let models: Vec<Value> = models.iter().map(|name| json!({"modelName": name})).collect();
    Arc::new(json!({"apiVersion": "inference.networking.x-k8s.io/v1alpha1", "kind": "LLMUseCaseSet",
        "metadata": {"namespace": "ns", "name": name, "creationTimestamp": created},
        "spec": {"poolRef": pools, "useCases": models}}))
}

fn index(objects: &WatchedObjects) -> PoolIndex {
    build_index(objects, &NewStates, &mut ParsedConfigs::default())
}

// spec: GW-18
#[test]
fn every_port_of_every_pod_is_an_endpoint() {
    let pods = vec![pod("a", "10.0.0.1", true), pod("b", "10.0.0.2", true), pod("c", "10.0.0.3", false)];
    let index =
        index(&WatchedObjects { backend_pools: vec![pool("p", &[8000, 8001])], pods, ..WatchedObjects::default() });
    let pool = &index.pools[0];
    assert_eq!((pool.endpoint_count, pool.ready_endpoints.len()), (6, 4));
    assert_eq!(pool.ready_endpoints[1].address.to_string(), "10.0.0.1:8001");
}

/// Columns: model server of the pool, labels of the Pod.
// spec: GW-26
#[rstest]
#[case::default(json!(null), json!({}), ModelServer::Vllm)]
#[case::pool(json!("sglang"), json!({}), ModelServer::Sglang)]
#[case::label(json!("sglang"), json!({"llm-d.ai/engine-type": "triton-tensorrt-llm"}), ModelServer::Triton)]
#[case::old_label(json!(null), json!({"inference.networking.k8s.io/engine-type": "trtllm-serve"}), ModelServer::Trtllm)]
#[case::unknown_label(json!("sglang"), json!({"llm-d.ai/engine-type": "x"}), ModelServer::Sglang)]
fn label_of_a_pod_overrides_the_model_server_of_its_pool(
    #[case] model_server: Value,
    #[case] labels: Value,
    #[case] expect: ModelServer,
    #[values(false, true)] is_inference_pool: bool,
) {
    let (mut settings, mut worker) = ((*pool("p", &[8000])).clone(), (*pod("a", "10.0.0.1", true)).clone());
    settings["spec"]["modelServer"] = model_server;
    worker["metadata"]["labels"].as_object_mut().unwrap().extend(labels.as_object().unwrap().clone());
    let mut objects = WatchedObjects { pods: vec![Arc::new(worker)], ..WatchedObjects::default() };
    if is_inference_pool {
        let mut inference_pool = settings.clone();
        inference_pool["spec"] =
            json!({"selector": {"matchLabels": {"app": "llama"}}, "targetPorts": [{"number": 8000}]});
        objects.inference_pools = vec![Arc::new(inference_pool)];
        objects.pool_settings = vec![Arc::new(settings)];
    } else {
        objects.backend_pools = vec![Arc::new(settings)];
    }
    assert_eq!(index(&objects).pools[0].ready_endpoints[0].state.model_server(), expect);
}

#[rstest]
#[case::prefiller(&["prefiller"], "False NoReadyEndpoints: No selected Pod that serves requests is ready; 1 of 1 endpoints only computes prompts.")]
#[case::prefillers(&["prefiller", "prefiller"], "False NoReadyEndpoints: No selected Pod that serves requests is ready; 2 of 2 endpoints only compute prompts.")]
#[case::pair(&["prefiller", "decoder"], "True EndpointsReady: 2 of 2 endpoints are ready.")]
fn pool_without_an_endpoint_that_serves_requests_is_not_ready(#[case] types: &[&str], #[case] expect: &str) {
    let pods = (1..).zip(types).map(|(number, component_type)| {
        let mut pod = (*pod(&format!("pod-{number}"), &format!("10.0.0.{number}"), true)).clone();
        pod["metadata"]["labels"]["fusioninfer.io/component-type"] = json!(component_type);
        Arc::new(pod)
    });
    let objects =
        WatchedObjects { backend_pools: vec![pool("p", &[8000])], pods: pods.collect(), ..WatchedObjects::default() };
    let condition = &index(&objects).pool_conditions(0)[0];
    assert_eq!(format!("{:?} {}: {}", condition.status, condition.reason, condition.message), expect);
}

/// The configuration has effect for pools of both kinds; without a permission for ConfigMaps, the pool has the default policy.
#[rstest]
fn pool_has_the_policy_of_its_configuration(
    #[values(false, true)] is_inference_pool: bool,
    #[values(false, true)] is_listed: bool,
) {
    const CONFIG: &str = "{apiVersion: inference.networking.x-k8s.io/v1alpha1, kind: EndpointPickerConfig,
        plugins: [{type: random-picker}]}";
    let mut annotated = (*pool("p", &[8000])).clone();
    annotated["metadata"]["annotations"] = json!({"ostler.io/picker-config": "c"});
    if is_inference_pool {
        annotated["spec"] = json!({"selector": {"matchLabels": {"app": "llama"}}, "targetPorts": [{"number": 8000}]});
    }
    let config_map = json!({"metadata": {"namespace": "ns", "name": "c"}, "data": {"config.yaml": CONFIG}});
    let (inference_pools, backend_pools) =
        if is_inference_pool { (vec![Arc::new(annotated)], vec![]) } else { (vec![], vec![Arc::new(annotated)]) };
    let picker_configs = is_listed.then(|| vec![Arc::new(config_map)]);
    let index = index(&WatchedObjects { inference_pools, backend_pools, picker_configs, ..WatchedObjects::default() });
    let stated = crate::config::parse_config(CONFIG).unwrap().policy;
    let expect = if is_listed { stated } else { NewStates.scheduling(None).policy().clone() };
    assert_eq!(*index.pools[0].scheduling.policy(), expect);
}

#[test]
fn reads_prompt_token_range_of_pod() {
    let range = |annotations: Value| {
        let mut pod = (*pod("a", "10.0.0.1", true)).clone();
        pod["metadata"]["annotations"] = annotations;
        index(&WatchedObjects {
            backend_pools: vec![self::pool("p", &[1])],
            pods: vec![Arc::new(pod)],
            ..WatchedObjects::default()
        })
        .pools[0]
            .ready_endpoints[0]
            .prompt_tokens
    };
    assert_eq!(range(json!({"ome.io/prompt-tokens-max": "2047"})), PromptTokenRange { min: None, max: Some(2047) });
    assert_eq!(
        range(json!({"ome.io/prompt-tokens-min": "4097", "ome.io/prompt-tokens-max": "x"})),
        PromptTokenRange { min: Some(4097), max: None }
    );
    assert_eq!(range(Value::Null), PromptTokenRange::default());
}

// spec: GW-33
#[test]
fn oldest_object_owns_a_model_name() {
    let sets = vec![
        use_case_set("new", "2026-02-01T00:00:00Z", &["p"], &["m", "n"]),
        use_case_set("old", "2026-01-01T00:00:00Z", &["p"], &["m"]),
    ];
    let index = index(&WatchedObjects {
        backend_pools: vec![pool("p", &[1])],
        use_case_sets: sets,
        ..WatchedObjects::default()
    });
    let use_cases = &index.pools[0].use_cases;
    assert_eq!(use_cases["m"].creation_timestamp, "2026-01-01T00:00:00Z");
    assert!(use_cases.contains_key("n"), "only the conflicting use case is inactive");
    let reasons = index.use_case_conditions.iter().map(|((_, key), conditions)| (&*key.name, &*conditions[0].reason));
    assert_eq!(reasons.collect::<Vec<_>>(), [("new", "ModelNameConflict"), ("old", "Accepted")]);
}

/// Two pools of a namespace may have the same model name: the path of the newer one is in its condition.
#[rstest]
#[case::one_model(&["chat"], Some("`/v1` routes model chat to pool ns/p, whose use case is older; send requests for this one to \
    `/ns/q/v1` or `/ns/r/v1`."))]
#[case::other_model(&["own"], None)]
#[case::many_models(&["a", "b", "c", "chat", "d"], Some("; the same applies to 2 more models."))]
fn newer_use_case_names_its_path(#[case] models: &[&str], #[case] expect: Option<&str>) {
    let old_models: &[&str] = if models.len() > 1 { models } else { &["chat"] };
    let index = index(&WatchedObjects {
        backend_pools: ["p", "q", "r"].map(|name| pool(name, &[1])).into(),
        use_case_sets: vec![
            use_case_set("new", "2026-02-01T00:00:00Z", &["q", "r"], models),
            use_case_set("old", "2026-01-01T00:00:00Z", &["p"], old_models),
        ],
        ..WatchedObjects::default()
    });
    let [of_new, of_old] = &index.use_case_conditions.values().collect::<Vec<_>>()[..] else { panic!() };
    let shared = |conditions: &[Condition]| {
        let condition = conditions.iter().find(|condition| condition.type_ == MODEL_NAME_SHARED)?;
        assert_eq!(condition.reason, "OlderUseCase");
        Some(condition.message.clone())
    };
    assert_eq!(shared(of_old), None);
    assert_eq!(shared(of_new).is_some(), expect.is_some());
    let message = shared(of_new).unwrap_or_default();
    assert!(message.ends_with(expect.unwrap_or_default()), "{message}");
    let snapshot = crate::snapshot::Snapshot::new(index.pools, "ns");
    assert_eq!(snapshot.model_names.get("chat").unwrap().pools[0].name, "p");
}

/// The condition contains the names of the models for requests that address no pool; `ns` is the default namespace.
#[rstest]
#[case::default_namespace("ns", &["chat"], "All use cases are active; `/v1` serves them as `chat`.")]
#[case::other_namespace("other", &["chat"], "All use cases are active; `/v1` serves them as `other/chat`.")]
#[case::many("other", &["a", "b", "c", "d"], "All use cases are active; `/v1` serves them as `other/a`, `other/b`, `other/c` and 1 more.")]
fn names_of_models_are_in_the_status(#[case] namespace: &str, #[case] models: &[&str], #[case] expect: &str) {
    let in_namespace = |object: Arc<Value>| {
        let mut object = (*object).clone();
        object["metadata"]["namespace"] = json!(namespace);
        Arc::new(object)
    };
    let set = use_case_set("set", "2026-01-01T00:00:00Z", &["p"], models);
    let index = index(&WatchedObjects {
        backend_pools: vec![in_namespace(pool("p", &[1]))],
        use_case_sets: vec![in_namespace(set)],
        ..WatchedObjects::default()
    });
    let conditions: Vec<_> = index.use_case_conditions.values().flatten().collect();
    assert_eq!(conditions[0].message, expect);
    assert!(conditions.iter().all(|condition| condition.type_ != MODEL_NAME_SHARED));
}

// spec: GW-29
// spec: GW-31
#[test]
fn missing_pool_is_reported_and_others_are_served() {
    let sets = vec![use_case_set("s", "2026-01-01T00:00:00Z", &["p", "missing"], &["m"])];
    let index = index(&WatchedObjects {
        backend_pools: vec![pool("p", &[1])],
        use_case_sets: sets,
        ..WatchedObjects::default()
    });
    assert!(index.pools[0].use_cases.contains_key("m"));
    let messages = |index: &PoolIndex| {
        index
            .use_case_conditions
            .values()
            .flatten()
            .map(|condition| format!("{}: {}", condition.reason, condition.message))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        messages(&index),
        [
            "Accepted: All use cases are active on p; `/v1` serves them as `m`; other referenced pools do not exist.",
            "PoolNotFound: BackendPool missing not found in this namespace."
        ]
    );
    let sets = vec![use_case_set("s", "2026-01-01T00:00:00Z", &["missing"], &["m"])];
    assert_eq!(
        messages(&self::index(&WatchedObjects { use_case_sets: sets, ..WatchedObjects::default() })),
        [
            "PoolNotFound: No use case is active: waiting for BackendPool missing.",
            "PoolNotFound: BackendPool missing not found in this namespace."
        ]
    );
}

// spec: GW-71
#[rstest]
#[case::unset(json!(null), false)]
#[case::deny(json!("Deny"), false)]
#[case::allow(json!("Allow"), true)]
fn models_without_a_use_case_are_denied_by_default(#[case] implicit_use_cases: Value, #[case] expect: bool) {
    let mut object = (*pool("p", &[8000])).clone();
    if !implicit_use_cases.is_null() {
        object["spec"]["implicitUseCases"] = implicit_use_cases;
    }
    let index = index(&WatchedObjects { backend_pools: vec![Arc::new(object)], ..WatchedObjects::default() });
    assert_eq!(index.pools[0].allows_implicit_use_cases, expect);
}

/// Several owners publish sets with several use cases on one pool, whatever base models its engines serve.
// spec: GW-6
// spec: GW-68
#[test]
fn owners_share_a_pool() {
    let sets = vec![
        use_case_set("team-a", "2026-01-01T00:00:00Z", &["p"], &["llama-chat", "llama-code", "llama-search"]),
        use_case_set("team-b", "2026-02-01T00:00:00Z", &["p"], &["qwen-chat"]),
        use_case_set("team-c", "2026-03-01T00:00:00Z", &["p"], &["qwen-code"]),
    ];
    let index = index(&WatchedObjects {
        backend_pools: vec![pool("p", &[8000])],
        use_case_sets: sets,
        pods: vec![pod("llama", "10.0.0.1", true), pod("qwen", "10.0.0.2", true)],
        ..WatchedObjects::default()
    });
    let [pool] = &index.pools[..] else { panic!("{:?}", index.pools) };
    let models: Vec<&String> = pool.use_cases.keys().collect();
    assert_eq!(models, ["llama-chat", "llama-code", "llama-search", "qwen-chat", "qwen-code"]);
    assert_eq!(pool.ready_endpoints.len(), 2);
    for conditions in index.use_case_conditions.values() {
        assert!(conditions.iter().all(|condition| condition.status == ConditionStatus::True), "{conditions:?}");
    }
}

/// Pools `p` and `q` select the same Pod until its label changes; `r` selects it with another port.
#[test]
fn pools_with_the_same_endpoints_report_each_other() {
    let mut other = (*pool("q", &[8000, 8001])).clone();
    other["spec"]["selector"] = json!({"role": "worker"});
    let mut worker = (*pod("a", "10.0.0.1", true)).clone();
    worker["metadata"]["labels"]["role"] = json!("worker");
    let mut index = index(&WatchedObjects {
        backend_pools: vec![pool("p", &[8000]), Arc::new(other), pool("r", &[9000])],
        pods: vec![Arc::new(worker)],
        ..WatchedObjects::default()
    });
    let shared = |index: &PoolIndex, position| {
        let conditions = index.pool_conditions(position);
        conditions.into_iter().find(|condition| condition.type_ == ENDPOINTS_SHARED).map(|condition| condition.message)
    };
    let message = |pool| {
        format!("Pool {pool} selects Pods of this pool; the requests of all of them share the limits of these engines.")
    };
    assert_eq!([0, 1, 2].map(|position| shared(&index, position)), [Some(message("q")), Some(message("p")), None]);
    let changed = index.update_pod(&NamespacedName::new("ns", "a"), Some(&pod("a", "10.0.0.1", true)), &NewStates);
    assert_eq!((changed, shared(&index, 0)), ([0, 1, 2].into(), None));
}

/// Columns: pools, conditions.
#[rstest]
#[case::own_namespace(json!([{"name": "p", "namespace": "ns"}]), ["Accepted True Accepted", "ResolvedRefs True ResolvedRefs"])]
#[case::other_namespace(json!([{"name": "p", "namespace": "other"}]), ["Accepted False RefNotPermitted", "ResolvedRefs False RefNotPermitted"])]
#[case::both(json!([{"name": "p"}, {"name": "p", "namespace": "other"}]), ["Accepted True Accepted", "ResolvedRefs False RefNotPermitted"])]
fn pools_of_other_namespaces_are_refused(#[case] pools: Value, #[case] expect: [&str; 2]) {
    let mut set = (*use_case_set("s", "2026-01-02T00:00:00Z", &[], &["m"])).clone();
    set["spec"]["poolRef"] = pools;
    let objects = WatchedObjects {
        backend_pools: vec![pool("p", &[8000])],
        use_case_sets: vec![Arc::new(set)],
        ..WatchedObjects::default()
    };
    let conditions = index(&objects).use_case_conditions.into_values().next().unwrap();
    let text =
        |condition: &Condition| format!("{} {} {}", condition.type_, condition.status.as_str(), condition.reason);
    assert_eq!(conditions.iter().map(text).collect::<Vec<_>>(), expect);
}

fn inference_pool() -> Arc<Value> {
    Arc::new(json!({"apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool",
        "metadata": {"namespace": "ns", "name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"selector": {"matchLabels": {"app": "llama"}}, "targetPorts": [{"number": 1}]}}))
}

fn use_case_set_of_kind(kind: &str) -> Arc<Value> {
    let mut set = (*use_case_set("s", "2026-01-01T00:00:00Z", &["p"], &["m"])).clone();
    set["spec"]["poolRef"][0]["kind"] = json!(kind);
    Arc::new(set)
}

/// Columns: `implicitUseCases` of the BackendPool of the same name, if there is one; whether other models are served.
#[rstest]
#[case::no_backend_pool(None, true)]
#[case::unset(Some(Value::Null), false)]
#[case::denied(Some(json!("Deny")), false)]
#[case::allowed(Some(json!("Allow")), true)]
fn backend_pool_of_the_same_name_rules_an_inference_pool(
    #[case] implicit: Option<Value>,
    #[case] allows_others: bool,
    #[values("BackendPool", "InferencePool")] reference: &str,
) {
    let settings = implicit.map(|implicit| {
        let mut settings = (*pool("p", &[9])).clone();
        settings["spec"]["implicitUseCases"] = implicit;
        Arc::new(settings)
    });
    let objects = WatchedObjects {
        inference_pools: vec![inference_pool()],
        pool_settings: [Some(pool("other", &[1])), settings].into_iter().flatten().collect(),
        use_case_sets: vec![use_case_set_of_kind(reference)],
        pods: vec![pod("a", "10.0.0.1", true)],
        ..WatchedObjects::default()
    };
    let index = index(&objects);
    let [pool] = &index.pools[..] else { panic!("{:?}", index.pools) };
    assert_eq!((pool.allows_implicit_use_cases, pool.use_cases.contains_key("m")), (allows_others, true));
    assert_eq!(pool.ready_endpoints[0].address.port(), 1, "the InferencePool selects the endpoints");
}

/// An InferencePool that the gateway does not watch may be one of v1alpha2.
#[rstest]
#[case::same_pool(
    "InferencePool",
    true,
    "Accepted: All use cases are active; `/v1` serves them as `m`.",
    "ResolvedRefs"
)]
#[case::other_pool(
    "InferencePool",
    false,
    "Accepted: The endpoint picker of InferencePool p applies the use cases.",
    "ResolvedRefs"
)]
#[case::other_kind("Service", true, "PoolNotFound: No use case is active: waiting for BackendPool p.", "PoolNotFound")]
fn references_to_other_kinds_are_reported(
    #[case] kind: &str,
    #[case] has_pool: bool,
    #[case] accepted: &str,
    #[case] resolved_reason: &str,
) {
    let backend_pools = Some(pool("p", &[1])).filter(|_| has_pool).into_iter().collect();
    let use_case_sets = vec![use_case_set_of_kind(kind)];
    let index = index(&WatchedObjects { backend_pools, use_case_sets, ..WatchedObjects::default() });
    let [accepted_condition, resolved] = &index.use_case_conditions.values().flatten().collect::<Vec<_>>()[..] else {
        panic!()
    };
    assert_eq!(format!("{}: {}", accepted_condition.reason, accepted_condition.message), accepted);
    assert_eq!(resolved.reason, resolved_reason);
}

/// The objective of a use case, or none, is all that states its class.
// spec: GW-34
// spec: GW-35
#[rstest]
#[case::absent(Value::Null, false)]
#[case::empty(json!({}), true)]
#[case::latency(json!({"desiredAveragePerOutputTokenLatencyAtP95OverMultipleRequests": "60ms"}), true)]
fn use_case_with_an_objective_is_critical(#[case] objective: Value, #[case] is_critical: bool) {
    let mut set = (*use_case_set("s", "2026-01-01T00:00:00Z", &["p"], &["m"])).clone();
    if !objective.is_null() {
        set["spec"]["useCases"][0]["objective"] = objective;
    }
    let objects = WatchedObjects {
        backend_pools: vec![pool("p", &[1])],
        use_case_sets: vec![Arc::new(set)],
        ..WatchedObjects::default()
    };
    let expect = if is_critical { CRITICAL } else { NONCRITICAL };
    assert_eq!(index(&objects).pools[0].use_cases["m"].priority, expect);
    let definitions = api::crds();
    let definition = definitions.iter().find(|crd| crd["spec"]["names"]["kind"] == "LLMUseCaseSet").unwrap();
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let use_case = &schema["properties"]["useCases"]["items"];
    let fields = |schema: &Value| schema["properties"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(fields(use_case), ["modelName", "objective", "targetModels"]);
    assert_eq!(
        fields(&use_case["properties"]["objective"]),
        ["desiredAveragePerOutputTokenLatencyAtP95OverMultipleRequests"]
    );
}

// spec: GW-2
#[test]
fn single_use_case_is_a_set_of_one() {
    let mut single = (*use_case_set("s", "2026-01-01T00:00:00Z", &["p"], &[])).clone();
    single["kind"] = "LLMUseCase".into();
    single["spec"] = json!({"poolRef": [{"name": "p"}], "modelName": "m", "targetModels": [{"targetModelName": "t", "weight": 3}], "objective": {}});
    let index = index(&WatchedObjects {
        backend_pools: vec![pool("p", &[1])],
        use_cases: vec![Arc::new(single)],
        ..WatchedObjects::default()
    });
    let use_case = &index.pools[0].use_cases["m"];
    assert_eq!((use_case.priority, use_case.targets[0].weight), (CRITICAL, 3));
}
