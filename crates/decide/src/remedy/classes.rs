//! What would let a class carry the service, or spare it the wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::case::{Case, chosen_classes};
use super::change::{Change, Layer, Requirement};
use super::lift;
use crate::decision::{AcceleratorCandidate, Candidate, ComponentDecision, Verdict};
use crate::demand::{Capabilities, Component, Demand};
use crate::inventory::{Availability, ClassNode};
use crate::nearest::nearest;
use crate::reason::ClassRejection;
use crate::supply::{Class, Runtime, Supply};

/// A class that has enough free, how many to free, or nodes to add.
pub(super) fn for_capacity(case: &Case<'_>) -> Vec<Change> {
    let Some(selected) = case.now.candidates.iter().find(|candidate| candidate.selected) else { return Vec::new() };
    let mut changes = Vec::new();
    for (name, component) in &case.now.components {
        let of_component = || selected.accelerators.iter().filter(|one| one.component == *name);
        let used = of_component().find(|one| component.accelerator_class.as_ref() == Some(&one.class));
        if used.is_none_or(enough) {
            continue;
        }
        let free = of_component().find(|one| one.rank.is_some() && enough(one));
        match free {
            Some(one) => changes.push(Change::UseClass { class: one.class.clone() }),
            None => changes.extend(beside_the_preferred(case)),
        }
        changes.extend(to_free(case.supply, component));
    }
    changes
}

/// The class that would be taken if the service preferred none.
fn beside_the_preferred(case: &Case<'_>) -> Option<Change> {
    let outcome = case.try_with(|demand, _| each_selector(demand, |selector| selector.preferred.clear()))?;
    let class = chosen_classes(&outcome).into_iter().next()?;
    (!chosen_classes(case.now).contains(&class)).then_some(Change::UseClass { class })
}

fn enough(one: &AcceleratorCandidate) -> bool {
    matches!(&one.verdict, Verdict::Eligible(eligibility) if eligibility.enough)
}

/// The least number of accelerators that must become free, or the nodes that are missing.
fn to_free(supply: &Supply, component: &ComponentDecision) -> Option<Change> {
    let class = supply.class(component.accelerator_class.as_deref()?)?;
    let (per_node, pods) = (component.accelerators_per_node, component.nodes.saturating_mul(component.replicas.max(1)));
    let known = class.availability.clone().unwrap_or_default();
    let missing = pods.saturating_sub(known.slots(per_node));
    let class = class.name.clone();
    Some(match cheapest(&known, per_node.max(1), missing) {
        Ok(count) => Change::FreeAccelerators { class, count },
        Err(lacking) => Change::AddNodes { class, nodes: lacking, per_node },
    })
}

/// Accelerators to free for `missing` more places of `per_node`, where that is cheapest; or how many places there can never
/// be. The next place of a node costs what its free accelerators lack, each one after it a whole place.
fn cheapest(known: &Availability, per_node: u32, missing: u32) -> Result<u32, u32> {
    let more = |node: &ClassNode| (node.total / per_node).saturating_sub(node.free / per_node);
    let places = known.nodes.iter().map(more).fold(0, u32::saturating_add);
    if places < missing {
        return Err(missing - places);
    }
    let with_more = known.nodes.iter().filter(|node| more(node) > 0);
    let mut next: Vec<u32> = with_more.map(|node| per_node - node.free % per_node).collect();
    next.sort_unstable();
    next.truncate(usize::try_from(missing).unwrap_or(usize::MAX));
    let after = missing.saturating_sub(u32::try_from(next.len()).unwrap_or(u32::MAX));
    Ok(next.into_iter().fold(after.saturating_mul(per_node), u32::saturating_add))
}

/// One constraint lifted wherever it stands, cheapest first.
pub(super) fn for_infeasible(case: &Case<'_>) -> Vec<Change> {
    let mut changes = names(case);
    changes.extend(preferences(case));
    changes.extend(requirements(case, &Layer::Selector));
    changes.extend(placement(case));
    changes.extend(counts(case, &Layer::Service));
    for runtime in compatible(case) {
        changes.extend(of_runtime(case, runtime));
    }
    if rejections(case).any(|rejection| matches!(rejection, ClassRejection::ModelDoesNotFit { .. })) {
        let plain = case.demand.model.known().is_some_and(|model| model.quantization.is_none());
        changes.extend(["fp8", "int4"].into_iter().filter(|_| plain).map(Change::Quantize));
    }
    changes.extend(nodes(case));
    changes
}

