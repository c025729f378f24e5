//! The native gateway and the endpoint picker with the same engines.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use axum::routing::{get, post};
use picker::parse_config;

use crate::{
    gateway_fixture::{self, pool, send, start_with_policy, wait_until},
    picker_fixture::PickerFixture,
};

const CONFIG: &str = "
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins: [{type: queue-scorer}]
";

/// Returns an engine that reports `waiting` requests, and responds with `host`.
fn engine(host: u8, waiting: Arc<AtomicU64>) -> axum::Router {
    let metrics = move || async move { format!("vllm:num_requests_waiting {}\n", waiting.load(Relaxed)) };
    let respond = move || async move { host.to_string() };
    axum::Router::new().route("/metrics", get(metrics)).route("/v1/completions", post(respond))
}

/// Both follow the reports of the engines.
// spec: GW-14
#[tokio::test]
async fn both_frontends_select_the_endpoint_with_the_shortest_queue() {
    let fixture = PickerFixture::start(CONFIG).await;
    fixture.create_pool();
    let queues: [Arc<AtomicU64>; 3] = Default::default();
    let engines = (2_u8..).zip(&queues);
    let _engines: Vec<_> =
        engines.map(|(host, queue)| fixture.start_server(host, "worker", engine(host, Arc::clone(queue)))).collect();
    fixture.wait_until("the endpoints", |fixture| fixture.picker.endpoints().len() == 3).await;
    let native = start_with_policy(Vec::new(), &[], parse_config(CONFIG).unwrap().policy).await;
    let addresses = [2, 3, 4].map(|host| fixture.address(host));
    native.scheduler.replace(vec![pool(&native.scheduler, &addresses, &[])]);
    let body = r#"{"model": "chat", "prompt": "x"}"#;
    for lengths in [[0, 4, 9], [9, 0, 4], [4, 9, 0], [4, 0, 9]] {
        queues.iter().zip(lengths).for_each(|(queue, length)| queue.store(length, Relaxed));
        let shortest = (2_u8..).zip(lengths).find(|(_, length)| *length == 0).unwrap().0;
        let selects_shortest = async || {
            for _ in 0..5 {
                let picked = fixture.send("x", None).await.hosts();
                let response = send(native.gateway, "POST", "/v1/completions", body).await;
                let served = gateway_fixture::receive(response).await;
                if (picked.first(), served.body.parse()) != (Some(&shortest), Ok(shortest)) {
                    return false;
                }
            }
            true
        };
        wait_until(&format!("requests to host {shortest}"), selects_shortest).await;
    }
}
