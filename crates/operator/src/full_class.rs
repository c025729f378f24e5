//! Describes a class without free capacity for the replicas of a component, and what other classes cost.

use decide::{AcceleratorCandidate, ClassEvaluation, Eligibility, RuntimeCandidate, WarningSubject};
use plan::ServicePlan;

/// Maximum number of other classes in a message.
const MAX_ALTERNATIVES: usize = 3;

/// Returns a sentence for the first component whose class is full: what it needs, which nodes are unschedulable, and the price and the free capacity of
/// the other eligible classes. `None` if no component waits for capacity.
pub(crate) fn full_class_message(plan: &ServicePlan) -> Option<String> {
    let component = plan.warnings.iter().find_map(|warning| match &warning.subject {
        Some(WarningSubject::Component(component)) if warning.is_capacity_shortage() => Some(component),
        _ => None,
    })?;
    let class = plan.components.get(component.as_str())?.accelerator_class.as_deref()?;
    let runtime = plan.candidates.iter().find(|candidate| candidate.selected)?;
    let classes: Vec<(&AcceleratorCandidate, &Eligibility)> = eligible_classes(runtime, component.as_str()).collect();
    let (_, selected) = classes.iter().find(|(candidate, _)| candidate.class == class)?;
    let required = selected.shape.accelerators().saturating_mul(selected.replicas);
    let (free, total) = selected.free_and_total.unwrap_or_default();
    let others = classes.iter().filter(|(candidate, _)| candidate.class != class);
    let others: Vec<String> = others.take(MAX_ALTERNATIVES).map(|(other, price)| alternative(other, price)).collect();
    let others = match others.as_slice() {
        [] => "no other class is eligible".to_owned(),
        others => format!("alternatives per replica: {}", others.join(", ")),
    };
    let (problem, available) = match selected.pods_without_room {
        0 => {
            let per_node = selected.shape.per_node;
            // Free accelerators on several nodes can be too few on each of them.
            let fragmented = if free >= required { format!(", but not {per_node} on one node") } else { String::new() };
            let unschedulable = selected.unschedulable.as_ref();
            let problem = match unschedulable {
                Some(nodes) if nodes.would_suffice => "has too few schedulable nodes",
                _ => "is full",
            };
            let cause = unschedulable.map(|nodes| format!("; {nodes}")).unwrap_or_default();
            (problem, format!("{free} of {total} are free{fragmented}{cause}"))
        }
        missing => {
            let pods = selected.shape.nodes.saturating_mul(selected.replicas);
            let room = match pods.saturating_sub(missing) {
                0 => "too few for one Pod even when empty".to_owned(),
                fitting => format!("enough for {fitting} of {pods} Pods when empty"),
            };
            ("is too small", format!("its nodes have {total} in total, {room}"))
        }
    };
    let noun = if required == 1 { "accelerator" } else { "accelerators" };
    Some(format!(
        "Class {class} {problem}: the {} requires {required} {noun} and {available}; {others}",
        component.as_str()
    ))
}

fn eligible_classes<'a>(
    runtime: &'a RuntimeCandidate,
    component: &'a str,
) -> impl Iterator<Item = (&'a AcceleratorCandidate, &'a Eligibility)> {
    let candidates = runtime.accelerators.iter().filter(move |candidate| candidate.component == component);
    candidates.filter_map(|candidate| match &candidate.evaluation {
        ClassEvaluation::Eligible(eligibility) => Some((candidate, eligibility)),
        ClassEvaluation::Rejected(_) => None,
    })
}

/// Describes an alternative: `2 × h100 for $5.12/h (8 of 8 free)`.
fn alternative(candidate: &AcceleratorCandidate, eligibility: &Eligibility) -> String {
    let price =
        eligibility.price_per_hour.map_or_else(|| " without a price".to_owned(), |price| format!(" for ${price:.2}/h"));
    let free = match eligibility.free_and_total {
        Some((free, total)) => format!("{free} of {total} free"),
        None => "availability unknown".to_owned(),
    };
    format!("{} × {}{price} ({free})", eligibility.shape.accelerators(), candidate.class)
}

#[cfg(test)]
mod tests {
    use decide::code::warning::NO_FREE_CAPACITY;
    use decide::{Component, ComponentDecision, LazyList, ReplicaShape, Scope, UnschedulableNodes, Warning};
    use rstest::rstest;

    use super::*;

    fn candidate(class: &str, price: Option<f64>, free_and_total: Option<(u32, u32)>) -> AcceleratorCandidate {
        let eligibility = Eligibility {
            shape: ReplicaShape { per_node: 2, nodes: 1 },
            ranking: "balanced",
            score: 0.5,
            cost_score: None,
            performance_score: 0.5,
            memory: None,
            compute: decide::ComputeRequest::default(),
            lacks_only_compute: false,
            price_per_hour: price,
            replicas: 3,
            free_and_total,
            has_capacity: false,
            has_capacity_with_running_pods: false,
            pods_without_room: 0,
            unschedulable: None,
        };
        AcceleratorCandidate {
            component: "engine".to_owned(),
            class: class.to_owned(),
            rank: Some(1),
            score: None,
            evaluation: ClassEvaluation::Eligible(eligibility),
            outranked: None,
        }
    }

