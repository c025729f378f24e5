//! `ostler plan` as a person reads it: first what comes of a service, then why, then what else to know.

use decide::Variant;
use decide::decision::{AcceleratorCandidate, Candidate, ComponentDecision, Verdict};
use decide::merge::origin::Setting;
use decide::outranked::ClassStep;
use decide::reason::Rejection;
use plan::{Plan, ServicePlan};
use serde_json::Value;

use crate::report;
use crate::report::fleet::table;

/// Ranked and rejected candidates that are shown unless all are asked for; of each so many.
const SHOWN: usize = 3;
/// Width of the column that says what a block is about.
const TITLE: usize = 21;

/// One section per service. `all` shows every rejected candidate.
pub(crate) fn render(plan: &Plan, all: bool) -> String {
    let sections: Vec<String> = plan.services.iter().map(|service| section(service, all)).collect();
    sections.join("\n")
}

fn section(service: &ServicePlan, all: bool) -> String {
    let outcome = if service.feasible { "feasible".to_owned() } else { format!("not feasible: {}", service.reason) };
    let mut lines = vec![format!("{} {}/{} — {outcome}", kind(service), service.namespace, service.name)];
    if !service.feasible {
        lines.push(format!("  {}", headline(service)));
    }
    lines.push(String::new());
    if !service.components.is_empty() {
        lines.extend(components(service).lines().map(|line| format!("  {line}")));
        lines.push(String::new());
    }
    lines.extend(block("Why this runtime", runtimes(service, all)));
    for (title, lines_of) in classes(service, all) {
        lines.extend(block(&title, lines_of));
    }
    let warnings = service.warnings.iter().map(|warning| format!("{}: {}", warning.code, warning.message));
    lines.extend(block("Warnings", warnings.collect()));
    if all {
        for (title, lines_of) in settings(service) {
            lines.extend(block(&title, lines_of));
        }
    }
    lines.extend(block("Objects", objects(service)));
    lines.push(String::new());
    lines.join("\n")
}

/// Why not, without the classes that are listed below it.
fn headline(service: &ServicePlan) -> String {
    let nearest = service.candidates.first().and_then(|candidate| candidate.rejected.as_ref());
    match nearest {
        Some(rejection) if !classes(service, false).is_empty() => {
            service.message.replace(&rejection.to_string(), &brief(rejection))
        }
        _ => service.message.clone(),
    }
}

/// A rejection without its list of classes.
fn brief(rejection: &Rejection) -> String {
    match rejection {
        Rejection::NoEligibleAccelerator { component, .. } => format!("no class fits the {component}"),
        other => other.to_string(),
    }
}

/// Every value of the pods' templates with who said it, one block per component.
fn settings(service: &ServicePlan) -> Vec<(String, Vec<String>)> {
    let several = service.settings.len() > 1;
    let block = |(component, settings): (&String, &Vec<Setting>)| {
        let title = if several { format!("Who says ({component})") } else { "Who says what".to_owned() };
        (title, report::settings(settings.iter()))
    };
    service.settings.iter().map(block).collect()
}

/// The kind as it is spelt on the command line; the group only where it is not the first one thought of.
fn kind(service: &ServicePlan) -> String {
    let group = service.api_version.split('/').next().unwrap_or_default();
    if group == "ome.io" { "inferenceservice".to_owned() } else { format!("inferenceservice.{group}") }
}

