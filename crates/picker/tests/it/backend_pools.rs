//! BackendPools and use cases in an API server, watched by the gateway.

use engine::RequestMemory;
use futures::{StreamExt as _, stream};
use picker::{Scheduler, SchedulingPolicy};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::gateway_fixture::{self, post};
use crate::picker_fixture::{install_definitions, reserve_sockets};
use crate::watch_fixture::{DEPLOYMENTS, POOLS, USE_CASE_SETS, USE_CASES, WatchFixture, complete, object};

/// The API server rejects a malformed duration with the path of its field.
// spec: GW-37
#[tokio::test]
async fn malformed_objective_is_rejected() {
    let fixture = WatchFixture::start();
    let create = |latency: &str| {
        let objective = json!({"desiredAveragePerOutputTokenLatencyAtP95OverMultipleRequests": latency});
        let spec = json!({"poolRef": [{"name": "p"}], "useCases": [{"modelName": "m", "objective": objective}]});
        fixture.server.create(USE_CASE_SETS, object("LLMUseCaseSet", &format!("s-{}", latency.len()), &spec))
    };
    for malformed in ["60", "60 ms", "-60ms", "fast"] {
        let error = create(malformed).unwrap_err().to_string();
        let path = "spec.useCases[0].objective.desiredAveragePerOutputTokenLatencyAtP95OverMultipleRequests";
        assert!(error.contains(path), "{malformed}: {error}");
    }
    create("60ms").unwrap();
}

/// An objective that no engine meets. Requests succeed, and metrics and the status of the object show what was measured.
// spec: GW-48
#[tokio::test]
async fn attainment_is_reported() {
    let fixture = WatchFixture::start();
    let port = fixture.start_engines("p", &[&["m"]]);
    fixture.create_pool_with_port("p", port);
    let objective = json!({"desiredAveragePerOutputTokenLatencyAtP95OverMultipleRequests": "1ns"});
    let spec = json!({"poolRef": [{"name": "p"}], "useCases": [{"modelName": "m", "objective": objective}]});
    fixture.server.create(USE_CASE_SETS, object("LLMUseCaseSet", "s", &spec)).unwrap();
    fixture.wait_until("the endpoint", |fixture| fixture.ready_endpoints("p") == 1).await;
    fixture.wait_until("the use case", |fixture| fixture.pools_serving("m") == ["p"]).await;
    let gateway = fixture.start_gateway().await;
    for number in 0..50 {
        let body = json!({"model": "m", "prompt": "hello", "max_tokens": 2, "stream": number % 2 == 0,
            "stream_options": {"include_usage": true}});
        assert_eq!(post(gateway, "/v1/completions", &body.to_string()).await.status(), 200);
    }
    let text = fixture.scheduler.render_metrics();
    let series = r#"ostler_use_case_objective_attainment{inference_pool="p",model_name="m"} "#;
    let attainment = text.lines().find_map(|line| line.strip_prefix(series)?.parse::<f64>().ok());
    assert!(attainment.is_some_and(|attainment| attainment < 1.0), "{text}");
    let objectives = |fixture: &WatchFixture| {
        fixture.server.get(USE_CASE_SETS, "default", "s").unwrap()["status"]["objectives"].clone()
    };
    fixture.wait_until("the latency", |fixture| objectives(fixture)[0]["attained"] == json!(false)).await;
    let status = objectives(&fixture)[0].clone();
    assert_eq!((&status["modelName"], &status["pool"], &status["desired"]), (&json!("m"), &json!("p"), &json!("1ns")));
    assert!(status["measured"].is_string(), "{status}");
}

/// The definitions of pools, use cases and sets of them have statuses of their own.
// spec: GW-1
#[tokio::test]
async fn statuses_of_pools_and_use_cases_are_subresources() {
    let fixture = WatchFixture::start();
    fixture.create_pool("llama");
    fixture.create_use_case_set("set", &["llama"], &json!([]));
    let spec = json!({"poolRef": [{"name": "llama"}], "modelName": "single"});
    fixture.server.create(USE_CASES, object("LLMUseCase", "single", &spec)).unwrap();
    for (resource, name) in [(POOLS, "llama"), (USE_CASE_SETS, "set"), (USE_CASES, "single")] {
        let has_status = |fixture: &WatchFixture| {
            fixture.server.get(resource, "default", name).unwrap()["status"]["conditions"].is_array()
        };
        fixture.wait_until("the status", has_status).await;
        let written = (*fixture.server.get(resource, "default", name).unwrap()).clone();
        let mut changed = written.clone();
        changed["status"] = json!({"conditions": []});
        let updated = fixture.server.update(resource, changed).unwrap();
        assert_eq!(updated["status"]["conditions"], written["status"]["conditions"], "{resource}");
        assert_eq!(updated["metadata"]["namespace"], "default");
    }
}

