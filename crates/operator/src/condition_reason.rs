//! Reasons of the operator's conditions and events; reasons of decisions are defined in `decide`.

use cluster::{Condition, ConditionStatus, EventPolicy};

use crate::readiness::WorkloadReason;

/// Reason of a condition or an event, other than the reasons of decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConditionReason {
    /// The runtime and the accelerator classes are selected.
    Selected,
    /// No component requires an accelerator class.
    NotRequired,
    /// No accelerator class is selected because no runtime is resolved.
    RuntimeNotResolved,
    /// No workload is created because nothing is selected.
    NotPlanned,
    /// All workloads are ready.
    AllReady,
    /// The service is ready.
    Ready,
    /// Re-running selection would choose a different runtime or class.
    BetterChoice,
    /// The service is invalid.
    InvalidSpec,
    /// The runtime that the service names is invalid.
    RuntimeUnreadable,
    /// The model that the service names is invalid.
    ModelUnreadable,
    /// An object is invalid and is excluded from selection.
    LeftOut,
    /// A previously invalid object takes part in selection again.
    Readable,
    /// A kind that selection depends on has not been listed yet.
    ClusterNotRead,
    /// An object with this name is owned by another controller.
    ObjectNotOurs,
    /// The cluster does not serve a required kind.
    KindMissing,
    /// The API server rejected an object.
    ObjectRefused,
    /// A Gateway rejected the route of the service, or cannot resolve its backends.
    RouteNotAccepted,
    /// A problem of a Pod or a workload.
    Workload(WorkloadReason),
}

impl ConditionReason {
    /// All reasons, for the reference documentation.
    pub const ALL: [ConditionReason; 26] = [
        ConditionReason::Selected,
        ConditionReason::NotRequired,
        ConditionReason::RuntimeNotResolved,
        ConditionReason::NotPlanned,
        ConditionReason::AllReady,
        ConditionReason::Ready,
        ConditionReason::BetterChoice,
        ConditionReason::InvalidSpec,
        ConditionReason::RuntimeUnreadable,
        ConditionReason::ModelUnreadable,
        ConditionReason::LeftOut,
        ConditionReason::Readable,
        ConditionReason::ClusterNotRead,
        ConditionReason::ObjectNotOurs,
        ConditionReason::KindMissing,
        ConditionReason::ObjectRefused,
        ConditionReason::RouteNotAccepted,
        ConditionReason::Workload(WorkloadReason::ImagePullFailed),
        ConditionReason::Workload(WorkloadReason::ContainerCreateFailed),
        ConditionReason::Workload(WorkloadReason::CrashLoop),
        ConditionReason::Workload(WorkloadReason::PodFailed),
        ConditionReason::Workload(WorkloadReason::PodsNotCreated),
        ConditionReason::Workload(WorkloadReason::Unschedulable),
        ConditionReason::Workload(WorkloadReason::NotReadyYet),
        ConditionReason::Workload(WorkloadReason::Starting),
        ConditionReason::Workload(WorkloadReason::RollingOut),
    ];

