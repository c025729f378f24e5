//! Why a service is not ready; or, where it is, what was decided and against whom.

use std::collections::BTreeMap;

use decide::merge::origin::{Origin, Setting};
use jiff::Timestamp;
use operator::readiness::{self, Code};
use serde_json::Value;

use super::placement::{OWNERS, Surroundings};
use super::witness::Witnesses;
use super::{Explanation, PodProblem, text, text_of};
use crate::live::Live;
use crate::report::tree::{Branch, called, counted, grouped};

/// Lines per list of losers, classes and Pods.
const LINES: usize = 6;
/// The code of a runtime that would do, but has no class to run on.
const NO_CLASS: &str = "NoEligibleAccelerator";
/// Conditions that are bad when they are true.
const ADVERSE: [&str; 2] = ["Failed", "DecisionStale"];
/// Reasons of conditions that only follow from an earlier one.
const FOLLOWS: [&str; 2] = ["NotPlanned", "RuntimeNotResolved"];

/// Of each component, every value of its Pods.
pub(crate) type Settings = BTreeMap<String, Vec<Setting>>;

/// What is known around a service.
pub(crate) struct Around<'a> {
    pub live: &'a Live,
    /// What deciding again with one constraint lifted found.
    pub remedies: Vec<String>,
    /// Those of them that only count accelerators to free: said where nobody is known who holds them.
    pub freeing: Vec<String>,
    /// What the Pods are made of, and who said it.
    pub settings: Settings,
    pub now: Timestamp,
}

/// An InferenceService of either group.
pub(crate) fn explain(service: &Value, around: Around<'_>) -> Explanation {
    let mut found = Explanation::of(service, around.now);
    let decision = service.pointer("/status/decision").cloned();
    let own = pods_of(service, around.live);
    let surroundings = Surroundings::of(&around.live.nodes, &around.live.pods, &around.live.offered);
    let trouble = Trouble::of(&own, &around.live.witnesses);

    found.subject = format!("{} is {}", found.subject, if found.ready { "ready" } else { "not ready" });
    found.message = headline(&found, decision.as_ref(), &trouble, own.len(), is_current(service));
    found.tree = match (&decision, found.ready) {
        (Some(decision), true) => decided(decision, &found.message),
        (None, true) => Vec::new(),
        (Some(decision), false) if decision["feasible"] == false => unmet(&found, refused(decision)),
        (decision, false) => {
            let class = decision.as_ref().map(class_of).unwrap_or_default();
            let below = pods(&trouble, &surroundings, class.as_deref(), &found.message);
            let mut tree = unmet(&found, below);
            tree.extend(decision.iter().flat_map(context));
            tree
        }
    };
    found.tree.extend(adverse(&found, &found.message));
    found.tree.extend(who_said_what(&around.settings));
    if !found.ready {
        found.remedies = around.remedies;
        let room: Vec<String> = trouble.unplaced.first().into_iter().flat_map(|pod| surroundings.room(pod)).collect();
        found.remedies.extend(if room.is_empty() { around.freeing } else { room });
        found.remedies.extend(fewer(&trouble, &own));
    }
    found.pods = trouble.problems();
    found.decision = decision;
    found
}

/// Values that runtime and ostler do not say alone: what a person, a class or a configuration had a part in.
fn who_said_what(settings: &Settings) -> Vec<Branch> {
    let told = |setting: &&Setting| {
        !matches!(setting.origin, Origin::Runtime | Origin::Ostler) || !setting.overridden.is_empty()
    };
    let branch = |(component, all): (&String, &Vec<Setting>)| {
        // What limits say, requests say once more.
        let repeated = |setting: &&Setting| {
            let limit = setting.field.strip_prefix("requests ").map(|resource| format!("limits {resource}"));
            limit.is_some_and(|limit| all.iter().any(|other| other.field == limit && other.value == setting.value))
        };
        let told: Vec<&Setting> = all.iter().filter(told).filter(|setting| !repeated(setting)).collect();
        let more = told.len().saturating_sub(LINES);
        let lines = crate::report::settings(told.into_iter().take(LINES)).into_iter();
        let rest = (more > 0).then(|| format!("… {more} more (`ostler plan --all` shows them)"));
        let below: Vec<Branch> = lines.chain(rest).map(Branch::leaf).collect();
        (!below.is_empty()).then(|| Branch::new(format!("settings of {component} beyond the runtime's"), below))
    };
    settings.iter().filter_map(branch).collect()
}