fn components(service: &ServicePlan) -> String {
    let runtime = service.runtime.as_ref().map_or("–", |runtime| runtime.name.as_str());
    let row = |(name, component): (&String, &ComponentDecision)| {
        let accelerators = Some(component.accelerators_per_node).filter(|count| *count > 0);
        vec![
            name.clone(),
            runtime.to_owned(),
            component.accelerator_class.clone().unwrap_or_else(|| "–".to_owned()),
            accelerators.map_or_else(|| "–".to_owned(), |count| count.to_string()),
            component.nodes.to_string(),
            component.replicas.to_string(),
            cost(component).map_or_else(|| "–".to_owned(), |cost| format!("{cost:.2}")),
            free(service, name, component).unwrap_or_else(|| "–".to_owned()),
        ]
    };
    let rows: Vec<Vec<String>> = service
        .components
        .iter()
        .flat_map(|named| {
            [vec![row(named)], named.1.variants.iter().map(|one| variant(named.0, runtime, one)).collect()]
        })
        .flatten()
        .collect();
    table(&["COMPONENT", "RUNTIME", "CLASS", "GPUS", "NODES", "REPLICAS", "$/HOUR", "FREE"], &rows)
}

/// Dollars per hour of all replicas: the replicas' own cost is per replica.
fn cost(component: &ComponentDecision) -> Option<f64> {
    Some(component.cost_per_hour? * f64::from(component.replicas))
}

/// A replica set for requests of some size, below the component that it belongs to.
fn variant(component: &str, runtime: &str, variant: &Variant) -> Vec<String> {
    let sizes = match (variant.request_tokens.min, variant.request_tokens.max) {
        (Some(min), Some(max)) => format!("{min}–{max} tokens"),
        (Some(min), None) => format!("{min} tokens or more"),
        (None, Some(max)) => format!("up to {max} tokens"),
        (None, None) => "any size".to_owned(),
    };
    vec![
        format!("{component}, {sizes}"),
        runtime.to_owned(),
        variant.accelerator_class.clone(),
        variant.accelerators_per_node.to_string(),
        variant.nodes.to_string(),
        variant.replicas.to_string(),
        "–".to_owned(),
        "–".to_owned(),
    ]
}

/// `6 of 8`, as far as nodes are known.
fn free(service: &ServicePlan, name: &str, component: &ComponentDecision) -> Option<String> {
    let selected = service.candidates.iter().find(|candidate| candidate.selected)?;
    let is_it =
        |one: &&AcceleratorCandidate| one.component == name && Some(&one.class) == component.accelerator_class.as_ref();
    match &selected.accelerators.iter().find(is_it)?.verdict {
        Verdict::Eligible(eligibility) => eligibility.free.map(|(free, total)| format!("{free} of {total}")),
        Verdict::Rejected(_) | Verdict::Recorded(_) => None,
    }
}

/// Ranked runtimes, then the nearest rejected ones. What the headline said already is not said again.
fn runtimes(service: &ServicePlan, all: bool) -> Vec<String> {
    let headline = if service.feasible { String::new() } else { headline(service) };
    let why = |candidate: &Candidate| match (&candidate.rejected, &candidate.outranked) {
        (Some(rejection), _) if headline.contains(&brief(rejection)) => rejection.code().to_owned(),
        (Some(rejection), _) => format!("{}: {}", rejection.code(), brief(rejection)),
        (None, Some(step)) => step.to_string(),
        (None, None) => candidate.standing.as_ref().map_or_else(|| "compatible".to_owned(), ToString::to_string),
    };
    let rows = service.candidates.iter().map(|candidate| (candidate.rank, candidate.runtime.clone(), why(candidate)));
    ranking(rows.collect(), all)
}

/// The classes of the selected runtime, or of the nearest one: one block per component.
fn classes(service: &ServicePlan, all: bool) -> Vec<(String, Vec<String>)> {
    let selected = service.candidates.iter().find(|candidate| candidate.selected);
    let nearest = || service.candidates.first().filter(|candidate| !candidate.accelerators.is_empty());
    let Some(candidate) = selected.or_else(nearest) else { return Vec::new() };
    let row = |one: &AcceleratorCandidate| match &one.verdict {
        Verdict::Eligible(eligibility) => (one.rank, one.class.clone(), format!("{eligibility}{}", step(one))),
        other => (one.rank, one.class.clone(), format!("{}: {other}", other.code())),
    };
    let mut components: Vec<&str> = candidate.accelerators.iter().map(|one| one.component.as_str()).collect();
    components.dedup();
    let several = components.len() > 1;
    let block = |component: &str| {
        let title = if several { format!("Why this ({component})") } else { "Why this class".to_owned() };
        let of_it = candidate.accelerators.iter().filter(|one| one.component == component);
        (title, ranking(of_it.map(row).collect(), all))
    };
    components.into_iter().map(block).collect()
}

