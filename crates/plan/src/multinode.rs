//! A replica over several nodes: one pod template becomes the leader's and the worker's.

use api::fusioninfer::MultinodeBackend;
use serde_json::{Value, json};

use crate::code;
use crate::launch::native::Place;
use crate::launch::{self, native, ray};
use crate::pod;
use crate::topology::Refusal;

/// The two templates of one replica.
#[derive(Debug, Clone, PartialEq)]
pub struct Templates {
    pub leader: Value,
    pub worker: Value,
}

/// Spreads `template` over `nodes` Pods. `port` is where the leader answers; `backend` is the user's choice, if any.
///
/// # Errors
/// The engine and the backend do not go together, or the launch line cannot be completed.
pub(crate) fn spread(
    template: &Value,
    nodes: u32,
    backend: Option<MultinodeBackend>,
    port: u16,
) -> Result<Templates, Refusal> {
    let container = pod::engine_container(template).unwrap_or(&Value::Null);
    let rendezvous = Rendezvous::of(container, nodes, backend)?;
    let (mut leader, mut worker) = (template.clone(), template.clone());
    if let Some(container) = pod::engine_container_mut(&mut leader) {
        rendezvous.start(container, Place::Leader)?;
        if container.get("readinessProbe").is_none() {
            container["readinessProbe"] = crate::probe::health(port);
        }
    }
    if let Some(container) = pod::engine_container_mut(&mut worker) {
        rendezvous.start(container, Place::Worker)?;
    }
    Ok(Templates { leader, worker })
}

/// How the Pods of one replica find each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rendezvous {
    Ray,
    /// The engine's own, over so many nodes.
    Native(native::Engine, u32),
    /// The line says it, for leader and workers alike.
    Stated,
}

/// SGLang joins nodes by itself and does not run on Ray; for the others Ray is the specification's default. A line that
/// says which Pod it starts has chosen already.
fn chosen(container: &Value, nodes: u32, stated: Option<MultinodeBackend>) -> Result<Rendezvous, Refusal> {
    use native::Engine::{Sglang, Vllm};
    let unsupported = |message: String| Err(Refusal::new(code::refusal::BACKEND_UNSUPPORTED, message));
    let engine = launch::read(container).engine;
    match (engine, stated) {
        (Some("sglang"), Some(MultinodeBackend::Ray)) => {
            unsupported("multinode.backend: SGLang does not run on Ray; remove the field or write Native".to_owned())
        }
        (Some("sglang"), _) => Ok(Rendezvous::Native(Sglang, nodes)),
        (Some("vllm") | None, Some(MultinodeBackend::Ray)) => Ok(Rendezvous::Ray),
        (Some("vllm") | None, Some(MultinodeBackend::Native)) => Ok(Rendezvous::Native(Vllm, nodes)),
        (Some("vllm"), None) if states_rank(container) => Ok(Rendezvous::Native(Vllm, nodes)),
        (Some("vllm") | None, None) if launch::tells_place(container) => Ok(Rendezvous::Stated),
        (Some("vllm") | None, None) => Ok(Rendezvous::Ray),
        (Some(_), None) if joins(container) => Ok(Rendezvous::Stated),
        (Some(other), _) => unsupported(format!(
            "multinode: how {other} joins several nodes is not known; leave backend out and say it in command or args, with $(LWS_LEADER_ADDRESS) and $(LWS_WORKER_INDEX)"
        )),
    }
}

/// Whether the engine is given its rank as a flag.
fn states_rank(container: &Value) -> bool {
    let words = ["command", "args"].map(|field| container[field].to_string());
    words.iter().any(|text| text.contains("--node-rank") || text.contains("--node_rank"))
}

impl Rendezvous {
    /// Of the engine that `container` starts, over `nodes` Pods; `backend` is the user's choice, if any.
    ///
    /// # Errors
    /// The engine does not run on that backend.
    pub(crate) fn of(container: &Value, nodes: u32, backend: Option<MultinodeBackend>) -> Result<Self, Refusal> {
        chosen(container, nodes, backend)
    }

    /// Makes `container` start as that Pod of the replica. A worker serves nobody.
    ///
    /// # Errors
    /// The launch line cannot be completed.
    pub(crate) fn start(self, container: &mut Value, place: Place) -> Result<(), Refusal> {
        match (self, place) {
            (Self::Ray, Place::Leader) => ray::leader(container),
            (Self::Ray, Place::Worker) => ray::worker(container),
            (Self::Native(engine, nodes), place) => {
                if !native::join(container, engine, nodes, place) {
                    return Err(Refusal::new(
                        code::refusal::INVALID_TEMPLATE,
                        "the script is more than one command: state its --nnodes and --node-rank there, or give command and args as lists",
                    ));
                }
            }
            (Self::Stated, _) => {}
        }
        if place == Place::Worker {
            without_network_calls(container);
        }
        Ok(())
    }
}

