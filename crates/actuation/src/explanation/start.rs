//! How a requester gets its engine, and what prevents it.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use api::dual_pods;
use apimachinery::{condition, object};
use jiff::Timestamp;

use super::difference::{Difference, differences};
use super::engine::EngineSummary;
use super::view::ClusterView;
use crate::names::provider_name;
use crate::node::{Engine, NodeState, Server};
use crate::nominal::NominalProvider;
use crate::problem::Problem;
use crate::requester::Requester;
use crate::step;

/// How a requester gets its engine, and what prevents it.
#[derive(Clone, Debug, PartialEq)]
pub struct StartExplanation {
    /// Name of its Node; empty if it is not assigned to one.
    pub node: String,
    /// Its accelerators with their indexes, as far as they are recorded and `gpu-map` contains them.
    pub accelerators: Vec<(String, Option<u32>)>,
    /// How far the start has come.
    pub start: Start,
    /// The engine that sleeps on its node and differs the least from the one that it needs, unless one is suitable.
    pub nearest: Option<NearestSleeper>,
    /// Suitable engines that are bound to another requester or are being deleted.
    pub unavailable: Vec<EngineSummary>,
    /// Other engines on its accelerators.
    pub others: Vec<EngineSummary>,
    /// Problems that follow from the objects.
    pub problems: Vec<Problem>,
    /// Messages in the status annotation that are not among `problems`.
    pub reported: Vec<String>,
}

/// How far the start of a requester has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    /// The scheduler has not assigned it to a node, for this reason if it reports one.
    Unscheduled(Option<String>),
    /// The Pod ends or has ended.
    Ended,
    /// The controller does not know its accelerators yet.
    AcceleratorsUnknown,
    /// Its provider cannot be derived.
    Invalid,
    /// It has no engine yet, and would get one this way.
    Expected(StartPath),
    /// An engine is bound to it.
    Bound {
        /// How it got the engine.
        path: StartPath,
        /// The engine.
        engine: EngineSummary,
    },
}

/// How a requester gets its engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartPath {
    /// A provider is created.
    Cold,
    /// The engine of this provider, which sleeps, is woken.
    Hot(String),
    /// An engine of this launcher, which existed before: it starts, or, if it is bound, started or was woken.
    Launcher(String),
}

/// An engine that sleeps but is not suitable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearestSleeper {
    /// Name of the provider.
    pub pod: String,
    /// The first field that differs; `None` if only fields differ that the API server sets by default.
    pub difference: Option<Difference>,
    /// Number of fields that differ.
    pub count: usize,
}

// === impl ClusterView ===

impl ClusterView {
    /// Explains a requester; `None` if there is no such Pod, or it is none.
    #[must_use]
    pub fn explain_requester(&self, namespace: &str, name: &str, now: Timestamp) -> Option<StartExplanation> {
        let pod = self.pod(namespace, name)?;
        let uid = object::uid(&pod);
        let reported = dual_pods::status_errors(&pod);
        let Some(node) = self.node_of(uid) else {
            let scheduled = condition::find(&pod["status"], "PodScheduled");
            let message = scheduled.map(|condition| object::text(condition, "/message").to_owned());
            let start = Start::Unscheduled(message.filter(|message| !message.is_empty()));
            let is_unassigned = dual_pods::is_requester(&pod) && object::text(&pod, "/spec/nodeName").is_empty();
            return is_unassigned.then(|| StartExplanation { reported, ..StartExplanation::new(start) });
        };
        let server = node.servers.get(uid)?;
        let requester = server.requester.as_ref()?;
        let accelerators = requester.accelerators.clone().unwrap_or_default();
        let map = self.gpu_map(namespace);
        let index = |uuid: &String| map.entry(&node.name).and_then(|entry| entry.get(uuid)).copied();
        let problems = step::server_problems(&node, &self.settings, now, uid);
        let messages: BTreeSet<String> = problems.iter().map(Problem::to_string).collect();
        let nominal = server.nominal();
        Some(StartExplanation {
            accelerators: accelerators.iter().map(|uuid| (uuid.clone(), index(uuid))).collect(),
            start: start(&node, uid, server, requester),
            nearest: nominal.and_then(|nominal| self.nearest_sleeper(&node, nominal)),
            unavailable: nominal.map(|nominal| unavailable(&node, uid, nominal)).unwrap_or_default(),
            others: others(&node, uid, &accelerators),
            reported: reported.into_iter().filter(|message| !messages.contains(message)).collect(),
            problems,
            node: node.name.clone(),
        })
    }

