//! The access log of both frontends.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use picker::{AccessLog, GatewayOptions, Scheduler, SchedulingPolicy};
use serde_json::{Value, json};

use crate::{
    gateway_fixture::{engine_config, get, post, start_scheduler, wait_until},
    picker_fixture::PickerFixture,
};

/// Text of a prompt, which must not be logged.
const SECRET: &str = "my password is hunter2";

/// A destination whose lines a test reads.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

// === impl Lines ===

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Waits for `count` lines, which another thread writes.
    async fn wait_for(&self, count: usize) -> Vec<Value> {
        wait_until("the lines", async || self.text().lines().count() >= count).await;
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns these fields of a line.
fn fields<'a>(line: &'a Value, names: &[&str]) -> Vec<&'a Value> {
    names.iter().map(|name| &line[name]).collect()
}

#[tokio::test]
async fn gateway_logs_one_line_per_request() {
    let lines = Lines::default();
    let (log, _guard) = AccessLog::new(lines.clone());
    let scheduler = Scheduler::new(SchedulingPolicy::default(), 1).with_access_log(Some(log));
    let engines = vec![engine_config(&["tuned"])];
    let fixture = start_scheduler(engines, &[("tuned", 1)], scheduler, GatewayOptions::default()).await;
    let body = |model: &str, stream: bool| {
        json!({"model": model, "prompt": SECRET, "max_tokens": 3, "stream": stream, "stream_options": {"include_usage": true}})
            .to_string()
    };
    assert_eq!(post(fixture.gateway, "/v1/completions", &body("chat", false)).await.status(), 200);
    assert_eq!(post(fixture.gateway, "/v1/completions", &body("chat", true)).await.status(), 200);
    assert_eq!(post(fixture.gateway, "/v1/completions", &body("x\"\n", false)).await.status(), 404);
    assert_eq!(post(fixture.gateway, "/v1/completions", "no JSON").await.status(), 400);
    assert_eq!(get(fixture.gateway, "/v1/models").await.status(), 200);
    // Probes are not logged.
    get(fixture.gateway, "/livez").await;
    let lines_by_request = lines.wait_for(5).await;
    for line in &lines_by_request[..2] {
        let endpoint = fixture.engines[0].to_string();
        let decision =
            fields(line, &["path", "model", "pool", "targetModel", "endpoint", "priority", "status", "retries"]);
        assert_eq!(
            decision,
            [
                &json!("/v1/completions"),
                &json!("chat"),
                &json!("ns/pool"),
                &json!("tuned"),
                &json!(endpoint),
                &json!(-10),
                &json!(200),
                &json!(0)
            ],
            "{line}"
        );
        assert_eq!(fields(line, &["outputTokens", "reason"]), [&json!(3), &Value::Null], "{line}");
        let numbers = ["requestBytes", "responseBytes", "promptTokens", "firstByteSeconds", "durationSeconds"];
        assert!(fields(line, &numbers).iter().all(|number| number.as_f64().unwrap() > 0.0), "{line}");
        assert!(line["queueSeconds"].is_number() && line["time"].is_string(), "{line}");
    }
    let rejections: Vec<_> =
        lines_by_request[2..].iter().map(|line| fields(line, &["status", "reason", "endpoint"])).collect();
    assert_eq!(rejections[0], [&json!(404), &json!("model_not_found"), &Value::Null]);
    assert_eq!(rejections[1], [&json!(400), &json!("invalid_request"), &Value::Null]);
    assert_eq!(rejections[2], [&json!(200), &Value::Null, &Value::Null]);
    assert!(!lines.text().contains("hunter2"), "{}", lines.text());
    assert_eq!(lines.text().lines().count(), 5);
    let metrics = fixture.scheduler.render_metrics();
    assert!(metrics.contains("ostler_access_log_dropped_lines_total 0\n"), "{metrics}");
}

#[tokio::test]
async fn endpoint_picker_logs_one_line_per_request() {
    let lines = Lines::default();
    let (log, _guard) = AccessLog::new(lines.clone());
    let fixture = PickerFixture::start_with_log("", |_| {}, Some(log)).await;
    fixture.create_pool();
    fixture.start_engine(2, "x").await;
    fixture.wait_until("the endpoint", |fixture| fixture.picker.endpoints().len() == 1).await;
    assert_eq!(fixture.send_for_model("chat", SECRET, None).await.target_model(), "chat");
    let line = lines.wait_for(1).await.remove(0);
    let names = ["model", "pool", "targetModel", "endpoint", "priority"];
    let endpoint = fixture.picker.endpoints()[0].to_string();
    let expected = [json!("chat"), json!("default/pool"), json!("chat"), json!(endpoint), json!(0)];
    assert_eq!(fields(&line, &names), expected.iter().collect::<Vec<_>>(), "{line}");
    assert!(!lines.text().contains("hunter2"), "{}", lines.text());
}