/// Whether the launch line of `container` says by itself how its Pod joins others.
pub(crate) fn joins(container: &Value) -> bool {
    const SIGNS: [&str; 6] = ["LWS_", "ray start", "node-rank", "node_rank", "nnodes", "mpirun"];
    let words = ["command", "args", "env"].map(|field| container[field].to_string());
    SIGNS.iter().any(|sign| words.iter().any(|text| text.contains(sign)))
}

/// A worker serves nobody: probes and hooks over the network would never pass. What runs inside the container stays.
fn without_network_calls(container: &mut Value) {
    let inside = |call: &Value| !call["exec"].is_null() || !call["sleep"].is_null();
    let Some(fields) = container.as_object_mut() else { return };
    for probe in ["readinessProbe", "livenessProbe", "startupProbe"] {
        if fields.get(probe).is_some_and(|probe| !inside(probe)) {
            fields.remove(probe);
        }
    }
    let Some(hooks) = fields.get_mut("lifecycle").and_then(Value::as_object_mut) else { return };
    hooks.retain(|name, hook| !["postStart", "preStop"].contains(&name.as_str()) || inside(hook));
    if hooks.is_empty() {
        fields.remove("lifecycle");
    }
}

/// Keeps the Pods of one replica, found by `labels`, on different hosts, beside what the template asks already.
pub(crate) fn on_different_hosts(template: &mut Value, labels: &crate::labels::Labels) {
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
    fn workers_lose_network_probes_and_the_leader_has_one() {
        let http = json!({"httpGet": {"path": "/health", "port": 8000}});
        let given =
            template(json!({"image": "vllm", "livenessProbe": http, "startupProbe": {"exec": {"command": ["x"]}}}));
        let Templates { leader, worker } = spread(&given, 2, None, 8000).unwrap();
        let (leader, worker) = (&leader["spec"]["containers"][0], &worker["spec"]["containers"][0]);
        assert_eq!(leader["readinessProbe"]["httpGet"]["port"], 8000);
        assert_eq!(leader["livenessProbe"], http);
        assert_eq!((worker.get("livenessProbe"), worker.get("readinessProbe")), (None, None));
        assert!(worker.get("startupProbe").is_some());
    }

    // spec: TOP-49
    #[test]
    fn no_ray_appears_where_the_engine_joins_nodes_itself() {
        let vllm = template(json!({"image": "vllm", "args": ["--model", "m"]}));
        let native = spread(&vllm, 2, Some(MultinodeBackend::Native), 8000).unwrap();
        let sglang =
            spread(&template(json!({"image": "lmsysorg/sglang:v1", "args": ["--tp", "16"]})), 2, None, 30000).unwrap();
        for Templates { leader, worker } in [native, sglang] {
            let text = format!("{leader}{worker}");
            assert!(!text.contains("ray"), "{text}");
            assert!(text.contains("--node-rank"), "{text}");
        }
    }

    #[test]
    fn a_worker_keeps_only_hooks_that_run_inside() {
        let hooks = json!({"postStart": {"exec": {"command": ["x"]}}, "preStop": {"httpGet": {"port": 8000}}});
        let given = template(json!({"image": "vllm", "lifecycle": hooks}));
        let Templates { leader, worker } = spread(&given, 2, None, 8000).unwrap();
        assert_eq!(leader["spec"]["containers"][0]["lifecycle"], hooks);
        assert_eq!(worker["spec"]["containers"][0]["lifecycle"], json!({"postStart": {"exec": {"command": ["x"]}}}));
    }

    /// A line that knows where it runs is not started by Ray around it.
    #[rstest]
    #[case::flags(json!({"image": "vllm", "args": ["--node-rank=$(LWS_WORKER_INDEX)"]}), Ok(Rendezvous::Native(native::Engine::Vllm, 2)))]
    #[case::branches(json!({"image": "vllm", "command": ["sh", "-c", "[ $LWS_WORKER_INDEX = 0 ] && a || b"]}), Ok(Rendezvous::Stated))]
    #[case::own_program(json!({"image": "mine", "command": ["torchrun", "--node-rank=$(LWS_WORKER_INDEX)", "x.py"]}), Ok(Rendezvous::Stated))]
    #[case::mpi(json!({"image": "nvcr.io/nvidia/tensorrt-llm/release:1", "command": ["mpirun", "x"]}), Ok(Rendezvous::Stated))]
    #[case::nobody_knows(json!({"image": "nvcr.io/nvidia/tritonserver:25.01"}), Err("BackendUnsupported"))]
    #[case::plain(json!({"image": "vllm", "args": ["--model", "m"]}), Ok(Rendezvous::Ray))]
    fn how_nodes_join(#[case] container: Value, #[case] expect: Result<Rendezvous, &str>) {
        let found = Rendezvous::of(&container, 2, None);
        assert_eq!(found.as_ref().map_err(|refusal| refusal.code.as_str()), expect.as_ref().map_err(|code| *code));
    }

    #[test]
    fn sglang_on_ray_is_refused() {
        let sglang = template(json!({"image": "lmsysorg/sglang:v1"}));
        assert_eq!(spread(&sglang, 2, Some(MultinodeBackend::Ray), 1).unwrap_err().code, "BackendUnsupported");
    }
}
