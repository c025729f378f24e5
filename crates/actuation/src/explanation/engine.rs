//! What is known of one engine.

use jiff::Timestamp;

use crate::instance::EngineId;
use crate::node::{Engine, EngineState};

/// Number of characters by which messages name an instance.
const INSTANCE_CHARS: usize = 8;

/// What is known of one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineSummary {
    /// The engine.
    pub id: EngineId,
    /// Name of the provider.
    pub pod: String,
    /// Namespace of the provider.
    pub namespace: String,
    /// What the engine does.
    pub state: EngineState,
    /// Name of the requester to which it is bound.
    pub requester: Option<String>,
    /// When it was last awake.
    pub last_awake: Option<Timestamp>,
}

// === impl EngineSummary ===

impl EngineSummary {
    pub(super) fn new(engine: &Engine) -> EngineSummary {
        let provider = &engine.provider;
        EngineSummary {
            id: provider.engine_id(),
            pod: provider.pod.name.clone(),
            namespace: provider.pod.namespace.clone(),
            state: engine.state(),
            requester: provider.binding.as_ref().map(|binding| binding.name.clone()),
            last_awake: provider.last_awake,
        }
    }
}

impl std::fmt::Display for EngineSummary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let EngineSummary { id, pod, state, requester, last_awake, .. } = self;
        if let Some(instance) = &id.instance {
            write!(f, "instance {} of ", instance.chars().take(INSTANCE_CHARS).collect::<String>())?;
        }
        match (state, requester, last_awake) {
            (EngineState::Asleep, None, Some(time)) => write!(f, "Pod {pod} is asleep since {time}"),
            (EngineState::Asleep, Some(requester), _) => write!(f, "Pod {pod} is waking up for Pod {requester}"),
            (_, Some(requester), _) => write!(f, "Pod {pod} is {} for Pod {requester}", state.as_str()),
            (EngineState::Awake, None, _) => write!(f, "Pod {pod} is being put to sleep"),
            (_, None, _) => write!(f, "Pod {pod} is {} and not bound", state.as_str()),
        }
    }
}
