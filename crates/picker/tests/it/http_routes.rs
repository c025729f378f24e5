//! HTTPRoutes in an API server, served by the gateway.

use std::net::SocketAddr;

use picker::{CONTROLLER_NAME, GatewayOptions};
use serde_json::{Value, json};

use crate::{
    gateway_fixture::{get, post, send_with_header},
    watch_fixture::{POOLS, WatchFixture, complete},
};

const CLASSES: &str = "gatewayclasses.gateway.networking.k8s.io";
const GATEWAYS: &str = "gateways.gateway.networking.k8s.io";
const ROUTES: &str = "httproutes.gateway.networking.k8s.io";
const GRANTS: &str = "referencegrants.gateway.networking.k8s.io";
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

const COMPLETION: &str = r#"{"model":"m","prompt":"x","max_tokens":1}"#;

/// Starts a cluster with the Gateway API, but without InferencePools, and the pools `a` and `b` with one engine each.
async fn start() -> (WatchFixture, SocketAddr) {
    let fixture = WatchFixture::start();
    for definition in api::integrations::crds() {
        if definition["spec"]["group"] == "gateway.networking.k8s.io" {
            fixture.server.create(DEFINITIONS, definition).unwrap();
        }
    }
    fixture.create_object_of_gateway_api(
        CLASSES,
        "GatewayClass",
        "ostler",
        &json!({"controllerName": CONTROLLER_NAME}),
    );
    for name in ["a", "b"] {
        let port = fixture.start_engines(name, &[&["m"]]);
        fixture.create_pool_with_port(name, port);
        fixture.create_use_case_set(name, &[name], &json!([]));
    }
    let options = GatewayOptions { debug_headers: true, ..GatewayOptions::default() };
    let gateway = fixture.start_gateway_with(options).await;
    let has_endpoints = |fixture: &WatchFixture| ["a", "b"].iter().all(|name| fixture.ready_endpoints(name) == 1);
    fixture.wait_until("both pools", has_endpoints).await;
    (fixture, gateway)
}

impl WatchFixture {
    fn create_object_of_gateway_api(&self, resource: &str, kind: &str, name: &str, spec: &Value) -> Value {
        let version = if kind == "ReferenceGrant" { "v1beta1" } else { "v1" };
        let mut metadata = json!({"name": name});
        if kind != "GatewayClass" {
            metadata["namespace"] = json!("default");
        }
        let api_version = format!("gateway.networking.k8s.io/{version}");
        let object = json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec});
        (*self.server.create(resource, object).unwrap()).clone()
    }

    fn create_gateway(&self, name: &str) -> Value {
        let listeners = json!([{"name": "http", "port": 80, "protocol": "HTTP"}]);
        self.create_object_of_gateway_api(
            GATEWAYS,
            "Gateway",
            name,
            &json!({"gatewayClassName": "ostler", "listeners": listeners}),
        )
    }

    /// Creates a route of all requests whose path begins with `/NAME`, without this prefix.
    fn create_route(&self, name: &str, gateway: &str, backends: &Value) -> Value {
        let rewrite = json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"});
        let rule = json!({
            "matches": [{"path": {"type": "PathPrefix", "value": format!("/{name}")}}],
            "filters": [{"type": "URLRewrite", "urlRewrite": {"path": rewrite}}],
            "backendRefs": backends,
        });
        self.create_object_of_gateway_api(
            ROUTES,
            "HTTPRoute",
            name,
            &json!({"parentRefs": [{"name": gateway}], "rules": [rule]}),
        )
    }

    /// Returns `TYPE STATUS REASON` of the conditions of a route, of its only parent.
    fn route_conditions(&self, name: &str) -> Vec<String> {
        let route = self.server.get(ROUTES, "default", name).unwrap();
        let conditions = route["status"]["parents"][0]["conditions"].as_array().cloned().unwrap_or_default();
        let text = |condition: &Value| {
            ["type", "status", "reason"].map(|field| condition[field].as_str().unwrap().to_owned()).join(" ")
        };
        conditions.iter().map(text).collect()
    }

    async fn wait_for_conditions(&self, route: &str, expect: &[&str]) {
        self.wait_until("the conditions", |fixture| fixture.route_conditions(route) == expect).await;
    }
}

fn backend(name: &str, weight: u32) -> Value {
    json!({"group": "inference.networking.x-k8s.io", "kind": "BackendPool", "name": name, "weight": weight})
}

