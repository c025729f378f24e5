//! The why-not-ready tree of one service: from the service down to the unmet condition, then what would help.

use serde::Serialize;
use serde_json::Value;

/// What was read of a live service.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Explanation {
    pub kind: String,
    pub namespace: String,
    pub name: String,
    pub ready: bool,
    pub message: String,
    /// The recorded decision; absent for role-based services.
    pub decision: Option<Value>,
    pub conditions: Vec<Value>,
    /// Pods that are not ready, each with the reason.
    pub pods: Vec<PodProblem>,
    /// Computed by deciding again with one constraint lifted.
    pub remedies: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct PodProblem {
    pub name: String,
    pub reason: String,
    pub message: String,
}

impl Explanation {
    /// `service` and the Pods that belong to it.
    pub(crate) fn of(service: &Value, pods: &[Value], remedies: Vec<String>) -> Self {
        let text = |pointer: &str| service.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let conditions = service.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
        let ready = cluster::conditions::find(&service["status"]["conditions"], "Ready");
        Self {
            kind: text("/kind"),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
            ready: ready.is_some_and(|condition| condition["status"] == "True"),
            message: ready.map_or("not seen by the operator yet".into(), |ready| string(&ready["message"])),
            decision: service.pointer("/status/decision").cloned(),
            conditions,
            pods: pods.iter().filter_map(problem).collect(),
            remedies,
        }
    }
}

/// Why a Pod is not ready: the scheduler's word, then a waiting container's, then its phase.
fn problem(pod: &Value) -> Option<PodProblem> {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let has = |kind: &str, status: &str| conditions.iter().find(|c| c["type"] == kind && c["status"] == status);
    if has("Ready", "True").is_some() {
        return None;
    }
    let containers = pod.pointer("/status/containerStatuses").and_then(Value::as_array);
    let waiting =
        containers.into_iter().flatten().map(|container| &container["state"]["waiting"]).find(|w| w.is_object());
    let told = has("PodScheduled", "False").or(waiting).or_else(|| has("Ready", "False"));
    Some(PodProblem {
        name: string(&pod["metadata"]["name"]),
        reason: told.map_or_else(|| string(&pod["status"]["phase"]), |told| string(&told["reason"])),
        message: told.map(|told| string(&told["message"])).unwrap_or_default(),
    })
}

fn string(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(crate) fn render(explanation: &Explanation) -> String {
    let Explanation { namespace, name, ready, message, .. } = explanation;
    let state = if *ready { "ready" } else { "not ready" };
    let mut lines = vec![format!("{namespace}/{name} is {state}: {message}")];
    let unmet: Vec<_> =
        explanation.conditions.iter().filter(|c| c["type"] != "Ready" && (*ready || c["status"] != "True")).collect();
    let decision = explanation.decision.as_ref().map(decided).unwrap_or_default();
    let branches = unmet.len() + decision.len();
    for (number, branch) in decision.iter().enumerate() {
        lines.push(format!("{} {branch}", branch_mark(number, branches)));
    }
    for (number, condition) in unmet.iter().enumerate() {
        lines.push(format!("{} {}", branch_mark(decision.len() + number, branches), condition_line(condition)));
    }
    for (number, pod) in explanation.pods.iter().enumerate() {
        let mark = branch_mark(number, explanation.pods.len());
        lines.push(format!("   {mark} pod {}  {}: {}", pod.name, pod.reason, pod.message));
    }
    if !explanation.remedies.is_empty() {
        lines.push("What would help".to_owned());
        lines.extend(explanation.remedies.iter().map(|remedy| format!("  · {remedy}")));
    }
    lines.join("\n")
}

fn branch_mark(number: usize, of: usize) -> &'static str {
    if number + 1 == of { "└─" } else { "├─" }
}

fn condition_line(condition: &Value) -> String {
    let part = |name: &str| condition[name].as_str().unwrap_or_default();
    format!("{}={}  {}: {}", part("type"), part("status"), part("reason"), part("message"))
}

/// The choice, and the losers that were recorded.
fn decided(decision: &Value) -> Vec<String> {
    let mut lines = vec![format!("decision  {}: {}", string(&decision["reason"]), string(&decision["message"]))];
    let candidates = decision["candidates"].as_array().map(Vec::as_slice).unwrap_or_default();
    for loser in candidates.iter().filter(|candidate| candidate["selected"] != true) {
        let rejected = &loser["rejected"];
        let why = match rejected["code"].as_str() {
            Some(code) => format!("{code}: {}", string(&rejected["message"])),
            None => "compatible, ranked lower".to_owned(),
        };
        lines.push(format!("lost      {} — {why}", string(&loser["runtime"])));
    }
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn from_the_service_down_to_the_unmet_condition() {
        let service = json!({
            "kind": "InferenceService",
            "metadata": {"namespace": "default", "name": "summarise"},
            "status": {
                "conditions": [
                    {"type": "RuntimeResolved", "status": "True", "reason": "Selected", "message": "srt"},
                    {"type": "WorkloadsReady", "status": "False", "reason": "PodsPending", "message": "0 of 1 pods are ready"},
                    {"type": "Ready", "status": "False", "reason": "PodsPending", "message": "engine cannot be placed"},
                ],
                "decision": {"reason": "Selected", "message": "srt on h100", "candidates": [
                    {"runtime": "srt", "selected": true},
                    {"runtime": "small", "rejected": {"code": "SizeOutOfRange", "message": "model 70B, runtime 2B–4B"}},
                ]},
            },
        });
        let pod = json!({"metadata": {"name": "summarise-engine-x"}, "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"},
        ]}});
        let explanation = Explanation::of(&service, &[pod], vec!["free 6 GPUs on big-0".into()]);
        insta::assert_snapshot!(render(&explanation), @r"
        default/summarise is not ready: engine cannot be placed
        ├─ decision  Selected: srt on h100
        ├─ lost      small — SizeOutOfRange: model 70B, runtime 2B–4B
        └─ WorkloadsReady=False  PodsPending: 0 of 1 pods are ready
           └─ pod summarise-engine-x  Unschedulable: 0/3 nodes are available
        What would help
          · free 6 GPUs on big-0
        ");
    }
}
