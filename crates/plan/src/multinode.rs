//! Multi-node replicas: derives the Pod templates of leader and workers from one template.

use api::fusioninfer::MultinodeBackend;
use decide::PodRole;
use serde_json::{Value, json};

use crate::code;
use crate::engine_container::{engine_container, engine_container_mut};
use crate::launch::{self, native, ray};
use crate::plan_error::PlanError;

/// Pod templates of one replica.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReplicaTemplates {
    pub leader: Value,
    pub worker: Value,
}

/// How the Pods of a replica form one distributed engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rendezvous {
    /// A Ray cluster.
    Ray,
    /// The engine's own rendezvous over the given number of nodes.
    Native(native::Engine, u32),
    /// The command configures the rendezvous and is left unchanged.
    Explicit,
}

/// Returns the templates for a replica of `nodes` Pods. `port` is the serving port of the leader; `backend` is the backend that
/// the user requests.
///
/// # Errors
/// The engine does not support the backend, or arguments cannot be added to the command.
pub(crate) fn expand_template(
    template: &Value,
    nodes: u32,
    backend: Option<MultinodeBackend>,
    port: u16,
) -> Result<ReplicaTemplates, PlanError> {
    let container = engine_container(template).unwrap_or(&Value::Null);
    let rendezvous = Rendezvous::for_container(container, nodes, backend)?;
    let (mut leader, mut worker) = (template.clone(), template.clone());
    if let Some(container) = engine_container_mut(&mut leader) {
        rendezvous.configure(container, PodRole::Leader)?;
        if container.get("readinessProbe").is_none() {
            container["readinessProbe"] = crate::probe::health(port);
        }
    }
    if let Some(container) = engine_container_mut(&mut worker) {
        rendezvous.configure(container, PodRole::Worker)?;
    }
    Ok(ReplicaTemplates { leader, worker })
}

// === impl Rendezvous ===

impl Rendezvous {
    /// Returns the rendezvous for the engine of `container` over `nodes` Pods. `backend` is the backend that the user requests.
    ///
    /// # Errors
    /// The engine does not support the backend.
    pub(crate) fn for_container(
        container: &Value,
        nodes: u32,
        backend: Option<MultinodeBackend>,
    ) -> Result<Self, PlanError> {
        select(container, nodes, backend)
    }

    /// Configures `container` for the leader or a worker.
    ///
    /// # Errors
    /// Arguments cannot be added to the command.
    pub(crate) fn configure(self, container: &mut Value, role: PodRole) -> Result<(), PlanError> {
        match (self, role) {
            (Self::Ray, PodRole::Leader) => ray::configure_leader(container),
            (Self::Ray, PodRole::Worker) => ray::configure_worker(container),
            (Self::Native(engine, nodes), role) => {
                if !native::add_flags(container, engine, nodes, role) {
                    return Err(PlanError::new(
                        code::error::INVALID_TEMPLATE,
                        "the script has more than one command: add --nnodes and --node-rank to the script, or set command and args as lists",
                    ));
                }
            }
            (Self::Explicit, _) => {}
        }
        if role == PodRole::Worker {
            remove_network_probes(container);
        }
        Ok(())
    }
}

/// Selects the rendezvous of a container. SGLang has its own and does not support Ray; Ray is the default of the specification
/// for other engines. A command that distinguishes leader and workers is left unchanged.
fn select(container: &Value, nodes: u32, backend: Option<MultinodeBackend>) -> Result<Rendezvous, PlanError> {
    use native::Engine::{Sglang, Vllm};
    let unsupported = |message: String| Err(PlanError::new(code::error::BACKEND_UNSUPPORTED, message));
    let engine = launch::inspect(container).engine;
    match (engine, backend) {
        (Some("sglang"), Some(MultinodeBackend::Ray)) => {
            unsupported("multinode.backend: SGLang does not support Ray; remove the field or set Native".to_owned())
        }
        (Some("sglang"), _) => Ok(Rendezvous::Native(Sglang, nodes)),
        (Some("vllm") | None, Some(MultinodeBackend::Ray)) => Ok(Rendezvous::Ray),
        (Some("vllm") | None, Some(MultinodeBackend::Native)) => Ok(Rendezvous::Native(Vllm, nodes)),
        (Some("vllm"), None) if has_rank_flag(container) => Ok(Rendezvous::Native(Vllm, nodes)),
        (Some("vllm") | None, None) if launch::distinguishes_pods(container) => Ok(Rendezvous::Explicit),
        (Some("vllm") | None, None) => Ok(Rendezvous::Ray),
        (Some(_), None) if configures_rendezvous(container) => Ok(Rendezvous::Explicit),
        (Some(other), _) => unsupported(format!(
            "multinode: multi-node arguments of {other} are not known; omit backend and pass $(LWS_LEADER_ADDRESS) and $(LWS_WORKER_INDEX) in command or args"
        )),
    }
}

/// Returns whether the command has a flag for the node rank.
fn has_rank_flag(container: &Value) -> bool {
    let words = ["command", "args"].map(|field| container[field].to_string());
    words.iter().any(|text| text.contains("--node-rank") || text.contains("--node_rank"))
}

/// Returns whether the command of `container` configures the rendezvous.
pub(crate) fn configures_rendezvous(container: &Value) -> bool {
    const MARKERS: [&str; 6] = ["LWS_", "ray start", "node-rank", "node_rank", "nnodes", "mpirun"];
    let words = ["command", "args", "env"].map(|field| container[field].to_string());
    MARKERS.iter().any(|marker| words.iter().any(|text| text.contains(marker)))
}

