//! `postStart` and `preStop`.

use std::time::Duration;

use serde_json::Value;

use super::probes::{Question, Target};

/// The hooks of one container.
#[derive(Debug, Clone, Default)]
pub(super) struct Hooks {
    post_start: Option<Action>,
    pre_stop: Option<Action>,
}

#[derive(Debug, Clone)]
enum Action {
    Ask(Question),
    Sleep(Duration),
}

// === impl Hooks ===

impl Hooks {
    pub(super) fn of(container: &Value) -> Self {
        let action = |name: &str| Action::of(container.pointer(&format!("/lifecycle/{name}"))?, container);
        Self { post_start: action("postStart"), pre_stop: action("preStop") }
    }

    /// Runs `postStart`; its failure ends the container.
    pub(super) async fn started(&self, target: &Target) -> Result<(), String> {
        run(self.post_start.as_ref(), target).await
    }

    /// Runs `preStop`, before the container is asked to end. The grace period runs meanwhile.
    pub(super) async fn stopping(&self, target: &Target) -> Result<(), String> {
        run(self.pre_stop.as_ref(), target).await
    }
}

// === impl Action ===

impl Action {
    fn of(handler: &Value, container: &Value) -> Option<Self> {
        if let Some(seconds) = handler.pointer("/sleep/seconds").and_then(Value::as_u64) {
            return Some(Self::Sleep(Duration::from_secs(seconds)));
        }
        Question::of(handler, container).map(Self::Ask)
    }
}

async fn run(action: Option<&Action>, target: &Target) -> Result<(), String> {
    match action {
        None => Ok(()),
        Some(Action::Sleep(duration)) => {
            tokio::time::sleep(*duration).await;
            Ok(())
        }
        Some(Action::Ask(question)) => question.put(target).await,
    }
}
