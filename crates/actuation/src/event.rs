//! Events about requesters and providers: problems of requesters, and transitions of engines.

use api::dual_pods as names;

use crate::action::{DeletePurpose, PatchPurpose, StatusUpdate, Write};
use crate::names::provider_name;
use crate::node::NodeState;
use crate::pod_ref::PodRef;
use crate::provider::Binding;

/// An Event about a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodEvent {
    /// The Pod.
    pub(crate) pod: PodRef,
    /// Whether it has type `Warning` instead of `Normal`.
    pub(crate) is_warning: bool,
    /// Reason in CamelCase.
    pub(crate) reason: &'static str,
    /// What the controller did.
    pub(crate) action: &'static str,
    /// Message.
    pub(crate) message: String,
}

/// Returns one Event for each problem that the status annotation of a requester did not report before.
pub(crate) fn problem_events(status: &StatusUpdate) -> impl Iterator<Item = PodEvent> {
    status.new_problems().map(|problem| PodEvent {
        pod: status.requester.clone(),
        is_warning: true,
        reason: problem.code().as_str(),
        action: "Actuate",
        message: problem.to_string(),
    })
}

/// Returns the Event about the transition of an engine that a write completes; `None` for other writes. `node` is the state from
/// which the write was decided.
pub(crate) fn transition_event(write: &Write, node: &NodeState) -> Option<PodEvent> {
    match write {
        Write::Create { requester, .. } => {
            let name = provider_name(&requester.name, &requester.uid);
            let message = format!("Created Pod {name}: no sleeping engine is suitable");
            Some(normal(requester, "ProviderCreated", "Create", message))
        }
        Write::Patch { pod, purpose: PatchPurpose::Bind, patch } => {
            let binding = Binding::parse(patch["metadata"]["annotations"][names::REQUESTER].as_str()?)?;
            let requester = node.servers.get(&binding.uid)?.requester.as_ref()?;
            let message = format!("Bound Pod {}, whose engine is asleep", pod.name);
            Some(normal(&requester.pod, "ProviderBound", "Bind", message))
        }
        Write::Patch { pod, purpose: PatchPurpose::Publish, .. } => {
            let provider = &node.engines.get(&pod.uid)?.provider;
            let requester = &provider.binding.as_ref()?.name;
            match (provider.last_awake, provider.is_labeled_sleeping) {
                (None, _) => {
                    Some(normal(pod, "EngineStarted", "Start", format!("The engine is ready for Pod {requester}")))
                }
                (Some(_), Some(true)) => {
                    Some(normal(pod, "EngineWoken", "Wake", format!("The engine woke up for Pod {requester}")))
                }
                // Another client removed a pool label.
                _ => None,
            }
        }
        Write::Patch { pod, purpose: PatchPurpose::Unbind, patch } => {
            let is_asleep = patch["metadata"]["labels"][names::SLEEPING] == "true";
            is_asleep.then(|| normal(pod, "EngineAsleep", "Sleep", "The engine is asleep and not bound".to_owned()))
        }
        Write::Patch { .. } => None,
        Write::Delete { pod, purpose, .. } => Some(deletion_event(pod, purpose)),
    }
}

fn normal(pod: &PodRef, reason: &'static str, action: &'static str, message: String) -> PodEvent {
    PodEvent { pod: pod.clone(), is_warning: false, reason, action, message }
}

fn deletion_event(pod: &PodRef, purpose: &DeletePurpose) -> PodEvent {
    let problem;
    let (is_warning, reason, cause) = match purpose {
        DeletePurpose::ProviderLost => (true, "ProviderLost", "another client deleted its provider"),
        DeletePurpose::EngineDied => (true, "EngineDied", "its engine ended"),
        DeletePurpose::NodeCordoned => {
            (true, "NodeCordoned", "its node became unschedulable before its provider was scheduled")
        }
        DeletePurpose::NotReusable => {
            (false, "EngineNotReusable", "its engine is broken, was never ready or does not support sleep mode")
        }
        DeletePurpose::NotSleeping => (true, "SleepFailed", "its engine cannot be put to sleep"),
        DeletePurpose::NotWaking(cause) => {
            problem = cause.to_string();
            (true, "WakeFailed", problem.as_str())
        }
        DeletePurpose::NotAsleep => (true, "SleeperFailed", "its engine failed, restarted or was never ready"),
        DeletePurpose::Victim => {
            (false, "SleeperEvicted", "another engine needs its place, and it was awake least recently")
        }
        DeletePurpose::Expired => (false, "SleeperExpired", "its engine was asleep for longer than --sleeper-ttl"),
        DeletePurpose::NameReused => (false, "ProviderReplaced", "its requester needs another engine"),
    };
    let message = format!("Deleting the Pod: {cause}");
    PodEvent { pod: pod.clone(), is_warning, reason, action: "Delete", message }
}
