//! What keeps a service's objects from being made, and its workloads from being ready; pure.

use cluster::apply::{Applied, Outcome};

use crate::kinds::REVISION;
use crate::readiness::{Code, RESTARTS_TO_FAIL, Trouble, trouble};
use crate::readings::Wanted;
use crate::reason::Reason;

/// Kinds of neighbours, and the project to install for each.
const NEIGHBOURS: [(&str, &str); 6] = [
    ("LeaderWorkerSet", "LeaderWorkerSet (leaderworkerset.x-k8s.io)"),
    ("PodGroup", "Volcano (scheduling.volcano.sh)"),
    ("InferencePool", "the Gateway API Inference Extension (inference.networking.k8s.io)"),
    ("HTTPRoute", "the Gateway API (gateway.networking.k8s.io)"),
    ("ScaledObject", "KEDA (keda.sh)"),
    ("HTTPScaledObject", "the HTTP add-on of KEDA (http.keda.sh)"),
];

/// An object that could not be made as planned, the first of those that `which` picks by kind; of kinds that the cluster
/// does not serve, all. A history that cannot be kept keeps nothing from running.
#[must_use]
pub fn obstacle(applied: &[Applied], which: impl Fn(&str) -> bool) -> Option<(Reason, String)> {
    let own = || applied.iter().filter(|one| one.kind != REVISION.kind && which(&one.kind));
    own().find_map(|one| match &one.outcome {
        Outcome::Foreign(holder) => Some((Reason::ObjectNotOurs, foreign(&one.object, holder))),
        Outcome::KindMissing => Some((Reason::KindMissing, missing(own()))),
        Outcome::Refused(message) => Some((Reason::ObjectRefused, format!("{}: {message}", one.object))),
        Outcome::Unchanged | Outcome::Created | Outcome::Updated | Outcome::Terminating | Outcome::Held => None,
    })
}

/// Another service is not told to let go: both have composed one name.
fn foreign(object: &str, holder: &str) -> String {
    match holder.strip_prefix("InferenceService ") {
        Some(other) => {
            format!(
                "{object} is made for InferenceService {other} already, whose names compose to the same; rename one of the two, or the role"
            )
        }
        None => format!("{object} belongs to {holder}; rename the service or delete that object"),
    }
}

fn missing<'a>(applied: impl Iterator<Item = &'a Applied>) -> String {
    let mut kinds: Vec<&str> = Vec::new();
    for one in applied.filter(|one| one.outcome == Outcome::KindMissing) {
        if !kinds.contains(&one.kind.as_str()) {
            kinds.push(&one.kind);
        }
    }
    let install: Vec<&str> = kinds.iter().map(|kind| project(kind)).collect();
    format!("the cluster does not serve {}; install {} to run this service", listed(&kinds), listed(&install))
}

/// What to install for `kind`.
fn project(kind: &str) -> &str {
    NEIGHBOURS.iter().find(|(name, _)| *name == kind).map_or(kind, |(_, project)| *project)
}

/// `a, b and c`
fn listed(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// Why a planned workload is not ready, or `None` if it is.
#[must_use]
pub fn why_not(wanted: &Wanted) -> Option<Trouble> {
    let object = || cluster::object::describe(&wanted.planned);
    let Some(live) = &wanted.live else {
        let message = "not made yet".to_owned();
        return Some(Trouble { code: Code::Starting, by_others: false, object: object(), message, failed: false });
    };
    let trouble = trouble(&live.object, live.pods())?;
    let crashes = i64::try_from(wanted.crashes).unwrap_or(i64::MAX);
    if crashes < RESTARTS_TO_FAIL || trouble.failed || trouble.code == Code::Unschedulable {
        return Some(trouble);
    }
    let message =
        format!("its Pods crashed {crashes} times in ten minutes and were made anew; see the logs of the last");
    Some(Trouble { code: Code::CrashLoop, by_others: false, object: object(), message, failed: true })
}

/// A workload that is as it was: what the service asks for now has not reached it.
#[must_use]
pub fn held(applied: &[Applied], wanted: &Wanted) -> Option<Trouble> {
    let object = cluster::object::describe(&wanted.planned);
    let own = applied.iter().find(|one| one.object == object)?;
    let message = "its template is still the one before".to_owned();
    (own.outcome == Outcome::Held).then_some(Trouble {
        code: Code::RollingOut,
        by_others: false,
        object,
        message,
        failed: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::{Value, json};

    fn applied(kind: &str, outcome: Outcome) -> Applied {
        Applied { object: format!("{kind} n/s"), kind: kind.to_owned(), outcome }
    }

    // spec: TOP-71
    #[rstest]
    #[case::gang(&["PodGroup"], "PodGroup; install Volcano (scheduling.volcano.sh)")]
    #[case::unknown(&["Widget"], "Widget; install Widget")]
    #[case::each_once(&["PodGroup", "LeaderWorkerSet", "LeaderWorkerSet"],
        "PodGroup and LeaderWorkerSet; install Volcano (scheduling.volcano.sh) and LeaderWorkerSet (leaderworkerset.x-k8s.io)")]
    #[case::three(&["A", "B", "C"], "A, B and C; install A, B and C")]
    fn missing_neighbours_are_named(#[case] kinds: &[&str], #[case] expect: &str) {
        let all: Vec<Applied> = kinds.iter().map(|kind| applied(kind, Outcome::KindMissing)).collect();
        let expect = format!("the cluster does not serve {expect} to run this service");
        assert_eq!(obstacle(&all, |_| true), Some((Reason::KindMissing, expect)));
    }

    #[test]
    fn what_waits_for_its_turn_and_a_lost_history_are_no_obstacles() {
        let fine = [applied("LeaderWorkerSet", Outcome::Held), applied("ControllerRevision", Outcome::KindMissing)];
        assert_eq!(obstacle(&fine, |_| true), None);
    }

    #[rstest]
    #[case::a_crash_or_two(2, Value::Null, Code::Starting, false)]
    #[case::past_the_threshold(3, Value::Null, Code::CrashLoop, true)]
    #[case::no_room_is_no_crash(3, json!([{"type": "PodScheduled", "status": "False"}]), Code::Unschedulable, false)]
    fn crashes_of_replaced_pods_count(
        #[case] crashes: usize,
        #[case] conditions: Value,
        #[case] code: Code,
        #[case] failed: bool,
    ) {
        let set = json!({"kind": "LeaderWorkerSet", "metadata": {"name": "s"}, "status": {}});
        let pod = json!({"metadata": {"name": "s-0"}, "status": {"phase": "Pending", "conditions": conditions}});
        let wanted = Wanted { crashes, ..Wanted::of(set.clone(), Some(set), vec![pod]) };
        let trouble = why_not(&wanted).unwrap();
        assert_eq!((trouble.code, trouble.failed), (code, failed));
    }
}
