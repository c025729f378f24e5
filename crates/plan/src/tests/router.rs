//! Routers of role-based services: endpoint picker, configuration, pool and route.

use rstest::rstest;
use serde_json::{Value, json};

use super::{code, codes, kinds, plan_text, plan_with_supply};
use crate::ServicePlan;

const WORKER: &str = "{name: inference, componentType: worker, template: TEMPLATE}";
const PAIR: &str = "{name: prefill, componentType: prefiller, template: TEMPLATE}, {name: decode, componentType: decoder, template: TEMPLATE}";
const TEMPLATE: &str = "{spec: {containers: [{name: vllm, image: 'vllm/vllm-openai:v0.11.0', ports: [{containerPort: 8000, name: http}]}]}}";

/// Returns a service with the given roles, and a router `entry` with additional fields.
fn service(roles: &str, router: &str) -> String {
    let roles = roles.replace("TEMPLATE", TEMPLATE);
    format!(
        "{{apiVersion: fusioninfer.io/v1alpha1, kind: InferenceService, metadata: {{name: qwen-inference, namespace: team-a, uid: 0d9c, generation: 3}}, \
         spec: {{roles: [{roles}, {{name: entry, componentType: router{router}}}]}}}}"
    )
}

fn plan_with_router(roles: &str, router: &str) -> ServicePlan {
    plan_with_supply(&service(roles, router))
}

fn object<'a>(plan: &'a ServicePlan, kind: &str) -> &'a Value {
    let object = plan.objects.iter().find(|object| object["kind"] == kind);
    object.unwrap_or_else(|| panic!("no {kind} among {:?}: {}", kinds(plan), plan.message))
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
    let mut plan = plan_with_router(WORKER, route);
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
        ]
    );
    plan.objects.retain(|object| object["kind"] != "LeaderWorkerSet");
    insta::assert_snapshot!(plan_text(&plan));
}

// spec: TOP-86
#[test]
fn creates_no_route_by_default() {
    assert!(plan_with_router(WORKER, "").objects.iter().all(|object| object["kind"] != "HTTPRoute"));
}

// spec: TOP-11
// spec: TOP-87
#[test]
fn each_strategy_has_its_own_configuration() {
    let strategies = ["prefix-cache", "kv-cache-utilization", "queue-size", "lora-affinity", "pd-disaggregation"];
    let plans: Vec<ServicePlan> =
        strategies.iter().map(|strategy| plan_with_router(PAIR, &format!(", strategy: {strategy}"))).collect();
    let configs: Vec<String> =
        strategies.iter().zip(&plans).map(|(strategy, plan)| format!("# {strategy}\n{}", config(plan))).collect();
    insta::assert_snapshot!(configs.join("\n"));
    for (index, plan) in plans.iter().enumerate() {
        assert!(plans[..index].iter().all(|other| config(other) != config(plan)));
    }
    assert_eq!(config(&plan_with_router(PAIR, "")), config(&plans[0]), "the default strategy");
}

// spec: TOP-87
#[rstest]
#[case::configuration(r"kind: EndpointPickerConfig\n\n# a comment \t\nplugins: []")]
#[case::no_newline("a: b")]
#[case::invalid_yaml("{{ not: [yaml")]
#[case::blank(r" \n")]
fn custom_configuration_is_unchanged(#[case] text: &str) {
    let plan = plan_with_router(WORKER, &format!(", strategy: queue-size, endpointPickerConfig: \"{text}\""));
    assert_eq!(config(&plan), text.replace(r"\n", "\n").replace(r"\t", "\t"));
    let empty = plan_with_router(WORKER, ", strategy: queue-size, endpointPickerConfig: ''");
    assert_eq!(config(&empty), config(&plan_with_router(WORKER, ", strategy: queue-size")));
}

