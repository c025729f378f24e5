//! The observed state of one node: what [`step`](crate::step) decides from.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::container::ContainerPhase;
use crate::facts::{Activity, EngineFacts, LauncherFacts, Process, RequesterFacts};
use crate::instance::EngineId;
use crate::launcher::Launcher;
use crate::nominal::NominalProvider;
use crate::problem::Problem;
use crate::provider::Provider;
use crate::requester::Requester;

/// The observed state of one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeState {
    /// Name of the Node.
    pub name: String,
    /// State of the Node object.
    pub availability: Availability,
    /// Inference servers by the UID of their requester.
    pub servers: BTreeMap<String, Server>,
    /// Engines, of both modes.
    pub engines: BTreeMap<EngineId, Engine>,
    /// Launchers by UID.
    pub launchers: BTreeMap<String, LauncherState>,
    /// Rejected patches and deletions by the UID of the Pod.
    pub rejections: BTreeMap<String, Rejection>,
    /// Whether an engine was removed since the last decision.
    pub has_removed_engine: bool,
    /// Time of the first decision after an engine was removed: CPU and memory of the node were freed before.
    pub freed_at: Option<jiff::Timestamp>,
}

/// State of a Node object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Availability {
    /// Pods can be scheduled to it.
    #[default]
    Schedulable,
    /// It is unschedulable.
    Cordoned,
    /// It does not exist, or is being deleted.
    Gone,
}

/// An inference server. Its identity is the UID of its requester.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Server {
    /// The requester, if it exists.
    pub requester: Option<Requester>,
    /// The provider that it needs.
    pub demand: Demand,
    /// Observations of the requester.
    pub facts: RequesterFacts,
    /// Whether the controller deleted the requester.
    pub is_deletion_sent: bool,
    /// The rejection of the last creation of its provider.
    pub rejection: Option<Rejection>,
    /// When to write its status annotation again, which the API server rejected.
    pub status_retry_at: Option<jiff::Timestamp>,
}

/// The provider that a server needs.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Demand {
    /// The accelerators are not known yet.
    #[default]
    Unknown,
    /// It cannot be derived.
    Invalid(Problem),
    /// The derived provider.
    Nominal(Arc<NominalProvider>),
}

/// A write that the API server rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The problem; `None` for a conflict with another write, which the next observation resolves.
    pub problem: Option<Problem>,
    /// When to try again.
    pub retry_at: jiff::Timestamp,
}

/// A provider and what is known about its engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// The provider.
    pub provider: Provider,
    /// Observations of the engine.
    pub facts: EngineFacts,
    /// Whether the controller deleted the provider.
    pub is_deletion_sent: bool,
}

/// A launcher and what is known about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LauncherState {
    /// The launcher.
    pub launcher: Launcher,
    /// Observations of the launcher.
    pub facts: LauncherFacts,
    /// Whether the controller deleted the Pod.
    pub is_deletion_sent: bool,
}

/// What an engine does, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineState {
    /// It was never ready.
    Loading,
    /// It serves requests, or could.
    Awake,
    /// It is in sleep mode.
    Asleep,
    /// A call that changes whether it sleeps is outstanding.
    Changing,
    /// Its state was not observed in this term, or may have changed since.
    Unknown,
    /// Its process ended.
    Dead,
}

// === impl NodeState ===

impl NodeState {
    /// Removes measurements of memory, after an engine was created, woken, bound or removed.
    pub(crate) fn forget_memory(&mut self) {
        self.servers.values_mut().for_each(|server| server.facts.memory = None);
    }

    /// Returns the engines that are bound to the server with this UID.
    pub fn bound_engines<'a>(&'a self, uid: &'a str) -> impl Iterator<Item = &'a Engine> {
        self.engines.values().filter(move |engine| engine.provider.is_bound_to(uid))
    }
}

// === impl Server ===

impl Server {
    /// Returns the derived provider.
    #[must_use]
    pub fn nominal(&self) -> Option<&Arc<NominalProvider>> {
        match &self.demand {
            Demand::Nominal(nominal) => Some(nominal),
            Demand::Unknown | Demand::Invalid(_) => None,
        }
    }
}

// === impl Engine ===

impl Engine {
    /// Returns whether its Pod is being deleted.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.provider.is_terminating || self.is_deletion_sent || self.facts.instance.deletion.is_some()
    }

    /// Returns whether the engine is being deleted, or will be because it ended and is not bound.
    #[must_use]
    pub fn will_be_gone(&self) -> bool {
        self.is_leaving() || self.provider.binding.is_none() && self.state() == EngineState::Dead
    }

    /// Returns whether the engine is ready to serve requests: its Pod is Ready, or, in a launcher, it is healthy itself.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.provider.is_ready && (self.provider.instance.is_none() || self.facts.instance.is_healthy)
    }

    /// Returns an engine of which nothing was observed.
    #[must_use]
    pub fn new(provider: Provider) -> Engine {
        Engine { provider, facts: EngineFacts::default(), is_deletion_sent: false }
    }

    /// Returns what the engine does.
    #[must_use]
    pub fn state(&self) -> EngineState {
        let instance = &self.facts.instance;
        let is_dead = match instance.process {
            Some(Process::Ended) => true,
            Some(Process::Absent) => instance.deletion.is_some(),
            Some(Process::Running) | None => false,
        };
        if is_dead || self.provider.container.phase == ContainerPhase::Terminated {
            return EngineState::Dead;
        }
        let is_changing = self.facts.outstanding.as_ref().is_some_and(crate::call::Request::changes_activity);
        if is_changing || self.facts.waking_since.is_some() && self.facts.activity != Some(Activity::Awake) {
            return EngineState::Changing;
        }
        match self.facts.activity {
            Some(Activity::Asleep) => EngineState::Asleep,
            Some(Activity::Awake | Activity::SleepUnsupported) => EngineState::Awake,
            None if self.was_never_ready() => EngineState::Loading,
            None => EngineState::Unknown,
        }
    }

    /// Returns whether the engine was never ready to serve requests.
    #[must_use]
    pub fn was_never_ready(&self) -> bool {
        self.provider.last_awake.is_none() && !self.is_ready() && self.facts.activity.is_none()
    }

    /// Returns whether the engine cannot use an accelerator any longer, nor ever again.
    #[must_use]
    pub fn is_gone(&self, availability: Availability) -> bool {
        let never_started = self.provider.is_terminating && !self.provider.is_scheduled;
        self.provider.container.phase == ContainerPhase::Terminated
            || never_started
            || availability == Availability::Gone
    }

    /// Returns whether the engine appears to be broken: it does not start, or it ended or restarted and is not ready.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        let container = &self.provider.container;
        self.state() == EngineState::Dead
            || container.start_failure().is_some()
            || container.restarts > 0 && !self.is_ready()
    }
}

// === impl EngineState ===

impl EngineState {
    /// All states.
    pub const ALL: [EngineState; 6] = [
        EngineState::Loading,
        EngineState::Awake,
        EngineState::Asleep,
        EngineState::Changing,
        EngineState::Unknown,
        EngineState::Dead,
    ];

    /// Returns whether an engine in this state may use the memory of an awake engine.
    #[must_use]
    pub fn is_busy(self) -> bool {
        !matches!(self, EngineState::Asleep | EngineState::Dead)
    }

    /// Returns the state as a word of a message.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            EngineState::Loading => "loading",
            EngineState::Awake => "awake",
            EngineState::Asleep => "asleep",
            EngineState::Changing => "changing",
            EngineState::Unknown => "unknown",
            EngineState::Dead => "dead",
        }
    }
}
