//! What can keep a workload from being ready.

use cluster::Tone;

/// Why something is not ready. The order is the order of urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Code {
    /// An image cannot be pulled.
    ImagePullFailed,
    /// A container cannot be made from its description.
    ContainerCreateFailed,
    /// A container keeps ending.
    CrashLoop,
    /// A Pod ended in failure.
    PodFailed,
    /// The workload's controller cannot make Pods.
    PodsNotCreated,
    /// No node takes a Pod.
    Unschedulable,
    /// A Pod runs, but its probe says no.
    NotReadyYet,
    /// A Pod is being set up.
    Starting,
    /// A new revision is being rolled out.
    RollingOut,
}

// === impl Code ===

impl Code {
    /// The reason as it stands in conditions.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Code::ImagePullFailed => "ImagePullFailed",
            Code::ContainerCreateFailed => "ContainerCreateFailed",
            Code::CrashLoop => "CrashLoop",
            Code::PodFailed => "PodFailed",
            Code::PodsNotCreated => "PodsNotCreated",
            Code::Unschedulable => "Unschedulable",
            Code::NotReadyYet => "NotReadyYet",
            Code::Starting => "Starting",
            Code::RollingOut => "RollingOut",
        }
    }

    /// A start that goes as it should is news; what a person must look at is a problem.
    #[must_use]
    pub fn tone(self) -> Tone {
        match self {
            Code::NotReadyYet | Code::Starting | Code::RollingOut => Tone::News,
            Code::ImagePullFailed
            | Code::ContainerCreateFailed
            | Code::CrashLoop
            | Code::PodFailed
            | Code::PodsNotCreated
            | Code::Unschedulable => Tone::Problem,
        }
    }

    /// What it means, and what to do about it.
    #[must_use]
    pub fn explained(self) -> (&'static str, &'static str) {
        match self {
            Code::ImagePullFailed => (
                "An image cannot be pulled.",
                "Correct the image of runtime or service, or give the Pods a pull secret.",
            ),
            Code::ContainerCreateFailed => (
                "A container cannot be made from its description.",
                "The message names what is missing, often a ConfigMap or a Secret.",
            ),
            Code::CrashLoop => ("A container keeps ending.", "`kubectl logs POD --previous` tells why."),
            Code::PodFailed => {
                ("A Pod ended in failure.", "`kubectl describe pod POD` tells why; evictions pass by themselves.")
            }
            Code::PodsNotCreated => {
                ("The workload's controller cannot make Pods.", "The message has its words, often a quota.")
            }
            Code::Unschedulable => {
                ("No node takes a Pod.", "`ostler explain KIND/NAME` says what each node lacks and what would help.")
            }
            Code::NotReadyYet => ("A container runs and its probe does not succeed yet.", ""),
            Code::Starting => ("A Pod is being set up.", ""),
            Code::RollingOut => ("A new revision is being rolled out.", ""),
        }
    }
}
