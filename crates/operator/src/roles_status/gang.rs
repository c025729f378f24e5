//! `GangScheduled`: how much of what must be placed together has a place.

use cluster::object::{meta, terminating};
use cluster::{Condition, Tone};
use plan::labels::{GROUP_NAME, REPLICA_INDEX, ROLE_NAME};
use serde_json::Value;

use super::{Findings, Role};
use crate::code;
use crate::obstacles::obstacle;
use crate::readiness::{Code, pod_trouble};
use crate::readings::{Wanted, Workload};

const KIND: &str = "GangScheduled";

/// One role of the gang: replicas whose Pods all have a node, and all.
struct Member<'a> {
    role: &'a str,
    placed: usize,
    replicas: usize,
}

/// How far the gang of the service is; `None` where nothing has to be placed together.
pub(super) fn condition(findings: &Findings<'_>) -> Option<Condition> {
    let in_gang: Vec<&Wanted> = findings.workloads.iter().filter(|wanted| is_in_gang(&wanted.planned)).collect();
    let members: Vec<Member<'_>> = findings.roles.iter().filter_map(|role| member(role, &in_gang)).collect();
    if members.is_empty() || !findings.feasible() {
        return None;
    }
    if let Some((reason, message)) = obstacle(findings.applied, |kind| kind == crate::kinds::POD_GROUP.kind) {
        return Some(reason.condition(KIND, false, message).told_as(Tone::Consequence));
    }
    let words = scheduler(findings, &in_gang);
    Some(match () {
        () if members.iter().all(|one| one.placed == one.replicas) => {
            let message = format!("every replica has its nodes: {}", sum(&members, |one| one.replicas, true));
            Condition::new(KIND, true, code::FULL_CAPACITY, message).told_as(Tone::Consequence)
        }
        () if members.iter().all(|one| one.placed > 0) => {
            let placed = sum(&members, |one| one.placed, true);
            let message = format!("{placed} of {}", sum(&members, |one| one.replicas, false));
            let message = words.map_or(message.clone(), |words| format!("{message}; {words}"));
            Condition::new(KIND, true, code::PARTIAL_CAPACITY, message)
        }
        () => match words {
            Some(words) => {
                Condition::relayed(KIND, false, blocked(findings), format!("{}; {words}", standing(&members, &in_gang)))
            }
            None => {
                let message = "the scheduler has not placed the Pods yet";
                Condition::new(KIND, false, crate::reason::Reason::Workload(Code::Starting).code(), message)
                    .told_as(Tone::News)
            }
        },
    })
}

/// Where the installed Volcano knows nothing but all or nothing, that may be why.
fn blocked(findings: &Findings<'_>) -> api::code::Code {
    let weaker = plan::code::warning::GANG_ALL_OR_NOTHING;
    let mut warnings = findings.plan.into_iter().flat_map(|plan| &plan.warnings);
    if warnings.any(|warning| warning.code == weaker.as_str()) { weaker } else { code::BLOCKED }
}

fn is_in_gang(set: &Value) -> bool {
    let template = &set["spec"]["leaderWorkerTemplate"]["workerTemplate"];
    template["metadata"]["annotations"][GROUP_NAME].is_string()
}

fn member<'a>(role: &'a Role, in_gang: &[&Wanted]) -> Option<Member<'a>> {
    let own = || in_gang.iter().filter(|wanted| wanted.planned["metadata"]["labels"][ROLE_NAME] == *role.name);
    let placed = own().filter(|wanted| is_placed(wanted, role.nodes)).count();
    (own().count() > 0).then(|| Member { role: &role.name, placed, replicas: own().count() })
}

fn is_placed(wanted: &Wanted, nodes: i64) -> bool {
    let has_node = |pod: &&Value| pod["spec"]["nodeName"].is_string() && !terminating(pod);
    let placed = wanted.live.iter().flat_map(Workload::pods).filter(has_node).count();
    i64::try_from(placed).is_ok_and(|placed| placed >= nodes)
}

/// What there is of a gang of which some role has no whole replica.
fn standing(members: &[Member<'_>], in_gang: &[&Wanted]) -> String {
    let bound = |wanted: &&&Wanted| is_placed(wanted, 1);
    match in_gang.iter().find(bound) {
        None => "nothing runs before one replica of each role has its nodes".to_owned(),
        // Nodes were lost: what still stands goes on.
        Some(_) => {
            let placed = sum(members, |one| one.placed, true);
            format!("{placed} of {} have all their nodes", sum(members, |one| one.replicas, false))
        }
    }
}

/// `1 prefill + 2 decode`, or the numbers alone.
fn sum(members: &[Member<'_>], count: impl Fn(&Member<'_>) -> usize, named: bool) -> String {
    let one = |member: &Member<'_>| match named {
        true => format!("{} {}", count(member), member.role),
        false => count(member).to_string(),
    };
    members.iter().map(one).collect::<Vec<_>>().join(" + ")
}

/// Who waits, and what the scheduler says of it: the first in order of roles and replicas.
fn scheduler(findings: &Findings<'_>, in_gang: &[&Wanted]) -> Option<String> {
    let roles = findings.roles.iter();
    let of_role = |role: &Role| {
        let own = in_gang.iter().filter(|wanted| wanted.planned["metadata"]["labels"][ROLE_NAME] == *role.name);
        own.filter_map(|wanted| waits(wanted)).next()
    };
    roles.filter_map(of_role).next()
}

fn waits(wanted: &Wanted) -> Option<String> {
    let troubles = wanted.live.iter().flat_map(Workload::pods).filter_map(pod_trouble);
    let words = troubles.filter(|trouble| trouble.code == Code::Unschedulable).map(|trouble| trouble.message).min()?;
    let labels = &wanted.planned["metadata"]["labels"];
    let text = |key: &str| labels[key].as_str().unwrap_or_else(|| meta(&wanted.planned, "name"));
    Some(format!("{}-{} waits: {words}", text(ROLE_NAME), text(REPLICA_INDEX)))
}
