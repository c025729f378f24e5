//! `GangScheduled`: how much of what must be placed together has a place. Of services of both kinds: a replica is a
//! LeaderWorkerSet of its own, or a group of one.

use cluster::apply::Applied;
use cluster::object::{meta, terminating};
use cluster::{Condition, Tone};
use plan::ServicePlan;
use plan::labels::{GROUP_INDEX, GROUP_NAME, REPLICA_INDEX, ROLE_NAME, TASK_SPEC};
use serde_json::Value;

use crate::code;
use crate::obstacles::obstacle;
use crate::readiness::{Code, pod_trouble};
use crate::readings::{Wanted, Workload};
use crate::reason::Reason;

const KIND: &str = "GangScheduled";

/// One role of the gang.
struct Member<'a> {
    role: &'a str,
    replicas: Vec<Replica>,
}

/// What must stand on its nodes whole.
struct Replica {
    standing: Standing,
    /// What the scheduler says of one of its Pods that waits.
    waits: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// All its Pods have a node.
    Placed,
    /// Some have.
    Part,
    Nothing,
}

/// How far the gang of a service is; `None` where nothing has to be placed together.
pub(crate) fn condition(workloads: &[Wanted], applied: &[Applied], plan: Option<&ServicePlan>) -> Option<Condition> {
    let members = members(workloads);
    if members.is_empty() || plan.is_some_and(|plan| !plan.feasible) {
        return None;
    }
    if let Some((reason, message)) = obstacle(applied, |kind| kind == crate::kinds::POD_GROUP.kind) {
        return Some(reason.condition(KIND, false, message).told_as(Tone::Consequence));
    }
    let words = members.iter().find_map(Member::waits);
    let counted = || format!("{} of {}", sum(&members, placed), numbers(&members));
    let with = |text: String, words: Option<String>| words.map_or(text.clone(), |words| format!("{text}; {words}"));
    Some(match () {
        () if members.iter().all(|one| placed(&one.replicas) == one.replicas.len()) => {
            let message = format!("every replica has its nodes: {}", sum(&members, <[_]>::len));
            Condition::new(KIND, true, code::FULL_CAPACITY, message).told_as(Tone::Consequence)
        }
        () if members.iter().all(Member::has_its_minimum) => {
            Condition::new(KIND, true, code::PARTIAL_CAPACITY, with(counted(), words))
        }
        () if words.is_none() => {
            let message = "the scheduler has not placed the Pods yet";
            Condition::new(KIND, false, Reason::Workload(Code::Starting).code(), message).told_as(Tone::News)
        }
        () if members.iter().any(Member::holds_a_node) => {
            let message = with(format!("{} have all their nodes", counted()), words);
            Condition::new(KIND, false, code::BELOW_MINIMUM, message)
        }
        () => {
            let message = "nothing runs before one replica of each role has its nodes".to_owned();
            Condition::new(KIND, false, blocked(plan), with(message, words))
        }
    })
}

/// Where the installed Volcano knows nothing but all or nothing, that may be why.
fn blocked(plan: Option<&ServicePlan>) -> api::code::Code {
    let weaker = plan::code::warning::GANG_ALL_OR_NOTHING;
    let mut warnings = plan.into_iter().flat_map(|plan| &plan.warnings);
    if warnings.any(|warning| warning.code == weaker.as_str()) { weaker } else { code::BLOCKED }
}

/// The roles of the gang, in the order of the plan.
fn members(workloads: &[Wanted]) -> Vec<Member<'_>> {
    let mut members: Vec<Member<'_>> = Vec::new();
    for wanted in workloads.iter().filter(|wanted| in_gang(&wanted.planned)) {
        let (role, replicas) = (role(&wanted.planned), replicas(wanted));
        match members.iter_mut().find(|member| member.role == role) {
            Some(member) => member.replicas.extend(replicas),
            None => members.push(Member { role, replicas }),
        }
    }
    members
}