// spec: GW-31
#[tokio::test]
async fn missing_pool_is_reported_until_it_is_created() {
    let fixture = WatchFixture::start();
    fixture.create_use_case_set("chat", &["late"], &json!([]));
    let resolved_refs = |fixture: &WatchFixture| fixture.condition(USE_CASE_SETS, "chat", "ResolvedRefs");
    let accepted = |fixture: &WatchFixture| fixture.condition(USE_CASE_SETS, "chat", "Accepted");
    fixture
        .wait_until("the condition", |fixture| resolved_refs(fixture) == (json!("False"), json!("PoolNotFound")))
        .await;
    assert_eq!(accepted(&fixture), (json!("False"), json!("PoolNotFound")));
    fixture.create_pool("late");
    fixture.wait_until("the pool", |fixture| resolved_refs(fixture).0 == "True" && accepted(fixture).0 == "True").await;
    assert_eq!(fixture.pools_serving("m"), ["late"]);
}

// spec: GW-17
// spec: GW-19
// spec: GW-24
#[tokio::test]
async fn pool_follows_its_pods_and_creates_no_objects() {
    let fixture = WatchFixture::start();
    fixture.create_pool("llama");
    fixture.create_pod("a", "llama", "10.0.0.1");
    fixture.create_pod("b", "llama", "10.0.0.2");
    fixture.create_pod("c", "other", "10.0.0.3");
    fixture.wait_until("two endpoints", |fixture| fixture.ready_endpoints("llama") == 2).await;
    let mut unready = (*fixture.server.get("pods", "default", "a").unwrap()).clone();
    unready["status"]["conditions"][0]["status"] = json!("False");
    fixture.server.update_status("pods", unready).unwrap();
    fixture.wait_until("one endpoint", |fixture| fixture.ready_endpoints("llama") == 1).await;
    fixture.server.delete(POOLS, "default", "llama", None).unwrap();
    fixture.wait_until("no pool", |fixture| fixture.ready_endpoints("llama") == 0).await;
    assert!(fixture.server.list("deployments.apps").is_empty() && fixture.server.list("pods").len() == 3);
}

// spec: GW-29
// spec: GW-30
// spec: GW-5
#[tokio::test]
async fn use_case_set_serves_several_pools_and_changes_independently() {
    let fixture = WatchFixture::start();
    fixture.create_pool("one");
    fixture.create_pool("two");
    fixture.create_use_case_set("chat", &["one", "two"], &json!([{"targetModelName": "v1", "weight": 100}]));
    fixture.wait_until("both pools", |fixture| fixture.pools_serving("m") == ["one", "two"]).await;
    let generation = fixture.server.get(POOLS, "default", "one").unwrap()["metadata"]["generation"].clone();
    let mut set = (*fixture.server.get(USE_CASE_SETS, "default", "chat").unwrap()).clone();
    set["spec"]["useCases"][0]["targetModels"] = json!([{"targetModelName": "v2", "weight": 7}]);
    fixture.server.update(USE_CASE_SETS, set).unwrap();
    fixture
        .wait_until("the new target", |fixture| {
            let table = fixture.scheduler.snapshot();
            table
                .pools
                .values()
                .all(|pool| pool.use_cases.get("m").is_some_and(|use_case| use_case.targets[0].model == "v2"))
        })
        .await;
    assert_eq!(fixture.server.get(POOLS, "default", "one").unwrap()["metadata"]["generation"], generation);
}