/// Pods that are not ready, each with what is wrong.
struct Trouble<'a> {
    unplaced: Vec<&'a Value>,
    others: Vec<(&'a Value, readiness::Trouble)>,
    told: Vec<(&'a Value, readiness::Trouble)>,
    witnesses: &'a Witnesses,
}

impl<'a> Trouble<'a> {
    fn of(pods: &[&'a Value], witnesses: &'a Witnesses) -> Self {
        let told: Vec<_> = pods.iter().filter_map(|pod| Some((*pod, readiness::pod_trouble(pod)?))).collect();
        let (unplaced, others): (Vec<_>, Vec<_>) =
            told.iter().cloned().partition(|(_, trouble)| trouble.code == Code::Unschedulable);
        Self { unplaced: unplaced.into_iter().map(|(pod, _)| pod).collect(), others, told, witnesses }
    }

    /// The message, and what the node or the container said.
    fn with_witness(&self, pod: &Value, message: String) -> String {
        match self.witnesses.get(text(pod, "/metadata/name")) {
            Some(witness) => format!("{message}; {witness}"),
            None => message,
        }
    }

    fn problems(&self) -> Vec<PodProblem> {
        let problem = |(pod, trouble): &(&Value, readiness::Trouble)| PodProblem {
            name: text(pod, "/metadata/name").to_owned(),
            reason: trouble.code.as_str().to_owned(),
            message: self.with_witness(pod, trouble.message.clone()),
        };
        self.told.iter().map(problem).collect()
    }
}

/// The Pods of a service.
pub(crate) fn pods_of<'a>(service: &Value, live: &'a Live) -> Vec<&'a Value> {
    live.pods.iter().filter(|pod| belongs(pod, service)).collect()
}

fn belongs(pod: &Value, service: &Value) -> bool {
    let name = plan::names::label_value(text(service, "/metadata/name"));
    let group = text(service, "/apiVersion").split('/').next().unwrap_or_default();
    let label = OWNERS.iter().find(|(_, kind)| kind.ends_with(group)).map(|(label, _)| *label);
    pod["metadata"]["namespace"] == service["metadata"]["namespace"]
        && label.is_some_and(|label| pod["metadata"]["labels"][label] == name)
}

/// Whether the status is about the present generation.
fn is_current(service: &Value) -> bool {
    service["status"]["observedGeneration"] == service["metadata"]["generation"]
}

fn headline(
    found: &Explanation,
    decision: Option<&Value>,
    trouble: &Trouble<'_>,
    pods: usize,
    is_current: bool,
) -> String {
    if !is_current && !found.conditions.is_empty() {
        return "the operator has not seen the last edit yet".to_owned();
    }
    match decision {
        _ if found.ready => decision.map_or_else(|| found.message.clone(), |decision| text_of(&decision["message"])),
        Some(decision) if decision["feasible"] == false => infeasible(decision),
        _ if !trouble.unplaced.is_empty() => {
            format!("{} of {} cannot be placed", trouble.unplaced.len(), counted(pods, "Pod"))
        }
        _ => found.message.clone(),
    }
}

/// Who was asked is in the tree; a refusal that asked nobody says all there is to say.
fn infeasible(decision: &Value) -> String {
    let candidates = candidates(decision);
    let omitted = left_out(decision);
    let without_class: Vec<&str> =
        candidates.iter().filter(|one| is_without_class(one)).map(|one| text(one, "/runtime")).collect();
    match (candidates, candidates.len() + omitted, without_class.as_slice()) {
        ([], ..) => text_of(&decision["message"]),
        // One would do, and what follows from it cannot be made.
        _ if candidates.iter().any(|one| one["selected"] == true) => text_of(&decision["message"]),
        (_, _, [runtime]) => format!("{runtime} could serve it, but no accelerator class fits"),
        (_, _, [_, _, ..]) => {
            format!("{} runtimes could serve it, but no accelerator class fits", without_class.len())
        }
        ([only], 1, _) => format!("{} cannot serve it", text(only, "/runtime")),
        (_, count, _) => format!("none of {count} runtimes can serve it"),
    }
}

