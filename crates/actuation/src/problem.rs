//! Why a requester is not served: the entries of its status annotation. Messages have the wording of the deployed controller
//! where it has one, because scripts search for them.

use api::Code;
use api::dual_pods::UserAnnotation;

use crate::code;
use crate::nominal::PatchError;

/// A problem of one requester.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The requester has no IP address.
    #[error("no IP assigned yet")]
    AddressMissing,
    /// A request to the requester's SPI failed.
    #[error("{verb} \"{url}\" fails: {message}")]
    RequesterUnreachable {
        /// HTTP method.
        verb: &'static str,
        /// URL of the request.
        url: String,
        /// Cause.
        message: String,
    },
    /// The requester answered with an empty list.
    #[error("the assigned set of GPUs is empty")]
    NoAccelerators,
    /// There is no ConfigMap `gpu-map`.
    #[error("GPU map ConfigMap gpu-map is not available")]
    GpuMapUnavailable,
    /// The entry of the node is not a JSON object of indexes.
    #[error("GPU map ConfigMap gpu-map is invalid: entry \"{node}\" is not a JSON object from UUIDs to indexes")]
    GpuMapInvalid {
        /// Name of the Node, which is the key of the entry.
        node: String,
    },
    /// The map does not contain the accelerator.
    #[error("UUID {uuid} is not known")]
    UnknownAccelerator {
        /// UUID of the accelerator.
        uuid: String,
    },
    /// The map contains the accelerator on another node.
    #[error("UUID {uuid} is on Node {actual}, not {expected}")]
    AcceleratorOfOtherNode {
        /// UUID of the accelerator.
        uuid: String,
        /// Node of the requester.
        expected: String,
        /// Node in the map.
        actual: String,
    },
    /// An annotation of the requester cannot be used.
    #[error("the annotation \"{}\" is invalid: {message}", annotation.key())]
    InvalidAnnotation {
        /// The annotation.
        annotation: UserAnnotation,
        /// Cause.
        message: String,
    },
    /// The nominal provider cannot be derived.
    #[error("failed to construct the nominal server-providing Pod: {0}")]
    InvalidPatch(PatchError),
    /// A set would adopt the provider.
    #[error(
        "the selector of {owner} matches the labels of the server-providing Pod: {selector}; change one of them in the annotation \"dual-pods.llm-d.ai/server-patch\""
    )]
    SelectorMatches {
        /// Kind and name of the set.
        owner: String,
        /// The selector.
        selector: String,
    },
    /// The requester uses dynamic resource allocation.
    #[error("resource claims are not supported: {field} of the server-requesting Pod must be empty")]
    ResourceClaims {
        /// Path of the field.
        field: &'static str,
    },
    /// The requested mode is not implemented.
    #[error("{feature} is not supported")]
    ModeUnsupported {
        /// What the requester asks for.
        feature: String,
    },
    /// Another engine may use one of the accelerators.
    #[error("AcceleratorBusy: the engine of Pod {pod} on accelerator {accelerator} is {state}")]
    AcceleratorBusy {
        /// Name of the provider.
        pod: String,
        /// UUID of the accelerator.
        accelerator: String,
        /// What the engine does.
        state: &'static str,
    },
    /// No engine may be deleted to make room.
    #[error(
        "accelerator {accelerator} has {engines} engines, and the limit is {limit} sleeping ones; waiting for one of them to be gone"
    )]
    BudgetExhausted {
        /// UUID of the accelerator.
        accelerator: String,
        /// Engines on it.
        engines: usize,
        /// Limit of sleeping engines.
        limit: usize,
    },
    /// More memory is in use than sleeping engines may retain.
    #[error(
        "accelerator {accelerator} is currently using {used_mib} MiB of memory, limit for sleeping total is {limit_mib} MiB"
    )]
    MemoryShort {
        /// UUID of the accelerator.
        accelerator: String,
        /// Memory in use.
        used_mib: u64,
        /// Memory that sleeping engines may retain.
        limit_mib: u64,
    },
    /// The scheduler rejected the provider.
    #[error("the server-providing Pod \"{pod}\" is unschedulable: {message}")]
    Unschedulable {
        /// Name of the provider.
        pod: String,
        /// Message of the scheduler.
        message: String,
    },
    /// The container of the provider does not start.
    #[error("the engine of the server-providing Pod \"{pod}\" does not start: {reason}")]
    EngineNotStarted {
        /// Name of the provider.
        pod: String,
        /// Reason of the container's state.
        reason: String,
    },
    /// The engine answers 404 to requests of sleep mode.
    #[error(
        "the engine of the server-providing Pod \"{pod}\" does not support sleep mode: set the variable VLLM_SERVER_DEV_MODE=1 and the flag --enable-sleep-mode"
    )]
    SleepUnsupported {
        /// Name of the provider.
        pod: String,
    },
    /// A request to the engine failed.
    #[error("failed to {action} the engine of Pod {pod}: {message}")]
    EngineCall {
        /// What was attempted.
        action: &'static str,
        /// Name of the provider.
        pod: String,
        /// Cause.
        message: String,
    },
    /// More than one provider was bound.
    #[error("{count} server-providing Pods are bound to this Pod; retaining {retained}")]
    SeveralProviders {
        /// Number of bound providers.
        count: usize,
        /// Name of the provider that remains bound.
        retained: String,
    },
    /// The API server rejected a write.
    #[error("{0}")]
    Rejected(String),
    /// The engine returned another completion after it woke up.
    #[error(
        "the engine of Pod {pod} returned \"{actual}\" after it woke up, but \"{expected}\" when it was first ready"
    )]
    FingerprintChanged {
        /// Name of the provider.
        pod: String,
        /// Recorded completion.
        expected: String,
        /// Completion after waking.
        actual: String,
    },
}

// === impl Problem ===

impl Problem {
    /// Returns the code of the problem.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Problem::AddressMissing => code::ADDRESS_MISSING,
            Problem::RequesterUnreachable { .. } => code::UNREACHABLE_REQUESTER,
            Problem::NoAccelerators => code::NO_ACCELERATORS,
            Problem::GpuMapUnavailable
            | Problem::GpuMapInvalid { .. }
            | Problem::UnknownAccelerator { .. }
            | Problem::AcceleratorOfOtherNode { .. } => code::GPU_MAP_MISSING,
            Problem::InvalidAnnotation { .. } => code::INVALID_ANNOTATION,
            Problem::InvalidPatch(_) => code::INVALID_PATCH,
            Problem::SelectorMatches { .. } => code::SELECTOR_MATCHES,
            Problem::ResourceClaims { .. } => code::RESOURCE_CLAIMS,
            Problem::ModeUnsupported { .. } => code::MODE_UNSUPPORTED,
            Problem::AcceleratorBusy { .. } => code::ACCELERATOR_BUSY,
            Problem::BudgetExhausted { .. } => code::BUDGET_EXHAUSTED,
            Problem::MemoryShort { .. } => code::MEMORY_SHORT,
            Problem::Unschedulable { .. } => code::UNSCHEDULABLE,
            Problem::EngineNotStarted { .. } => code::START_FAILED,
            Problem::SleepUnsupported { .. } => code::SLEEP_UNSUPPORTED,
            Problem::EngineCall { .. } => code::CALL_FAILED,
            Problem::SeveralProviders { .. } => code::SEVERAL_PROVIDERS,
            Problem::Rejected(_) => code::WRITE_FAILED,
            Problem::FingerprintChanged { .. } => code::FINGERPRINT_CHANGED,
        }
    }
}