/// By what an eligible class lost, unless it is the score, which stands there already.
fn step(one: &AcceleratorCandidate) -> String {
    match &one.outranked {
        None | Some(ClassStep::Score { .. }) => String::new(),
        Some(step) => format!("; {step}"),
    }
}

/// Letters of a Kubernetes name.
const LONGEST_NAME: usize = 253;

/// `1  name  why` for ranked ones, `–  name  why` for the others; the first few of each.
fn ranking(rows: Vec<(Option<usize>, String, String)>, all: bool) -> Vec<String> {
    let limit = if all { usize::MAX } else { SHOWN };
    let (ranked, rejected): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(rank, ..)| rank.is_some());
    let more = ranked.len().saturating_sub(limit) + rejected.len().saturating_sub(limit);
    let rows: Vec<_> = ranked.into_iter().take(limit).chain(rejected.into_iter().take(limit)).collect();
    // No column is wider than a name may be: what is written may be a megabyte.
    let width = rows.iter().map(|(_, name, _)| name.chars().count()).max().unwrap_or(0).min(LONGEST_NAME);
    let mark = |rank: Option<usize>| rank.map_or_else(|| "–".to_owned(), |rank| rank.to_string());
    let marks = rows.iter().map(|(rank, ..)| mark(*rank).chars().count()).max().unwrap_or(0);
    let line =
        |(rank, name, why): (Option<usize>, String, String)| format!("{:<marks$}  {name:<width$}  {why}", mark(rank));
    let mut lines: Vec<String> = rows.into_iter().map(line).collect();
    if more > 0 {
        lines.push(format!("–  … {more} more (--all)"));
    }
    lines
}

fn objects(service: &ServicePlan) -> Vec<String> {
    let name = |object: &Value| {
        let (kind, name) =
            (object["kind"].as_str().unwrap_or_default(), object["metadata"]["name"].as_str().unwrap_or_default());
        format!("{kind} {name}")
    };
    if service.objects.is_empty() {
        return Vec::new();
    }
    vec![format!("{}  (-o yaml prints them)", service.objects.iter().map(name).collect::<Vec<_>>().join(", "))]
}

/// The title before the first line, blanks before the others; nothing for an empty block.
fn block(title: &str, lines: Vec<String>) -> Vec<String> {
    let titled = |(index, line): (usize, String)| format!("  {:<TITLE$}{line}", if index == 0 { title } else { "" });
    lines.into_iter().enumerate().map(titled).collect()
}

#[cfg(test)]
mod tests {
    use api::manifest;
    use plan::Snapshot;

    use super::*;

    fn planned(manifest: &str) -> String {
        let given = manifest::read("given.yaml", manifest).unwrap();
        let supply = manifest::read("supply.yaml", SUPPLY).unwrap();
        render(&plan::plan(&Snapshot::from_documents(&given, &supply).unwrap()), false)
    }

    const SUPPLY: &str = include_str!("../../../plan/src/tests/supply.yaml");

    #[test]
    fn a_feasible_service() {
        insta::assert_snapshot!(planned(
            "{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: chat}, spec: {model: {name: llama-3-3-70b}}}"
        ));
    }

    #[test]
    fn one_that_is_not() {
        insta::assert_snapshot!(planned(
            "{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: chat}, spec: {model: {name: llama-3-2-3b}, acceleratorSelector: {preferredClasses: [tpu]}}}"
        ));
    }
}
