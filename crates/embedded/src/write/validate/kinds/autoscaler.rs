//! HorizontalPodAutoscalers: bounds that leave room.

use apimachinery::status::Cause;
use serde_json::{Value, json};

pub(super) fn causes(scaler: &Value) -> Vec<Cause> {
    let count = |name: &str| scaler.pointer(&format!("/spec/{name}")).and_then(Value::as_i64);
    let (least, most) = (count("minReplicas").unwrap_or(1), count("maxReplicas").unwrap_or(0));
    let mut causes = Vec::new();
    if least < 1 {
        let hint = "must be greater than or equal to 1";
        causes.push(Cause::invalid("spec.minReplicas", &json!(least), hint));
    }
    if most < 1 {
        causes.push(Cause::invalid("spec.maxReplicas", &json!(most), "must be greater than 0"));
    }
    if most < least {
        let hint = "must be greater than or equal to `minReplicas`";
        causes.push(Cause::invalid("spec.maxReplicas", &json!(most), hint));
    }
    causes
}
