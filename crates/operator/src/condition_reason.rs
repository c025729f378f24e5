//! Reasons of the operator's conditions and events, one line each: code, event policy, cause and remedy. Enums, event
//! policies and `docs/reason-codes.md` are derived from these lines. Reasons of decisions are declared in `decide`.

use api::Code;
use cluster::{Condition, ConditionStatus, EventPolicy};

/// Condition type of a rollout that stops old Pods before new ones start.
pub(crate) const NO_SURGE_CAPACITY: &str = "NoSurgeCapacity";

/// Declares [`ConditionReason`] and [`WorkloadReason`]. The event policy determines which event a transition of a
/// condition to the reason emits; an empty remedy means that no action is needed.
macro_rules! condition_reasons {
    (
        service { $($service:ident: $service_policy:ident, $service_cause:literal, $service_remedy:literal;)+ }
        workload { $($workload:ident: $workload_policy:ident, $workload_cause:literal, $workload_remedy:literal;)+ }
        class_and_role { $($role:ident: $role_policy:ident, $role_cause:literal, $role_remedy:literal;)+ }
    ) => {
        /// Reason of a condition or an event, other than the reasons of decisions.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum ConditionReason {
            $(#[doc = $service_cause] $service,)+
            /// A problem of a Pod or a workload.
            Workload(WorkloadReason),
            $(#[doc = $role_cause] $role,)+
        }

        /// Reason why a workload or a Pod is not ready, in order of urgency (most urgent first).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum WorkloadReason {
            $(#[doc = $workload_cause] $workload,)+
        }

        impl ConditionReason {
            /// Reasons of services, their workloads and the objects that decisions depend on, for the reference
            /// documentation.
            pub const OF_SERVICES: &[ConditionReason] = &[
                $(ConditionReason::$service,)+
                $(ConditionReason::Workload(WorkloadReason::$workload),)+
            ];

            /// Reasons of accelerator classes, their base set and the roles of services, for the reference
            /// documentation.
            pub const OF_CLASSES_AND_ROLES: &[ConditionReason] = &[$(ConditionReason::$role,)+];

            /// Returns the reason with its cause and remedy.
            #[must_use]
            pub fn code(self) -> Code {
                match self {
                    $(ConditionReason::$service => {
                        Code::new(stringify!($service), $service_cause, $service_remedy)
                    })+
                    $(ConditionReason::Workload(WorkloadReason::$workload) => {
                        Code::new(stringify!($workload), $workload_cause, $workload_remedy)
                    })+
                    $(ConditionReason::$role => Code::new(stringify!($role), $role_cause, $role_remedy),)+
                }
            }

            /// Returns which event a condition transition to this reason emits.
            #[must_use]
            pub fn event_policy(self) -> EventPolicy {
                match self {
                    $(ConditionReason::$service => EventPolicy::$service_policy,)+
                    $(ConditionReason::Workload(WorkloadReason::$workload) => EventPolicy::$workload_policy,)+
                    $(ConditionReason::$role => EventPolicy::$role_policy,)+
                }
            }
        }
    };
}

condition_reasons! {
    service {
        // The decision emits its own event with more details.
        Selected: Suppressed, "The runtime and the accelerator classes are selected.", "";
        NotRequired: Suppressed, "No component requires an accelerator class; Pods are scheduled as the runtime specifies.", "";
        RuntimeNotResolved: Suppressed, "No accelerator class is selected because no runtime is resolved.", "See condition RuntimeResolved.";
        NotPlanned: Suppressed, "No workload is created or updated until a runtime and its accelerators are resolved.", "See conditions RuntimeResolved and AcceleratorResolved.";
        // The `Ready` condition emits the event.
        AllReady: Suppressed, "All workloads of the service are ready.", "";
        Ready: Normal, "All components are ready at the current generation.", "";
        BetterChoice: Normal, "The current selection is retained; re-running selection would choose a different runtime or class.", "Run `ostler redecide KIND/NAME` to accept the new selection.";
        NoFreeAccelerators: Normal, "No accelerators are free for an additional Pod or replica during a rollout, so old Pods stop before new ones start.", "Add a node of the class, or set `deploymentStrategy` of the component.";
        InvalidSpec: Warning, "The object is invalid; the message names the field.", "Correct the field; `ostler lint -f FILE` reports such errors before you apply.";
        RuntimeUnreadable: Warning, "The runtime that the service names is invalid.", "Correct the field of the runtime that the message names.";
        ModelUnreadable: Warning, "The model that the service names is invalid.", "Correct the field of the model that the message names.";
        LeftOut: Warning, "The object is invalid and is excluded from selection.", "Correct the field that the message names.";
        Readable: Normal, "The object is valid again and takes part in selection.", "";
        ClusterNotRead: Normal, "The operator cannot list a resource that the service depends on.", "Grant its ServiceAccount list and watch on that resource; check with `kubectl auth can-i list RESOURCE --as …`.";
        ObjectNotOurs: Warning, "An object with this name is owned by another controller; it was not modified.", "Rename the service, or delete the object.";
        KindMissing: Warning, "The cluster does not serve a kind that the service needs.", "Install the project that provides it; the operator then continues automatically.";
        ObjectRefused: Warning, "The API server rejected an object; the message contains its response.", "Correct the field of the service or runtime. The operator retries after quota and permission errors.";
        RouteNotAccepted: Warning, "A Gateway rejected the HTTPRoute or InferencePool of the service; the message contains its response.", "Correct `httproute` of the router role, or the listeners and allowedRoutes of the Gateway.";
        ObsoleteObject: Warning, "An obsolete object has no recorded identity, because an earlier release created it or it is a copy; it was not deleted.", "Unless you need the object, delete it with the command in the message.";
        InternalError: Warning, "The operator failed because of a defect in its code, and retries; the message contains the error.", "Report the message and the log of the operator as a defect.";
    }
    workload {
        ImagePullFailed: Warning, "A container image cannot be pulled.", "Correct the image in the runtime or the service, or add an image pull secret to the Pods.";
        ContainerCreateFailed: Warning, "A container cannot be created from its spec.", "The message names what is missing, usually a ConfigMap or a Secret.";
        CrashLoop: Warning, "A container keeps crashing.", "Run `kubectl logs POD --previous` to see why.";
        PodFailed: Warning, "A Pod failed.", "Run `kubectl describe pod POD` to see why; evicted Pods are replaced automatically.";
        PodsNotCreated: Warning, "The workload controller cannot create Pods.", "The message contains its error, usually an exceeded quota.";
        NodeNotReady: Warning, "The node of a Pod does not report its status, or is not ready.", "Run `kubectl describe node NODE`, repair the node or delete it; the Pod is replaced once it is evicted.";
        Unschedulable: Warning, "No node can schedule a Pod.", "Run `ostler explain KIND/NAME` to see what each node lacks and what would help.";
        WaitingForQuota: Normal, "Kueue has not admitted a Pod to its queue yet.", "Wait until other Pods of the queue end, or raise its quota; `ostler explain` shows which quota is missing and who uses it.";
        SchedulingGated: Normal, "A Pod has scheduling gates.", "The controller that set the gates must remove them; the message names the gates.";
        ActuationBlocked: Normal, "The controller of dual pods reports why it does not run the engine of a requester; the message contains the problem.", "See the Events of the Pod, whose reasons are those of dual pods on this page.";
        WaitingForActuation: Normal, "A requester of dual pods waits for its engine to start or to wake up.", "If the message names no Pod and remains, check that `ostler actuation` runs and watches the namespace.";
        NotReadyYet: Normal, "A container runs but its readiness probe does not succeed yet.", "";
        Starting: Normal, "A Pod is starting.", "";
        RollingOut: Normal, "A new revision is being rolled out.", "";
    }
    class_and_role {
        NodesMatched: Normal, "Nodes match the class.", "";
        NoAvailableNodes: Warning, "All nodes of the class are cordoned or not ready.", "Run `kubectl get nodes` to find them; uncordon or repair a node.";
        Available: Normal, "The class has nodes that can schedule Pods.", "";
        KueueMissing: Normal, "The class references a ResourceFlavor but Kueue is not installed.", "Install Kueue, or remove integration.kueueResourceFlavor.";
        FlavorSynced: Normal, "The class and the ResourceFlavor select the same nodes.", "";
        FlavorGone: Warning, "The ResourceFlavor that the class was created from no longer exists.", "Delete the class, or recreate the ResourceFlavor.";
        ClassEdited: Warning, "A user edited a class that was created from a ResourceFlavor; changes to the ResourceFlavor are no longer applied.", "Revert the edit to resume synchronization with the ResourceFlavor.";
        NotOwned: Warning, "A generated class or ResourceFlavor was restored from a backup or copied; the operator neither updates nor deletes it.", "Delete the object with the command in the message; unless it is a copy with another name, the operator generates it again.";
        FlavorNotExpressible: Warning, "A ResourceFlavor cannot express the node selection of the class.", "Use only discovery.nodeSelector, or remove integration.kueueResourceFlavor.";
        FlavorPending: Normal, "The ResourceFlavor is being created or updated.", "If the condition remains, the log of the operator contains the response of the API server.";
        FlavorDiffers: Warning, "A ResourceFlavor with this name is managed by a user and selects other nodes; it was not modified.", "Change its nodeLabels, or set another name in integration.kueueResourceFlavor.";
        // The `Ready` condition emits the event.
        ObjectsApplied: Suppressed, "All objects of the service are applied.", "";
        MinimumReady: Normal, "Every role has at least one ready replica.", "";
        // The `Ready` condition emits the event.
        FullCapacity: Suppressed, "All replicas of the gang are scheduled.", "";
        PartialCapacity: Normal, "At least one replica of each role of the gang is scheduled; the other replicas wait until all their Pods fit.", "Add nodes, or scale down; waiting replicas start automatically.";
        Blocked: Warning, "A role of the gang has no replica that can be scheduled, so none of its Pods run.", "Add nodes with as many accelerators as the message states, or make the replicas smaller.";
        BelowMinimum: Warning, "A role of the gang no longer has a fully scheduled replica; scheduled Pods keep running.", "Restore the nodes or add others; the message states how many accelerators are missing.";
        RolloutPaused: Normal, "The rollout of a new revision is paused.", "Run `ostler rollout resume KIND/NAME` to resume it, or `ostler rollout undo KIND/NAME` to roll back.";
        StateUnreadable: Warning, "The operator cannot list a resource that the status is computed from; counts are the last observed ones.", "Grant its ServiceAccount list and watch on that resource; check with `kubectl auth can-i list RESOURCE --as …`.";
        InvalidDocument: Warning, "A document of the base set of accelerator classes is invalid and is ignored.", "Correct the field of the ConfigMap that the message names.";
    }
}

// === impl ConditionReason ===

impl ConditionReason {
    /// Returns the reason as written to conditions and events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.code().as_str()
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

// === impl WorkloadReason ===

impl WorkloadReason {
    /// Returns the reason as written to conditions and events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        ConditionReason::Workload(self).as_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn codes_are_unique_and_warnings_have_a_remedy() {
        let reasons = [ConditionReason::OF_SERVICES, ConditionReason::OF_CLASSES_AND_ROLES].concat();
        let codes: BTreeSet<&str> = reasons.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(codes.len(), reasons.len());
        for reason in reasons {
            let code = reason.code();
            let needs_remedy = reason.event_policy() == EventPolicy::Warning;
            assert!(!code.cause().is_empty() && (!needs_remedy || !code.remedy().is_empty()), "{reason:?}");
        }
    }
}
