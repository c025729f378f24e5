//! Routers of role-based services: the picker, its configuration, its pool, its route.

use rstest::rstest;
use serde_json::{Value, json};

use super::{code, codes, kinds, plan_one, shown};
use crate::ServicePlan;

const WORKER: &str = "{name: inference, componentType: worker, template: TEMPLATE}";
const PAIR: &str = "{name: prefill, componentType: prefiller, template: TEMPLATE}, {name: decode, componentType: decoder, template: TEMPLATE}";
const TEMPLATE: &str = "{spec: {containers: [{name: vllm, image: 'vllm/vllm-openai:v0.11.0', ports: [{containerPort: 8000, name: http}]}]}}";

/// A service with these roles and a router of that name with more fields.
fn service(roles: &str, router: &str) -> String {
    let roles = roles.replace("TEMPLATE", TEMPLATE);
    format!(
        "{{apiVersion: fusioninfer.io/v1alpha1, kind: InferenceService, metadata: {{name: qwen-inference, namespace: team-a, uid: 0d9c, generation: 3}}, \
         spec: {{roles: [{roles}, {{name: entry, componentType: router{router}}}]}}}}"
    )
}

fn planned(roles: &str, router: &str) -> ServicePlan {
    plan_one(&service(roles, router))
}

fn object<'a>(plan: &'a ServicePlan, kind: &str) -> &'a Value {
    let found = plan.objects.iter().find(|object| object["kind"] == kind);
    found.unwrap_or_else(|| panic!("no {kind} among {:?}: {}", kinds(plan), plan.message))
}

fn config(plan: &ServicePlan) -> &str {
    object(plan, "ConfigMap")["data"]["config.yaml"].as_str().unwrap()
}

// spec: TOP-86
// spec: TOP-88
// spec: TOP-89
#[test]
fn story_1_with_a_router() {
    let route =
        ", httproute: {parentRefs: [{name: gateway}], rules: [{matches: [{path: {type: PathPrefix, value: /v1}}]}]}";
    let mut plan = planned(WORKER, route);
    assert_eq!(
        kinds(&plan),
        [
            "LeaderWorkerSet qwen-inference-inference-0",
            "ServiceAccount qwen-inference-epp",
            "Role qwen-inference-epp",
            "RoleBinding qwen-inference-epp",
            "ConfigMap qwen-inference-epp-config",
            "Deployment qwen-inference-epp",
            "Service qwen-inference-epp",
            "InferencePool qwen-inference-pool",
            "HTTPRoute qwen-inference-httproute",
            "BackendPool qwen-inference",
            "LLMUseCaseSet qwen-inference",
        ]
    );
    plan.objects.retain(|object| {
        !["LeaderWorkerSet", "BackendPool", "LLMUseCaseSet"].contains(&object["kind"].as_str().unwrap())
    });
    insta::assert_snapshot!(shown(&plan));
}

// spec: TOP-86
#[test]
fn a_router_without_a_route_makes_none() {
    assert!(planned(WORKER, "").objects.iter().all(|object| object["kind"] != "HTTPRoute"));
}

// spec: TOP-11
// spec: TOP-87
#[test]
fn every_strategy_has_a_configuration_of_its_own() {
    let strategies = ["prefix-cache", "kv-cache-utilization", "queue-size", "lora-affinity", "pd-disaggregation"];
    let plans: Vec<ServicePlan> =
        strategies.iter().map(|strategy| planned(PAIR, &format!(", strategy: {strategy}"))).collect();
    let all: Vec<String> =
        strategies.iter().zip(&plans).map(|(strategy, plan)| format!("# {strategy}\n{}", config(plan))).collect();
    insta::assert_snapshot!(all.join("\n"));
    for (at, plan) in plans.iter().enumerate() {
        assert!(plans[..at].iter().all(|other| config(other) != config(plan)));
    }
    assert_eq!(config(&planned(PAIR, "")), config(&plans[0]), "the default");
}

