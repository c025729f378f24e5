//! A cluster of one node: the API server of `embedded`, a coordinator that is driven by function calls, and models of the kubelet,
//! requesters and engines. Every external effect is recorded in a journal.

mod effects;
mod kubelet;
mod run;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use actuation::{Call, Coordinator, EngineId, Mode, Settings, Time, cache_policy, watched_kinds};
use api::dual_pods;
use apimachinery::object;
use cluster::Stores;
use embedded::Server;
use embedded::ports::ServerPorts;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::models::{EngineModel, InstanceModel, LauncherModel, RequesterModel};

pub(crate) const NODE: &str = "node-1";
const NAMESPACE: &str = "default";
/// Field manager of writes by function calls.
const MANAGER: &str = "kube-controller-manager";
/// Time that passes after each action.
const STEP: Duration = Duration::from_millis(10);
/// Retries after which a world counts as quiet.
const MAX_WAITS: usize = 40;

/// Actions and changes of Pods after which a world counts as one that never comes to rest.
const MAX_STEPS: usize = 1000;

pub(crate) struct World {
    pub(crate) server: Server,
    pub(crate) coordinator: Coordinator,
    pub(crate) settings: Settings,
    pub(crate) journal: Vec<String>,
    /// By name of the Pod.
    pub(crate) requesters: BTreeMap<String, RequesterModel>,
    /// By UID of the Pod.
    pub(crate) launchers: BTreeMap<String, LauncherModel>,
    /// Calls that wait for a change.
    waiting: Vec<Call>,
    /// By UID of the Pod, for an instance followed by a slash and its id.
    pub(crate) engines: BTreeMap<String, EngineModel>,
    /// Engine models of providers that are created, by name of the requester.
    pub(crate) templates: BTreeMap<String, EngineModel>,
    /// Whether launchers reject new instances.
    pub(crate) launchers_reject: bool,
    /// Whether engines become ready.
    pub(crate) engines_start: bool,
    /// Whether the controller runs.
    pub(crate) is_running: bool,
    /// The controller stops after this number of actions.
    pub(crate) actions_left: usize,
    checks_invariants: bool,
    /// When pools last selected each engine, by the key of the engine.
    selected: BTreeMap<String, Instant>,
    /// Resource versions of the objects that were delivered to the caches, by resource.
    synced: BTreeMap<&'static str, Vec<String>>,
    stores: Stores,
    wall: Timestamp,
    monotonic: Instant,
}

