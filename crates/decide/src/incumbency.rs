//! A ready service keeps its choice: better offers are told, never taken.

use crate::assess::Assessed;
use crate::decision::{ComponentDecision, Incumbent, RuntimeRef};
use crate::offers::ComponentOutcome;
use crate::ranking::RankedClass;
use crate::shape::Shape;
use crate::variants::Variant;

/// The incumbent's index if it may still serve; its class becomes the one in use of each component.
pub(crate) fn keep(assessed: &mut [Assessed<'_>], incumbent: &Incumbent) -> Option<usize> {
    let index = assessed.iter().position(|one| one.order().is_some() && is(one, incumbent.runtime.as_ref()))?;
    let one = assessed.get_mut(index)?;
    let kept = one.components().iter().map(|component| kept(component, incumbent)).collect::<Option<_>>()?;
    one.keep(kept);
    Some(index)
}

/// The component with what was recorded of it; `None` if its class may no longer serve.
fn kept<'a>(component: &ComponentOutcome<'a>, incumbent: &Incumbent) -> Option<ComponentOutcome<'a>> {
    let place = place(component, incumbent)?;
    let mut component = component.clone();
    let recorded = incumbent.components.get(component.component.as_str());
    let Some((place, recorded)) = place.zip(recorded) else {
        // Decided without a class before: a class that appears since does not move a ready service.
        component.ranked.clear();
        return Some(component);
    };
    component.kept = place;
    for ranked in &mut component.ranked {
        keep_shape(ranked, recorded);
        // A class that the runtime prefers since for some requests does not split a ready service either.
        let was = |variant: &Variant| variant.accelerator_class == ranked.class.name;
        ranked.request_tokens = ranked.request_tokens.filter(|_| recorded.variants.iter().any(was));
    }
    Some(component)
}

/// Place of the recorded class, `Some(None)` if there was none, `None` if it may no longer serve.
fn place(component: &ComponentOutcome<'_>, incumbent: &Incumbent) -> Option<Option<usize>> {
    let recorded = incumbent.components.get(component.component.as_str());
    let Some(class) = recorded.and_then(|recorded| recorded.accelerator_class.as_ref()) else { return Some(None) };
    component.ranked.iter().position(|ranked| ranked.class.name == *class).map(Some)
}

fn is(one: &Assessed<'_>, runtime: Option<&RuntimeRef>) -> bool {
    match runtime {
        None => one.runtime.is_own(),
        Some(runtime) => one.runtime.name == runtime.name && one.runtime.scope == runtime.scope,
    }
}

/// Unless the manifests fix the number, accelerators that still hold the model stay as many as they are.
fn keep_shape(ranked: &mut RankedClass<'_>, recorded: &ComponentDecision) {
    let (class, eligibility) = (&ranked.class.name, &mut ranked.eligibility);
    let of_variant = recorded.variants.iter().find(|variant| variant.accelerator_class == *class);
    let of_variant = of_variant.map(|variant| Shape { per_node: variant.accelerators_per_node, nodes: variant.nodes });
    let whole = Shape { per_node: recorded.accelerators_per_node, nodes: recorded.nodes };
    let is_whole = recorded.accelerator_class.as_ref() == Some(class);
    let Some(shape) = of_variant.or(is_whole.then_some(whole)) else { return };
    if ranked.stated.fixes() || shape.accelerators() < eligibility.shape.accelerators() {
        return;
    }
    let scale = f64::from(shape.accelerators()) / f64::from(eligibility.shape.accelerators().max(1));
    eligibility.hourly = eligibility.hourly.map(|price| price * scale);
    eligibility.shape = shape;
}