// spec: TOP-87
#[rstest]
#[case::a_configuration(r"kind: EndpointPickerConfig\n\n# a comment \t\nplugins: []")]
#[case::no_end_of_line("a: b")]
#[case::not_even_yaml("{{ not: [yaml")]
#[case::blank(r" \n")]
fn a_stated_configuration_is_taken_byte_for_byte(#[case] text: &str) {
    let plan = planned(WORKER, &format!(", strategy: queue-size, endpointPickerConfig: \"{text}\""));
    assert_eq!(config(&plan), text.replace(r"\n", "\n").replace(r"\t", "\t"));
    let empty = planned(WORKER, ", strategy: queue-size, endpointPickerConfig: ''");
    assert_eq!(config(&empty), config(&planned(WORKER, ", strategy: queue-size")));
}

/// The Pod template of the picker with its checksum taken out, and everything of the engines.
fn parts(plan: &ServicePlan) -> (Value, Value, Vec<&Value>) {
    let mut template = object(plan, "Deployment")["spec"]["template"].clone();
    let checksum =
        template["metadata"]["annotations"].as_object_mut().unwrap().remove("fusioninfer.io/config-checksum");
    let engines = plan
        .objects
        .iter()
        .filter(|object| ["LeaderWorkerSet", "PodGroup"].contains(&object["kind"].as_str().unwrap()));
    (template, checksum.unwrap(), engines.collect())
}

// spec: TOP-90
#[rstest]
#[case::strategy(", strategy: queue-size")]
#[case::own(", endpointPickerConfig: 'kind: EndpointPickerConfig'")]
fn another_configuration_is_another_picker_and_the_same_engines(#[case] router: &str) {
    let (before, after) = (planned(WORKER, ""), planned(WORKER, router));
    let ((template, checksum, engines), (other_template, other_checksum, other_engines)) =
        (parts(&before), parts(&after));
    assert_eq!((template, engines), (other_template, other_engines));
    assert_ne!(checksum, other_checksum);
}

// spec: TOP-88
#[rstest]
#[case::a_worker(WORKER, "", "worker", "")]
#[case::two_workers(
    "{name: a, componentType: worker, template: TEMPLATE}, {name: b, componentType: worker, template: TEMPLATE}",
    "",
    "",
    ""
)]
#[case::a_pair_that_is_told_apart(PAIR, ", strategy: pd-disaggregation", "", "")]
#[case::a_pair_that_is_not(PAIR, "", "decoder", "")]
#[case::a_pair_with_its_own_configuration(PAIR, ", endpointPickerConfig: 'a: b'", "", "")]
#[case::half_a_pair("{name: a, componentType: decoder, template: TEMPLATE}", "", "", "PairIncomplete")]
fn the_pool_is_of_leaders(#[case] roles: &str, #[case] router: &str, #[case] kind: &str, #[case] warned: &str) {
    let plan = planned(roles, router);
    let mut expect =
        json!({"fusioninfer.io/service": "qwen-inference", "leaderworkerset.sigs.k8s.io/worker-index": "0"});
    if !kind.is_empty() {
        expect["fusioninfer.io/component-type"] = json!(kind);
    }
    assert_eq!(object(&plan, "InferencePool")["spec"]["selector"], json!({"matchLabels": expect}));
    assert_eq!(codes(&plan).join(" "), warned);
}

// spec: TOP-88
#[rstest]
#[case::named("ports: [{containerPort: 9100, name: metrics}, {containerPort: 8080, name: http}]", 8080)]
#[case::none("args: [--model, m]", 8000)]
#[case::a_flag("args: [--port, '9000']", 9000)]
fn the_pools_port_is_the_engines(#[case] container: &str, #[case] port: u16) {
    let roles = WORKER.replace("TEMPLATE", &format!("{{spec: {{containers: [{{name: e, image: i, {container}}}]}}}}"));
    assert_eq!(object(&planned(&roles, ""), "InferencePool")["spec"]["targetPorts"], json!([{"number": port}]));
}

