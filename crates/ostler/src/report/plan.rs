//! Renders plans as text: per service the outcome, the reasons, warnings and objects.

use decide::{
    AcceleratorCandidate, ClassEvaluation, ClassRankReason, ComponentDecision, Eligibility, RuntimeCandidate,
    RuntimeRejection, Setting, Variant,
};
use plan::{Plan, ServicePlan};
use serde_json::Value;

use super::settings;
use super::table::table;

/// Number of ranked and of rejected candidates that are shown without `--all`.
const SHOWN_CANDIDATES: usize = 3;
/// Width of the column with the titles of the blocks.
const TITLE_WIDTH: usize = 21;

/// Renders a section per service. `all` shows all candidates and settings.
pub(crate) fn render(plan: &Plan, all: bool) -> String {
    let sections: Vec<String> = plan.services.iter().map(|service| section(service, all)).collect();
    sections.join("\n")
}

fn section(service: &ServicePlan, all: bool) -> String {
    let outcome = if service.feasible { "feasible".to_owned() } else { format!("not feasible: {}", service.reason) };
    let mut lines = vec![format!("{} {}/{} — {outcome}", kind_name(service), service.namespace, service.name)];
    if !service.feasible {
        lines.push(format!("  {}", headline(service)));
    }
    lines.push(String::new());
    if !service.components.is_empty() {
        lines.extend(component_table(service).lines().map(|line| format!("  {line}")));
        lines.push(String::new());
    }
    lines.extend(block("Why this runtime", runtime_lines(service, all)));
    for (title, class_lines) in class_blocks(service, all) {
        lines.extend(block(&title, class_lines));
    }
    for (title, memory_lines) in memory_blocks(service) {
        lines.extend(block(&title, memory_lines));
    }
    let warnings = service.warnings.iter().map(|warning| format!("{}: {}", warning.code, warning.message));
    lines.extend(block("Warnings", warnings.collect()));
    lines.extend(block("What would help", service.remedies.iter().map(|remedy| format!("· {remedy}")).collect()));
    if all {
        for (title, setting_lines) in setting_blocks(service) {
            lines.extend(block(&title, setting_lines));
        }
    }
    lines.extend(block("Objects", object_lines(service)));
    lines.push(String::new());
    lines.join("\n")
}

/// Returns the message of an infeasible service, without the classes that are listed below it.
fn headline(service: &ServicePlan) -> &str {
    let has_classes = !class_blocks(service, false).is_empty();
    service.message_without_classes.as_ref().filter(|_| has_classes).unwrap_or(&service.message)
}

/// Returns the message of a rejection without its list of classes.
fn summary(rejection: &RuntimeRejection) -> String {
    rejection.without_classes().unwrap_or_else(|| rejection.to_string())
}

/// Returns the settings of the Pod templates with their origins, one block per component.
fn setting_blocks(service: &ServicePlan) -> Vec<(String, Vec<String>)> {
    let has_several_components = service.settings.len() > 1;
    let block = |(component, settings): (&String, &Vec<Setting>)| {
        let title = if has_several_components { format!("Settings ({component})") } else { "Settings".to_owned() };
        (title, settings::lines(settings.iter()))
    };
    service.settings.iter().map(block).collect()
}

/// Returns the kind as written on the command line, with the group unless it is `ome.io`.
fn kind_name(service: &ServicePlan) -> String {
    let group = service.api_version.split('/').next().unwrap_or_default();
    if group == "ome.io" { "inferenceservice".to_owned() } else { format!("inferenceservice.{group}") }
}

fn component_table(service: &ServicePlan) -> String {
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
            free_accelerators(service, name, component).unwrap_or_else(|| "–".to_owned()),
        ]
    };
    let rows: Vec<Vec<String>> = service
        .components
        .iter()
        .flat_map(|(name, component)| {
            let variants = component.variants.iter().map(|variant| variant_row(name, runtime, variant));
            [vec![row((name, component))], variants.collect()]
        })
        .flatten()
        .collect();
    table(&["COMPONENT", "RUNTIME", "CLASS", "GPUS", "NODES", "REPLICAS", "$/HOUR", "FREE"], &rows)
}