/// One route splits its requests, another one of another Gateway shares a pool with it.
// spec: GW-57
// spec: GW-58
// spec: GW-60
// spec: GW-67
#[tokio::test]
async fn routes_of_several_gateways_share_pools_and_split_by_weight() {
    let (fixture, gateway) = start().await;
    fixture.create_gateway("first");
    fixture.create_gateway("second");
    fixture.create_route("split", "first", &json!([backend("a", 70), backend("b", 30)]));
    fixture.create_route("direct", "second", &json!([backend("b", 1)]));
    for route in ["split", "direct"] {
        fixture.wait_for_conditions(route, &["Accepted True Accepted", "ResolvedRefs True ResolvedRefs"]).await;
    }
    let mut endpoints = Vec::new();
    for _ in 0..1_000 {
        let response = post(gateway, "/split/v1/completions", COMPLETION).await;
        assert_eq!(response.status(), 200, "{}", response.body);
        endpoints.push(response.header("x-ostler-endpoint").unwrap().to_owned());
    }
    let direct = post(gateway, "/direct/v1/completions", COMPLETION).await;
    let endpoint_of_b = direct.header("x-ostler-endpoint").unwrap();
    let requests_to_b = endpoints.iter().filter(|endpoint| *endpoint == endpoint_of_b).count();
    assert!((250..=350).contains(&requests_to_b), "{requests_to_b}");
    for (path, owners) in [("/split/v1/models", vec!["default/a"]), ("/direct/v1/models", vec!["default/b"])] {
        let models = get(gateway, path).await.json();
        let listed: Vec<&str> =
            models["data"].as_array().unwrap().iter().map(|model| model["owned_by"].as_str().unwrap()).collect();
        assert_eq!(listed, owners, "each name is listed once");
    }
}

/// A change of the gateway to a person's object would be one of its generation, metadata or spec.
// spec: GW-59
#[tokio::test]
async fn gateways_and_routes_of_people_are_not_changed() {
    let (fixture, _) = start().await;
    let created = [
        (GATEWAYS, fixture.create_gateway("gw")),
        (ROUTES, fixture.create_route("r", "gw", &json!([backend("a", 1)]))),
    ];
    fixture.wait_for_conditions("r", &["Accepted True Accepted", "ResolvedRefs True ResolvedRefs"]).await;
    let is_programmed = |fixture: &WatchFixture| {
        let gateway = fixture.server.get(GATEWAYS, "default", "gw").unwrap();
        gateway["status"]["listeners"][0]["attachedRoutes"] == 1
    };
    fixture.wait_until("the status of the Gateway", is_programmed).await;
    for (resource, created) in created {
        let live = fixture.server.get(resource, "default", created["metadata"]["name"].as_str().unwrap()).unwrap();
        assert_eq!(live["spec"], created["spec"]);
        for field in ["generation", "annotations", "labels", "finalizers", "ownerReferences"] {
            assert_eq!(live["metadata"][field], created["metadata"][field], "{resource} {field}");
        }
    }
    let class = fixture.server.get(CLASSES, "", "ostler").unwrap();
    assert_eq!(class["status"]["conditions"][0]["status"], "True");
}