fn annotations(set: &Value) -> &Value {
    &set["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["annotations"]
}

fn in_gang(set: &Value) -> bool {
    annotations(set)[GROUP_NAME].is_string()
}

/// Where a set has all replicas of a role, its task has the role's name.
fn role(set: &Value) -> &str {
    let stated = set["metadata"]["labels"][ROLE_NAME].as_str();
    stated.or_else(|| annotations(set)[TASK_SPEC].as_str()).unwrap_or_else(|| meta(set, "name"))
}

/// The replicas that the set makes, in order: itself where it is one, or its groups.
fn replicas(wanted: &Wanted) -> Vec<Replica> {
    let planned = &wanted.planned;
    if let Some(index) = planned["metadata"]["labels"][REPLICA_INDEX].as_str() {
        return vec![Replica::of(wanted, index, |_| true)];
    }
    let stated = |set: &Value| set["spec"]["replicas"].as_u64();
    // An autoscaler's number stands on the live one only.
    let count = wanted.live.as_ref().and_then(|live| stated(&live.object)).or_else(|| stated(planned)).unwrap_or(1);
    let group = |index: String| Replica::of(wanted, &index, |pod| pod["metadata"]["labels"][GROUP_INDEX] == *index);
    (0..count).map(|index| group(index.to_string())).collect()
}

fn placed(replicas: &[Replica]) -> usize {
    replicas.iter().filter(|one| one.standing == Standing::Placed).count()
}

/// `1 prefill + 2 decode`
fn sum(members: &[Member<'_>], count: fn(&[Replica]) -> usize) -> String {
    members.iter().map(|one| format!("{} {}", count(&one.replicas), one.role)).collect::<Vec<_>>().join(" + ")
}

/// `1 + 2`
fn numbers(members: &[Member<'_>]) -> String {
    members.iter().map(|one| one.replicas.len().to_string()).collect::<Vec<_>>().join(" + ")
}

// === impl Member ===

impl Member<'_> {
    /// One that sleeps has no replica to place.
    fn has_its_minimum(&self) -> bool {
        placed(&self.replicas) > 0 || self.replicas.is_empty()
    }

    fn holds_a_node(&self) -> bool {
        self.replicas.iter().any(|one| one.standing != Standing::Nothing)
    }

    /// The first replica that waits.
    fn waits(&self) -> Option<String> {
        self.replicas.iter().find_map(|one| one.waits.clone())
    }
}

// === impl Replica ===

impl Replica {
    /// Number `index` of its role, of the Pods that are `own`.
    fn of(wanted: &Wanted, index: &str, own: impl Fn(&Value) -> bool) -> Replica {
        let size = wanted.planned["spec"]["leaderWorkerTemplate"]["size"].as_u64().unwrap_or(1);
        let pods: Vec<&Value> = wanted.live.iter().flat_map(Workload::pods).filter(|pod| own(pod)).collect();
        let has_node = |pod: &&&Value| pod["spec"]["nodeName"].is_string() && !terminating(pod);
        let standing = match pods.iter().filter(has_node).count() {
            0 => Standing::Nothing,
            placed if u64::try_from(placed).is_ok_and(|placed| placed >= size) => Standing::Placed,
            _ => Standing::Part,
        };
        let troubles = pods.into_iter().filter_map(pod_trouble);
        let refused = troubles.filter(|trouble| trouble.code == Code::Unschedulable).map(|trouble| trouble.message);
        let waits = refused.min().map(|words| format!("{}-{index} waits: {words}", role(&wanted.planned)));
        Replica { standing, waits }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// The set of an `ome.io` engine: `groups` of two Pods each, with so many of them on a node.
    fn engine(groups: &[usize]) -> Wanted {
        let planned = json!({"kind": "LeaderWorkerSet", "metadata": {"name": "chat-engine"},
            "spec": {"replicas": groups.len(), "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"metadata":
                {"annotations": {GROUP_NAME: "chat", TASK_SPEC: "engine"}}}}}});
        let pod = |group: usize, at: usize, placed: usize| {
            let waits = json!([{"type": "PodScheduled", "status": "False", "message": "no room"}]);
            let (spec, conditions) =
                if at < placed { (json!({"nodeName": "n"}), json!([])) } else { (json!({}), waits) };
            json!({"metadata": {"name": format!("chat-engine-{group}-{at}"), "labels": {GROUP_INDEX: group.to_string()}},
                "spec": spec, "status": {"phase": "Pending", "conditions": conditions}})
        };
        let pods = groups.iter().enumerate().flat_map(|(group, placed)| (0..2).map(move |at| pod(group, at, *placed)));
        Wanted::of(planned.clone(), Some(planned), pods.collect())
    }

    #[rstest]
    #[case::full(&[2, 2], "True FullCapacity", "every replica has its nodes: 2 engine")]
    #[case::partial(&[2, 0], "True PartialCapacity", "1 engine of 2; engine-1 waits: no room")]
    #[case::blocked(&[0, 0], "False Blocked", "nothing runs before one replica of each role has its nodes; engine-0 waits: no room")]
    // A node was lost: what is left of the replica still holds a place.
    #[case::lost(&[1, 0], "False BelowMinimum", "0 engine of 2 have all their nodes; engine-0 waits: no room")]
    #[case::asleep(&[], "True FullCapacity", "every replica has its nodes: 0 engine")]
    fn groups_of_one_set(#[case] groups: &[usize], #[case] expect: &str, #[case] message: &str) {
        let told = condition(&[engine(groups)], &[], None).unwrap();
        assert_eq!(
            (format!("{} {}", told.state.as_str(), told.reason).as_str(), told.message.as_str()),
            (expect, message)
        );
    }

    #[test]
    fn what_stands_alone_is_no_gang() {
        let mut single = engine(&[2]);
        single.planned["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"] = Value::Null;
        assert_eq!(condition(&[single], &[], None), None);
    }
}
