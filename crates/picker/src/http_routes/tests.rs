use std::{collections::BTreeSet, sync::Arc};

use cluster::{Condition, NamespacedName};
use fastrand::Rng;
use http::{HeaderMap, Method};
use rstest::rstest;
use serde_json::{Value, json};

use super::*;

const BACKEND_POOL_GROUP: &str = "inference.networking.x-k8s.io";
const INFERENCE_POOL_GROUP: &str = "inference.networking.k8s.io";

/// Returns an object of the namespace `ns` that was created on a day of January 2026.
fn object(kind: &str, name: &str, day: u8, spec: Value) -> Arc<Value> {
    Arc::new(json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": kind,
        "metadata": {"namespace": "ns", "name": name, "creationTimestamp": format!("2026-01-{day:02}T00:00:00Z")},
        "spec": spec,
    }))
}

fn class(controller: &str) -> Arc<Value> {
    object("GatewayClass", "ostler", 1, json!({"controllerName": controller}))
}

/// Returns the Gateway `gw` with one listener.
fn gateway(listener: Value) -> Arc<Value> {
    let mut complete = json!({"name": "http", "port": 80, "protocol": "HTTP"});
    complete.as_object_mut().unwrap().extend(listener.as_object().unwrap().clone());
    object("Gateway", "gw", 1, json!({"gatewayClassName": "ostler", "listeners": [complete]}))
}

fn backend(name: &str, weight: i32) -> Value {
    json!({"group": BACKEND_POOL_GROUP, "kind": "BackendPool", "name": name, "weight": weight})
}

/// Returns a route to the pool of the same name with one rule.
fn route(name: &str, day: u8, hostnames: &[&str], matches: Value) -> Arc<Value> {
    let rule = json!({"matches": matches, "backendRefs": [backend(name, 1)]});
    object("HTTPRoute", name, day, json!({"parentRefs": [{"name": "gw"}], "hostnames": hostnames, "rules": [rule]}))
}

/// Returns the route `r` with these fields of its spec and of its rule.
fn route_with(spec: Value, rule: Value) -> Arc<Value> {
    let mut complete = json!({"parentRefs": [{"name": "gw"}], "rules": [rule]});
    complete.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    object("HTTPRoute", "r", 1, complete)
}

fn pools(names: &[&str]) -> BTreeSet<NamespacedName> {
    names.iter().map(|name| NamespacedName::new("ns", name)).collect()
}

fn objects(gateway: Arc<Value>, routes: Vec<Arc<Value>>) -> GatewayObjects {
    let classes = vec![class(CONTROLLER_NAME)];
    let controller_name = CONTROLLER_NAME.to_owned();
    GatewayObjects { classes, gateways: vec![gateway], routes, controller_name, ..GatewayObjects::default() }
}