// spec: GW-13
#[tokio::test]
async fn pool_and_use_case_with_required_fields_only_serve_requests() {
    let fixture = WatchFixture::start();
    let port = fixture.start_engines("llama", &[&["m"]]);
    fixture.create_pool_of("llama", &json!({"selector": {"app": "llama"}, "targetPorts": [port]}));
    let spec = json!({"poolRef": [{"name": "llama"}], "useCases": [{"modelName": "m"}]});
    fixture.server.create(USE_CASE_SETS, object("LLMUseCaseSet", "chat", &spec)).unwrap();
    let is_served =
        |fixture: &WatchFixture| fixture.ready_endpoints("llama") == 1 && !fixture.pools_serving("m").is_empty();
    fixture.wait_until("the pool", is_served).await;
    let gateway = fixture.start_gateway().await;
    for path in ["/v1/completions", "/default/llama/v1/completions"] {
        assert_eq!(complete(gateway, path, "m").await, (200, json!("m")));
    }
}

/// Each pool serves its requests with its own engine.
// spec: GW-30
#[tokio::test]
async fn model_name_answers_on_every_pool_of_its_use_case() {
    let fixture = WatchFixture::start();
    let (_, port, sockets) = reserve_sockets();
    let mut engines = Vec::new();
    for ((_, socket), name) in sockets.into_iter().zip(["one", "two"]) {
        let listener = socket.listen(1024).unwrap();
        let address = listener.local_addr().unwrap();
        let config = gateway_fixture::engine_config(&["v1"]);
        tokio::spawn(engine::serve(listener, config, RequestMemory::default(), CancellationToken::new()));
        fixture.create_pod(name, name, &address.ip().to_string());
        fixture.create_pool_with_port(name, port);
        engines.push((name, address));
    }
    fixture.create_use_case_set("chat", &["one", "two"], &json!([{"targetModelName": "v1"}]));
    let is_served = |fixture: &WatchFixture| {
        let has_endpoint = |name| fixture.ready_endpoints(name) == 1;
        fixture.pools_serving("m").len() == 2 && ["one", "two"].into_iter().all(has_endpoint)
    };
    fixture.wait_until("both pools", is_served).await;
    let gateway = fixture.start_gateway().await;
    for (name, engine) in engines {
        let path = format!("/default/{name}/v1/completions");
        let prompt_tokens = || gateway_fixture::metric(engine, "vllm:prompt_tokens_total{");
        assert_eq!(prompt_tokens().await, 0.0, "requests to the other pool do not count");
        assert_eq!(complete(gateway, &path, "m").await, (200, json!("m")));
        assert!(prompt_tokens().await > 0.0);
    }
}

/// The gateway is ready only once its snapshot contains all pools, so that a new replica answers no request with 404.
#[tokio::test]
async fn gateway_is_ready_after_the_first_complete_lists() {
    let scheduler = Scheduler::new(SchedulingPolicy::default(), 0);
    assert_eq!(scheduler.readiness_failures(), ["the gateway is starting"]);
    let fixture = WatchFixture::start_without_definitions();
    let waits_for_pools = |fixture: &WatchFixture| {
        let failures = fixture.scheduler.readiness_failures();
        failures.len() == 1
            && failures[0].starts_with("waiting for the first list of backendpools.inference.networking.x-k8s.io")
            && !failures[0].contains("pods")
    };
    fixture.wait_until("the list of Pods", waits_for_pools).await;
    install_definitions(&fixture.server);
    fixture.wait_until("readiness", |fixture| fixture.scheduler.readiness_failures().is_empty()).await;
}

/// A pool refers to the ConfigMap with its EndpointPickerConfig.
#[tokio::test]
async fn picker_config_of_a_pool_is_read_and_reported() {
    let fixture = WatchFixture::start();
    let mut pool = object("BackendPool", "llama", &json!({"selector": {"app": "llama"}, "targetPorts": [8000]}));
    pool["metadata"]["annotations"] = json!({"ostler.io/picker-config": "strategy"});
    fixture.server.create(POOLS, pool).unwrap();
    let has_condition = async |status: &str, reason: &str| {
        let expect = (json!(status), json!(reason));
        let is_reported = |fixture: &WatchFixture| fixture.condition(POOLS, "llama", "PickerConfigAccepted") == expect;
        fixture.wait_until(reason, is_reported).await;
    };
    has_condition("False", "PickerConfigNotFound").await;
    let config = "apiVersion: inference.networking.x-k8s.io/v1alpha1\nkind: EndpointPickerConfig\n";
    let config_map = |text: &str| {
        let metadata =
            json!({"namespace": "default", "name": "strategy", "labels": {"ostler.io/picker-config": "true"}});
        json!({"metadata": metadata, "data": {"config.yaml": text}})
    };
    fixture.server.create("configmaps", config_map("kind: Pod")).unwrap();
    has_condition("False", "InvalidPickerConfig").await;
    fixture.server.update("configmaps", config_map(&format!("{config}plugins:\n- type: queue-scorer\n"))).unwrap();
    has_condition("True", "Accepted").await;
}