/// Returns the cost of all replicas in dollars per hour.
fn cost(component: &ComponentDecision) -> Option<f64> {
    Some(component.cost_per_hour? * f64::from(component.replicas))
}

/// Returns the row of a variant: the replicas of a component that serve one range of prompt sizes.
fn variant_row(component: &str, runtime: &str, variant: &Variant) -> Vec<String> {
    let token_range = match (variant.request_tokens.min, variant.request_tokens.max) {
        (Some(min), Some(max)) => format!("{min}–{max} tokens"),
        (Some(min), None) => format!("{min} tokens or more"),
        (None, Some(max)) => format!("up to {max} tokens"),
        (None, None) => "any size".to_owned(),
    };
    vec![
        format!("{component}, {token_range}"),
        runtime.to_owned(),
        variant.accelerator_class.clone(),
        variant.accelerators_per_node.to_string(),
        variant.nodes.to_string(),
        variant.replicas.to_string(),
        "–".to_owned(),
        "–".to_owned(),
    ]
}

/// Formats the free and total accelerators of the class, `6 of 8`, if the nodes are known.
fn free_accelerators(service: &ServicePlan, name: &str, component: &ComponentDecision) -> Option<String> {
    let (free, total) = selected_class(service, name, component)?.free_and_total?;
    Some(format!("{free} of {total}"))
}

/// Returns the evaluation of the class that a component uses.
fn selected_class<'a>(service: &'a ServicePlan, name: &str, component: &ComponentDecision) -> Option<&'a Eligibility> {
    let selected = service.candidates.iter().find(|candidate| candidate.selected)?;
    let is_selected = |candidate: &&AcceleratorCandidate| {
        candidate.component == name && Some(&candidate.class) == component.accelerator_class.as_ref()
    };
    match &selected.accelerators.iter().find(is_selected)?.evaluation {
        ClassEvaluation::Eligible(eligibility) => Some(eligibility),
        ClassEvaluation::Rejected(_) => None,
    }
}

/// Returns the memory of one accelerator by purpose: one block per component.
fn memory_blocks(service: &ServicePlan) -> Vec<(String, Vec<String>)> {
    let has_several_components = service.components.len() > 1;
    let block = |(name, component): (&String, &ComponentDecision)| {
        let budget = selected_class(service, name, component)?.memory?;
        let title = if has_several_components { format!("Memory ({name})") } else { "Memory per GPU".to_owned() };
        let gigabytes = |bytes: u64| format!("{:>6.1} GB", bytes as f64 / 1e9);
        let parts = budget.parts().into_iter().map(|(bytes, purpose)| format!("{}  {purpose}", gigabytes(bytes)));
        let total = format!("{}  memory of {}", gigabytes(budget.memory), component.accelerator_class.as_ref()?);
        Some((title, std::iter::once(total).chain(parts).collect()))
    };
    service.components.iter().filter_map(block).collect()
}

/// Returns the ranked runtimes, then the rejected ones. A rejection for the reason in the headline is shortened to its code.
fn runtime_lines(service: &ServicePlan, all: bool) -> Vec<String> {
    let nearest = service.candidates.first().filter(|_| !service.feasible);
    let headline_reason = nearest.and_then(|nearest| nearest.rejected.as_ref()).map(summary);
    let reason = |candidate: &RuntimeCandidate| match (&candidate.rejected, &candidate.outranked) {
        (Some(rejection), _) if headline_reason.as_ref() == Some(&summary(rejection)) => rejection.code().into(),
        (Some(rejection), _) => format!("{}: {}", rejection.code(), summary(rejection)),
        (None, Some(criterion)) => criterion.to_string(),
        (None, None) => candidate.rank_basis.as_ref().map_or_else(|| "compatible".to_owned(), ToString::to_string),
    };
    let rows =
        service.candidates.iter().map(|candidate| (candidate.rank, candidate.runtime.clone(), reason(candidate)));
    ranking(rows.collect(), all)
}