/// Removes network probes and hooks, which fail on workers because they do not serve requests. Keeps `exec` and `sleep`
/// handlers.
fn remove_network_probes(container: &mut Value) {
    let is_local = |handler: &Value| !handler["exec"].is_null() || !handler["sleep"].is_null();
    let Some(fields) = container.as_object_mut() else { return };
    for probe in ["readinessProbe", "livenessProbe", "startupProbe"] {
        if fields.get(probe).is_some_and(|probe| !is_local(probe)) {
            fields.remove(probe);
        }
    }
    let Some(hooks) = fields.get_mut("lifecycle").and_then(Value::as_object_mut) else { return };
    hooks.retain(|name, hook| !["postStart", "preStop"].contains(&name.as_str()) || is_local(hook));
    if hooks.is_empty() {
        fields.remove("lifecycle");
    }
}

/// Adds a Pod anti-affinity that schedules the Pods with `labels` on different hosts.
pub(crate) fn spread_over_hosts(template: &mut Value, labels: &crate::labels::Labels) {
    let rule = json!({"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"});
    let rules = &mut template["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    match rules.as_array_mut() {
        Some(rules) => rules.push(rule),
        None => *rules = json!([rule]),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn template(container: Value) -> Value {
        json!({"spec": {"containers": [container, {"name": "sidecar", "image": "x"}]}})
    }

    // spec: TOP-48
    #[test]
    fn removes_network_probes_of_workers_and_adds_one_to_the_leader() {
        let http = json!({"httpGet": {"path": "/health", "port": 8000}});
        let input =
            template(json!({"image": "vllm", "livenessProbe": http, "startupProbe": {"exec": {"command": ["x"]}}}));
        let ReplicaTemplates { leader, worker } = expand_template(&input, 2, None, 8000).unwrap();
        let (leader, worker) = (&leader["spec"]["containers"][0], &worker["spec"]["containers"][0]);
        assert_eq!(leader["readinessProbe"]["httpGet"]["port"], 8000);
        assert_eq!(leader["livenessProbe"], http);
        assert_eq!((worker.get("livenessProbe"), worker.get("readinessProbe")), (None, None));
        assert!(worker.get("startupProbe").is_some());
    }

    // spec: TOP-49
    #[test]
    fn native_rendezvous_does_not_use_ray() {
        let vllm = template(json!({"image": "vllm", "args": ["--model", "m"]}));
        let native = expand_template(&vllm, 2, Some(MultinodeBackend::Native), 8000).unwrap();
        let sglang =
            expand_template(&template(json!({"image": "lmsysorg/sglang:v1", "args": ["--tp", "16"]})), 2, None, 30000)
                .unwrap();
        for ReplicaTemplates { leader, worker } in [native, sglang] {
            let text = format!("{leader}{worker}");
            assert!(!text.contains("ray"), "{text}");
            assert!(text.contains("--node-rank"), "{text}");
        }
    }

    #[test]
    fn removes_network_hooks_of_workers() {
        let hooks = json!({"postStart": {"exec": {"command": ["x"]}}, "preStop": {"httpGet": {"port": 8000}}});
        let input = template(json!({"image": "vllm", "lifecycle": hooks}));
        let ReplicaTemplates { leader, worker } = expand_template(&input, 2, None, 8000).unwrap();
        assert_eq!(leader["spec"]["containers"][0]["lifecycle"], hooks);
        assert_eq!(worker["spec"]["containers"][0]["lifecycle"], json!({"postStart": {"exec": {"command": ["x"]}}}));
    }

    #[rstest]
    #[case::flags(json!({"image": "vllm", "args": ["--node-rank=$(LWS_WORKER_INDEX)"]}), Ok(Rendezvous::Native(native::Engine::Vllm, 2)))]
    #[case::branches_on_worker_index(json!({"image": "vllm", "command": ["sh", "-c", "[ $LWS_WORKER_INDEX = 0 ] && a || b"]}), Ok(Rendezvous::Explicit))]
    #[case::custom_program(json!({"image": "mine", "command": ["torchrun", "--node-rank=$(LWS_WORKER_INDEX)", "x.py"]}), Ok(Rendezvous::Explicit))]
    #[case::mpi(json!({"image": "nvcr.io/nvidia/tensorrt-llm/release:1", "command": ["mpirun", "x"]}), Ok(Rendezvous::Explicit))]
    #[case::unknown_engine(json!({"image": "nvcr.io/nvidia/tritonserver:25.01"}), Err("BackendUnsupported"))]
    #[case::plain(json!({"image": "vllm", "args": ["--model", "m"]}), Ok(Rendezvous::Ray))]
    fn selects_the_rendezvous(#[case] container: Value, #[case] expect: Result<Rendezvous, &str>) {
        let rendezvous = Rendezvous::for_container(&container, 2, None);
        assert_eq!(rendezvous.as_ref().map_err(|error| error.code.as_str()), expect.as_ref().map_err(|code| *code));
    }

    #[test]
    fn rejects_sglang_on_ray() {
        let sglang = template(json!({"image": "lmsysorg/sglang:v1"}));
        assert_eq!(expand_template(&sglang, 2, Some(MultinodeBackend::Ray), 1).unwrap_err().code, "BackendUnsupported");
    }
}
