//! Table columns of HorizontalPodAutoscalers.

use apimachinery::{go_format_value, object};
use serde_json::{Value, json};

use super::cell::{age, column, items, number, value_or};
use super::column::Column;
use crate::conversion::autoscaling;

pub(super) fn columns() -> Vec<Column> {
    vec![
        column("Reference", "string", 0, |scaler, _| {
            let text = |field: &str| object::text(scaler, &format!("/spec/scaleTargetRef/{field}")).to_owned();
            json!(format!("{}/{}", text("kind"), text("name")))
        }),
        column("Targets", "string", 0, |scaler, _| json!(targets(scaler))),
        column("MinPods", "string", 0, |scaler, _| value_or(scaler, "/spec/minReplicas", "<unset>")),
        column("MaxPods", "string", 0, |scaler, _| json!(number(scaler, "/spec/maxReplicas"))),
        column("Replicas", "string", 0, |scaler, _| json!(number(scaler, "/status/currentReplicas"))),
        age(),
    ]
}

/// Formats the metrics of an autoscaler of either version: `cpu: 40%/60%, memory: <unknown>/1Gi`.
fn targets(scaler: &Value) -> String {
    let v2 = match object::text(scaler, "/apiVersion") {
        "autoscaling/v1" => autoscaling::to_v2(scaler.clone()),
        _ => scaler.clone(),
    };
    let metrics: Vec<&Value> = items(&v2, "/spec/metrics").collect();
    let current: Vec<&Value> = items(&v2, "/status/currentMetrics").collect();
    let formatted: Vec<String> = metrics
        .iter()
        .enumerate()
        .take(2)
        .map(|(index, metric)| format_metric(metric, current.get(index).copied()))
        .collect();
    match (formatted.is_empty(), metrics.len() - formatted.len()) {
        (true, _) => "<none>".to_owned(),
        (false, 0) => formatted.join(", "),
        (false, hidden) => format!("{} + {hidden} more...", formatted.join(", ")),
    }
}

fn format_metric(metric: &Value, current: Option<&Value>) -> String {
    let field = autoscaling::source_field(object::text(metric, "/type"));
    let source = metric.get(&field).unwrap_or(&Value::Null);
    let current_values = current.and_then(|current| current.get(&field)?.get("current"));
    let name = object::text(source, "/name");
    let label = if name.is_empty() { String::new() } else { format!("{name}: ") };
    for (value, unit) in [("averageValue", ""), ("averageUtilization", "%"), ("value", "")] {
        let Some(target_value) = source.get("target").and_then(|target| target.get(value)) else { continue };
        let current_value = current_values.and_then(|values| values.get(value)).filter(|value| !value.is_null());
        let current_value =
            current_value.map_or_else(|| "<unknown>".to_owned(), |value| format!("{}{unit}", go_format_value(value)));
        return format!("{label}{current_value}/{}{unit}", go_format_value(target_value));
    }
    format!("{label}<unknown>/<auto>")
}
