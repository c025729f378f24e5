//! State of the container `inference-server` of a Pod.

use api::dual_pods::CONTAINER;
use apimachinery::object::{self, items};
use apimachinery::pod;
use jiff::Timestamp;
use serde_json::Value;

/// State of a container that the kubelet reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Container {
    /// ID of the current or last run; empty before the first one.
    pub id: String,
    /// What the container does.
    pub phase: ContainerPhase,
    /// Whether it passes its readiness probe.
    pub ready: bool,
    /// Number of restarts.
    pub restarts: u64,
    /// When the current run started, to the second; `None` if it does not run.
    pub started: Option<Timestamp>,
}

/// What a container does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ContainerPhase {
    /// It has not started, for this reason, such as `ImagePullBackOff`; the reason may be empty.
    Waiting(String),
    /// It runs.
    Running,
    /// Its process ended.
    Terminated,
    /// The kubelet has not reported it.
    #[default]
    Unknown,
}

// === impl Container ===

impl Container {
    /// Returns the state in a Pod's status. The containers of a finished Pod are terminated, whatever their status is.
    #[must_use]
    pub fn of_pod(pod: &Value) -> Container {
        let mut statuses = items(object::lookup(pod, "/status/containerStatuses"));
        let status = statuses.find(|status| status["name"] == CONTAINER).unwrap_or(&Value::Null);
        let phase = match &status["state"] {
            _ if pod::is_finished(pod) => ContainerPhase::Terminated,
            state if state["terminated"].is_object() => ContainerPhase::Terminated,
            state if state["running"].is_object() => ContainerPhase::Running,
            state if state["waiting"].is_object() => {
                ContainerPhase::Waiting(object::text(state, "/waiting/reason").to_owned())
            }
            _ => ContainerPhase::Unknown,
        };
        Container {
            id: object::text(status, "/containerID").to_owned(),
            phase,
            ready: status["ready"] == true,
            restarts: status["restartCount"].as_u64().unwrap_or_default(),
            started: object::text(status, "/state/running/startedAt").parse().ok(),
        }
    }

    /// Returns why the container cannot start, if it waits for another reason than its creation.
    #[must_use]
    pub fn start_failure(&self) -> Option<&str> {
        match &self.phase {
            ContainerPhase::Waiting(reason)
                if !matches!(reason.as_str(), "" | "ContainerCreating" | "PodInitializing") =>
            {
                Some(reason)
            }
            _ => None,
        }
    }
}