/// Runtimes that only lack a class, nearest first; a few are enough to learn from.
fn compatible<'a>(case: &'a Case<'_>) -> impl Iterator<Item = &'a Runtime> {
    let lacking =
        case.now.candidates.iter().filter(|one| !one.accelerators.is_empty() && one.rejected.is_some()).take(3);
    lacking.filter_map(|one| known(case, one))
}

fn known<'a>(case: &'a Case<'_>, candidate: &Candidate) -> Option<&'a Runtime> {
    let it = |one: &&Arc<Runtime>| one.name == candidate.runtime && one.scope == candidate.scope;
    case.supply.runtimes.iter().find(it).map(Arc::as_ref)
}

fn rejections<'a>(case: &'a Case<'_>) -> impl Iterator<Item = &'a ClassRejection> {
    let all = case.now.candidates.iter().flat_map(|candidate| candidate.accelerators.iter());
    all.filter_map(|one| match &one.verdict {
        Verdict::Rejected(rejection) => Some(rejection),
        Verdict::Eligible(_) | Verdict::Recorded(_) => None,
    })
}

/// Preferred classes that do not exist, and what may have been meant.
fn names(case: &Case<'_>) -> Vec<Change> {
    let mut changes = Vec::new();
    for component in case.demand.components.values() {
        let unknown = component.selector.preferred.iter().filter(|name| case.supply.class(name).is_none());
        for from in unknown {
            let near = nearest(from, case.supply.classes.iter().map(|class| class.name.as_str()));
            let source = component.selector.preferred_in.as_str().to_owned();
            changes.extend(near.map(|to| Change::ClassName { from: from.clone(), to: to.to_owned(), source }));
        }
    }
    changes
}

/// Names that no class has, classes that are excluded, and placements, whether or not a class would then fit.
pub(super) fn forbidden(case: &Case<'_>) -> Vec<Change> {
    let mut changes = names(case);
    let excluded = case.demand.components.values().flat_map(|component| &component.selector.excluded);
    let excluded: BTreeSet<&String> = excluded.filter(|name| case.supply.class(name).is_some()).collect();
    changes.extend((!excluded.is_empty()).then(|| Change::AllowClasses(excluded.into_iter().cloned().collect())));
    changes.extend(placement(case));
    changes
}

fn preferences(case: &Case<'_>) -> Vec<Change> {
    let mut changes = Vec::new();
    let selectors = || case.demand.components.values().map(|component| &component.selector);
    if let Some(wanted) = selectors().find(|selector| !selector.preferred.is_empty()) {
        let outcome = case.try_with(|demand, _| each_selector(demand, |selector| selector.preferred.clear()));
        let source = wanted.preferred_in.as_str().to_owned();
        changes.extend(outcome.map(|outcome| Change::PreferClasses { classes: chosen_classes(&outcome), source }));
    }
    if selectors().any(|selector| !selector.excluded.is_empty()) {
        let outcome = case.try_with(|demand, _| each_selector(demand, |selector| selector.excluded.clear()));
        let excluded: BTreeSet<&String> = selectors().flat_map(|selector| &selector.excluded).collect();
        let chosen = outcome.map(|outcome| chosen_classes(&outcome)).unwrap_or_default();
        let chosen: Vec<String> = chosen.into_iter().filter(|class| excluded.contains(class)).collect();
        changes.extend((!chosen.is_empty()).then_some(Change::AllowClasses(chosen)));
    }
    if selectors().any(|selector| !selector.families.is_empty()) {
        let outcome = case.try_with(|demand, _| each_selector(demand, |selector| selector.families.clear()));
        let families = outcome.iter().flat_map(chosen_classes);
        let families: BTreeSet<String> =
            families.filter_map(|class| case.supply.class(&class)?.family.clone()).collect();
        changes.extend((!families.is_empty()).then(|| Change::AllowFamilies(families.into_iter().collect())));
    }
    changes
}

fn each_selector(demand: &mut Demand, edit: impl Fn(&mut crate::demand::Selector)) {
    demand.components.values_mut().for_each(|component| edit(&mut component.selector));
}