    fn plan(others: Vec<AcceleratorCandidate>, is_full: bool) -> ServicePlan {
        let classes = std::iter::once(candidate("l40s", Some(1.5), Some((4, 8)))).chain(others);
        let runtime = RuntimeCandidate {
            runtime: "r".to_owned(),
            scope: Scope::Cluster,
            rank: Some(1),
            selected: true,
            accelerators: LazyList::Ready(classes.collect()),
            rejected: None,
            rank_basis: None,
            outranked: None,
        };
        let warning = Warning::new(NO_FREE_CAPACITY, "m").with_subject(WarningSubject::Component(Component::Engine));
        let engine = ComponentDecision { accelerator_class: Some("l40s".to_owned()), ..ComponentDecision::default() };
        ServicePlan {
            components: [("engine".to_owned(), engine)].into(),
            candidates: LazyList::Ready([runtime].into()),
            warnings: if is_full { vec![warning] } else { Vec::new() },
            ..ServicePlan::default()
        }
    }

    fn replace_class(plan: &mut ServicePlan, class: AcceleratorCandidate) {
        let runtime = plan.candidates.first().cloned().unwrap();
        let runtime = RuntimeCandidate { accelerators: LazyList::Ready([class].into()), ..runtime };
        plan.candidates = LazyList::Ready([runtime].into());
    }

    #[rstest]
    #[case::has_capacity(plan(Vec::new(), false), None)]
    #[case::no_alternative(
        plan(Vec::new(), true),
        Some("Class l40s is full: the engine requires 6 accelerators and 4 of 8 are free; no other class is eligible")
    )]
    #[case::alternatives(
        plan(vec![candidate("h100", Some(10.24), Some((8, 8))), candidate("mi300x", None, None)], true),
        Some("Class l40s is full: the engine requires 6 accelerators and 4 of 8 are free; \
              alternatives per replica: 2 × h100 for $10.24/h (8 of 8 free), 2 × mi300x without a price (availability unknown)")
    )]
    fn describes_the_full_class(#[case] plan: ServicePlan, #[case] expected: Option<&str>) {
        assert_eq!(full_class_message(&plan).as_deref(), expected);
    }

    #[rstest]
    #[case::would_suffice(
        true,
        "Class l40s has too few schedulable nodes: the engine requires 6 accelerators and 4 of 8 are free; \
         1 of 3 nodes is cordoned: a; 1 of 3 nodes is not ready: b; no other class is eligible"
    )]
    #[case::would_not_suffice(
        false,
        "Class l40s is full: the engine requires 6 accelerators and 4 of 8 are free; \
         1 of 3 nodes is cordoned: a; 1 of 3 nodes is not ready: b; no other class is eligible"
    )]
    fn describes_unschedulable_nodes(#[case] would_suffice: bool, #[case] expected: &str) {
        let mut plan = plan(Vec::new(), true);
        let mut selected = candidate("l40s", Some(1.5), Some((4, 8)));
        if let ClassEvaluation::Eligible(eligibility) = &mut selected.evaluation {
            let (cordoned, not_ready) = (vec!["a".to_owned()], vec!["b".to_owned()]);
            eligibility.unschedulable = Some(UnschedulableNodes { eligible: 3, cordoned, not_ready, would_suffice });
        }
        replace_class(&mut plan, selected);
        assert_eq!(full_class_message(&plan).as_deref(), Some(expected));
    }

    /// 16 of 24 accelerators are free, but half of a node on each of the nodes.
    #[test]
    fn describes_free_accelerators_that_no_pod_can_use() {
        let mut plan = plan(Vec::new(), true);
        let mut selected = candidate("l40s", Some(1.5), Some((16, 24)));
        if let ClassEvaluation::Eligible(eligibility) = &mut selected.evaluation {
            (eligibility.shape.per_node, eligibility.replicas) = (8, 2);
        }
        replace_class(&mut plan, selected);
        let expected = "Class l40s is full: the engine requires 16 accelerators and 16 of 24 are free, but not 8 on one node; \
                        no other class is eligible";
        assert_eq!(full_class_message(&plan).as_deref(), Some(expected));
    }

    #[test]
    fn one_accelerator_is_singular() {
        let mut plan = plan(Vec::new(), true);
        let mut selected = candidate("l40s", Some(1.5), Some((0, 8)));
        if let ClassEvaluation::Eligible(eligibility) = &mut selected.evaluation {
            (eligibility.shape.per_node, eligibility.replicas) = (1, 1);
        }
        replace_class(&mut plan, selected);
        let expected =
            "Class l40s is full: the engine requires 1 accelerator and 0 of 8 are free; no other class is eligible";
        assert_eq!(full_class_message(&plan).as_deref(), Some(expected));
    }

    /// No other workload has to end: the class would be too small even without them.
    #[test]
    fn describes_the_class_that_is_too_small() {
        let mut plan = plan(Vec::new(), true);
        let mut selected = candidate("l40s", Some(1.5), Some((2, 4)));
        if let ClassEvaluation::Eligible(eligibility) = &mut selected.evaluation {
            eligibility.pods_without_room = 1;
        }
        replace_class(&mut plan, selected);
        plan.warnings[0].code = decide::code::warning::TOO_FEW_NODES.as_str().to_owned();
        let expected = "Class l40s is too small: the engine requires 6 accelerators and its nodes have 4 in total, \
                        enough for 2 of 3 Pods when empty; no other class is eligible";
        assert_eq!(full_class_message(&plan).as_deref(), Some(expected));
    }
}
