//! Tests of which target models requests are sent to.

use std::collections::BTreeMap;

use http::HeaderName;
use picker::{GatewayOptions, Scheduler, SchedulingPolicy};

use crate::gateway_fixture::{engine_config, post, send_with_header, start, start_gateway, wait_until};

const COMPLETION: &str = r#"{"model":"chat","prompt":"x","max_tokens":1}"#;

/// Until the gateway has read the list of the engine, it draws both targets, and the engine rejects one of them.
// spec: GW-41
#[tokio::test]
async fn target_that_no_engine_lists_is_not_drawn() {
    let fixture = start(vec![engine_config(&["v1"])], &[("v1", 1), ("v2", 99)]).await;
    wait_until("requests for the listed target only", async || {
        for _ in 0..20 {
            if post(fixture.gateway, "/v1/completions", COMPLETION).await.status() != 200 {
                return false;
            }
        }
        true
    })
    .await;
}

/// Returns the number of requests by target model.
fn requests_by_target(scheduler: &Scheduler) -> BTreeMap<String, u32> {
    let text = scheduler.render_metrics();
    let prefix = r#"inference_objective_request_total{model_name="chat",target_model_name=""#;
    let series = text.lines().filter_map(|line| line.strip_prefix(prefix)?.split_once(r#""} "#));
    series.map(|(target, count)| (target.to_owned(), count.parse().unwrap())).collect()
}

/// All requests of a session have the same target, those of several sessions have both.
// spec: GW-43
#[tokio::test]
async fn requests_of_a_session_have_one_target() {
    let options =
        GatewayOptions { session_header: Some(HeaderName::from_static("x-session-id")), ..GatewayOptions::default() };
    let (engines, targets) = (vec![engine_config(&["v1", "v2"])], [("v1", 50), ("v2", 50)]);
    let fixture = start_gateway(engines, &targets, SchedulingPolicy::default(), options).await;
    let send = async |session: &str| {
        let header = format!("x-session-id: {session}");
        assert_eq!(send_with_header(fixture.gateway, "/v1/completions", &header, COMPLETION).await.status(), 200);
    };
    for _ in 0..20 {
        send("horse").await;
    }
    let requests = requests_by_target(&fixture.scheduler);
    assert_eq!(requests.values().copied().collect::<Vec<_>>(), [20], "{requests:?}");
    for session in 0..20 {
        send(&session.to_string()).await;
    }
    assert_eq!(requests_by_target(&fixture.scheduler).len(), 2);
}
