//! Retention of the current selection: a running service keeps its runtime and classes while they are eligible.

use crate::assessment::RuntimeAssessment;
use crate::context::ComponentEvaluation;
use crate::decision::{ComponentDecision, CurrentSelection};
use crate::ranking::RankedClass;
use crate::variants::Variant;

/// Selects the current classes again and returns the index of the current runtime; `None` if the runtime or a class is no
/// longer eligible.
pub(crate) fn retain_current_selection(
    assessments: &mut [RuntimeAssessment<'_>],
    current: &CurrentSelection,
) -> Option<usize> {
    let is_current =
        |assessment: &RuntimeAssessment<'_>| assessment.order().is_some() && current.uses(assessment.runtime);
    let index = assessments.iter().position(is_current)?;
    let assessment = assessments.get_mut(index)?;
    let components = assessment.component_evaluations().iter();
    let retained = components.map(|component| retain_component(component, current)).collect::<Option<_>>()?;
    assessment.set_components(retained);
    Some(index)
}

/// Returns the component with its recorded class selected; `None` if that class is no longer eligible.
fn retain_component<'a>(
    component: &ComponentEvaluation<'a>,
    current: &CurrentSelection,
) -> Option<ComponentEvaluation<'a>> {
    let index = recorded_class_index(component, current)?;
    let mut component = component.clone();
    let recorded = current.components.get(component.component.as_str());
    let Some((index, recorded)) = index.zip(recorded) else {
        // The component was recorded without a class. Classes that were added later must not change a running service.
        component.ranked.clear();
        return Some(component);
    };
    component.selected = index;
    for ranked in &mut component.ranked {
        retain_shape(ranked, recorded);
        // Request-size preferences that were added later must not split a running service into variants.
        let is_variant = |variant: &Variant| variant.accelerator_class == ranked.class.name;
        ranked.request_tokens = ranked.request_tokens.filter(|_| recorded.variants.iter().any(is_variant));
    }
    Some(component)
}

/// Returns the index of the recorded class: `Some(None)` if none was recorded, `None` if it is no longer eligible.
fn recorded_class_index(component: &ComponentEvaluation<'_>, current: &CurrentSelection) -> Option<Option<usize>> {
    let recorded = current.components.get(component.component.as_str());
    let Some(class) = recorded.and_then(|recorded| recorded.accelerator_class.as_ref()) else { return Some(None) };
    component.ranked.iter().position(|ranked| ranked.class.name == *class).map(Some)
}

/// Retains the recorded number of accelerators if the model still fits into their memory and the manifests do not set
/// another one.
fn retain_shape(ranked: &mut RankedClass<'_>, recorded: &ComponentDecision) {
    let (class, eligibility) = (&ranked.class.name, &mut ranked.eligibility);
    let Some(shape) = recorded.shape_on(class) else { return };
    if ranked.request.is_fixed() || shape.accelerators() < eligibility.shape.accelerators() {
        return;
    }
    let scale = f64::from(shape.accelerators()) / f64::from(eligibility.shape.accelerators().max(1));
    eligibility.price_per_hour = eligibility.price_per_hour.map(|price| price * scale);
    if shape != eligibility.shape {
        // The budget is that of a replica with fewer accelerators.
        eligibility.memory = None;
    }
    eligibility.shape = shape;
}