#[test]
fn a_pair_on_two_ports_is_served_by_its_decoders() {
    let roles = PAIR.replacen("TEMPLATE", "{spec: {containers: [{name: e, image: i, args: [--port, '9000']}]}}", 1);
    let plan = planned(&roles, ", strategy: pd-disaggregation");
    let pool = &object(&plan, "InferencePool")["spec"];
    assert_eq!(pool["selector"]["matchLabels"]["fusioninfer.io/component-type"], "decoder");
    assert_eq!((&pool["targetPorts"], codes(&plan)), (&json!([{"number": 8000}]), vec!["PortsDiffer"]));
}

#[rstest]
#[case::no_pair(WORKER, ", strategy: pd-disaggregation", "StrategyNotApplicable")]
#[case::no_gateway(WORKER, ", httproute: {}", "RouteWithoutGateway")]
// spec: TOP-10
#[case::replicas(WORKER, ", replicas: 3", "FieldIgnored")]
// spec: TOP-10
#[case::nodes(WORKER, ", multinode: {nodeCount: 2}", "FieldIgnored")]
// spec: TOP-10
#[case::template(WORKER, ", template: {spec: {containers: [{name: x, image: y}]}}", "FieldIgnored")]
#[case::gateway(WORKER, ", gateway: {gatewayClassName: x}", "FieldIgnored")]
fn what_does_nothing_is_told(#[case] roles: &str, #[case] router: &str, #[case] warned: &str) {
    let (plan, plain) = (planned(roles, router), planned(roles, ""));
    assert_eq!(codes(&plan), [warned]);
    let but_routes = |plan: &ServicePlan| {
        plan.objects.iter().filter(|object| object["kind"] != "HTTPRoute").cloned().collect::<Vec<_>>()
    };
    assert_eq!(but_routes(&plan), but_routes(&plain));
}

#[rstest]
#[case::alone(service("", "").replace("[, ", "["), "NoEngines", "entry")]
#[case::route(
    service(WORKER, ", httproute: {rules: {}}"),
    "InvalidRoute",
    "role entry, httproute.rules: expected a list of objects"
)]
fn refused(#[case] manifest: String, #[case] expect: &str, #[case] message: &str) {
    let plan = plan_one(&manifest);
    assert_eq!(code(&plan), (false, expect), "{}", plan.message);
    assert!(plan.message.contains(message) && plan.objects.is_empty(), "{}", plan.message);
}

// spec: TOP-57
#[test]
fn a_router_is_no_part_of_the_gang() {
    let group = |plan: &ServicePlan| object(plan, "PodGroup").clone();
    let without = plan_one(&service(PAIR, "").replace(", {name: entry, componentType: router}", ""));
    assert_eq!(group(&planned(PAIR, ", strategy: pd-disaggregation")), group(&without));
    let plan = planned(PAIR, "");
    let template = &object(&plan, "Deployment")["spec"]["template"];
    assert_eq!(template["spec"].get("schedulerName"), None);
    assert!(!template.to_string().contains("group-name"));
}

#[test]
fn what_the_picker_may_do_is_look() {
    let plan = planned(WORKER, "");
    let rules = object(&plan, "Role")["rules"].as_array().unwrap();
    assert!(rules.iter().all(|rule| rule["verbs"] == json!(["list", "watch"])), "{rules:?}");
    let account = &object(&plan, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"];
    assert_eq!(*account, object(&plan, "RoleBinding")["subjects"][0]["name"]);
    assert_eq!(*account, object(&plan, "ServiceAccount")["metadata"]["name"]);
}

/// The longest service that a Service can be called after, and a role whose name counts nowhere.
#[test]
fn names_are_cut_where_they_end() {
    let long = format!("s{}", "x".repeat(62));
    let manifest = service("{name: e, componentType: worker, replicas: 0, template: TEMPLATE}", "")
        .replace("qwen-inference", "short")
        .replace("name: entry", &format!("name: {}", "r".repeat(48)));
    assert!(plan_one(&manifest).feasible);
    let owner = crate::topology::Owner { name: long, ..crate::topology::Owner::default() };
    let names = crate::router::RouterNames::for_owner(&owner);
    for name in [names.picker, names.config, names.pool, names.route] {
        assert!(crate::names::is_dns_1035(&name), "{name}");
    }
}