/// Each required capability lowered to what the class has that would be chosen without it.
fn requirements(case: &Case<'_>, layer: &Layer) -> Vec<Change> {
    let stated = match layer {
        Layer::Runtime(name) => {
            let runtime = case.supply.runtimes.iter().find(|one| one.name == *name);
            runtime.map(|runtime| runtime.requirements.required.clone()).unwrap_or_default()
        }
        Layer::Selector | Layer::Service => {
            let all = case.demand.components.values().map(|component| &component.selector.required);
            all.fold(Capabilities::default(), |united, one| united.and(one))
        }
    };
    let dropped = dropped(&stated);
    let lowered = dropped.into_iter().filter_map(|without| {
        let outcome = case.try_with(|demand, supply| {
            lift::each_requirement(demand, supply, layer, |required| lift::require(required, &without));
        })?;
        let class = case.supply.class(chosen_classes(&outcome).first()?)?;
        Some(Change::Require { layer: layer.clone(), requirement: lowered(without, class) })
    });
    lowered.collect()
}

/// One requirement each, dropped.
fn dropped(stated: &Capabilities) -> Vec<Requirement> {
    let mut all = Vec::new();
    all.extend(stated.memory.map(|_| Requirement::Memory(None)));
    all.extend(stated.max_memory.map(|_| Requirement::MaxMemory(None)));
    all.extend(stated.compute.as_ref().map(|_| Requirement::Compute(None)));
    // One feature at a time; all of them only after that.
    all.extend(stated.features.iter().map(|feature| Requirement::Features(vec![feature.clone()])));
    let features: Vec<String> = stated.features.iter().cloned().collect();
    all.extend((features.len() > 1).then_some(Requirement::Features(features)));
    all.extend(stated.bandwidth.map(|_| Requirement::Bandwidth(None)));
    let stated = stated.performance.by_precision().into_iter().filter(|(_, tflops)| tflops.is_some());
    all.extend(stated.map(|(precision, _)| Requirement::Performance { precision, tflops: None }));
    all
}

/// The same, as low as `class` needs it.
fn lowered(dropped: Requirement, class: &Class) -> Requirement {
    match dropped {
        Requirement::Memory(_) => Requirement::Memory(class.memory),
        Requirement::MaxMemory(_) => Requirement::MaxMemory(class.memory),
        Requirement::Compute(_) => Requirement::Compute(class.compute.as_ref().map(ToString::to_string)),
        Requirement::Features(dropped) => {
            let needless = dropped.into_iter().filter(|feature| !class.features.contains(feature));
            Requirement::Features(needless.collect())
        }
        Requirement::Bandwidth(_) => Requirement::Bandwidth(class.bandwidth),
        Requirement::Performance { precision, .. } => {
            let of_class = class.performance.by_precision().into_iter().find(|(name, _)| *name == precision);
            Requirement::Performance { precision, tflops: of_class.and_then(|(_, tflops)| tflops) }
        }
    }
}

/// Each key of the service's node selectors, and its affinity.
fn placement(case: &Case<'_>) -> Vec<Change> {
    let mut changes = Vec::new();
    for component in case.demand.components.values() {
        changes.extend(keys(&Layer::Selector, &component.selector.node_selector));
        changes.extend(keys(&Layer::Service, &component.node_selector));
        changes.extend(component.affinity.as_ref().map(|_| Change::DropAffinity(Layer::Service)));
    }
    changes
}

fn keys(layer: &Layer, selector: &BTreeMap<String, String>) -> Vec<Change> {
    let of_key = |(key, value): (&String, &String)| Change::DropNodeSelector {
        layer: layer.clone(),
        key: key.clone(),
        value: value.clone(),
    };
    selector.iter().map(of_key).collect()
}

/// The number of accelerators or nodes that the layer fixes: as many as the model needs, or as many as a node has.
fn counts(case: &Case<'_>, layer: &Layer) -> Vec<Change> {
    let freed = case.try_with(|demand, supply| lift::free_count(demand, supply, layer));
    let needed = freed.as_ref().and_then(|outcome| {
        let engine = outcome.components.get(Component::Engine.as_str())?;
        Some(Change::SetCount { layer: layer.clone(), per_node: engine.accelerators_per_node, nodes: engine.nodes })
    });
    // Who fixes more than there is wants many: the most that a node has is the nearest to it.
    let most = rejections(case).filter_map(|rejection| match rejection {
        ClassRejection::TooManyPerNode { largest, .. } => Some(*largest),
        _ => None,
    });
    let most = most.max().filter(|_| freed.is_some());
    let most = most.map(|per_node| Change::SetCount { layer: layer.clone(), per_node, nodes: 1 });
    let nodes = [1, 2, 4, 8].map(|nodes| Change::SetNodes { layer: layer.clone(), nodes });
    let nodes = nodes.into_iter().filter(|_| fixes_nodes(case, layer));
    most.into_iter().chain(needed).chain(nodes).collect()
}