impl World {
    /// A node with four accelerators, `a` to `d`.
    pub(crate) fn new(settings: Settings) -> World {
        /// A server whose start is not repeated by each world.
        static EMPTY: LazyLock<Server> = LazyLock::new(|| Server::new(&ServerPorts::default()));
        let server = EMPTY.fork(&ServerPorts::default());
        let node = json!({"metadata": {"name": NODE, "labels": {"kubernetes.io/hostname": "host-1"}}});
        server.create("nodes", node).unwrap();
        let map = json!({"metadata": {"name": "gpu-map", "namespace": NAMESPACE}, "data": {NODE: r#"{"GPU-a":0,"GPU-b":1,"GPU-c":2,"GPU-d":3}"#}});
        server.create("configmaps", map).unwrap();
        let stores = Stores::with_cache_policy(MANAGER, cache_policy);
        World {
            coordinator: Coordinator::new(settings.clone(), stores.clone(), NAMESPACE.to_owned()),
            server,
            settings,
            journal: Vec::new(),
            requesters: BTreeMap::new(),
            launchers: BTreeMap::new(),
            waiting: Vec::new(),
            engines: BTreeMap::new(),
            templates: BTreeMap::new(),
            launchers_reject: false,
            engines_start: true,
            is_running: true,
            actions_left: usize::MAX,
            checks_invariants: true,
            selected: BTreeMap::new(),
            synced: BTreeMap::new(),
            stores,
            wall: Timestamp::now(),
            monotonic: Instant::now(),
        }
    }

    // Users.

    /// Creates a requester on accelerators such as `a,b`, whose engine serves `model`.
    pub(crate) fn create(&mut self, name: &str, accelerators: &str, model: &str) {
        self.create_with(name, accelerators, model, |_| {});
    }

    pub(crate) fn create_with(&mut self, name: &str, accelerators: &str, model: &str, edit: impl Fn(&mut Value)) {
        let patch = json!({
            "metadata": {"labels": {"model": model}},
            "spec": {"containers": [{
                "name": "inference-server", "image": "vllm:1", "command": ["vllm", "serve", model],
                "readinessProbe": {"httpGet": {"path": "/health", "port": 8000}},
            }]},
        });
        let mut pod = json!({
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": {"dual-pods.llm-d.ai/server-patch": patch.to_string()}},
            "spec": {
                "nodeName": NODE,
                "containers": [{"name": "inference-server", "image": "requester:1", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
            },
        });
        edit(&mut pod);
        self.server.create("pods", pod).unwrap();
        let accelerators: BTreeSet<String> = accelerators.split(',').map(|name| format!("GPU-{name}")).collect();
        let memory = accelerators.iter().map(|accelerator| (accelerator.clone(), 1000)).collect();
        let requester = RequesterModel { accelerators, memory: Some(memory), ..RequesterModel::default() };
        self.requesters.insert(name.to_owned(), requester);
    }

    /// Adds a node with one accelerator.
    pub(crate) fn add_node(&mut self, name: &str, accelerator: &str) {
        let node = json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}});
        self.server.create("nodes", node).unwrap();
        let mut map = self.server.get("configmaps", NAMESPACE, "gpu-map").unwrap().as_ref().clone();
        map["data"][name] = json!(format!("{{\"GPU-{accelerator}\":0}}"));
        self.server.update("configmaps", map).unwrap();
    }

    pub(crate) fn delete(&mut self, name: &str) {
        self.server.delete("pods", NAMESPACE, name, None).unwrap();
    }

    /// Removes a Pod without waiting for its containers. Its finalizers are removed, too.
    pub(crate) fn force_delete(&mut self, name: &str) {
        self.edit(name, |pod| pod["metadata"]["finalizers"] = json!([]));
        self.server.force_delete("pods", NAMESPACE, name, None).unwrap();
    }

    pub(crate) fn edit(&mut self, name: &str, edit: impl Fn(&mut Value)) {
        let mut pod = self.pod(name).unwrap().as_ref().clone();
        edit(&mut pod);
        self.server.update("pods", pod).unwrap();
    }

    pub(crate) fn edit_node(&mut self, edit: impl Fn(&mut Value)) {
        let mut node = self.server.get("nodes", "", NODE).unwrap().as_ref().clone();
        edit(&mut node);
        self.server.update("nodes", node).unwrap();
    }

    // Observations.

    pub(crate) fn pod(&self, name: &str) -> Option<Arc<Value>> {
        self.server.get("pods", NAMESPACE, name)
    }

    pub(crate) fn pods(&self) -> Vec<Arc<Value>> {
        self.server.list("pods")
    }

    pub(crate) fn providers(&self) -> Vec<Arc<Value>> {
        self.pods().into_iter().filter(|pod| dual_pods::is_provider(pod)).collect()
    }

    /// Returns the name of the provider that is bound to a requester.
    pub(crate) fn provider_of(&self, requester: &str) -> Option<String> {
        let bound = self.providers().into_iter().find(|pod| {
            let binding = pod["metadata"]["annotations"].get(dual_pods::REQUESTER).and_then(Value::as_str);
            binding.is_some_and(|binding| binding.ends_with(&format!(" {requester}")))
        })?;
        Some(object::name(&bound).to_owned())
    }

    pub(crate) fn engine(&mut self, provider: &str) -> &mut EngineModel {
        let key = bound_key(&self.pod(provider).unwrap());
        self.engines.get_mut(&key).unwrap()
    }

    pub(crate) fn engine_of(&self, pod: &Value) -> Option<&EngineModel> {
        self.engines.get(&bound_key(pod))
    }

    pub(crate) fn launcher_of(&self, pod: &Value) -> Option<&LauncherModel> {
        self.launchers.get(object::uid(pod))
    }

    /// Returns the engine of an instance that serves `model`.
    pub(crate) fn instance(&mut self, launcher: &str, model: &str) -> &mut EngineModel {
        let uid = object::uid(&self.pod(launcher).unwrap()).to_owned();
        let instances = &self.launchers[&uid].instances;
        let (id, _) = instances.iter().find(|(_, instance)| instance.model() == model).unwrap();
        self.engines.get_mut(&format!("{uid}/{id}")).unwrap()
    }

    /// Returns the engine of a provider that serves `model`.
    pub(crate) fn instance_or_engine(&mut self, provider: &str, model: &str) -> &mut EngineModel {
        match self.settings.mode {
            Mode::Direct => self.engine(provider),
            Mode::Launcher => self.instance(provider, model),
        }
    }

    /// Returns the models of the instances of each launcher, by name of its Pod.
    pub(crate) fn instances(&self) -> BTreeMap<String, Vec<String>> {
        let launchers = self.pods().into_iter().filter_map(|pod| {
            let launcher = self.launchers.get(object::uid(&pod))?;
            let mut models: Vec<String> = launcher.instances.values().map(InstanceModel::model).collect();
            models.sort();
            Some((shorten(object::name(&pod)), models))
        });
        launchers.collect()
    }
    pub(crate) fn errors(&self, requester: &str) -> Vec<String> {
        let pod = self.pod(requester).unwrap();
        let Some(status) = pod["metadata"]["annotations"].get(dual_pods::STATUS) else { return Vec::new() };
        let status: Value = serde_json::from_str(status.as_str().unwrap()).unwrap();
        object::strings(status.get("Errors")).into_iter().map(str::to_owned).collect()
    }

    /// Returns the journal since the last call, with each provider named after the requester that it was created for.
    pub(crate) fn take_journal(&mut self) -> Vec<String> {
        std::mem::take(&mut self.journal)
    }

    // Time.

    fn time(&self) -> Time {
        Time { wall: self.wall, monotonic: self.monotonic }
    }

    pub(crate) fn advance(&mut self, duration: Duration) {
        self.wall += jiff::SignedDuration::try_from(duration).unwrap();
        self.monotonic += duration;
    }

    /// Replaces the controller by one that knows only what the API server stores.
    pub(crate) fn restart(&mut self) {
        self.stores = Stores::with_cache_policy(MANAGER, cache_policy);
        self.synced.clear();
        self.waiting.clear();
        self.coordinator = Coordinator::new(self.settings.clone(), self.stores.clone(), NAMESPACE.to_owned());
        (self.is_running, self.actions_left) = (true, usize::MAX);
    }

    /// Delivers the state of the API server to the caches.
    fn sync(&mut self) {
        for kind in watched_kinds() {
            let objects = self.server.list(&kind.group_resource());
            let versions: Vec<String> =
                objects.iter().map(|object| object::resource_version(object).to_owned()).collect();
            if self.synced.get(kind.plural) == Some(&versions) {
                continue;
            }
            self.synced.insert(kind.plural, versions);
            let objects = objects.iter().map(|object| object.as_ref().clone()).collect();
            for change in self.stores.replace_all(kind, objects) {
                self.coordinator.observe(&change);
            }
        }
    }
}

/// Returns the key of the engine of a provider; of a launcher, of the bound one.
fn bound_key(pod: &Value) -> String {
    let instance = pod["metadata"]["annotations"].get(dual_pods::INSTANCE_ID).and_then(Value::as_str);
    key(&EngineId { pod: object::uid(pod).to_owned(), instance: instance.map(str::to_owned) })
}

/// Returns the key of an engine.
fn key(id: &EngineId) -> String {
    match &id.instance {
        Some(instance) => format!("{}/{instance}", id.pod),
        None => id.pod.clone(),
    }
}

/// Replaces the hash at the end of providers' names.
fn shorten(entry: &str) -> String {
    let mut result = String::new();
    let mut rest = entry;
    while let Some(start) = rest.find("-dual-") {
        let end = (start + "-dual-xxxxx".len()).min(rest.len());
        result.push_str(&rest[..start]);
        result.push_str("-dual");
        rest = &rest[end..];
    }
    result + rest
}
