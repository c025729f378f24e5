//! Environment variables merge by name; whole entries are replaced, so `value` never meets `valueFrom`.

use serde_json::Value;

/// Service over accelerator over runtime. Order: the runtime's, then what the accelerator adds, then the service.
#[must_use]
pub fn merge(runtime: &[Value], accelerator: &[Value], service: &[Value]) -> Vec<Value> {
    overlay(&overlay(runtime, accelerator), service)
}

/// `upper` over `lower`: entries keep their place, new names come last in the order written.
#[must_use]
pub fn overlay(lower: &[Value], upper: &[Value]) -> Vec<Value> {
    let mut merged: Vec<Value> = lower.to_vec();
    for entry in upper {
        match merged.iter_mut().find(|known| known.get("name") == entry.get("name")) {
            Some(known) => known.clone_from(entry),
            None => merged.push(entry.clone()),
        }
    }
    merged
}

/// Tensor × pipeline parallelism that plain variables state.
#[must_use]
pub fn parallelism(env: &[Value]) -> Option<u32> {
    let number = |name: &str| {
        let entry = env.iter().rev().find(|entry| entry["name"] == name)?;
        entry["value"].as_str()?.parse::<u32>().ok().filter(|count| *count > 0)
    };
    let (tensor, pipeline) = (number("TENSOR_PARALLEL_SIZE"), number("PIPELINE_PARALLEL_SIZE"));
    (tensor.is_some() || pipeline.is_some()).then(|| tensor.unwrap_or(1).saturating_mul(pipeline.unwrap_or(1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    // spec: ACC-95
    #[test]
    fn service_over_accelerator_over_runtime_in_a_stable_order() {
        let runtime = [json!({"name": "A", "value": "runtime"}), json!({"name": "B", "value": "runtime"})];
        let accelerator = [json!({"name": "C", "value": "accelerator"}), json!({"name": "B", "value": "accelerator"})];
        let service = [json!({"name": "D", "valueFrom": {}}), json!({"name": "C", "value": "service"})];
        let merged = merge(&runtime, &accelerator, &service);
        let names: Vec<&str> = merged.iter().filter_map(|entry| entry["name"].as_str()).collect();
        assert_eq!(names, ["A", "B", "C", "D"]);
        assert_eq!(merged[1]["value"], "accelerator");
        assert_eq!(merged[2]["value"], "service");
    }
}
