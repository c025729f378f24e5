//! The decision for a service: its record in the status, with the candidates of a repeated decision.

use decide::Warning;
use decide::code::runtime::NO_ELIGIBLE_ACCELERATOR;
use plan::{DecisionRecord, NearestRuntime, ServicePlan, recorded_components};
use serde_json::{Value, json};

use super::fields::{text, text_of};
use crate::report::tree::{Reason, TreeNode, group_by_reason};

/// Maximum number of lines of a list of candidates or classes.
const MAX_LINES: usize = 6;

/// Returns the recorded decision in the form of `ostler plan -o json`; `None` if the status contains none. The record has only
/// the nearest candidates, so all candidates are those of `plan`, which repeats the decision, if there is one.
pub(super) fn recorded_decision(status: &Value, plan: Option<&ServicePlan>) -> Option<Value> {
    let record = DecisionRecord::from_status(status)?;
    let candidates = match plan {
        Some(plan) => json!(plan.candidates),
        None => record.candidates.nearest.iter().map(candidate).collect(),
    };
    let omitted = match plan {
        Some(_) => 0,
        None => {
            // A status may contain arbitrary counts.
            let rejected = record.candidates.nearest.iter().filter(|candidate| !candidate.is_outranked());
            record.candidates.rejected.total().saturating_sub(rejected.count())
        }
    };
    let current_warnings = plan.map_or(&[][..], |plan| &plan.warnings);
    Some(json!({
        "feasible": record.feasible, "reason": record.reason, "message": record.message, "runtime": record.runtime,
        "components": recorded_components(status), "candidates": candidates, "omitted": {"rejections": omitted},
        "warnings": with_current_messages(record.warnings, current_warnings),
    }))
}

/// Returns a candidate in the form of a decision.
fn candidate(candidate: &NearestRuntime) -> Value {
    let reason = if candidate.is_outranked() { "outranked" } else { "rejected" };
    json!({"runtime": candidate.runtime, reason: {"code": candidate.code, "message": candidate.message}})
}

/// Returns the recorded warnings with the current messages of capacity warnings: the record does not change with the free
/// capacity.
fn with_current_messages(mut recorded: Vec<Warning>, current: &[Warning]) -> Vec<Warning> {
    for warning in &mut recorded {
        let is_same = |other: &&Warning| other.is_capacity_shortage() && warning.code == other.code;
        let mut same_code = current.iter().filter(is_same);
        // Several components may lack capacity; the record does not store which.
        if let (Some(only), None) = (same_code.next(), same_code.next()) {
            warning.message.clone_from(&only.message);
        }
    }
    recorded
}

/// Summarizes an infeasible decision. The tree lists the candidates; without candidates, the message is complete.
pub(super) fn infeasible_headline(decision: &Value) -> String {
    let candidates = candidates(decision);
    let omitted_count = omitted_rejections(decision);
    let without_class: Vec<&str> = candidates
        .iter()
        .filter(|candidate| is_without_class(candidate))
        .map(|candidate| text(candidate, "/runtime"))
        .collect();
    match (candidates, candidates.len() + omitted_count, without_class.as_slice()) {
        ([], ..) => text_of(&decision["message"]),
        // A runtime is selected, but the objects cannot be planned.
        _ if candidates.iter().any(|candidate| candidate["selected"] == true) => text_of(&decision["message"]),
        (_, _, [runtime]) => format!("{runtime} could serve it, but no accelerator class is eligible"),
        (_, _, [_, _, ..]) => {
            format!("{} runtimes could serve it, but no accelerator class is eligible", without_class.len())
        }
        ([candidate], 1, _) => format!("{} cannot serve it", text(candidate, "/runtime")),
        (_, count, _) => format!("none of {count} runtimes can serve it"),
    }
}

/// Returns the rejected runtimes. The first one without an eligible class has a line for each class.
pub(super) fn rejected_runtimes(decision: &Value) -> Vec<TreeNode> {
    let (without_class, others): (Vec<&Value>, Vec<&Value>) =
        candidates(decision).iter().partition(|candidate| is_without_class(candidate));
    let mut tree = Vec::new();
    if let Some(nearest) = without_class.first() {
        let component = classes(nearest).first().map_or("engine", |class| text(class, "/component"));
        let runtime = format!("runtime {}", text(nearest, "/runtime"));
        let reason = Reason::new(
            NO_ELIGIBLE_ACCELERATOR.as_str(),
            format!("no accelerator class is eligible for the {component}"),
        );
        tree.push(TreeNode::with_reason(&runtime, 0, reason, rejected_classes(classes(nearest))));
    }
    let row = |candidate: &&Value| {
        let (rejection, name) = (&candidate["rejected"], text(candidate, "/runtime").to_owned());
        let reason = match (text(rejection, "/code"), text(&candidate["outranked"], "/message")) {
            ("", "") => Reason::message("can serve it"),
            ("", criterion) => Reason::new("can serve it, ranked lower", criterion),
            (code, _) => Reason::new(code, text(rejection, "/message")),
        };
        (name, reason)
    };
    let further_rows = without_class
        .iter()
        .skip(1)
        .map(|candidate| (text(candidate, "/runtime").to_owned(), Reason::new(NO_ELIGIBLE_ACCELERATOR.as_str(), "")));
    tree.extend(group_by_reason("runtime", further_rows.chain(others.iter().map(row)), MAX_LINES));
    tree.extend(omitted_runtimes(decision));
    tree
}

