//! Explains requesters and providers of dual pods, and the GPUs of a node.

use actuation::{
    ClusterView, EngineSummary, GpuExplanation, NodeExplanation, Problem, Settings, Start, StartExplanation, StartPath,
};
use api::Code;
use api::dual_pods::{GPU_MAP, UserAnnotation};
use jiff::Timestamp;
use serde_json::Value;

use super::explanation::Explanation;
use crate::pod_diagnostics::PodEvent;
use crate::report::names::format_count;
use crate::report::tree::TreeNode;

/// Explains a Pod: how a requester gets its engine and what prevents it, or what the engine of a provider does. `events` are those of
/// the Pod.
pub(crate) fn explain_pod(pod: &Value, view: &ClusterView, events: &[PodEvent], now: Timestamp) -> Explanation {
    let mut explanation = Explanation::new(pod, now);
    let (namespace, name) = (explanation.namespace.clone(), explanation.name.clone());
    if let Some(start) = view.explain_requester(&namespace, &name, now) {
        explanation.message = headline(&start, explanation.ready);
        explanation.tree = start_tree(&start);
        let map_namespace = view.gpu_map_namespace(&namespace);
        explanation.remedies = remedies(&start, &namespace, &map_namespace, events);
    } else if let Some((node, engine)) = view.explain_provider(&namespace, &name) {
        explanation.message = format!("provider on node {node}: {}", state_of(&engine));
    } else {
        let annotation = UserAnnotation::ServerPatch.key();
        explanation.message = format!(
            "not a Pod of dual pods: it has no annotation `{annotation}`, and the controller of dual pods did not create it"
        );
    }
    explanation
}

/// Explains a node: which engines use each of its GPUs. `namespace` is that of the requesters, whose `gpu-map` applies.
pub(crate) fn explain_node(
    node: &Value,
    view: &ClusterView,
    namespace: &str,
    settings: &Settings,
    now: Timestamp,
) -> Explanation {
    let mut explanation = Explanation::new(node, now);
    // The age of the condition Ready is about the kubelet.
    explanation.age = None;
    let name = explanation.name.clone();
    let gpus = view.explain_node(&name, namespace);
    let engines = gpus.gpus.iter().map(|gpu| gpu.engines.len()).sum();
    explanation.message = match gpus.gpus.len() {
        0 => format!("{GPU_MAP} has no GPU of the node, and no dual pods run on it"),
        count => format!("{}, {} of dual pods", format_count(count, "GPU"), format_count(engines, "engine")),
    };
    explanation.tree = gpus.gpus.iter().map(|gpu| gpu_tree(gpu, &gpus)).collect();
    if !gpus.gpus.is_empty() {
        explanation.tree.push(TreeNode::leaf(utilization_line(&gpus, settings)));
    }
    if gpus.gpus.iter().any(|gpu| gpu.index.is_none()) {
        explanation.remedies = fill_map(&view.gpu_map_namespace(namespace), &name);
    }
    explanation
}

fn headline(explanation: &StartExplanation, is_ready: bool) -> String {
    let path = |path: &StartPath| match path {
        StartPath::Cold => "cold start".to_owned(),
        StartPath::Hot(pod) => format!("hot start with Pod {pod}"),
        StartPath::Launcher(pod) => format!("start in Pod {pod}, a launcher"),
    };
    match &explanation.start {
        Start::Unscheduled(Some(message)) => format!("Waiting for the scheduler: {message}"),
        Start::Unscheduled(None) => "Waiting for the scheduler".to_owned(),
        Start::Ended => "the Pod ends, and its engine is put to sleep".to_owned(),
        Start::AcceleratorsUnknown => "Waiting for the controller to read the accelerators of the Pod".to_owned(),
        Start::Invalid => "not served, because its provider cannot be derived".to_owned(),
        Start::Expected(expected) => format!("no engine yet; expected: {}", path(expected)),
        Start::Bound { path: taken, engine } if is_ready => format!("{}; {}", path(taken), state_of(engine)),
        Start::Bound { path: taken, engine } => format!("{}; not ready: {}", path(taken), state_of(engine)),
    }
}

fn state_of(engine: &EngineSummary) -> String {
    format!("the engine of {engine}")
}

fn start_tree(explanation: &StartExplanation) -> Vec<TreeNode> {
    let problems = explanation.problems.iter().map(Problem::to_string).chain(explanation.reported.iter().cloned());
    let accelerator = |(uuid, index): &(String, Option<u32>)| match index {
        Some(index) => format!("{uuid}, index {index}"),
        None => format!("{uuid}, not in the entry of the node in {GPU_MAP}"),
    };
    let title = format!("accelerators on node {}", explanation.node);
    let branches = [
        branch("problems", problems),
        branch(&title, explanation.accelerators.iter().map(accelerator)),
        branch("sleeping engines", sleeper_lines(explanation)),
        branch("other engines on its accelerators", explanation.others.iter().map(EngineSummary::to_string)),
    ];
    branches.into_iter().flatten().collect()
}

