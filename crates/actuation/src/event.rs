//! Events about requesters and providers: problems of requesters, and transitions of engines.

use api::dual_pods as names;

use crate::action::{PatchPurpose, StatusUpdate, Write};
use crate::call::{Call, Request, Target};
use crate::delete_purpose::DeletePurpose;
use crate::names::provider_name;
use crate::node::{Engine, NodeState};
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
        Write::Patch { pod, purpose: PatchPurpose::Launch, patch } => {
            let binding = Binding::parse(patch["metadata"]["annotations"][names::REQUESTER].as_str()?)?;
            let requester = node.servers.get(&binding.uid)?.requester.as_ref()?;
            let message =
                format!("Bound Pod {}, a launcher that starts the engine: no sleeping engine is suitable", pod.name);
            Some(normal(&requester.pod, "LauncherBound", "Bind", message))
        }
        Write::Patch { pod, purpose: PatchPurpose::Publish, .. } => {
            let is_published =
                |engine: &&Engine| engine.provider.pod.uid == pod.uid && engine.provider.binding.is_some();
            let provider = &node.engines.values().find(is_published)?.provider;
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

/// Returns the Event about the deletion of an instance that a call starts; `None` for other calls, and for repetitions.
pub(crate) fn instance_event(call: &Call, node: &NodeState) -> Option<PodEvent> {
    let (Target::Engine(id), Request::DeleteInstance { id: instance, purpose }) = (&call.target, &call.request) else {
        return None;
    };
    let engine = node.engines.get(id).filter(|engine| engine.facts.instance.delete_failures == 0)?;
    let event = deletion_event(&engine.provider.pod, purpose);
    let message = event.message.replacen("the Pod", &format!("instance {instance} of the launcher"), 1);
    Some(PodEvent { message, ..event })
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
            (false, "SleeperEvicted", "it frees space for another engine, and was awake least recently")
        }
        DeletePurpose::Expired => (false, "SleeperExpired", "its engine was asleep for longer than --sleeper-ttl"),
        DeletePurpose::NameReused => (false, "ProviderReplaced", "its requester needs another engine"),
        DeletePurpose::LauncherFailed => (true, "LauncherFailed", "it ended or does not respond, and is not bound"),
    };
    let message = format!("Deleted the Pod: {cause}");
    PodEvent { pod: pod.clone(), is_warning, reason, action: "Delete", message }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::instance::EngineId;
    use crate::node::Server;
    use crate::problem::Problem;
    use crate::provider::Provider;
    use crate::requester::Requester;
    use crate::write;

    fn pod(name: &str, annotations: &Value, labels: &Value) -> Value {
        let metadata = json!({"name": name, "namespace": "n", "uid": format!("uid-{name}"), "annotations": annotations, "labels": labels});
        json!({"metadata": metadata})
    }

    fn requester() -> Requester {
        Requester::from_pod(&pod("r", &json!({}), &json!({})))
    }

    /// Returns a provider that is bound to the requester; it was awake before if `sleeping` is set.
    fn provider(sleeping: Option<&str>) -> Provider {
        let mut annotations = json!({names::REQUESTER: "uid-r r"});
        if sleeping.is_some() {
            annotations[names::LAST_AWAKE] = json!("2026-01-01T00:00:00Z");
        }
        Provider::from_pod(&pod("p", &annotations, &json!({names::SLEEPING: sleeping})))
    }

    fn node(provider: Provider) -> NodeState {
        let mut node = NodeState::default();
        node.servers.insert("uid-r".to_owned(), Server { requester: Some(requester()), ..Server::default() });
        node.engines.insert(EngineId::of_pod("uid-p"), Engine::new(provider));
        node
    }

    fn event(write: &Write, provider: Provider) -> Option<String> {
        let event = transition_event(write, &node(provider))?;
        let kind = if event.is_warning { "Warning" } else { "Normal" };
        Some(format!("{kind} {} {}: {}", event.pod.name, event.reason, event.message))
    }

    #[test]
    fn each_transition_has_an_event() {
        let nominal = Arc::new(crate::nominal::NominalProvider {
            namespace: "n".to_owned(),
            node: "node".to_owned(),
            spec: json!({}),
            instance: None,
            labels: Default::default(),
            annotations: Default::default(),
            pool_labels: Default::default(),
            owner: None,
            accelerators: BTreeSet::new(),
            port: 8000,
            identity: String::new(),
        });
        let create = Write::Create { requester: requester().pod, nominal: Arc::clone(&nominal) };
        let name = provider_name("r", "uid-r");
        assert_eq!(
            event(&create, provider(None)),
            Some(format!("Normal r ProviderCreated: Created Pod {name}: no sleeping engine is suitable"))
        );
        let asleep = provider(Some("true"));
        for (write, provider, expected) in [
            (
                write::bind(&requester(), &nominal, &asleep),
                &asleep,
                Some("Normal r ProviderBound: Bound Pod p, whose engine is asleep"),
            ),
            (
                write::publish(&provider(None), None, Timestamp::UNIX_EPOCH),
                &provider(None),
                Some("Normal p EngineStarted: The engine is ready for Pod r"),
            ),
            (
                write::publish(&asleep, None, Timestamp::UNIX_EPOCH),
                &asleep,
                Some("Normal p EngineWoken: The engine woke up for Pod r"),
            ),
            (write::publish(&asleep, None, Timestamp::UNIX_EPOCH), &provider(Some("false")), None),
            (
                write::unbind(&asleep, true, Timestamp::UNIX_EPOCH),
                &asleep,
                Some("Normal p EngineAsleep: The engine is asleep and not bound"),
            ),
            (write::unbind(&asleep, false, Timestamp::UNIX_EPOCH), &asleep, None),
            (write::finish(&requester()), &asleep, None),
        ] {
            assert_eq!(event(&write, provider.clone()).as_deref(), expected);
        }
    }

    // spec: DP-57
    #[test]
    fn event_of_another_completion_has_both_fingerprints() {
        let problem =
            Problem::FingerprintChanged { pod: "p".to_owned(), expected: "a".to_owned(), actual: "b".to_owned() };
        let pod = provider(None).pod;
        let write = Write::Delete { pod, purpose: DeletePurpose::NotWaking(problem), grace_seconds: None };
        let expected = "Warning p WakeFailed: Deleted the Pod: the engine of Pod p returned \"b\" after it woke up, but \"a\" \
            when it was first ready";
        assert_eq!(event(&write, provider(None)).as_deref(), Some(expected));
    }

    // spec: DP-10
    #[test]
    fn only_new_problems_have_events() {
        let known = Problem::NoAccelerators;
        let new = Problem::Unschedulable { pod: "p".to_owned(), message: "Insufficient memory".to_owned() };
        let status = StatusUpdate {
            requester: requester().pod,
            reported: vec![known.to_string()],
            problems: vec![known, new.clone()],
        };
        let events: Vec<PodEvent> = problem_events(&status).collect();
        let [event] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(
            (event.reason, event.is_warning, event.message.clone()),
            ("ProviderUnschedulable", true, new.to_string())
        );
    }
}