    /// Explains a provider; `None` if there is no such Pod, or the controller did not create it.
    #[must_use]
    pub fn explain_provider(&self, namespace: &str, name: &str) -> Option<(String, EngineSummary)> {
        let pod = self.pod(namespace, name)?;
        let node = self.node_of(object::uid(&pod))?;
        // Of a launcher, the bound engine is explained, else the one that was awake last.
        let engines = node.engines.values().filter(|engine| engine.provider.pod.uid == object::uid(&pod));
        let engine = engines.max_by_key(|engine| (engine.provider.binding.is_some(), engine.provider.last_used()))?;
        Some((node.name.clone(), EngineSummary::new(engine)))
    }

    /// Returns the sleeper with the fewest differences, of several the one that was awake last; `None` if there is no sleeper, or one
    /// is suitable.
    fn nearest_sleeper(&self, node: &NodeState, nominal: &NominalProvider) -> Option<NearestSleeper> {
        // The Pod of a launcher does not show how its engines were started.
        let is_comparable =
            |engine: &&Engine| engine.provider.pod.namespace == nominal.namespace && engine.provider.instance.is_none();
        let sleepers = step::sleepers(node).into_iter().filter(is_comparable);
        if nominal.instance.is_some() {
            return None;
        }
        let sleepers: Vec<&Engine> = sleepers.collect();
        if sleepers.iter().any(|engine| engine.provider.identity == nominal.identity) {
            return None;
        }
        let compared = sleepers.into_iter().filter_map(|engine| {
            let pod = &engine.provider.pod;
            let live = self.pod(&pod.namespace, &pod.name)?;
            Some((engine, differences(nominal, &engine.provider, &live)))
        });
        let (engine, differences) =
            compared.min_by_key(|(engine, differences)| (differences.len(), Reverse(engine.provider.last_used())))?;
        Some(NearestSleeper {
            pod: engine.provider.pod.name.clone(),
            count: differences.len(),
            difference: differences.into_iter().next(),
        })
    }
}

// === impl StartExplanation ===

impl StartExplanation {
    fn new(start: Start) -> StartExplanation {
        StartExplanation {
            node: String::new(),
            accelerators: Vec::new(),
            start,
            nearest: None,
            unavailable: Vec::new(),
            others: Vec::new(),
            problems: Vec::new(),
            reported: Vec::new(),
        }
    }
}

fn start(node: &NodeState, uid: &str, server: &Server, requester: &Requester) -> Start {
    if requester.has_ended() {
        return Start::Ended;
    }
    if let Some(engine) = node.bound_engines(uid).find(|engine| !engine.is_leaving()) {
        let name = &engine.provider.pod.name;
        let is_created = *name == provider_name(&requester.pod.name, uid);
        let path = match engine.provider.instance {
            _ if is_created => StartPath::Cold,
            Some(_) => StartPath::Launcher(name.clone()),
            None => StartPath::Hot(name.clone()),
        };
        return Start::Bound { path, engine: EngineSummary::new(engine) };
    }
    match (server.nominal(), &requester.accelerators) {
        (Some(nominal), _) => Start::Expected(expected_path(node, nominal)),
        (None, None) if matches!(server.demand, crate::node::Demand::Unknown) => Start::AcceleratorsUnknown,
        (None, _) => Start::Invalid,
    }
}

/// Returns the path of a requester without an engine: the last suitable sleeper is bound.
fn expected_path(node: &NodeState, nominal: &NominalProvider) -> StartPath {
    let suitable = step::sleepers(node).into_iter().rfind(|engine| {
        let is_free = engine.provider.instance.as_ref().is_none_or(|instance| !instance.is_launcher_bound);
        engine.provider.identity == nominal.identity && engine.provider.pod.namespace == nominal.namespace && is_free
    });
    match (suitable, step::launcher_with_room(node, nominal)) {
        (Some(engine), _) => StartPath::Hot(engine.provider.pod.name.clone()),
        (None, Some(state)) => StartPath::Launcher(state.launcher.provider.pod.name.clone()),
        (None, None) => StartPath::Cold,
    }
}

fn unavailable(node: &NodeState, uid: &str, nominal: &NominalProvider) -> Vec<EngineSummary> {
    let is_unavailable = |engine: &&Engine| {
        let provider = &engine.provider;
        let is_of_other = provider.binding.as_ref().is_some_and(|binding| binding.uid != uid);
        provider.identity == nominal.identity && (is_of_other || engine.is_leaving())
    };
    node.engines.values().filter(is_unavailable).map(EngineSummary::new).collect()
}

fn others(node: &NodeState, uid: &str, accelerators: &BTreeSet<String>) -> Vec<EngineSummary> {
    let is_other = |engine: &&Engine| {
        let provider = &engine.provider;
        !provider.is_bound_to(uid) && !provider.accelerators.is_disjoint(accelerators)
    };
    node.engines.values().filter(is_other).map(EngineSummary::new).collect()
}