/// Serves streams of two events, the second one after `proceed`, which then do not end. Other requests receive no response.
fn two_event_engine(proceed: CancellationToken) -> axum::Router {
    let stream = move || {
        let proceed = proceed.clone();
        let events = stream::iter(["data: one\n\n"]).chain(stream::once(async move {
            proceed.cancelled().await;
            "data: two\n\n"
        }));
        let body = axum::body::Body::from_stream(events.chain(stream::pending()).map(Ok::<_, std::io::Error>));
        async { ([("content-type", "text/event-stream")], body) }
    };
    axum::Router::new()
        .route("/v1/chat/completions", axum::routing::post(stream))
        .route("/v1/completions", axum::routing::post(std::future::pending::<()>))
}

/// Reads from `stream` until `text` has arrived.
async fn read_until(stream: &mut TcpStream, received: &mut Vec<u8>, text: &str) {
    let reading = async {
        while !String::from_utf8_lossy(received).contains(text) {
            assert!(stream.read_buf(received).await.unwrap() > 0, "{}", String::from_utf8_lossy(received));
        }
    };
    tokio::time::timeout(gateway_fixture::TIMEOUT, reading).await.expect(text);
}

/// The Pod first terminates, and its engine completes its streams. Then it disappears, for example because its node did, and
/// nothing closes its connections.
#[tokio::test]
async fn responses_end_when_their_pod_disappears() {
    let (engine, proceed) = (TcpListener::bind("127.0.0.1:0").await.unwrap(), CancellationToken::new());
    let fixture = WatchFixture::start();
    fixture.create_pool_with_port("llama", engine.local_addr().unwrap().port());
    fixture.create_pod("a", "llama", "127.0.0.1");
    fixture.create_use_case_set("chat", &["llama"], &json!([]));
    tokio::spawn(axum::serve(engine, two_event_engine(proceed.clone())).into_future());
    let is_served =
        |fixture: &WatchFixture| fixture.ready_endpoints("llama") == 1 && !fixture.pools_serving("m").is_empty();
    fixture.wait_until("the endpoint", is_served).await;
    let address = fixture.start_gateway().await;
    let send = |path| gateway_fixture::send(address, "POST", path, r#"{"model":"m"}"#);
    let (mut stream, pending, mut received) =
        (send("/v1/chat/completions").await, send("/v1/completions").await, Vec::new());
    read_until(&mut stream, &mut received, "data: one").await;
    fixture.server.delete("pods", "default", "a", None).unwrap();
    fixture.wait_until("the terminating Pod", |fixture| fixture.ready_endpoints("llama") == 0).await;
    proceed.cancel();
    read_until(&mut stream, &mut received, "data: two").await;
    fixture.server.force_delete("pods", "default", "a", None).unwrap();
    read_until(&mut stream, &mut received, "data: [DONE]").await;
    assert!(String::from_utf8(received).unwrap().contains("engine_failed"));
    let status = gateway_fixture::receive(pending).await.status();
    assert!([502, 503].contains(&status), "{status}");
}

/// Sends a completion request for `model`. Returns the status and the model of the response.
// spec: GW-23
#[tokio::test]
async fn pods_with_different_models_share_a_pool() {
    let fixture = WatchFixture::start();
    let port = fixture.start_engines("llama", &[&["a"], &["b"]]);
    fixture.create_pool_of(
        "llama",
        &json!({"selector": {"app": "llama"}, "targetPorts": [port], "implicitUseCases": "Allow"}),
    );
    fixture.wait_until("both engines", |fixture| fixture.ready_endpoints("llama") == 2).await;
    let generations = |fixture: &WatchFixture| {
        let objects = [fixture.server.list("pods"), fixture.server.list(POOLS)].concat();
        objects.iter().map(|object| object["metadata"]["generation"].clone()).collect::<Vec<_>>()
    };
    let before = generations(&fixture);
    let gateway = fixture.start_gateway().await;
    for _ in 0..8 {
        for model in ["a", "b"] {
            assert_eq!(complete(gateway, "/default/llama/v1/completions", model).await, (200, json!(model)));
        }
    }
    fixture.wait_until("the status", |fixture| fixture.condition(POOLS, "llama", "Ready").0 == "True").await;
    let pool = fixture.server.get(POOLS, "default", "llama").unwrap();
    // No Service of endpoint pickers is set.
    let conditions = pool["status"]["conditions"].as_array().unwrap().iter();
    let mut others = conditions.filter(|condition| condition["type"] != "Projected");
    assert!(others.all(|condition| condition["status"] == "True"), "{}", pool["status"]);
    assert_eq!(generations(&fixture), before, "nothing is edited");
}

// spec: GW-75
#[tokio::test]
async fn pool_that_allows_implicit_use_cases_serves_every_model_of_its_engines() {
    let fixture = WatchFixture::start();
    let port = fixture.start_engines("llama", &[&["base", "adapter"]]);
    fixture.create_pool_of(
        "llama",
        &json!({"selector": {"app": "llama"}, "targetPorts": [port], "implicitUseCases": "Allow"}),
    );
    fixture.wait_until("the engine", |fixture| fixture.ready_endpoints("llama") == 1).await;
    let gateway = fixture.start_gateway().await;
    for model in ["base", "adapter"] {
        assert_eq!(complete(gateway, "/default/llama/v1/completions", model).await, (200, json!(model)));
    }
    assert_eq!(complete(gateway, "/default/llama/v1/completions", "unknown").await.0, 404);
}

// spec: GW-33
#[tokio::test]
async fn newer_object_with_the_same_model_name_shows_a_conflict() {
    let fixture = WatchFixture::start();
    fixture.create_pool("one");
    fixture.create_pool("two");
    // Of objects of the same second, the first by name counts as the older one.
    fixture.create_use_case_set("a-old", &["one"], &json!([{"targetModelName": "old"}]));
    fixture.create_use_case_set("b-new", &["one"], &json!([{"targetModelName": "new"}]));
    fixture.create_use_case_set("c-other", &["two"], &json!([]));
    let accepted = |fixture: &WatchFixture, name| fixture.condition(USE_CASE_SETS, name, "Accepted");
    let conflict = (json!("False"), json!("ModelNameConflict"));
    fixture.wait_until("the conflict", |fixture| accepted(fixture, "b-new") == conflict).await;
    for name in ["a-old", "c-other"] {
        fixture.wait_until(name, |fixture| accepted(fixture, name) == (json!("True"), json!("Accepted"))).await;
    }
    let snapshot = fixture.scheduler.snapshot();
    let pool = snapshot.pools.values().find(|pool| pool.key.name == "one").unwrap();
    assert_eq!(pool.use_cases["m"].targets[0].model, "old");
}

/// The path of a request is the route of the built-in gateway.
// spec: GW-67
#[tokio::test]
async fn second_gateway_needs_only_a_route_to_the_pool() {
    let first = WatchFixture::start();
    let port = first.start_engines("llama", &[&["v1", "v2"]]);
    first.create_pool_with_port("llama", port);
    let targets = json!([{"targetModelName": "v1", "weight": 0}, {"targetModelName": "v2", "weight": 5}]);
    first.create_use_case_set("chat", &["llama"], &targets);
    let second = WatchFixture::watch(first.server.clone());
    for fixture in [&first, &second] {
        let is_served =
            |fixture: &WatchFixture| fixture.ready_endpoints("llama") == 1 && !fixture.pools_serving("m").is_empty();
        fixture.wait_until("the pool", is_served).await;
        let gateway = fixture.start_gateway().await;
        assert_eq!(complete(gateway, "/default/llama/v1/completions", "m").await, (200, json!("m")));
        assert_eq!(complete(gateway, "/default/llama/v1/completions", "v2").await.0, 404, "it is no use case");
    }
}

/// Creates a Deployment without replicas, and its pool with these limits of the queue.
fn create_scaled_pool(fixture: &WatchFixture, port: u16, queue: &Value) {
    let template =
        json!({"metadata": {"labels": {"app": "llama"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let deployment = json!({"metadata": {"namespace": "default", "name": "llama"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "llama"}}, "template": template}});
    fixture.server.create(DEPLOYMENTS, deployment).unwrap();
    let scale_to_zero = json!({"targetRef": {"kind": "Deployment", "name": "llama"}, "idleTimeout": "1s"});
    let spec =
        json!({"selector": {"app": "llama"}, "targetPorts": [port], "queue": queue, "scaleToZero": scale_to_zero});
    fixture.create_pool_of("llama", &spec);
    let spec = json!({"poolRef": [{"name": "llama"}], "useCases": [{"modelName": "m"}]});
    fixture.server.create(USE_CASE_SETS, object("LLMUseCaseSet", "chat", &spec)).unwrap();
}

/// Returns the number of replicas of that Deployment.
fn replicas(fixture: &WatchFixture) -> Value {
    fixture.server.get(DEPLOYMENTS, "default", "llama").unwrap()["spec"]["replicas"].clone()
}

// spec: GW-25
// spec: RT-25
#[tokio::test]
async fn request_starts_an_engine_that_stops_when_it_is_idle() {
    let fixture = WatchFixture::start();
    let (_, port, mut sockets) = reserve_sockets();
    create_scaled_pool(&fixture, port, &json!({"timeout": "5m"}));
    let gateway = fixture.start_gateway().await;
    let condition = |fixture: &WatchFixture| fixture.condition(POOLS, "llama", "Ready");
    fixture.wait_until("the pool", |fixture| condition(fixture) == (json!("False"), json!("ScaledToZero"))).await;
    fixture.wait_until("the use case", |fixture| !fixture.pools_serving("m").is_empty()).await;
    assert_eq!(gateway_fixture::get(gateway, "/v1/models").await.json()["data"][0]["id"], "m");

    let request = tokio::spawn(post(gateway, "/v1/completions", r#"{"model":"m","prompt":"hi"}"#));
    fixture.wait_until("a replica", |fixture| replicas(fixture) == 1).await;
    let (_, socket) = sockets.pop_first().unwrap();
    let listener = socket.listen(1024).unwrap();
    let ip = listener.local_addr().unwrap().ip().to_string();
    let config = gateway_fixture::engine_config(&["m"]);
    tokio::spawn(engine::serve(listener, config, RequestMemory::default(), CancellationToken::new()));
    fixture.create_pod("llama-1", "llama", &ip);
    assert_eq!(request.await.unwrap().status(), 200);

    fixture.wait_until("no replica", |fixture| replicas(fixture) == 0).await;
    let pool = fixture.server.get(POOLS, "default", "llama").unwrap();
    assert!(pool["status"]["lastRequestTime"].is_string(), "{}", pool["status"]);
}

// spec: GW-25
#[tokio::test]
async fn request_waits_for_an_engine_until_the_timeout_of_the_queue() {
    let fixture = WatchFixture::start();
    create_scaled_pool(&fixture, 8000, &json!({"timeout": "100ms"}));
    let gateway = fixture.start_gateway().await;
    fixture.wait_until("the use case", |fixture| !fixture.pools_serving("m").is_empty()).await;
    let response = post(gateway, "/v1/completions", r#"{"model":"m","prompt":"hi"}"#).await;
    assert_eq!((response.status(), response.header("retry-after").is_some()), (503, true));
    fixture.wait_until("the replica for the next request", |fixture| replicas(fixture) == 1).await;
}

/// The target of a pool may be a mistake: only a workload that runs an endpoint of the pool is stopped.
#[tokio::test]
async fn workload_of_other_pods_is_not_stopped() {
    let fixture = WatchFixture::start();
    let port = fixture.start_engines("llama", &[&["m"]]);
    let deployment = |name: &str| {
        let template =
            json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        json!({"metadata": {"namespace": "default", "name": name},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}})
    };
    for name in ["llama", "other"] {
        fixture.server.create(DEPLOYMENTS, deployment(name)).unwrap();
        let scale_to_zero = json!({"targetRef": {"kind": "Deployment", "name": name}, "idleTimeout": "0s"});
        let spec = json!({"selector": {"app": "llama"}, "targetPorts": [port], "scaleToZero": scale_to_zero});
        fixture.create_pool_of(name, &spec);
    }
    let replicas = |name: &str| fixture.server.get(DEPLOYMENTS, "default", name).unwrap()["spec"]["replicas"].clone();
    fixture.wait_until("the end of the engine", |_| replicas("llama") == 0).await;
    // Both pools are checked at the same times.
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(replicas("other"), 1);
}