fn fixes_nodes(case: &Case<'_>, layer: &Layer) -> bool {
    match layer {
        Layer::Runtime(name) => {
            let named = case.supply.runtimes.iter().filter(|one| one.name == *name);
            named.flat_map(|one| one.components.values()).any(|one| one.nodes.is_some())
        }
        Layer::Selector | Layer::Service => case.demand.components.values().any(|one| one.nodes.is_some()),
    }
}

fn of_runtime(case: &Case<'_>, runtime: &Runtime) -> Vec<Change> {
    let layer = Layer::Runtime(runtime.name.clone());
    let mut changes = requirements(case, &layer);
    if runtime.requirements.classes.is_some() {
        let outcome = case.try_with(|demand, supply| {
            lift::each_runtime(demand, supply, &runtime.name, |runtime| runtime.requirements.classes = None);
        });
        changes.extend(outcome.map(|outcome| Change::SupportClasses {
            runtime: runtime.name.clone(),
            classes: chosen_classes(&outcome),
        }));
    }
    for component in runtime.components.values() {
        changes.extend(keys(&layer, &component.node_selector));
        changes.extend(component.affinities.first().map(|_| Change::DropAffinity(layer.clone())));
    }
    changes.extend(counts(case, &layer));
    if runtime.components.values().all(|one| !one.multi_node) {
        let outcome = case.try_with(|demand, supply| {
            lift::each_runtime(demand, supply, &runtime.name, lift::several_nodes);
        });
        let nodes = outcome.and_then(|outcome| Some(outcome.components.get(Component::Engine.as_str())?.nodes));
        let add = |nodes| Change::AddLeaderAndWorker { runtime: runtime.name.clone(), nodes };
        changes.extend(nodes.filter(|nodes| *nodes > 1).map(add));
    }
    changes
}

/// Nodes of the class that would be chosen if every class had some.
fn nodes(case: &Case<'_>) -> Option<Change> {
    let lacks = |rejection: &ClassRejection| {
        matches!(rejection, ClassRejection::NoMatchingNodes { .. } | ClassRejection::NodeSelectorConflict { .. })
    };
    // Larger nodes may be what is missing, too.
    let small = |rejection: &ClassRejection| {
        let limit = crate::reason::CountLimit::LargestNode;
        matches!(rejection, ClassRejection::TooManyPerNode { .. })
            || matches!(rejection, ClassRejection::ModelDoesNotFit { limit: of, .. } if *of == limit)
    };
    if !rejections(case).any(|rejection| lacks(rejection) || small(rejection)) {
        return None;
    }
    let outcome = case.try_with(|_, supply| {
        supply.classes.iter_mut().for_each(|class| unknown(Arc::make_mut(class)));
    })?;
    let engine = outcome.components.get(Component::Engine.as_str())?;
    let class = engine.accelerator_class.clone()?;
    let nodes = engine.nodes.saturating_mul(engine.replicas.max(1));
    Some(Change::AddNodes { class, nodes, per_node: engine.accelerators_per_node })
}

fn unknown(class: &mut Class) {
    class.availability = None::<Availability>;
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::the_emptiest_first(&[(3, 8), (1, 8)], 4, 1, Ok(1))]
    #[case::then_the_next(&[(3, 8), (1, 8)], 4, 2, Ok(1 + 3))]
    #[case::then_whole_places(&[(3, 8), (1, 8)], 4, 4, Ok(1 + 3 + 4 + 4))]
    #[case::more_than_there_can_be(&[(3, 8), (1, 8)], 4, 7, Err(3))]
    #[case::too_small(&[(2, 2)], 4, 1, Err(1))]
    #[case::cordoned(&[(0, 4)], 4, 1, Ok(4))]
    #[case::absurd(&[(0, u32::MAX), (0, u32::MAX)], 1, u32::MAX, Ok(u32::MAX))]
    fn what_must_become_free(
        #[case] nodes: &[(u32, u32)],
        #[case] per_node: u32,
        #[case] missing: u32,
        #[case] expect: Result<u32, u32>,
    ) {
        let node = |(free, total): &(u32, u32)| ClassNode { free: *free, total: *total, ..ClassNode::default() };
        let known = Availability { nodes: nodes.iter().map(node).collect() };
        assert_eq!(cheapest(&known, per_node, missing), expect);
    }
}