fn find(table: &RouteTable, method: &Method, url: &str, headers: &[(&'static str, &str)]) -> Option<MatchedRule> {
    let (authority, path_and_query) = url.split_at(url.find('/').unwrap());
    let (path, query) = path_and_query.split_once('?').unwrap_or((path_and_query, ""));
    let headers: HeaderMap =
        headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect();
    table.find(&RequestHead { authority, path, query, method, headers: &headers })
}

/// Returns the name of the route that a `GET` request without headers matches.
fn found(table: &RouteTable, url: &str) -> Option<String> {
    find(table, &Method::GET, url, &[]).map(|matched| matched.rule.route.name.clone())
}

fn text(condition: &Condition) -> String {
    format!("{} {} {}: {}", condition.type_, condition.status.as_str(), condition.reason, condition.message)
}

/// Returns the conditions of the only route that differ from those of a route that is served.
fn problems(objects: &GatewayObjects, pools: &BTreeSet<NamespacedName>) -> Vec<String> {
    let (_, statuses) = build_routes(objects, pools);
    let parents = statuses.routes.into_values().next().unwrap();
    let conditions = parents.into_iter().flat_map(|parent| parent.conditions);
    conditions.filter(|condition| condition.status.as_str() != "True").map(|condition| text(&condition)).collect()
}

/// The most specific match wins, whatever the order of the routes (Gateway API, `HTTPRouteRule.matches`).
// spec: GW-63
#[rstest]
#[case::exact_host("a.example.com/v1/x", Some("exact-host"))]
#[case::wildcard_host("b.example.com:8080/v1/x", Some("wildcard-host"))]
#[case::longest_prefix("x/v1/chat/completions", Some("long-prefix"))]
#[case::exact_path("x/v1/chat", Some("exact-path"))]
#[case::whole_segments("x/v1/chats", Some("prefix"))]
#[case::query("x/v1/q?tier=gold&x=1", Some("query"))]
#[case::other_query("x/v1/q?x=1&tier=silver", Some("prefix"))]
#[case::encoded_query("x/v1/q?tier=g%6Fld", Some("query"))]
#[case::no_match("x/other", None)]
fn most_specific_match_decides(#[case] url: &str, #[case] expect: Option<&str>) {
    let path = |kind: &str, value: &str| json!([{"path": {"type": kind, "value": value}}]);
    let query = json!([{"path": {"value": "/v1/"}, "queryParams": [{"name": "tier", "value": "gold"}]}]);
    let mut routes = vec![
        route("prefix", 1, &[], path("PathPrefix", "/v1")),
        route("long-prefix", 2, &[], path("PathPrefix", "/v1/chat")),
        route("exact-path", 3, &[], path("Exact", "/v1/chat")),
        route("wildcard-host", 4, &["*.example.com"], path("PathPrefix", "/")),
        route("exact-host", 5, &["A.example.com"], path("PathPrefix", "/")),
        route("query", 6, &[], query),
    ];
    let pools = routes.iter().map(|route| NamespacedName::from_object(route)).collect();
    for _ in 0..2 {
        let (table, _) = build_routes(&objects(gateway(json!({})), routes.clone()), &pools);
        assert_eq!(found(&table, url).as_deref(), expect);
        routes.reverse();
    }
}

#[test]
fn method_and_headers_precede_age() {
    let routes = vec![
        route("oldest", 1, &[], json!([{}])),
        route("newer", 2, &[], json!([{}])),
        route("method", 3, &[], json!([{"method": "POST"}])),
        route("header", 4, &[], json!([{"headers": [{"name": "X-Team", "value": "b"}]}])),
    ];
    let pools = routes.iter().map(|route| NamespacedName::from_object(route)).collect();
    let (table, _) = build_routes(&objects(gateway(json!({})), routes), &pools);
    let found = |method, headers: &[(&'static str, &str)]| {
        find(&table, &method, "x/v1", headers).map(|matched| matched.rule.route.name.clone()).unwrap()
    };
    assert_eq!(found(Method::GET, &[]), "oldest");
    assert_eq!(found(Method::GET, &[("x-team", "b")]), "header");
    assert_eq!(found(Method::GET, &[("x-team", "c")]), "oldest");
    assert_eq!(found(Method::POST, &[("x-team", "b")]), "method");
}

// spec: GW-58
#[test]
fn backends_are_drawn_by_weight() {
    let rule = json!({"backendRefs": [backend("a", 70), backend("never", 0), backend("b", 30)]});
    let objects = objects(gateway(json!({})), vec![route_with(json!({}), rule)]);
    let (table, _) = build_routes(&objects, &pools(&["a", "b", "never"]));
    let rule = find(&table, &Method::POST, "x/v1", &[]).unwrap().rule;
    let mut rng = Rng::with_seed(7);
    let drawn: Vec<String> = (0..10_000).map(|_| rule.draw_pool(&mut rng).unwrap().name.clone()).collect();
    let count = |name| drawn.iter().filter(|drawn| *drawn == name).count();
    assert!((6_850..7_150).contains(&count("a")), "{}", count("a"));
    assert_eq!((count("never"), count("a") + count("b")), (0, 10_000));
    assert_eq!(rule.pools().map(|pool| pool.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
}

/// The others receive their own share only.
#[test]
fn share_of_an_unresolved_backend_is_not_distributed() {
    let rule = json!({"backendRefs": [backend("a", 1), backend("missing", 1)]});
    let objects = objects(gateway(json!({})), vec![route_with(json!({}), rule)]);
    let (table, _) = build_routes(&objects, &pools(&["a"]));
    let (rule, mut rng) = (find(&table, &Method::POST, "x/v1", &[]).unwrap().rule, Rng::with_seed(7));
    let failed = (0..1_000).filter(|_| rule.draw_pool(&mut rng).is_none()).count();
    assert!((450..550).contains(&failed), "{failed}");
}

#[rstest]
#[case::no_backends(json!({}))]
#[case::no_weight(json!({"backendRefs": [backend("a", 0)]}))]
fn rule_without_weighted_backends_has_no_pool(#[case] rule: Value) {
    let objects = objects(gateway(json!({})), vec![route_with(json!({}), rule)]);
    let (table, _) = build_routes(&objects, &pools(&["a"]));
    let rule = find(&table, &Method::POST, "x/v1", &[]).unwrap().rule;
    assert_eq!((rule.draw_pool(&mut Rng::with_seed(7)), rule.pools().count()), (None, 0));
}

/// Columns: replacement in the filter, matched prefix, path, and the path for the pool.
#[rstest]
#[case::prefix(json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}), "/team-a", "/team-a/v1/models", "/v1/models")]
#[case::other_prefix(json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": "/v1/"}), "/llm/", "/llm/models", "/v1/models")]
#[case::whole_prefix(json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}), "/team-a", "/team-a", "/")]
#[case::full(json!({"type": "ReplaceFullPath", "replaceFullPath": "/v1/completions"}), "/", "/generate", "/v1/completions")]
fn path_is_rewritten(#[case] replacement: Value, #[case] prefix: &str, #[case] path: &str, #[case] expect: &str) {
    let rule = json!({
        "matches": [{"path": {"type": "PathPrefix", "value": prefix}}],
        "filters": [{"type": "URLRewrite", "urlRewrite": {"path": replacement}}],
        "backendRefs": [backend("a", 1)],
    });
    let objects = objects(gateway(json!({})), vec![route_with(json!({}), rule)]);
    let (table, _) = build_routes(&objects, &pools(&["a"]));
    assert_eq!(find(&table, &Method::POST, &format!("x{path}"), &[]).unwrap().path, expect);
}

#[test]
fn headers_are_modified_and_requests_limited() {
    let modifier = json!({"set": [{"name": "x-a", "value": "new"}], "add": [{"name": "x-b", "value": "2"}],
        "remove": ["X-C"]});
    let rule = json!({
        "filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": modifier}],
        "backendRefs": [backend("a", 1)],
        "timeouts": {"request": "1m30s", "backendRequest": "0s"},
    });
    let objects = objects(gateway(json!({})), vec![route_with(json!({}), rule)]);
    let (table, _) = build_routes(&objects, &pools(&["a"]));
    let rule = find(&table, &Method::POST, "x/v1", &[]).unwrap().rule;
    let headers = |pairs: &[(&'static str, &'static str)]| -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    };
    let mut changed = headers(&[("x-a", "old"), ("x-b", "1"), ("x-c", "3"), ("x-d", "4")]);
    rule.change_headers(&mut changed);
    let mut expect = headers(&[("x-a", "new"), ("x-b", "1"), ("x-d", "4")]);
    expect.append("x-b", "2".parse().unwrap());
    assert_eq!(changed, expect);
    assert_eq!(rule.timeout().map(|timeout| timeout.as_secs()), Some(90));
}

/// Columns: fields of the rule, problem. The requests of a route with such a field fail.
#[rstest]
#[case::regular_expression(json!({"matches": [{"path": {"type": "RegularExpression", "value": "/.*"}}]}), "matches[0].path.type must be Exact or PathPrefix")]
#[case::header_expression(json!({"matches": [{}, {"headers": [{"type": "RegularExpression", "name": "a", "value": "b"}]}]}), "matches[1].headers[0].type must be Exact")]
#[case::query_expression(json!({"matches": [{"queryParams": [{"type": "RegularExpression", "name": "a", "value": "b"}]}]}), "matches[0].queryParams[0].type must be Exact")]
#[case::redirect(json!({"filters": [{"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}}]}), "filters[0].type must be RequestHeaderModifier or URLRewrite, with the field of the same name")]
#[case::host_rewrite(json!({"filters": [{"type": "URLRewrite", "urlRewrite": {"hostname": "x"}}]}), "filters[0].urlRewrite.hostname is not supported: engines ignore the host name")]
#[case::reserved_header(json!({"filters": [{"type": "RequestHeaderModifier", "requestHeaderModifier": {"remove": ["Content-Length"]}}]}), "filters[0].requestHeaderModifier.remove[0] is a header that the gateway sets itself")]
#[case::backend_filter(json!({"backendRefs": [{"name": "a", "filters": [{"type": "URLRewrite"}]}]}), "backendRefs[0].filters is not supported; use the filters of the rule")]
#[case::timeout(json!({"timeouts": {"request": "5 minutes"}}), "timeouts.request is not a duration such as 300s")]
fn unsupported_field_is_reported(#[case] rule: Value, #[case] problem: &str) {
    let objects = objects(gateway(json!({})), vec![route_with(json!({}), rule)]);
    let message = format!(
        "Accepted False UnsupportedValue: spec.rules[0].{problem}. All requests of the route fail with status 500."
    );
    assert_eq!(problems(&objects, &pools(&["a"]))[0], message);
    let (table, statuses) = build_routes(&objects, &pools(&["a"]));
    assert_eq!(statuses.gateways[&NamespacedName::new("ns", "gw")].listeners[0].attached_routes, 0);
    let rule = find(&table, &Method::GET, "x/v1", &[]).unwrap().rule;
    assert_eq!(rule.draw_pool(&mut Rng::with_seed(1)), None);
}

/// The filters of a later version of the API are unknown.
#[test]
fn requests_of_a_route_with_unknown_values_fail() {
    let rule = json!({"filters": [{"type": "Later"}], "backendRefs": [backend("a", 1)]});
    let route = route_with(json!({"hostnames": ["llm.example.com"]}), rule);
    let objects = objects(gateway(json!({})), vec![route]);
    let problem = problems(&objects, &pools(&["a"])).remove(0);
    assert!(
        problem.starts_with(
            "Accepted False UnsupportedValue: spec contains a value that is not supported: unknown variant `Later`"
        ),
        "{problem}"
    );
    let (table, _) = build_routes(&objects, &pools(&["a"]));
    let rule = find(&table, &Method::POST, "llm.example.com/v1", &[]).unwrap().rule;
    assert_eq!(rule.draw_pool(&mut Rng::with_seed(1)), None);
    assert!(find(&table, &Method::POST, "other.example.com/v1", &[]).is_none());
}

/// A rule that is supported does not serve the requests that an unsupported one of the same route matches.
#[test]
fn unsupported_rule_affects_the_matches_of_its_route_only() {
    let rules = json!([
        {"matches": [{"path": {"value": "/a"}}], "filters": [{"type": "RequestMirror"}]},
        {"matches": [{"path": {"value": "/b"}}], "backendRefs": [backend("a", 1)]},
    ]);
    let objects = objects(gateway(json!({})), vec![route_with(json!({"rules": rules}), json!({}))]);
    let (table, _) = build_routes(&objects, &pools(&["a"]));
    let draws = |url| {
        find(&table, &Method::GET, url, &[]).map(|matched| matched.rule.draw_pool(&mut Rng::with_seed(1)).is_some())
    };
    assert_eq!(["x/a", "x/b", "x/c"].map(draws), [Some(false), Some(false), None]);
}

/// Paths of rules are normalized like those of requests. Columns: type and value of the match, path of a request, whether it matches.
#[rstest]
#[case::root("Exact", "/", "/", true)]
#[case::final_slash("Exact", "/v1/", "/v1", true)]
#[case::encoded("PathPrefix", "/%7Eteam", "/~team/v1", true)]
#[case::other("Exact", "/v1", "/v1/x", false)]
fn paths_are_normalized(#[case] kind: &str, #[case] value: &str, #[case] path: &str, #[case] expect: bool) {
    let rule = json!({"matches": [{"path": {"type": kind, "value": value}}], "backendRefs": [backend("a", 1)]});
    let objects = objects(gateway(json!({})), vec![route_with(json!({}), rule)]);
    let (table, _) = build_routes(&objects, &pools(&["a"]));
    let path = crate::request_path::normalize(path).unwrap();
    assert_eq!(find(&table, &Method::GET, &format!("x{path}"), &[]).is_some(), expect);
}

/// Columns: reference, problem; `None` if it is a backend.
// spec: GW-60
// spec: GW-62
#[rstest]
#[case::backend_pool(backend("a", 1), None)]
#[case::inference_pool(json!({"group": INFERENCE_POOL_GROUP, "kind": "InferencePool", "name": "a", "port": 8000}), None)]
#[case::use_case(json!({"group": BACKEND_POOL_GROUP, "kind": "LLMUseCase", "name": "a"}), Some("InvalidKind: spec.rules[0].backendRefs[0]: kind LLMUseCase of group inference.networking.x-k8s.io is not a backend; use a BackendPool (inference.networking.x-k8s.io) or an InferencePool (inference.networking.k8s.io)."))]
#[case::use_case_set(json!({"group": BACKEND_POOL_GROUP, "kind": "LLMUseCaseSet", "name": "a"}), Some("InvalidKind: spec.rules[0].backendRefs[0]: kind LLMUseCaseSet of group inference.networking.x-k8s.io is not a backend; use a BackendPool (inference.networking.x-k8s.io) or an InferencePool (inference.networking.k8s.io)."))]
#[case::service(json!({"name": "a", "port": 80}), Some("InvalidKind: spec.rules[0].backendRefs[0]: kind Service of group core is not a backend; use a BackendPool (inference.networking.x-k8s.io) or an InferencePool (inference.networking.k8s.io)."))]
#[case::missing(backend("b", 1), Some("BackendNotFound: spec.rules[0].backendRefs[0]: BackendPool ns/b not found."))]
#[case::other_namespace(json!({"group": BACKEND_POOL_GROUP, "kind": "BackendPool", "name": "a", "namespace": "other"}), Some("RefNotPermitted: spec.rules[0].backendRefs[0]: BackendPool other/a is in another namespace, and no ReferenceGrant of namespace other permits references from HTTPRoutes of namespace ns."))]
fn references_are_resolved(#[case] reference: Value, #[case] problem: Option<&str>) {
    let objects = objects(gateway(json!({})), vec![route_with(json!({}), json!({"backendRefs": [reference]}))]);
    let mut pools = pools(&["a"]);
    pools.insert(NamespacedName::new("other", "a"));
    let expect =
        problem.map(|problem| format!("ResolvedRefs False {problem} Requests for this backend fail with status 500."));
    assert_eq!(problems(&objects, &pools), expect.into_iter().collect::<Vec<_>>());
}

/// Columns: fields of the grant, whether it permits the reference.
#[rstest]
#[case::all(json!({}), true)]
#[case::this_pool(json!({"to": [{"group": BACKEND_POOL_GROUP, "kind": "BackendPool", "name": "a"}]}), true)]
#[case::other_pool(json!({"to": [{"group": BACKEND_POOL_GROUP, "kind": "BackendPool", "name": "b"}]}), false)]
#[case::other_kind(json!({"to": [{"group": "", "kind": "Service"}]}), false)]
#[case::other_namespace(json!({"from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "x"}]}), false)]
#[case::other_route_kind(json!({"from": [{"group": "gateway.networking.k8s.io", "kind": "GRPCRoute", "namespace": "ns"}]}), false)]
fn grant_permits_a_reference_to_another_namespace(#[case] fields: Value, #[case] expect: bool) {
    let mut spec = json!({
        "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "ns"}],
        "to": [{"group": BACKEND_POOL_GROUP, "kind": "BackendPool"}],
    });
    spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let mut grant = (*object("ReferenceGrant", "g", 1, spec)).clone();
    grant["metadata"]["namespace"] = json!("other");
    let reference = json!({"group": BACKEND_POOL_GROUP, "kind": "BackendPool", "name": "a", "namespace": "other"});
    let routes = vec![route_with(json!({}), json!({"backendRefs": [reference]}))];
    let objects = GatewayObjects { grants: vec![Arc::new(grant)], ..objects(gateway(json!({})), routes) };
    let pools = [NamespacedName::new("other", "a")].into();
    assert_eq!(problems(&objects, &pools).is_empty(), expect);
}

/// Columns: fields of the listener, fields of the route, problem; `None` if the route is attached.
#[rstest]
#[case::default(json!({}), json!({}), None)]
#[case::section(json!({}), json!({"parentRefs": [{"name": "gw", "sectionName": "http", "port": 80}]}), None)]
#[case::other_section(json!({}), json!({"parentRefs": [{"name": "gw", "sectionName": "x"}]}), Some("NoMatchingParent: Gateway ns/gw has no listener with the sectionName and port of the parentRef."))]
#[case::other_port(json!({}), json!({"parentRefs": [{"name": "gw", "port": 81}]}), Some("NoMatchingParent: Gateway ns/gw has no listener with the sectionName and port of the parentRef."))]
#[case::protocol(json!({"protocol": "HTTPS"}), json!({}), Some("NoMatchingParent: No selected listener of Gateway ns/gw has the protocol that the gateway serves."))]
#[case::kinds(json!({"allowedRoutes": {"kinds": [{"kind": "GRPCRoute"}]}}), json!({}), Some("NotAllowedByListeners: `allowedRoutes` of the listeners of Gateway ns/gw permits no HTTPRoute of namespace ns."))]
#[case::selected_namespace(json!({"allowedRoutes": {"namespaces": {"from": "Selector", "selector": {"matchLabels": {"team": "a"}}}}}), json!({}), None)]
#[case::other_namespace(json!({"allowedRoutes": {"namespaces": {"from": "Selector", "selector": {"matchLabels": {"team": "b"}}}}}), json!({}), Some("NotAllowedByListeners: `allowedRoutes` of the listeners of Gateway ns/gw permits no HTTPRoute of namespace ns."))]
#[case::no_selector(json!({"allowedRoutes": {"namespaces": {"from": "Selector"}}}), json!({}), Some("NotAllowedByListeners: `allowedRoutes` of the listeners of Gateway ns/gw permits no HTTPRoute of namespace ns."))]
#[case::hostname(json!({"hostname": "*.example.com"}), json!({"hostnames": ["a.example.com", "x"]}), None)]
#[case::other_hostname(json!({"hostname": "*.example.com"}), json!({"hostnames": ["example.com"]}), Some("NoMatchingListenerHostname: No listener of Gateway ns/gw has a hostname that `hostnames` of the route contains."))]
fn routes_attach_to_listeners(#[case] listener: Value, #[case] spec: Value, #[case] problem: Option<&str>) {
    let routes = vec![route_with(spec, json!({"backendRefs": [backend("a", 1)]}))];
    let namespace = Arc::new(json!({"metadata": {"name": "ns", "labels": {"team": "a"}}}));
    let objects = GatewayObjects { namespaces: vec![namespace], ..objects(gateway(listener), routes) };
    let expect = problem.map(|problem| format!("Accepted False {problem}"));
    assert_eq!(problems(&objects, &pools(&["a"])), expect.into_iter().collect::<Vec<_>>());
    let (table, statuses) = build_routes(&objects, &pools(&["a"]));
    let attached = statuses.gateways[&NamespacedName::new("ns", "gw")].listeners[0].attached_routes;
    assert_eq!((attached == 1, !table.entries.is_empty()), (problem.is_none(), problem.is_none()));
}

#[test]
fn only_requests_for_the_hostname_of_the_listener_match() {
    let routes = vec![route("r", 1, &[], json!([{}]))];
    let (table, _) = build_routes(&objects(gateway(json!({"hostname": "llm.example.com"})), routes), &pools(&["r"]));
    assert_eq!(found(&table, "llm.example.com/v1").as_deref(), Some("r"));
    assert_eq!(found(&table, "other.example.com/v1"), None);
}

/// Columns: controller of the class, Gateways that are served, whether the route is.
#[rstest]
#[case::own(CONTROLLER_NAME, ServedGateways::OfController, true)]
#[case::other("example.com/gateway", ServedGateways::OfController, false)]
#[case::all("example.com/gateway", ServedGateways::All, true)]
fn gateways_of_other_controllers_are_ignored(
    #[case] controller: &str,
    #[case] served: ServedGateways,
    #[case] expect: bool,
) {
    let routes = vec![route("r", 1, &[], json!([{}]))];
    let classes = vec![class(controller)];
    let objects = GatewayObjects { served, classes, ..objects(gateway(json!({})), routes) };
    let (table, statuses) = build_routes(&objects, &pools(&["r"]));
    let has_status = !statuses.routes[&NamespacedName::new("ns", "r")].is_empty();
    assert_eq!((found(&table, "x/v1").is_some(), has_status, statuses.gateways.len() == 1), (expect, expect, expect));
    assert_eq!(statuses.classes.is_empty(), controller != CONTROLLER_NAME);
}

#[test]
fn entries_of_other_controllers_remain() {
    let other = json!({"controllerName": "example.com/gateway", "parentRef": {"name": "x"}, "conditions": []});
    let now: jiff::Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
    let mut live = json!({"metadata": {"generation": 3}, "status": {"parents": [other]}});
    let render = |parents: &[ParentStatus], live: &Value, now| render_parents(CONTROLLER_NAME, parents, live, now);
    assert_eq!(render(&[], &live, now), None);
    let routes = vec![route("r", 1, &[], json!([{}]))];
    let (_, statuses) = build_routes(&objects(gateway(json!({})), routes), &pools(&["r"]));
    let parents = &statuses.routes[&NamespacedName::new("ns", "r")];
    let status = render(parents, &live, now).unwrap();
    assert_eq!(status["parents"][0], other);
    assert_eq!(status["parents"][1]["parentRef"], json!({"name": "gw"}));
    assert_eq!(status["parents"][1]["conditions"][0]["observedGeneration"], 3);
    live["status"] = status;
    assert_eq!(render(parents, &live, now + jiff::SignedDuration::from_secs(9)), None, "unchanged");
    assert_eq!(render(&[], &live, now), Some(json!({"parents": [other]})));
}

/// Columns: fields of the listener, conditions of the Gateway and its listener that are not true.
#[rstest]
#[case::valid(json!({}), &[])]
#[case::protocol(json!({"protocol": "TLS"}), &["Accepted", "Programmed", "Accepted", "Programmed"])]
#[case::additional_kind(json!({"allowedRoutes": {"kinds": [{"kind": "HTTPRoute"}, {"kind": "GRPCRoute"}]}}), &["ResolvedRefs"])]
#[case::other_kind(json!({"allowedRoutes": {"kinds": [{"kind": "GRPCRoute"}]}}), &["Accepted", "Programmed", "ResolvedRefs", "Programmed"])]
fn listeners_are_validated(#[case] listener: Value, #[case] expect: &[&str]) {
    let objects = objects(gateway(listener), Vec::new());
    let (_, statuses) = build_routes(&objects, &BTreeSet::new());
    let now: jiff::Timestamp = "2026-01-02T00:00:00Z".parse().unwrap();
    let status = statuses.gateways.into_values().next().unwrap().render(&json!({}), now);
    let conditions = [&status["conditions"], &status["listeners"][0]["conditions"]];
    let conditions = conditions.iter().flat_map(|conditions| conditions.as_array().unwrap());
    let problems: Vec<&str> =
        conditions.filter(|condition| condition["status"] != "True").map(|c| c["type"].as_str().unwrap()).collect();
    assert_eq!(problems, expect);
}
