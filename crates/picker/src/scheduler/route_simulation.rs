//! Weights of an HTTPRoute, and of the use cases of its pools, with a virtual clock.

use std::collections::BTreeMap;

use cluster::NamespacedName;
use http::{HeaderMap, Method};
use serde_json::json;

use super::*;
use crate::{
    endpoint::tests::endpoint,
    http_routes::{GatewayObjects, RequestHead, ServedGateways, build_routes},
    request,
    use_case::{TargetModel, UseCase},
};

/// A route sends 70 % to pool `a` and 30 % to pool `b`. The use case of both pools draws `v1` with 20 % and `v2` with 80 %.
// spec: GW-65
#[tokio::test(start_paused = true)]
async fn weights_of_routes_and_use_cases_multiply() {
    const REQUESTS: u32 = 100_000;
    let scheduler = Scheduler::new(SchedulingPolicy::default(), 1).with_default_namespace("ns".to_owned());
    let target = |(model, weight): (&str, u32)| TargetModel { model: model.to_owned(), weight };
    let pool = |(name, number): (&str, u8)| {
        let endpoint = Arc::new(endpoint(number));
        assert!(endpoint.state.begin_scraping(), "nothing is scraped");
        let targets = [("v1", 20), ("v2", 80)].map(target).to_vec();
        let use_case = UseCase { targets, ..UseCase::implicit("chat") };
        let pool = Pool::new(NamespacedName::new("ns", name), scheduler.default_scheduling(), vec![endpoint]);
        Arc::new(Pool { use_cases: [("chat".to_owned(), use_case)].into(), ..pool })
    };
    let pools = [("a", 1), ("b", 2)].map(pool).to_vec();
    let backend = |name: &str, weight: u8| json!({"group": "inference.networking.x-k8s.io", "kind": "BackendPool", "name": name, "weight": weight});
    let metadata = json!({"namespace": "ns", "name": "llm"});
    let listener = json!({"name": "http", "port": 80, "protocol": "HTTP"});
    let gateway = json!({"metadata": metadata, "spec": {"gatewayClassName": "c", "listeners": [listener]}});
    let rules = json!([{"backendRefs": [backend("a", 70), backend("b", 30)]}]);
    let route = json!({"metadata": metadata, "spec": {"parentRefs": [{"name": "llm"}], "rules": rules}});
    let objects = GatewayObjects {
        served: ServedGateways::All,
        gateways: vec![Arc::new(gateway)],
        routes: vec![Arc::new(route)],
        ..GatewayObjects::default()
    };
    let (routes, _) = build_routes(&objects, &pools.iter().map(|pool| pool.key.clone()).collect());
    scheduler.replace_all(pools, Arc::new(routes));
    let head = RequestHead {
        authority: "llm.example.com",
        path: "/v1/completions",
        query: "",
        method: &Method::POST,
        headers: &HeaderMap::new(),
    };
    let body = br#"{"model":"chat","prompt":"x"}"#;
    let info = request::parse_request(body).unwrap();
    let mut counts: BTreeMap<(String, String), u32> = BTreeMap::new();
    for _ in 0..REQUESTS {
        let rule = scheduler.snapshot().routes.find(&head).unwrap().rule;
        let pool = rule.draw_pool(&mut scheduler.rng());
        let request = AdmissionRequest {
            pool,
            model: RequestedModel::Name("chat"),
            body,
            info: &info,
            path: "/v1/completions",
            flow: None,
            subset: None,
            session: None,
        };
        let permit = scheduler.admit(&request).await.unwrap();
        *counts.entry((permit.route.pool.key.name.clone(), permit.route.target_model.clone())).or_default() += 1;
    }
    let expected = [(("a", "v1"), 14), (("a", "v2"), 56), (("b", "v1"), 6), (("b", "v2"), 24)];
    for ((pool, model), percent) in expected {
        let count = counts[&(pool.to_owned(), model.to_owned())];
        let difference = count.abs_diff(REQUESTS / 100 * percent);
        assert!(difference < REQUESTS / 100, "{pool} {model}: {count} of {REQUESTS}");
    }
}