fn sleeper_lines(explanation: &StartExplanation) -> Vec<String> {
    let is_cold =
        matches!(&explanation.start, Start::Expected(StartPath::Cold) | Start::Bound { path: StartPath::Cold, .. });
    if !is_cold {
        return Vec::new();
    }
    let nearest = match &explanation.nearest {
        Some(nearest) => {
            let difference = match (&nearest.difference, nearest.count) {
                (Some(difference), 0 | 1) => difference.to_string(),
                (Some(difference), count) => format!("{difference} (first of {count} fields)"),
                (None, _) => "a field that the API server sets by default".to_owned(),
            };
            format!("none is suitable; the nearest, Pod {}, differs by {difference}", nearest.pod)
        }
        None => "none on the node in this namespace is suitable".to_owned(),
    };
    let unavailable = explanation.unavailable.iter().map(|engine| format!("suitable, but not available: {engine}"));
    std::iter::once(nearest).chain(unavailable).collect()
}

fn gpu_tree(gpu: &GpuExplanation, node: &NodeExplanation) -> TreeNode {
    let index = gpu.index.map_or_else(|| format!("GPU not in {GPU_MAP}"), |index| format!("GPU {index}"));
    let memory = node.memory_mib.map(|mib| format!(", {mib} MiB")).unwrap_or_default();
    let requesters = match gpu.requesters.as_slice() {
        [] => "not assigned to a requester".to_owned(),
        names => format!("assigned to Pod {}", names.join(", ")),
    };
    let line = |engine: &EngineSummary| {
        let victim = gpu.next_victim.as_ref().filter(|victim| **victim == engine.id);
        let suffix = if victim.is_some() { "; deleted first if another engine needs its place" } else { "" };
        TreeNode::leaf(format!("{engine}; GPU memory in use is not known{suffix}"))
    };
    TreeNode::new(format!("{index} {}{memory}: {requesters}", gpu.uuid), gpu.engines.iter().map(line).collect())
}

fn utilization_line(node: &NodeExplanation, settings: &Settings) -> String {
    let Settings { sleeper_limit, residue_mib, .. } = settings;
    let assumption = format!("with --sleeper-limit {sleeper_limit} and --sleeper-memory {residue_mib}");
    match (node.memory_mib, node.utilization_percent) {
        (Some(_), Some(percent)) => format!(
            "largest --gpu-memory-utilization of an engine that fits beside the sleeping ones: {}.{:02} ({assumption})",
            percent / 100,
            percent % 100
        ),
        (Some(_), None) => format!("no engine fits beside the sleeping ones ({assumption})"),
        (None, _) => {
            "--gpu-memory-utilization that fits is not known: the Node has no label nvidia.com/gpu.memory".to_owned()
        }
    }
}

/// Returns what the user can do about the problems, the same remedy once.
fn remedies(explanation: &StartExplanation, namespace: &str, map_namespace: &str, events: &[PodEvent]) -> Vec<String> {
    let mut remedies: Vec<String> = Vec::new();
    let computed = explanation.problems.iter().flat_map(|problem| match problem {
        Problem::GpuMapUnavailable => vec![run_gpu_map(map_namespace)],
        Problem::GpuMapInvalid { .. } | Problem::UnknownAccelerator { .. } | Problem::AcceleratorOfOtherNode { .. } => {
            fill_map(map_namespace, &explanation.node)
        }
        Problem::AcceleratorBusy { pod, .. } => busy_remedies(explanation, pod, namespace),
        problem => remedy_of(problem.code()).into_iter().collect(),
    });
    let code_of = |message: &String| {
        let event = events.iter().find(|event| event.message == *message)?;
        actuation::code::ALL.iter().copied().find(|code| code.as_str() == event.reason)
    };
    let reported = explanation.reported.iter().filter_map(code_of).filter_map(remedy_of);
    for remedy in computed.chain(reported) {
        if !remedies.contains(&remedy) {
            remedies.push(remedy);
        }
    }
    remedies
}

fn remedy_of(code: Code) -> Option<String> {
    (!code.remedy().is_empty()).then(|| code.remedy().to_owned())
}

/// Returns how to replace the entry of a node: `ostler actuation gpu-map` retains an entry of a user.
fn fill_map(namespace: &str, node: &str) -> Vec<String> {
    let patch = serde_json::json!({"data": {node: null}});
    vec![
        format!(
            "remove the entry of the node: `kubectl -n {namespace} patch configmap {GPU_MAP} --type=merge -p '{patch}'`"
        ),
        run_gpu_map(namespace),
    ]
}

fn run_gpu_map(namespace: &str) -> String {
    format!(
        "write the entry: `ostler actuation gpu-map --namespace {namespace} --image IMAGE`, with an image that contains ostler and a C library"
    )
}

fn busy_remedies(explanation: &StartExplanation, pod: &str, namespace: &str) -> Vec<String> {
    let engine = explanation.others.iter().find(|engine| engine.pod == pod);
    let remedy = match engine.and_then(|engine| engine.requester.as_ref()) {
        Some(requester) => {
            format!("delete the Pod that uses the engine: `kubectl -n {namespace} delete pod {requester}`")
        }
        None => format!("wait until the engine sleeps, or delete it: `kubectl -n {namespace} delete pod {pod}`"),
    };
    vec![remedy]
}

fn branch(title: &str, lines: impl IntoIterator<Item = String>) -> Option<TreeNode> {
    TreeNode::branch(title, lines.into_iter().map(TreeNode::leaf).collect())
}