fn candidates(decision: &Value) -> &[Value] {
    decision["candidates"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn classes(candidate: &Value) -> &[Value] {
    candidate["accelerators"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn is_without_class(candidate: &Value) -> bool {
    candidate["rejected"]["code"] == NO_CLASS
}

/// The class that the engine is to run on.
fn class_of(decision: &Value) -> Option<String> {
    decision["components"]["engine"]["acceleratorClass"].as_str().map(str::to_owned)
}

/// The first condition that is not met, and below it why; others only where they do not follow from it.
fn unmet(found: &Explanation, mut below: Vec<Branch>) -> Vec<Branch> {
    let is_unmet = |condition: &&Value| {
        let kind = text(condition, "/type");
        kind != "Ready"
            && !ADVERSE.contains(&kind)
            && condition["status"] != "True"
            && !FOLLOWS.contains(&text(condition, "/reason"))
    };
    let mut said = vec![found.message.clone()];
    said.extend(below.iter().flat_map(sentences));
    let mut tree = Vec::new();
    for condition in found.conditions.iter().filter(is_unmet) {
        let message = text(condition, "/message");
        let is_said = said.iter().any(|sentence| message.contains(sentence.as_str()));
        if is_said && !tree.is_empty() {
            continue;
        }
        let explained = is_said || !below.is_empty();
        let message = if explained { String::new() } else { format!(": {message}") };
        let line = format!(
            "{}={}  {}{message}",
            text(condition, "/type"),
            text(condition, "/status"),
            text(condition, "/reason")
        );
        tree.push(Branch::new(line, std::mem::take(&mut below)));
        said.push(text(condition, "/message").to_owned());
    }
    // A service that has no condition yet may have Pods already.
    tree.extend(below);
    tree
}

/// What a branch says, without the names before it.
fn sentences(branch: &Branch) -> Vec<String> {
    let own = branch.text.split_once(": ").map_or(branch.text.as_str(), |(_, sentence)| sentence).to_owned();
    branch.below.iter().flat_map(sentences).chain([own]).collect()
}

/// Conditions that are bad when true.
fn adverse(found: &Explanation, headline: &str) -> Vec<Branch> {
    let is_bad = |condition: &&Value| ADVERSE.contains(&text(condition, "/type")) && condition["status"] == "True";
    let line = |condition: &Value| {
        let message = Some(text(condition, "/message")).filter(|message| !message.contains(headline));
        let message = message.map(|message| format!(": {message}")).unwrap_or_default();
        Branch::leaf(format!("{}=True  {}{message}", text(condition, "/type"), text(condition, "/reason")))
    };
    found.conditions.iter().filter(is_bad).map(line).collect()
}

/// Every runtime that was refused. Of those that failed for want of a class, the nearest one says so of each class.
fn refused(decision: &Value) -> Vec<Branch> {
    let all = candidates(decision);
    let (without_class, rest): (Vec<&Value>, Vec<&Value>) = all.iter().partition(|one| is_without_class(one));
    let mut tree = Vec::new();
    if let Some(nearest) = without_class.first() {
        let component = classes(nearest).first().map_or("engine", |class| text(class, "/component"));
        let line = format!("runtime {}  {NO_CLASS}: no class fits the {component}", text(nearest, "/runtime"));
        tree.push(Branch::new(line, refused_classes(classes(nearest))));
    }
    let row = |one: &&Value| {
        let (why, name) = (&one["rejected"], text(one, "/runtime").to_owned());
        match (text(why, "/code"), text(&one["outranked"], "/message")) {
            ("", "") => (name, "would serve it".to_owned()),
            ("", lost) => (name, format!("could serve it, ranked lower: {lost}")),
            (code, _) => (name, format!("{code}: {}", text(why, "/message"))),
        }
    };
    let others =
        without_class.iter().skip(1).map(|one| (text(one, "/runtime").to_owned(), format!("{NO_CLASS} either")));
    tree.extend(grouped("runtime", others.chain(rest.iter().map(row)), LINES));
    tree.extend(omitted(decision));
    tree
}

/// Each class that was refused, with the reason.
fn verdicts(classes: &[Value]) -> Vec<(String, String)> {
    let why = |class: &Value| format!("{}: {}", text(class, "/code"), text(class, "/message"));
    let refused = classes.iter().filter(|class| class["rank"].is_null());
    refused.map(|class| (text(class, "/class").to_owned(), why(class))).collect()
}

fn omitted(decision: &Value) -> Option<Branch> {
    let omitted = Some(left_out(decision)).filter(|count| *count > 0)?;
    Some(Branch::leaf(format!("… {omitted} more runtimes (`ostler plan --all` shows them)")))
}

/// Rejected runtimes that the record counts only.
pub(crate) fn left_out(decision: &Value) -> usize {
    decision["omitted"]["rejections"].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
}

/// A reason that few classes have tells more than one that nearly all have: no node belongs to most shipped classes.
fn refused_classes(classes: &[Value]) -> Vec<Branch> {
    let rows = verdicts(classes);
    let alike = |why: &str| rows.iter().filter(|(_, other)| other == why).count();
    let mut sorted = rows.clone();
    sorted.sort_by_key(|(_, why)| alike(why));
    grouped("", sorted, LINES)
}

/// Pods by what is wrong with them; not again what the headline says.
fn pods(trouble: &Trouble<'_>, surroundings: &Surroundings, class: Option<&str>, headline: &str) -> Vec<Branch> {
    let name = |pod: &Value| text(pod, "/metadata/name").to_owned();
    let mut tree = Vec::new();
    // Pods of one template are refused for the same reasons.
    let mut alike: Vec<(Vec<Branch>, Vec<&Value>)> = Vec::new();
    for pod in &trouble.unplaced {
        let why = surroundings.refusals(pod, class);
        match alike.iter_mut().find(|(known, _)| *known == why) {
            Some((_, pods)) => pods.push(pod),
            None => alike.push((why, vec![pod])),
        }
    }
    for (why, pods) in alike {
        let mut names: Vec<String> = pods.iter().map(|pod| name(pod)).collect();
        let told = match pods.first().filter(|_| why.is_empty()) {
            Some(pod) => readiness::pod_trouble(pod).map(|trouble| trouble.message).unwrap_or_default(),
            None => format!("0 of {} fit", counted(surroundings.count(), "node")),
        };
        tree.push(Branch::new(format!("{}  Unschedulable: {told}", called("pod", &mut names)), why));
    }
    let line = |(pod, found): &(&Value, readiness::Trouble)| {
        let code = found.code.as_str();
        match (headline.contains(&found.message), trouble.witnesses.get(&name(pod))) {
            (true, None) => None,
            (true, Some(witness)) => Some((name(pod), format!("{code}: {witness}"))),
            (false, _) => Some((name(pod), format!("{code}: {}", trouble.with_witness(pod, found.message.clone())))),
        }
    };
    let others = trouble.others.iter().filter_map(line);
    tree.extend(grouped("pod", others, LINES));
    tree
}

/// What was decided, for a service whose trouble came later.
fn context(decision: &Value) -> Vec<Branch> {
    let warnings = decision["warnings"].as_array().into_iter().flatten();
    let warning = |warning: &Value| Branch::leaf(format!("{}: {}", text(warning, "/code"), text(warning, "/message")));
    let below = warnings.map(warning).collect();
    vec![Branch::new(format!("decision  {}: {}", text(decision, "/reason"), text(decision, "/message")), below)]
}

/// The winner, who came next, who was refused, and what to know.
fn decided(decision: &Value, headline: &str) -> Vec<Branch> {
    let (winner, losers): (Vec<&Value>, Vec<&Value>) =
        candidates(decision).iter().partition(|candidate| candidate["selected"] == true);
    let standing = winner.iter().filter_map(|winner| winner["standing"].as_str()).next();
    let mut line = format!("decision  {}", text(decision, "/reason"));
    if let Some(standing) = standing.filter(|standing| !headline.contains(standing)) {
        line = format!("{line}: {standing}");
    }
    let loser = |candidate: &&Value| {
        let why = if candidate["rejected"].is_object() { &candidate["rejected"] } else { &candidate["outranked"] };
        let why = match text(why, "/code") {
            "" => "ranked lower".to_owned(),
            code => format!("{code}: {}", text(why, "/message")),
        };
        (text(candidate, "/runtime").to_owned(), why)
    };
    let mut below = grouped("runtime", losers.iter().map(loser), LINES);
    below.extend(omitted(decision));
    let warnings = decision["warnings"].as_array().into_iter().flatten();
    below
        .extend(warnings.map(|one| Branch::leaf(format!("warning {}: {}", text(one, "/code"), text(one, "/message")))));
    vec![Branch::new(line, below)]
}

/// Some of the Pods run: asking for no more than those is a way out as well.
fn fewer(trouble: &Trouble<'_>, own: &[&Value]) -> Option<String> {
    let placed = own.iter().filter(|pod| pod["spec"]["nodeName"].is_string()).count();
    let of_ome = own.first().is_some_and(|pod| pod["metadata"]["labels"][OWNERS[0].0].is_string());
    let component = own.first().map(|pod| text(pod, "/metadata/labels/component").to_owned()).unwrap_or_default();
    let possible = of_ome && placed > 0 && !trouble.unplaced.is_empty() && !component.is_empty();
    possible.then(|| format!("ask for the {placed} replicas that are placed: spec.{component}.minReplicas: {placed}"))
}
