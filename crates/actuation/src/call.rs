//! HTTP calls to requesters and engines: requests and answers.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use crate::delete_purpose::DeletePurpose;
use crate::instance::{EngineId, InstanceRecord};

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

/// What a sleep request attempts.
pub(crate) const PUT_TO_SLEEP: &str = "put to sleep";
/// Path of the instances of a launcher.
pub(crate) const INSTANCES: &str = "/v2/vllm/instances";
const WATCH: &str = "/v2/vllm/instances/watch";

/// Target of a call.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// The SPI of the requester with this UID.
    Requester(String),
    /// An engine. Requests about an instance as such have the address of its launcher.
    Engine(EngineId),
    /// The launcher with this UID.
    Launcher(String),
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
    /// Polls `GET /health` until the engine is healthy.
    AwaitHealth,
    /// `GET /v2/vllm/instances`
    Instances {
        /// Waits for a change after this revision first, with `GET /v2/vllm/instances/watch`.
        after: Option<u64>,
    },
    /// `PUT /v2/vllm/instances/ID`
    CreateInstance {
        /// Id of the instance.
        id: String,
        /// Command, arguments, variables and accelerators.
        config: Value,
    },
    /// `DELETE /v2/vllm/instances/ID`
    DeleteInstance {
        /// Id of the instance.
        id: String,
        /// Why.
        purpose: DeletePurpose,
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
    /// Whether the engine became healthy in time.
    Healthy(bool),
    /// The instances of a launcher.
    Instances {
        /// Revision of the last change.
        revision: u64,
        /// Instances by id.
        instances: BTreeMap<String, ObservedInstance>,
    },
    /// The instance was created at this revision.
    InstanceCreated {
        /// Revision of the creation.
        revision: u64,
    },
    /// The launcher has an instance of this id already (409).
    InstanceExists,
    /// The launcher does not have the instance any longer.
    InstanceDeleted {
        /// Revision of the deletion; 0 if the launcher did not have it.
        revision: u64,
    },
}

/// An instance in the response of a launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedInstance {
    /// Whether its processes run.
    pub is_running: bool,
    /// Its port and accelerators, as far as the launcher knows them.
    pub record: InstanceRecord,
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
            Request::Verify { .. } | Request::AwaitHealth => "get_health",
            Request::Instances { .. } => "list_instances",
            Request::CreateInstance { .. } => "create_instance",
            Request::DeleteInstance { .. } => "delete_instance",
        }
    }

    /// Returns method and path of the request, or of the first of several.
    #[must_use]
    pub fn method_and_path(&self) -> (&'static str, Cow<'static, str>) {
        let (method, path) = match self {
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
            Request::Verify { .. } | Request::AwaitHealth => ("GET", "/health"),
            Request::Instances { after: None } => ("GET", INSTANCES),
            Request::Instances { after: Some(_) } => ("GET", WATCH),
            Request::CreateInstance { id, .. } => return ("PUT", Cow::Owned(format!("{INSTANCES}/{id}"))),
            Request::DeleteInstance { id, .. } => return ("DELETE", Cow::Owned(format!("{INSTANCES}/{id}"))),
        };
        (method, Cow::Borrowed(path))
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
            Request::Sleep(_) => PUT_TO_SLEEP,
            Request::Verify { .. } => "verify",
            Request::CreateInstance { .. } => "create",
            Request::DeleteInstance { .. } => "delete",
            _ => "query",
        }
    }
}
