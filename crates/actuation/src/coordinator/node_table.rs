//! The states of all nodes, kept up to date with the cached Pods, Nodes, sets and maps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::dual_pods;
use apimachinery::LabelSelector;
use apimachinery::object;
use cluster::{Change, NamespacedName, Stores};
use serde_json::Value;

use super::kinds::{CONFIG_MAP, NODE, POD, is_owner_kind, owner_kind};
use crate::facts::{EngineFacts, LauncherFacts, RequesterFacts};
use crate::gpu_map::GpuMap;
use crate::instance::EngineId;
use crate::launcher::Launcher;
use crate::node::{Availability, Demand, Engine, LauncherState, NodeState, Server};
use crate::nominal::{Derivation, Owner, nominal_provider};
use crate::ownership::{is_claimed_requester, is_own_provider};
use crate::pod_ref::PodRef;
use crate::provider::Provider;
use crate::requester::{Requester, unsupported_feature};
use crate::settings::Settings;

/// The states of all nodes that have a requester or a provider.
#[derive(Debug)]
pub(super) struct NodeTable {
    stores: Stores,
    settings: Settings,
    /// Namespace whose `gpu-map` is read for requesters of namespaces without one.
    namespace: String,
    nodes: BTreeMap<String, NodeState>,
    pods: BTreeMap<NamespacedName, PodLocation>,
    /// `gpu-map` by namespace.
    gpu_maps: BTreeMap<String, GpuMap>,
    /// Nodes whose state changed since the last call of [`NodeTable::take_changed`].
    changed: BTreeSet<String>,
}

/// Where a Pod is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PodLocation {
    node: String,
    uid: String,
    role: Role,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Requester,
    Provider,
}

// === impl PodLocation ===

impl PodLocation {
    /// Returns where to record a Pod; `None` for a Pod that is neither requester nor provider, or not on a node yet.
    fn of(pod: &Value, stores: &Stores) -> Option<PodLocation> {
        let scheduled = object::text(pod, "/spec/nodeName");
        let annotation = |key: &str| pod["metadata"]["annotations"][key].as_str().unwrap_or_default();
        let (role, node) = if is_own_provider(pod, stores) {
            (Role::Provider, if scheduled.is_empty() { annotation(dual_pods::NODE_NAME) } else { scheduled })
        } else if dual_pods::is_requester(pod) || is_claimed_requester(pod, stores) {
            (Role::Requester, scheduled)
        } else {
            return None;
        };
        let location = PodLocation { node: node.to_owned(), uid: object::uid(pod).to_owned(), role };
        (!node.is_empty()).then_some(location)
    }
}

// === impl NodeTable ===