/// The route is corrected by an edit, the pool of another namespace by a ReferenceGrant.
// spec: GW-62
#[tokio::test]
async fn route_to_use_cases_or_foreign_pools_receives_no_traffic() {
    let (fixture, gateway) = start().await;
    fixture.create_gateway("gw");
    let group = "inference.networking.x-k8s.io";
    for (name, kind) in [("one", "LLMUseCase"), ("set", "LLMUseCaseSet")] {
        fixture.create_route(name, "gw", &json!([{"group": group, "kind": kind, "name": "a"}]));
        fixture.wait_for_conditions(name, &["Accepted True Accepted", "ResolvedRefs False InvalidKind"]).await;
        let response = post(gateway, &format!("/{name}/v1/completions"), COMPLETION).await;
        assert_eq!((response.status(), response.json()["error"]["code"].clone()), (500, json!("backend_not_found")));
    }
    let foreign = json!({"group": group, "kind": "BackendPool", "name": "a", "namespace": "other"});
    fixture.create_route("foreign", "gw", &json!([foreign]));
    fixture.wait_for_conditions("foreign", &["Accepted True Accepted", "ResolvedRefs False RefNotPermitted"]).await;
    let mut route = (*fixture.server.get(ROUTES, "default", "set").unwrap()).clone();
    route["spec"]["rules"][0]["backendRefs"] = json!([backend("a", 1)]);
    fixture.server.update(ROUTES, route).unwrap();
    fixture.wait_for_conditions("set", &["Accepted True Accepted", "ResolvedRefs True ResolvedRefs"]).await;
    assert_eq!(complete(gateway, "/set/v1/completions", "m").await, (200, json!("m")));
    fixture.server.delete(POOLS, "default", "a", None).unwrap();
    fixture.wait_for_conditions("set", &["Accepted True Accepted", "ResolvedRefs False BackendNotFound"]).await;
    let grant = json!({
        "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "default"}],
        "to": [{"group": group, "kind": "BackendPool"}],
    });
    let mut object = json!({"apiVersion": "gateway.networking.k8s.io/v1beta1", "kind": "ReferenceGrant"});
    object["metadata"] = json!({"namespace": "other", "name": "routes"});
    object["spec"] = grant;
    fixture.server.create("namespaces", json!({"metadata": {"name": "other"}})).unwrap();
    fixture.server.create(GRANTS, object).unwrap();
    fixture.wait_for_conditions("foreign", &["Accepted True Accepted", "ResolvedRefs False BackendNotFound"]).await;
}

/// Without the route, the use case of the model would serve the request.
#[tokio::test]
async fn requests_of_an_unsupported_route_fail_until_it_is_corrected_or_detached() {
    let (fixture, gateway) = start().await;
    fixture.create_gateway("gw");
    fixture.create_route("r", "gw", &json!([backend("a", 1)]));
    let change = |change: &dyn Fn(&mut Value)| {
        let mut route = (*fixture.server.get(ROUTES, "default", "r").unwrap()).clone();
        change(&mut route["spec"]);
        fixture.server.update(ROUTES, route).unwrap();
    };
    change(&|spec| {
        spec["rules"][0]["matches"] = json!([{"path": {"type": "PathPrefix", "value": "/v1"}}]);
        spec["rules"][0]["filters"] = json!([{"type": "RequestMirror"}]);
    });
    fixture.wait_for_conditions("r", &["Accepted False UnsupportedValue", "ResolvedRefs True ResolvedRefs"]).await;
    assert_eq!(post(gateway, "/v1/completions", COMPLETION).await.status(), 500);
    change(&|spec| spec["rules"][0]["filters"] = json!([]));
    fixture.wait_for_conditions("r", &["Accepted True Accepted", "ResolvedRefs True ResolvedRefs"]).await;
    assert_eq!(complete(gateway, "/v1/completions", "m").await, (200, json!("m")));
    change(&|spec| spec["parentRefs"] = json!([]));
    fixture.wait_for_conditions("r", &[]).await;
    assert_eq!(complete(gateway, "/v1/completions", "m").await, (200, json!("m")));
}

/// Two use cases have the same name on different pools; a header decides. Requests that match no route address no pool.
// spec: GW-63
#[tokio::test]
async fn header_selects_the_pool_of_a_model_name() {
    let (fixture, gateway) = start().await;
    fixture.create_gateway("gw");
    let rule = json!({
        "matches": [{"headers": [{"name": "x-team", "value": "b"}]}],
        "backendRefs": [backend("b", 1)],
    });
    fixture.create_object_of_gateway_api(
        ROUTES,
        "HTTPRoute",
        "team-b",
        &json!({"parentRefs": [{"name": "gw"}], "rules": [rule]}),
    );
    fixture.wait_for_conditions("team-b", &["Accepted True Accepted", "ResolvedRefs True ResolvedRefs"]).await;
    let endpoint = async |team: &str| {
        let response = send_with_header(gateway, "/v1/completions", &format!("x-team: {team}"), COMPLETION).await;
        response.header("x-ostler-endpoint").unwrap().to_owned()
    };
    let response = post(gateway, "/default/b/v1/completions", COMPLETION).await;
    let endpoint_of_b = response.header("x-ostler-endpoint").unwrap();
    assert_eq!(endpoint("b").await, endpoint_of_b);
    // Without a route, the oldest use case of the name serves it.
    assert_ne!(endpoint("c").await, endpoint_of_b);
}