/// Returns the classes of the selected runtime, otherwise of the nearest one: one block per component.
fn class_blocks(service: &ServicePlan, all: bool) -> Vec<(String, Vec<String>)> {
    let selected = service.candidates.iter().find(|candidate| candidate.selected);
    let nearest = || service.candidates.first().filter(|candidate| !candidate.accelerators.is_empty());
    let Some(candidate) = selected.or_else(nearest) else { return Vec::new() };
    let row = |candidate: &AcceleratorCandidate| match &candidate.evaluation {
        ClassEvaluation::Eligible(eligibility) => {
            (candidate.rank, candidate.class.clone(), format!("{eligibility}{}", outranked_suffix(candidate)))
        }
        evaluation => (candidate.rank, candidate.class.clone(), format!("{}: {evaluation}", evaluation.code())),
    };
    let mut components: Vec<&str> =
        candidate.accelerators.iter().map(|candidate| candidate.component.as_str()).collect();
    components.dedup();
    let has_several_components = components.len() > 1;
    let block = |component: &str| {
        let title =
            if has_several_components { format!("Why this ({component})") } else { "Why this class".to_owned() };
        let classes = candidate.accelerators.iter().filter(|class| class.component == component);
        (title, ranking(classes.map(row).collect(), all))
    };
    components.into_iter().map(block).collect()
}

/// Returns the criterion by which an eligible class was outranked, except for the score, which its message contains.
fn outranked_suffix(candidate: &AcceleratorCandidate) -> String {
    match &candidate.outranked {
        None | Some(ClassRankReason::Score { .. }) => String::new(),
        Some(criterion) => format!("; {criterion}"),
    }
}

/// Longest name of a Kubernetes object, in characters.
const MAX_NAME_LENGTH: usize = 253;

/// Renders `1  name  reason` for ranked candidates and `–  name  reason` for rejected ones, and limits both unless `all`.
fn ranking(rows: Vec<(Option<usize>, String, String)>, all: bool) -> Vec<String> {
    let limit = if all { usize::MAX } else { SHOWN_CANDIDATES };
    let (ranked, rejected): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(rank, ..)| rank.is_some());
    let omitted_count = ranked.len().saturating_sub(limit) + rejected.len().saturating_sub(limit);
    let rows: Vec<_> = ranked.into_iter().take(limit).chain(rejected.into_iter().take(limit)).collect();
    // The width is limited, since a manifest may contain names of arbitrary length.
    let width = rows.iter().map(|(_, name, _)| name.chars().count()).max().unwrap_or(0).min(MAX_NAME_LENGTH);
    let rank_label = |rank: Option<usize>| rank.map_or_else(|| "–".to_owned(), |rank| rank.to_string());
    let rank_width = rows.iter().map(|(rank, ..)| rank_label(*rank).chars().count()).max().unwrap_or(0);
    let line = |(rank, name, reason): (Option<usize>, String, String)| {
        format!("{:<rank_width$}  {name:<width$}  {reason}", rank_label(rank))
    };
    let mut lines: Vec<String> = rows.into_iter().map(line).collect();
    if omitted_count > 0 {
        lines.push(format!("–  … {omitted_count} more (--all)"));
    }
    lines
}

fn object_lines(service: &ServicePlan) -> Vec<String> {
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

/// Prefixes the first line with the title and the other lines with spaces.
fn block(title: &str, lines: Vec<String>) -> Vec<String> {
    let add_title =
        |(index, line): (usize, String)| format!("  {:<TITLE_WIDTH$}{line}", if index == 0 { title } else { "" });
    lines.into_iter().enumerate().map(add_title).collect()
}

#[cfg(test)]
mod tests {
    use api::parse_manifest;
    use plan::Snapshot;

    use super::*;

    fn render_plan(manifest: &str) -> String {
        let services = parse_manifest("services.yaml", manifest).unwrap();
        let supply = parse_manifest("supply.yaml", SUPPLY).unwrap();
        render(&plan::plan_with_remedies(&Snapshot::from_documents(&services, &supply).unwrap()), false)
    }

    const SUPPLY: &str = include_str!("../../../plan/src/tests/supply.yaml");

    #[test]
    fn renders_feasible_service() {
        insta::assert_snapshot!(render_plan(
            "{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: chat}, spec: {model: {name: llama-3-3-70b}}}"
        ));
    }

    #[test]
    fn renders_infeasible_service() {
        insta::assert_snapshot!(render_plan(
            "{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: chat}, spec: {model: {name: llama-3-2-3b}, acceleratorSelector: {preferredClasses: [tpu]}}}"
        ));
    }
}