impl NodeTable {
    pub(super) fn new(stores: Stores, settings: Settings, namespace: String) -> NodeTable {
        NodeTable {
            stores,
            settings,
            namespace,
            nodes: BTreeMap::new(),
            pods: BTreeMap::new(),
            gpu_maps: BTreeMap::new(),
            changed: BTreeSet::new(),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&NodeState> {
        self.nodes.get(name)
    }

    pub(super) fn get_mut(&mut self, name: &str) -> Option<&mut NodeState> {
        self.nodes.get_mut(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &NodeState> {
        self.nodes.values()
    }

    /// Returns the nodes whose state changed since the last call.
    pub(super) fn take_changed(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.changed)
    }

    /// Updates the states after a change of the caches.
    pub(super) fn observe(&mut self, change: &Change) {
        let Change::Object { kind, key, old, new } = change else { return };
        if *kind == POD {
            self.refresh_pod(key);
        } else if *kind == NODE {
            self.refresh_node(&key.name);
        } else if *kind == CONFIG_MAP && key.name == dual_pods::GPU_MAP {
            match new {
                Some(config_map) => self.gpu_maps.insert(key.namespace.clone(), GpuMap::from_config_map(config_map)),
                None => self.gpu_maps.remove(&key.namespace),
            };
            let affects_all = key.namespace == self.namespace;
            self.derive_all(|requester| affects_all || requester.namespace == key.namespace);
        } else if is_owner_kind(*kind) {
            let selector = |object: &Option<Arc<Value>>| object.as_ref().map(|set| set["spec"]["selector"].clone());
            if selector(old) != selector(new) {
                self.derive_all(|requester| requester.namespace == key.namespace);
            }
        }
    }

    /// Records that an object does not exist, and the cached version of it otherwise.
    pub(super) fn observe_absence(&mut self, key: &NamespacedName) {
        self.stores.observe_absence(POD, key);
        self.refresh_pod(key);
    }

    /// Records the cached version of a Pod, or its absence.
    pub(super) fn refresh_pod(&mut self, key: &NamespacedName) {
        let pod = self.stores.get(POD, key);
        let location = pod.as_deref().and_then(|pod| PodLocation::of(pod, &self.stores));
        let previous = self.pods.get(key).cloned();
        if let Some(previous) = previous.filter(|previous| Some(previous) != location.as_ref()) {
            self.remove(key, &previous);
        }
        let (Some(pod), Some(location)) = (pod, location) else { return };
        let launcher = Launcher::from_pod(&pod);
        self.pods.insert(key.clone(), location.clone());
        let node = self.node_mut(&location.node);
        match location.role {
            Role::Requester => {
                record_requester(node.servers.entry(location.uid.clone()).or_default(), Requester::from_pod(&pod));
                self.derive(&location.node, &location.uid);
            }
            Role::Provider => match launcher {
                Some(launcher) => record_launcher(node, launcher),
                None => record_provider(node, EngineId::of_pod(&location.uid), Provider::from_pod(&pod)),
            },
        }
        self.tidy(&location.node);
    }

    /// Records the cached state of a Node.
    fn refresh_node(&mut self, name: &str) {
        let availability = self.availability(name);
        let Some(node) = self.nodes.get_mut(name) else { return };
        node.availability = availability;
        let requesters: Vec<String> = node.servers.keys().cloned().collect();
        requesters.iter().for_each(|uid| self.derive(name, uid));
        self.changed.insert(name.to_owned());
    }

    /// Derives the providers of all requesters that `is_affected` selects again.
    fn derive_all(&mut self, is_affected: impl Fn(&PodRef) -> bool) {
        let servers = self.nodes.iter().flat_map(|(node, state)| {
            let affected =
                |server: &Server| server.requester.as_ref().is_some_and(|requester| is_affected(&requester.pod));
            let uids = state.servers.iter().filter(move |(_, server)| affected(server)).map(|(uid, _)| uid.clone());
            uids.map(|uid| (node.clone(), uid)).collect::<Vec<_>>()
        });
        let servers: Vec<_> = servers.collect();
        for (node, uid) in servers {
            self.derive(&node, &uid);
            self.changed.insert(node);
        }
    }

    /// Derives the provider of a requester.
    pub(super) fn derive(&mut self, node: &str, uid: &str) {
        let Some(demand) = self.demand(node, uid) else { return };
        let Some(server) = self.nodes.get_mut(node).and_then(|node| node.servers.get_mut(uid)) else { return };
        if server.demand != demand {
            (server.demand, server.rejection) = (demand, None);
        }
    }

    fn demand(&self, node: &str, uid: &str) -> Option<Demand> {
        let server = self.nodes.get(node)?.servers.get(uid)?;
        let requester = server.requester.as_ref()?;
        let pod = self.stores.get(POD, &NamespacedName::new(&requester.pod.namespace, &requester.pod.name))?;
        if let Some(problem) = unsupported_feature(&pod) {
            return Some(Demand::Invalid(problem));
        }
        let Some(accelerators) = server.facts.accelerators.as_ref().or(requester.accelerators.as_ref()) else {
            return Some(Demand::Unknown);
        };
        let node_object = self.stores.get(NODE, &NamespacedName::new("", node))?;
        let hostname = object::label(&node_object, "kubernetes.io/hostname").unwrap_or(node);
        let maps = &self.gpu_maps;
        let gpu_map = maps.get(&requester.pod.namespace).or_else(|| maps.get(&self.namespace));
        let owner = self.owner(&pod);
        let owner = owner.as_ref();
        let settings = &self.settings;
        let derivation = Derivation { requester: &pod, node, hostname, accelerators, gpu_map, owner, settings };
        Some(match nominal_provider(&derivation) {
            Ok(nominal) => Demand::Nominal(Arc::new(nominal)),
            Err(problem) => Demand::Invalid(problem),
        })
    }

    /// Returns the set that controls a requester.
    fn owner(&self, requester: &Value) -> Option<Owner> {
        let reference = object::controller_of(requester)?;
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        let kind = owner_kind(text("apiVersion"), text("kind"))?;
        let key = NamespacedName::new(object::namespace(requester), text("name"));
        let set = self.stores.get(kind, &key).filter(|set| object::uid(set) == text("uid"))?;
        let selector = LabelSelector::from_json(&set["spec"]["selector"]).ok()?;
        Some(Owner { name: format!("{} {}", kind.kind, key.name), selector })
    }

    fn remove(&mut self, key: &NamespacedName, location: &PodLocation) {
        self.pods.remove(key);
        let Some(node) = self.nodes.get_mut(&location.node) else { return };
        match location.role {
            Role::Requester => {
                if let Some(server) = node.servers.get_mut(&location.uid) {
                    server.requester = None;
                }
            }
            Role::Provider => {
                node.engines.retain(|id, _| id.pod != location.uid);
                node.launchers.remove(&location.uid);
                node.has_removed_engine = true;
                node.forget_memory();
            }
        }
        self.tidy(&location.node);
    }

    /// Adds the servers to which engines are bound, and forgets those without requester and engine. Forgets a node without both.
    fn tidy(&mut self, name: &str) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        let bound = |engine: &Engine| engine.provider.binding.as_ref().map(|binding| binding.uid.clone());
        let bound: BTreeSet<String> = node.engines.values().filter_map(bound).collect();
        node.servers.retain(|uid, server| server.requester.is_some() || bound.contains(uid));
        for uid in bound {
            node.servers.entry(uid).or_default();
        }
        let NodeState { servers, engines, launchers, rejections, .. } = node;
        let has_engine = |uid: &String| engines.contains_key(&EngineId::of_pod(uid)) || launchers.contains_key(uid);
        rejections.retain(|uid, _| servers.contains_key(uid) || has_engine(uid));
        if node.servers.is_empty() && node.engines.is_empty() && node.launchers.is_empty() {
            self.nodes.remove(name);
            return;
        }
        self.changed.insert(name.to_owned());
    }

    fn node_mut(&mut self, name: &str) -> &mut NodeState {
        let availability = self.availability(name);
        let node = self.nodes.entry(name.to_owned()).or_default();
        name.clone_into(&mut node.name);
        node.availability = availability;
        node
    }

    fn availability(&self, name: &str) -> Availability {
        match self.stores.get(NODE, &NamespacedName::new("", name)) {
            Some(node) if object::is_deleting(&node) => Availability::Gone,
            Some(node) if node["spec"]["unschedulable"] == true => Availability::Cordoned,
            Some(_) => Availability::Schedulable,
            None => Availability::Gone,
        }
    }
}

fn record_requester(server: &mut Server, requester: Requester) {
    let is_restarted = server.requester.as_ref().is_some_and(|old| old.container.id != requester.container.id);
    if is_restarted {
        server.facts = RequesterFacts::default();
    }
    server.requester = Some(requester);
}

fn record_launcher(node: &mut NodeState, launcher: Launcher) {
    let uid = launcher.provider.pod.uid.clone();
    let (facts, is_deletion_sent) = match node.launchers.remove(&uid) {
        Some(old) if old.launcher.provider.container.id == launcher.provider.container.id => {
            (old.facts, old.is_deletion_sent)
        }
        Some(old) => (LauncherFacts::default(), old.is_deletion_sent),
        None => (LauncherFacts::default(), false),
    };
    node.launchers.insert(uid.clone(), LauncherState { launcher, facts, is_deletion_sent });
    refresh_instances(node, &uid);
}

/// Updates the engines of a launcher after a change of its Pod, or a response of it.
pub(super) fn refresh_instances(node: &mut NodeState, uid: &str) {
    let Some(state) = node.launchers.get(uid) else { return };
    let observed = state.facts.instances.iter().map(|(id, instance)| (id, &instance.record));
    let providers = state.launcher.engines(observed);
    let observed = state.facts.revision.map(|revision| (revision, state.facts.instances.clone()));
    let is_deletion_sent = state.is_deletion_sent;
    let count = node.engines.len();
    node.engines.retain(|id, _| id.pod != uid || providers.contains_key(id));
    if node.engines.len() < count {
        node.forget_memory();
    }
    for (id, provider) in providers {
        let is_new = !node.engines.contains_key(&id);
        record_provider(node, id.clone(), provider);
        let Some(engine) = node.engines.get_mut(&id) else { continue };
        engine.is_deletion_sent |= is_deletion_sent;
        if let (true, Some((revision, instances)), Some(instance)) = (is_new, &observed, &id.instance) {
            let was_ready = engine.provider.last_awake.is_some();
            engine.facts.instance.observe(*revision, instances.get(instance), was_ready);
        }
    }
}

fn record_provider(node: &mut NodeState, id: EngineId, provider: Provider) {
    let Some(engine) = node.engines.get_mut(&id) else {
        node.engines.insert(id, Engine::new(provider));
        return;
    };
    if engine.provider.container.id != provider.container.id {
        engine.facts = EngineFacts::default();
    }
    engine.provider = provider;
}
