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

/// SGLang joins nodes by itself and does not run on Ray; for the others Ray is the specification's default.
fn backend_of(engine: native::Engine, stated: Option<MultinodeBackend>) -> Result<MultinodeBackend, Refusal> {
    match (engine, stated) {
        (native::Engine::Sglang, Some(MultinodeBackend::Ray)) => Err(Refusal::new(
            code::refusal::BACKEND_UNSUPPORTED,
            "multinode.backend: SGLang does not run on Ray; remove the field or write Native",
        )),
        (native::Engine::Sglang, None) => Ok(MultinodeBackend::Native),
        (_, stated) => Ok(stated.unwrap_or_default()),
    }
}

/// How the Pods of one replica find each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rendezvous {
    backend: MultinodeBackend,
    engine: native::Engine,
    nodes: u32,
}

impl Rendezvous {
    /// Of the engine that `container` starts, over `nodes` Pods; `backend` is the user's choice, if any.
    ///
    /// # Errors
    /// The engine does not run on that backend.
    pub(crate) fn of(container: &Value, nodes: u32, backend: Option<MultinodeBackend>) -> Result<Self, Refusal> {
        let engine = match launch::read(container).engine {
            Some("sglang") => native::Engine::Sglang,
            _ => native::Engine::Vllm,
        };
        Ok(Self { backend: backend_of(engine, backend)?, engine, nodes })
    }

    /// Makes `container` start as that Pod of the replica. A worker serves nobody.
    ///
    /// # Errors
    /// The launch line cannot be completed.
    pub(crate) fn start(self, container: &mut Value, place: Place) -> Result<(), Refusal> {
        match (self.backend, place) {
            (MultinodeBackend::Ray, Place::Leader) => ray::leader(container),
            (MultinodeBackend::Ray, Place::Worker) => ray::worker(container),
            (MultinodeBackend::Native, place) => {
                if !native::join(container, self.engine, self.nodes, place) {
                    return Err(Refusal::new(
                        code::refusal::INVALID_TEMPLATE,
                        "the script is more than one command: state its --nnodes and --node-rank there, or give command and args as lists",
                    ));
                }
            }
        }
        if place == Place::Worker {
            without_network_probes(container);
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

/// A worker serves nobody: probes over the network would never pass. What runs inside the container stays.
fn without_network_probes(container: &mut Value) {
    let Some(fields) = container.as_object_mut() else { return };
    for probe in ["readinessProbe", "livenessProbe", "startupProbe"] {
        if fields.get(probe).is_some_and(|probe| probe.get("exec").is_none()) {
            fields.remove(probe);
        }
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
    fn sglang_on_ray_is_refused() {
        let sglang = template(json!({"image": "lmsysorg/sglang:v1"}));
        assert_eq!(spread(&sglang, 2, Some(MultinodeBackend::Ray), 1).unwrap_err().code, "BackendUnsupported");
    }
}
