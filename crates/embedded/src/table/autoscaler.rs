//! Cells of HorizontalPodAutoscalers.

use apimachinery::go;
use serde_json::{Value, json};

use super::Column;
use super::cell::{age, column, items, number, stated_or};
use crate::conversion::autoscaling;
use crate::object;

pub(super) fn columns() -> Vec<Column> {
    vec![
        column("Reference", "string", 0, |scaler, _| {
            let text = |field: &str| object::text(scaler, &format!("/spec/scaleTargetRef/{field}")).to_owned();
            json!(format!("{}/{}", text("kind"), text("name")))
        }),
        column("Targets", "string", 0, |scaler, _| json!(targets(scaler))),
        column("MinPods", "string", 0, |scaler, _| stated_or(scaler, "/spec/minReplicas", "<unset>")),
        column("MaxPods", "string", 0, |scaler, _| json!(number(scaler, "/spec/maxReplicas"))),
        column("Replicas", "string", 0, |scaler, _| json!(number(scaler, "/status/currentReplicas"))),
        age(),
    ]
}

/// What `kubectl get` shows of the metrics: `cpu: 40%/60%, memory: <unknown>/1Gi`, of either version.
fn targets(scaler: &Value) -> String {
    let kept = match object::text(scaler, "/apiVersion") {
        "autoscaling/v1" => autoscaling::to_v2(scaler.clone()),
        _ => scaler.clone(),
    };
    let metrics: Vec<&Value> = items(&kept, "/spec/metrics").collect();
    let current: Vec<&Value> = items(&kept, "/status/currentMetrics").collect();
    let shown: Vec<String> =
        metrics.iter().enumerate().take(2).map(|(index, metric)| target(metric, current.get(index).copied())).collect();
    match (shown.is_empty(), metrics.len() - shown.len()) {
        (true, _) => "<none>".to_owned(),
        (false, 0) => shown.join(", "),
        (false, more) => format!("{} + {more} more...", shown.join(", ")),
    }
}

fn target(metric: &Value, current: Option<&Value>) -> String {
    let field = autoscaling::source_field(object::text(metric, "/type"));
    let source = metric.get(&field).unwrap_or(&Value::Null);
    let measured = current.and_then(|current| current.get(&field)?.get("current"));
    let name = object::text(source, "/name");
    let label = if name.is_empty() { String::new() } else { format!("{name}: ") };
    for (value, unit) in [("averageValue", ""), ("averageUtilization", "%"), ("value", "")] {
        let Some(wanted) = source.get("target").and_then(|target| target.get(value)) else { continue };
        let now = measured.and_then(|measured| measured.get(value)).filter(|now| !now.is_null());
        let now = now.map_or_else(|| "<unknown>".to_owned(), |now| format!("{}{unit}", go::plain(now)));
        return format!("{label}{now}/{}{unit}", go::plain(wanted));
    }
    format!("{label}<unknown>/<auto>")
}
