//! Reasons why a workload or a Pod is not ready.

use cluster::EventPolicy;

/// Reason why a workload or a Pod is not ready, in order of urgency (most urgent first).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkloadReason {
    /// A container image cannot be pulled.
    ImagePullFailed,
    /// A container cannot be created from its spec.
    ContainerCreateFailed,
    /// A container keeps crashing.
    CrashLoop,
    /// A Pod failed.
    PodFailed,
    /// The workload controller cannot create Pods.
    PodsNotCreated,
    /// No node can schedule a Pod.
    Unschedulable,
    /// A container runs but its readiness probe does not succeed yet.
    NotReadyYet,
    /// A Pod is starting.
    Starting,
    /// A new revision is being rolled out.
    RollingOut,
}

// === impl WorkloadReason ===

impl WorkloadReason {
    /// Returns the reason as written to conditions.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            WorkloadReason::ImagePullFailed => "ImagePullFailed",
            WorkloadReason::ContainerCreateFailed => "ContainerCreateFailed",
            WorkloadReason::CrashLoop => "CrashLoop",
            WorkloadReason::PodFailed => "PodFailed",
            WorkloadReason::PodsNotCreated => "PodsNotCreated",
            WorkloadReason::Unschedulable => "Unschedulable",
            WorkloadReason::NotReadyYet => "NotReadyYet",
            WorkloadReason::Starting => "Starting",
            WorkloadReason::RollingOut => "RollingOut",
        }
    }

    /// Returns which event a transition to this reason emits: normal for regular progress, warning if action is needed.
    #[must_use]
    pub fn event_policy(self) -> EventPolicy {
        match self {
            WorkloadReason::NotReadyYet | WorkloadReason::Starting | WorkloadReason::RollingOut => EventPolicy::Normal,
            WorkloadReason::ImagePullFailed
            | WorkloadReason::ContainerCreateFailed
            | WorkloadReason::CrashLoop
            | WorkloadReason::PodFailed
            | WorkloadReason::PodsNotCreated
            | WorkloadReason::Unschedulable => EventPolicy::Warning,
        }
    }

    /// Returns the meaning and the remedy; the remedy is empty if no action is needed.
    #[must_use]
    pub fn explanation(self) -> (&'static str, &'static str) {
        match self {
            WorkloadReason::ImagePullFailed => (
                "A container image cannot be pulled.",
                "Correct the image in the runtime or the service, or add an image pull secret to the Pods.",
            ),
            WorkloadReason::ContainerCreateFailed => (
                "A container cannot be created from its spec.",
                "The message names what is missing, usually a ConfigMap or a Secret.",
            ),
            WorkloadReason::CrashLoop => {
                ("A container keeps crashing.", "Run `kubectl logs POD --previous` to see why.")
            }
            WorkloadReason::PodFailed => {
                ("A Pod failed.", "Run `kubectl describe pod POD` to see why; evicted Pods are replaced automatically.")
            }
            WorkloadReason::PodsNotCreated => (
                "The workload controller cannot create Pods.",
                "The message contains its error, usually an exceeded quota.",
            ),
            WorkloadReason::Unschedulable => (
                "No node can schedule a Pod.",
                "Run `ostler explain KIND/NAME` to see what each node lacks and what would help.",
            ),
            WorkloadReason::NotReadyYet => ("A container runs but its readiness probe does not succeed yet.", ""),
            WorkloadReason::Starting => ("A Pod is starting.", ""),
            WorkloadReason::RollingOut => ("A new revision is being rolled out.", ""),
        }
    }
}