    /// Returns the reason as written to conditions and events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ConditionReason::Selected => "Selected",
            ConditionReason::NotRequired => "NotRequired",
            ConditionReason::RuntimeNotResolved => "RuntimeNotResolved",
            ConditionReason::NotPlanned => "NotPlanned",
            ConditionReason::AllReady => "AllReady",
            ConditionReason::Ready => "Ready",
            ConditionReason::BetterChoice => "BetterChoice",
            ConditionReason::InvalidSpec => "InvalidSpec",
            ConditionReason::RuntimeUnreadable => "RuntimeUnreadable",
            ConditionReason::ModelUnreadable => "ModelUnreadable",
            ConditionReason::LeftOut => "LeftOut",
            ConditionReason::Readable => "Readable",
            ConditionReason::ClusterNotRead => "ClusterNotRead",
            ConditionReason::ObjectNotOurs => "ObjectNotOurs",
            ConditionReason::KindMissing => "KindMissing",
            ConditionReason::ObjectRefused => "ObjectRefused",
            ConditionReason::RouteNotAccepted => "RouteNotAccepted",
            ConditionReason::Workload(code) => code.as_str(),
        }
    }

    /// Returns which event a condition transition to this reason emits.
    #[must_use]
    pub fn event_policy(self) -> EventPolicy {
        match self {
            // The decision emits its own event with more details.
            ConditionReason::Selected
            | ConditionReason::NotRequired
            | ConditionReason::RuntimeNotResolved
            | ConditionReason::NotPlanned => EventPolicy::Suppressed,
            // The `Ready` condition emits the event.
            ConditionReason::AllReady => EventPolicy::Suppressed,
            ConditionReason::Ready
            | ConditionReason::BetterChoice
            | ConditionReason::Readable
            | ConditionReason::ClusterNotRead => EventPolicy::Normal,
            ConditionReason::InvalidSpec
            | ConditionReason::RuntimeUnreadable
            | ConditionReason::ModelUnreadable
            | ConditionReason::LeftOut
            | ConditionReason::ObjectNotOurs
            | ConditionReason::KindMissing
            | ConditionReason::ObjectRefused
            | ConditionReason::RouteNotAccepted => EventPolicy::Warning,
            ConditionReason::Workload(code) => code.event_policy(),
        }
    }

    /// Returns the meaning and the remedy; the remedy is empty if no action is needed.
    #[must_use]
    pub fn explanation(self) -> (&'static str, &'static str) {
        match self {
            ConditionReason::Selected => ("The runtime and the accelerator classes are selected.", ""),
            ConditionReason::NotRequired => {
                ("No component requires an accelerator class; Pods are scheduled as the runtime specifies.", "")
            }
            ConditionReason::RuntimeNotResolved => {
                ("No accelerator class is selected because no runtime is resolved.", "See condition RuntimeResolved.")
            }
            ConditionReason::NotPlanned => (
                "No workload is created until a runtime and its accelerators are resolved.",
                "See conditions RuntimeResolved and AcceleratorResolved.",
            ),
            ConditionReason::AllReady => ("All workloads of the service are ready.", ""),
            ConditionReason::Ready => ("All components are ready at the current generation.", ""),
            ConditionReason::BetterChoice => (
                "The current selection is retained; re-running selection would choose a different runtime or class.",
                "Run `ostler redecide KIND/NAME` to accept the new selection.",
            ),
            ConditionReason::InvalidSpec => (
                "The object is invalid; the message names the field.",
                "Correct the field; `ostler lint -f FILE` reports such errors before you apply.",
            ),
            ConditionReason::RuntimeUnreadable => (
                "The runtime that the service names is invalid.",
                "Correct the field of the runtime that the message names.",
            ),
            ConditionReason::ModelUnreadable => (
                "The model that the service names is invalid.",
                "Correct the field of the model that the message names.",
            ),
            ConditionReason::LeftOut => {
                ("The object is invalid and is excluded from selection.", "Correct the field that the message names.")
            }
            ConditionReason::Readable => ("The object is valid again and takes part in selection.", ""),
            ConditionReason::ClusterNotRead => (
                "The operator cannot list a resource that selection depends on.",
                "Grant its ServiceAccount list and watch on that resource; check with `kubectl auth can-i list RESOURCE --as …`.",
            ),
            ConditionReason::ObjectNotOurs => (
                "An object with this name is owned by another controller; it was not modified.",
                "Rename the service, or delete the object.",
            ),
            ConditionReason::KindMissing => (
                "The cluster does not serve a kind that the service needs.",
                "Install the project that provides it; the operator then continues automatically.",
            ),
            ConditionReason::ObjectRefused => (
                "The API server rejected an object; the message contains its response.",
                "Correct the field of the service or runtime. The operator retries after quota and permission errors.",
            ),
            ConditionReason::RouteNotAccepted => (
                "A Gateway rejected the HTTPRoute or InferencePool of the service; the message contains its response.",
                "Correct `httproute` of the router role, or the listeners and allowedRoutes of the Gateway.",
            ),
            ConditionReason::Workload(code) => code.explanation(),
        }
    }

    /// Returns the reason with its meaning and remedy.
    #[must_use]
    pub fn code(self) -> api::Code {
        let (cause, remedy) = self.explanation();
        api::Code::new(self.as_str(), cause, remedy)
    }

    /// Creates a condition of this type with this reason.
    #[must_use]
    pub fn condition(
        self,
        type_: &'static str,
        status: impl Into<ConditionStatus>,
        message: impl Into<String>,
    ) -> Condition {
        Condition::new(type_, status, self.code(), message).with_event_policy(self.event_policy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The set of all variants. The match has no wildcard arm, so an unlisted variant does not compile.
    macro_rules! variants {
        ($($service_reason:ident)+; $($workload:ident)+) => {{
            fn _assert_exhaustive(reason: ConditionReason) {
                match reason {
                    $(ConditionReason::$service_reason => {})+
                    $(ConditionReason::Workload(WorkloadReason::$workload) => {})+
                }
            }
            BTreeSet::from([$(ConditionReason::$service_reason,)+ $(ConditionReason::Workload(WorkloadReason::$workload),)+])
        }};
    }

    #[test]
    fn all_contains_every_variant() {
        let variants = variants!(
            Selected NotRequired RuntimeNotResolved NotPlanned AllReady Ready BetterChoice InvalidSpec RuntimeUnreadable
            ModelUnreadable LeftOut Readable ClusterNotRead ObjectNotOurs KindMissing ObjectRefused RouteNotAccepted;
            ImagePullFailed ContainerCreateFailed CrashLoop PodFailed PodsNotCreated Unschedulable NotReadyYet Starting RollingOut
        );
        assert_eq!(BTreeSet::from(ConditionReason::ALL), variants);
    }

    #[test]
    fn codes_are_unique_and_warnings_have_a_remedy() {
        let codes: BTreeSet<&str> = ConditionReason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(codes.len(), ConditionReason::ALL.len());
        for reason in ConditionReason::ALL {
            let (cause, remedy) = reason.explanation();
            assert!(
                !cause.is_empty() && (reason.event_policy() != EventPolicy::Warning || !remedy.is_empty()),
                "{reason:?}"
            );
        }
    }
}
