//! Workloads that the gateway has scaled to zero, and whose service requires replicas now.
//!
//! Nothing else would start them: the gateway scales only what a pool names, and HorizontalPodAutoscalers leave workloads without
//! replicas alone.

use cluster::DesiredObject;
use serde_json::{Value, json};

use crate::workloads::PlannedWorkload;

/// Sets the minimum number of replicas of such workloads. Their next version leaves the number to its autoscaler again. `pools` are the
/// existing BackendPools of the service.
pub(crate) fn start_replicas<'a>(
    objects: &mut [DesiredObject],
    planned: &[Value],
    workloads: &[PlannedWorkload],
    pools: impl IntoIterator<Item = &'a Value>,
) {
    let may_be_at_zero = planned.iter().any(|planned| planned["spec"]["scaleToZero"].is_object());
    // Otherwise a person has scaled to zero, to pause the service.
    if may_be_at_zero || !pools.into_iter().any(has_been_scaled) {
        return;
    }
    for object in objects {
        let DesiredObject::Apply(object) = object else { continue };
        if let Some(replicas) = required_replicas(object, planned, workloads) {
            object["spec"]["replicas"] = json!(replicas);
        }
    }
}

/// Returns whether the gateway has scaled the workload of a pool: it has recorded requests to it, or it still does.
fn has_been_scaled(pool: &Value) -> bool {
    pool["spec"]["scaleToZero"].is_object() || pool["status"]["lastRequestTime"].is_string()
}

/// Returns the minimum number of replicas of the HorizontalPodAutoscaler of `object`, if this has no replica.
fn required_replicas(object: &Value, planned: &[Value], workloads: &[PlannedWorkload]) -> Option<u64> {
    let is_same =
        |other: &Value| other["kind"] == object["kind"] && other["metadata"]["name"] == object["metadata"]["name"];
    let live = workloads.iter().find(|workload| is_same(&workload.planned))?.live.as_ref()?;
    if live.object["spec"]["replicas"] != 0 || object["spec"]["replicas"].is_u64() {
        return None;
    }
    let scales = |planned: &&Value| {
        let target = &planned["spec"]["scaleTargetRef"];
        target["kind"] == object["kind"] && target["name"] == object["metadata"]["name"]
    };
    planned.iter().find(scales)?["spec"]["minReplicas"].as_u64().filter(|minimum| *minimum > 0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rstest::rstest;

    use super::*;
    use crate::workloads::LiveWorkload;

    const AUTOSCALER: &str =
        r#"{"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "chat"}, "minReplicas": 2, "maxReplicas": 3}}"#;
    const POOL: &str = r#"{"spec": {"scaleToZero": {"targetRef": {"kind": "Deployment", "name": "chat"}}}}"#;

    /// Columns: other planned objects, live replicas, the existing pool, and the number in the desired object.
    #[rstest]
    #[case::pool_still_scales(&[AUTOSCALER], 0, POOL, Some(2))]
    #[case::pool_has_scaled(&[AUTOSCALER], 0, r#"{"status": {"lastRequestTime": "2026-01-01T00:00:00Z"}}"#, Some(2))]
    #[case::may_be_at_zero(&[AUTOSCALER, POOL], 0, POOL, None)]
    #[case::stopped_by_a_person(&[AUTOSCALER], 0, "{}", None)]
    #[case::runs(&[AUTOSCALER], 1, POOL, None)]
    #[case::no_autoscaler(&[], 0, POOL, None)]
    fn workload_that_the_gateway_stopped_starts(
        #[case] others: &[&str],
        #[case] replicas: u64,
        #[case] pool: &str,
        #[case] expect: Option<u64>,
    ) {
        let planned = json!({"kind": "Deployment", "metadata": {"name": "chat"}, "spec": {"template": {}}});
        let mut live = planned.clone();
        live["spec"]["replicas"] = json!(replicas);
        let workload = PlannedWorkload {
            planned: planned.clone(),
            live: Some(LiveWorkload { object: Arc::new(live), pods: Vec::new(), providers: Vec::new() }),
            recent_crashes: 0,
            gang_creation_end: None,
        };
        let all: Vec<Value> =
            others.iter().map(|text| serde_json::from_str(text).unwrap()).chain([planned.clone()]).collect();
        let mut objects = [DesiredObject::Apply(planned)];
        start_replicas(&mut objects, &all, &[workload], [&serde_json::from_str(pool).unwrap()]);
        assert_eq!(objects[0].object()["spec"]["replicas"].as_u64(), expect);
    }
}