/// Returns the rejected classes, rare reasons first: most shipped classes are rejected because no nodes match them.
fn rejected_classes(classes: &[Value]) -> Vec<TreeNode> {
    let rows = class_rejections(classes);
    let frequency = |reason: &Reason| rows.iter().filter(|(_, other)| other == reason).count();
    let mut sorted_rows = rows.clone();
    sorted_rows.sort_by_key(|(_, reason)| frequency(reason));
    group_by_reason("", sorted_rows, MAX_LINES)
}

/// Returns the decision and its warnings, for a service whose problems arose after the decision.
pub(super) fn decision_summary(decision: &Value) -> TreeNode {
    let warnings = decision["warnings"].as_array().into_iter().flatten();
    let warning =
        |warning: &Value| TreeNode::leaf(format!("{}: {}", text(warning, "/code"), text(warning, "/message")));
    let children = warnings.map(warning).collect();
    TreeNode::new(format!("decision  {}: {}", text(decision, "/reason"), text(decision, "/message")), children)
}

/// Returns the decision with the candidates that were not selected, and the warnings.
pub(super) fn decision_tree(decision: &Value, headline: &str) -> Vec<TreeNode> {
    let (selected, unselected): (Vec<&Value>, Vec<&Value>) =
        candidates(decision).iter().partition(|candidate| candidate["selected"] == true);
    let standing = selected.iter().filter_map(|candidate| candidate["standing"].as_str()).next();
    let mut line = format!("decision  {}", text(decision, "/reason"));
    if let Some(standing) = standing.filter(|standing| !headline.contains(standing)) {
        line = format!("{line}: {standing}");
    }
    let row = |candidate: &&Value| {
        let reason = if candidate["rejected"].is_object() { &candidate["rejected"] } else { &candidate["outranked"] };
        let reason = match text(reason, "/code") {
            "" => Reason::message("ranked lower"),
            code => Reason::new(code, text(reason, "/message")),
        };
        (text(candidate, "/runtime").to_owned(), reason)
    };
    let mut children = group_by_reason("runtime", unselected.iter().map(row), MAX_LINES);
    children.extend(omitted_runtimes(decision));
    let warnings = decision["warnings"].as_array().into_iter().flatten();
    children.extend(
        warnings.map(|warning| {
            TreeNode::leaf(format!("warning {}: {}", text(warning, "/code"), text(warning, "/message")))
        }),
    );
    vec![TreeNode::new(line, children)]
}

/// Returns a line with the number of rejected runtimes that the decision does not record.
fn omitted_runtimes(decision: &Value) -> Option<TreeNode> {
    let omitted_count = Some(omitted_rejections(decision)).filter(|count| *count > 0)?;
    Some(TreeNode::leaf(format!("… {omitted_count} more runtimes (`ostler plan --all` shows them)")))
}

/// Returns the number of rejected runtimes that the decision only counts.
fn omitted_rejections(decision: &Value) -> usize {
    decision["omitted"]["rejections"].as_u64().and_then(|count| usize::try_from(count).ok()).unwrap_or(0)
}

/// Returns the rejected classes with their reasons.
fn class_rejections(classes: &[Value]) -> Vec<(String, Reason)> {
    let reason = |class: &Value| Reason::new(text(class, "/code"), text(class, "/message"));
    let rejected_classes = classes.iter().filter(|class| class["rank"].is_null());
    rejected_classes.map(|class| (text(class, "/class").to_owned(), reason(class))).collect()
}

/// Returns the accelerator class of the engine.
pub(super) fn engine_class(decision: &Value) -> Option<String> {
    decision["components"]["engine"]["acceleratorClass"].as_str().map(str::to_owned)
}

fn candidates(decision: &Value) -> &[Value] {
    decision["candidates"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn classes(candidate: &Value) -> &[Value] {
    candidate["accelerators"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn is_without_class(candidate: &Value) -> bool {
    candidate["rejected"]["code"] == NO_ELIGIBLE_ACCELERATOR.as_str()
}