/// Returns the picker's Pod template without the checksum, the checksum, and the objects of the engines.
fn picker_and_engines(plan: &ServicePlan) -> (Value, Value, Vec<&Value>) {
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
#[case::custom(", endpointPickerConfig: 'kind: EndpointPickerConfig'")]
fn configuration_change_restarts_only_the_picker(#[case] router: &str) {
    let (before, after) = (plan_with_router(WORKER, ""), plan_with_router(WORKER, router));
    let ((template, checksum, engines), (other_template, other_checksum, other_engines)) =
        (picker_and_engines(&before), picker_and_engines(&after));
    assert_eq!((template, engines), (other_template, other_engines));
    assert_ne!(checksum, other_checksum);
}

// spec: TOP-88
#[rstest]
#[case::worker(WORKER, "", "worker", "")]
#[case::two_workers(
    "{name: a, componentType: worker, template: TEMPLATE}, {name: b, componentType: worker, template: TEMPLATE}",
    "",
    "",
    ""
)]
#[case::disaggregated_pair(PAIR, ", strategy: pd-disaggregation", "", "")]
#[case::pair(PAIR, "", "decoder", "PrefillersNotRouted")]
#[case::pair_with_custom_configuration(PAIR, ", endpointPickerConfig: 'a: b'", "", "")]
#[case::pair_on_different_ports(&different_ports(), ", strategy: pd-disaggregation", "decoder", "PortsDiffer")]
#[case::pair_on_different_ports_without_pairing(&different_ports(), "", "decoder", "PortsDiffer")]
#[case::incomplete_pair("{name: a, componentType: decoder, template: TEMPLATE}", "", "", "PairIncomplete")]
fn pool_selects_leaders(#[case] roles: &str, #[case] router: &str, #[case] kind: &str, #[case] warning: &str) {
    let plan = plan_with_router(roles, router);
    let mut expect =
        json!({"fusioninfer.io/service": "qwen-inference", "leaderworkerset.sigs.k8s.io/worker-index": "0"});
    if !kind.is_empty() {
        expect["fusioninfer.io/component-type"] = json!(kind);
    }
    assert_eq!(object(&plan, "InferencePool")["spec"]["selector"], json!({"matchLabels": expect}));
    assert_eq!(codes(&plan).join(" "), warning);
}

/// The native gateway distinguishes prefillers and decoders.
#[rstest]
#[case::pair(PAIR, "", "RouterMissing")]
#[case::pair_and_worker(&format!("{PAIR}, {WORKER}"), "decoder", "RouterMissing")]
#[case::different_ports(&different_ports(), "decoder", "PortsDiffer RouterMissing")]
#[case::worker(WORKER, "", "")]
fn backend_pool_contains_prefillers_if_the_gateway_distinguishes_them(
    #[case] roles: &str,
    #[case] kind: &str,
    #[case] warning: &str,
) {
    let plan = plan_with_supply(&service(roles, "").replace(", {name: entry, componentType: router}", ""));
    let selector = &object(&plan, "BackendPool")["spec"]["selector"];
    assert_eq!(selector["fusioninfer.io/component-type"].as_str().unwrap_or_default(), kind);
    assert_eq!(selector["leaderworkerset.sigs.k8s.io/worker-index"], "0");
    assert_eq!(codes(&plan).join(" "), warning);
}

/// A pool without prefillers is not silent: the warning names the roles that receive no requests.
#[rstest]
#[case::pair(PAIR, "only ostler's gateway sends prompts to prefillers and then to decoders")]
#[case::worker_before_pair(&format!("{WORKER}, {PAIR}"), "routed to decode, and never to inference, prefill;")]
#[case::different_ports(&different_ports(), "routed to decode, and never to prefill;")]
#[case::two_decoders(
    &format!("{}, {{name: decode-b, componentType: decoder, template: TEMPLATE}}", different_ports()),
    "routed to decode, decode-b, and never to prefill;"
)]
#[case::decoders_on_different_ports(
    &format!("{PAIR}, {{name: other, componentType: decoder, template: {{spec: {{containers: [{{name: e, image: i, args: [--port, '9000']}}]}}}}}}"),
    "routed to decode, and never to prefill, other;"
)]
fn warns_about_pairs_without_a_router(#[case] roles: &str, #[case] message: &str) {
    let plan = plan_with_supply(&service(roles, "").replace(", {name: entry, componentType: router}", ""));
    let warning = plan.warnings.iter().find(|warning| warning.code == "RouterMissing").unwrap();
    assert!(warning.message.contains(message), "{}", warning.message);
}

