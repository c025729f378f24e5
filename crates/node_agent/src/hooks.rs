//! Lifecycle hooks: `postStart` and `preStop`.

use std::time::Duration;

use apimachinery::time;
use serde_json::Value;

use crate::probes::{ProbeHandler, ProbeTarget};

/// The lifecycle hooks of one container.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hooks {
    post_start: Option<LifecycleHandler>,
    pre_stop: Option<LifecycleHandler>,
}

/// A `LifecycleHandler`.
#[derive(Debug, Clone)]
enum LifecycleHandler {
    /// A request or a command, executed once.
    Action(ProbeHandler),
    /// Waits without using the container.
    Sleep(Duration),
}

// === impl Hooks ===

impl Hooks {
    pub(crate) fn new(container: &Value) -> Self {
        let handler =
            |name: &str| LifecycleHandler::from_json(container.pointer(&format!("/lifecycle/{name}"))?, container);
        Self { post_start: handler("postStart"), pre_stop: handler("preStop") }
    }

    /// Runs `postStart`. The container is killed if the hook fails.
    pub(crate) async fn run_post_start(&self, target: &ProbeTarget) -> Result<(), String> {
        run(self.post_start.as_ref(), target).await
    }

    /// Runs `preStop` before the container is stopped; it counts towards the grace period.
    pub(crate) async fn run_pre_stop(&self, target: &ProbeTarget) -> Result<(), String> {
        run(self.pre_stop.as_ref(), target).await
    }
}

// === impl LifecycleHandler ===

impl LifecycleHandler {
    fn from_json(handler: &Value, container: &Value) -> Option<Self> {
        if let Some(seconds) = handler.pointer("/sleep/seconds").and_then(Value::as_i64) {
            return Some(Self::Sleep(time::duration_from_seconds(seconds)));
        }
        ProbeHandler::from_json(handler, container).map(Self::Action)
    }
}

async fn run(handler: Option<&LifecycleHandler>, target: &ProbeTarget) -> Result<(), String> {
    match handler {
        None => Ok(()),
        Some(LifecycleHandler::Sleep(duration)) => {
            tokio::time::sleep(*duration).await;
            Ok(())
        }
        Some(LifecycleHandler::Action(handler)) => handler.run(target).await,
    }
}
