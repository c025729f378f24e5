//! Tests of which target models requests are sent to.

use crate::gateway_fixture::{engine_config, post, start, wait_until};

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