/// Returns a pair whose prefiller serves on another port.
fn different_ports() -> String {
    PAIR.replacen("TEMPLATE", "{spec: {containers: [{name: e, image: i, args: [--port, '9000']}]}}", 1)
}

// spec: TOP-88
#[rstest]
#[case::named("ports: [{containerPort: 9100, name: metrics}, {containerPort: 8080, name: http}]", 8080)]
#[case::none("args: [--model, m]", 8000)]
#[case::flag("args: [--port, '9000']", 9000)]
fn pool_has_the_port_of_the_engine(#[case] container: &str, #[case] port: u16) {
    let roles = WORKER.replace("TEMPLATE", &format!("{{spec: {{containers: [{{name: e, image: i, {container}}}]}}}}"));
    assert_eq!(
        object(&plan_with_router(&roles, ""), "InferencePool")["spec"]["targetPorts"],
        json!([{"number": port}])
    );
}

#[test]
fn pair_with_different_ports_routes_to_decoders() {
    let plan = plan_with_router(&different_ports(), ", strategy: pd-disaggregation");
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
fn warns_about_fields_without_effect(#[case] roles: &str, #[case] router: &str, #[case] warning: &str) {
    let (plan, baseline) = (plan_with_router(roles, router), plan_with_router(roles, ""));
    assert_eq!(codes(&plan), [warning]);
    let without_routes = |plan: &ServicePlan| {
        plan.objects.iter().filter(|object| object["kind"] != "HTTPRoute").cloned().collect::<Vec<_>>()
    };
    assert_eq!(without_routes(&plan), without_routes(&baseline));
}

#[rstest]
#[case::no_engines(service("", "").replace("[, ", "["), "NoEngines", "entry")]
#[case::route(
    service(WORKER, ", httproute: {rules: {}}"),
    "InvalidRoute",
    "role entry, httproute.rules: expected a list of objects"
)]
fn rejects_invalid_routers(#[case] manifest: String, #[case] expect: &str, #[case] message: &str) {
    let plan = plan_with_supply(&manifest);
    assert_eq!(code(&plan), (false, expect), "{}", plan.message);
    assert!(plan.message.contains(message) && plan.objects.is_empty(), "{}", plan.message);
}

// spec: TOP-57
#[test]
fn router_is_not_in_the_gang() {
    let group = |plan: &ServicePlan| object(plan, "PodGroup").clone();
    let plan_without_router =
        plan_with_supply(&service(PAIR, "").replace(", {name: entry, componentType: router}", ""));
    assert_eq!(group(&plan_with_router(PAIR, ", strategy: pd-disaggregation")), group(&plan_without_router));
    let plan = plan_with_router(PAIR, "");
    let template = &object(&plan, "Deployment")["spec"]["template"];
    assert_eq!(template["spec"].get("schedulerName"), None);
    assert!(!template.to_string().contains("group-name"));
}

#[test]
fn picker_can_only_list_and_watch() {
    let plan = plan_with_router(WORKER, "");
    let rules = object(&plan, "Role")["rules"].as_array().unwrap();
    assert!(rules.iter().all(|rule| rule["verbs"] == json!(["list", "watch"])), "{rules:?}");
    let account = &object(&plan, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"];
    assert_eq!(*account, object(&plan, "RoleBinding")["subjects"][0]["name"]);
    assert_eq!(*account, object(&plan, "ServiceAccount")["metadata"]["name"]);
}

/// A service name may have the maximum length of a Service name. Object names do not contain the name of the router
/// role.
#[test]
fn truncates_object_names() {
    let service_name = format!("s{}", "x".repeat(62));
    let manifest = service("{name: e, componentType: worker, replicas: 0, template: TEMPLATE}", "")
        .replace("qwen-inference", "short")
        .replace("name: entry", &format!("name: {}", "r".repeat(48)));
    assert!(plan_with_supply(&manifest).feasible);
    let owner = crate::owner::Owner { name: service_name, ..crate::owner::Owner::default() };
    let names = crate::router::RouterNames::for_owner(&owner);
    for name in [names.picker, names.config, names.pool, names.route] {
        assert!(crate::names::is_dns_1035(&name), "{name}");
    }
}
