//! HTTP calls to requesters and engines: requests and answers.

use std::collections::BTreeMap;
use std::time::Duration;

/// A call. It is started and stays outstanding until its answer is reported; no other call to the same target is started
/// meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Name of the Node.
    pub node: String,
    /// The target.
    pub target: Target,
    /// IP address.
    pub ip: String,
    /// TCP port.
    pub port: u16,
    /// The request.
    pub request: Request,
    /// Time after which the call fails.
    pub timeout: Duration,
}

/// Target of a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// The SPI of the requester with this UID.
    Requester(String),
    /// The engine of the provider with this UID.
    Engine(String),
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// `GET /v1/dual-pods/accelerators`
    Accelerators,
    /// `GET /v1/dual-pods/accelerator-memory-usage`
    MemoryUsage,
    /// `POST /v1/become-ready` or `/v1/become-unready`
    Ready(bool),
    /// `POST /v1/dual-pods/release`: the requester may end.
    Release,
    /// `GET /is_sleeping`
    IsSleeping,
    /// `POST /wake_up`
    WakeUp,
    /// Polls `GET /metrics` until no request runs or waits.
    Drain {
        /// Wait before the first poll: endpoint pickers observe the removal of labels late.
        settle: Duration,
    },
    /// `POST /sleep?level=1`
    Sleep(SleepMode),
    /// `GET /health`, and a completion of one token if `completion`.
    Verify {
        /// Whether to request a completion.
        completion: bool,
    },
}

/// What happens to requests that run when an engine is put to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepMode {
    /// The engine finishes them first.
    Wait,
    /// They end with `finish_reason: abort`.
    Abort,
}

/// Answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The request was accepted.
    Accepted,
    /// UUIDs of the accelerators.
    Accelerators(Vec<String>),
    /// Used MiB by UUID.
    MemoryUsage(BTreeMap<String, u64>),
    /// Whether the engine sleeps.
    Sleeping(bool),
    /// The engine has no routes of sleep mode (404).
    SleepUnsupported,
    /// Whether no request runs or waits.
    Idle(bool),
    /// The engine is healthy; its completion, if one was requested.
    Completion(Option<String>),
}

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// Kind of the failure.
    pub kind: CallErrorKind,
    /// Cause.
    pub message: String,
}

/// Kind of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallErrorKind {
    /// The request was not delivered: it had no effect.
    NotDelivered,
    /// The target rejected the request, or its response cannot be used.
    Rejected,
    /// No response arrived in time: the request may have had, or may still have, its effect.
    NoResponse,
}

// === impl Request ===

impl Request {
    /// Returns the purpose: the value of a label of metrics, as of the deployed controller.
    #[must_use]
    pub fn purpose(&self) -> &'static str {
        match self {
            Request::Accelerators => "get_gpu_uuids",
            Request::MemoryUsage => "get_accel_memory_usage",
            Request::Ready(true) => "relay_ready",
            Request::Ready(false) => "relay_unready",
            Request::Release => "release",
            Request::IsSleeping => "query_sleeping",
            Request::WakeUp => "wake",
            Request::Drain { .. } => "drain",
            Request::Sleep(_) => "sleep",
            Request::Verify { .. } => "get_health",
        }
    }

    /// Returns method and path of the request, or of the first of several.
    #[must_use]
    pub fn method_and_path(&self) -> (&'static str, &'static str) {
        match self {
            Request::Accelerators => ("GET", "/v1/dual-pods/accelerators"),
            Request::MemoryUsage => ("GET", "/v1/dual-pods/accelerator-memory-usage"),
            Request::Ready(true) => ("POST", "/v1/become-ready"),
            Request::Ready(false) => ("POST", "/v1/become-unready"),
            Request::Release => ("POST", "/v1/dual-pods/release"),
            Request::IsSleeping => ("GET", "/is_sleeping"),
            Request::WakeUp => ("POST", "/wake_up"),
            Request::Drain { .. } => ("GET", "/metrics"),
            Request::Sleep(SleepMode::Wait) => ("POST", "/sleep?level=1&mode=wait"),
            Request::Sleep(SleepMode::Abort) => ("POST", "/sleep?level=1&mode=abort"),
            Request::Verify { .. } => ("GET", "/health"),
        }
    }

    /// Returns whether the request changes whether an engine sleeps.
    #[must_use]
    pub fn changes_activity(&self) -> bool {
        matches!(self, Request::WakeUp | Request::Sleep(_))
    }

    /// Returns what is attempted, as part of a message.
    #[must_use]
    pub fn action(&self) -> &'static str {
        match self {
            Request::WakeUp => "wake",
            Request::Drain { .. } => "drain",
            Request::Sleep(_) => "put to sleep",
            Request::Verify { .. } => "verify",
            _ => "query",
        }
    }
}
