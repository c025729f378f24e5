//! May this class carry this component? The first check that fails is the reason shown.

use std::collections::{BTreeMap, BTreeSet};

use crate::demand::{Capabilities, ComponentDemand, Model};
use crate::fit::{self, Fit};
use crate::fleet::{self, Fleet, Usable};
use crate::inventory::TOLERANCE;
use crate::merge::Configuration;
use crate::reason::{ClassRejection, Exclusion};
use crate::supply::{Class, Requirements, RuntimeComponent};

/// One component of a service on one runtime, about to be matched with classes.
pub struct Case<'a> {
    pub model: Option<&'a Model>,
    pub component: &'a ComponentDemand,
    pub requirements: &'a Requirements,
    pub offer: &'a RuntimeComponent,
    /// Tuning per class, weakest layer first: runtime, matching format entry, its component, the service's component.
    pub configurations: [&'a [Configuration]; 4],
    /// What runtime and service require together.
    pub need: Capabilities,
    /// Resource names that stand for accelerators.
    pub resources: &'a BTreeSet<String>,
    pub fleet: &'a Fleet<'a>,
}

/// The fit of a class, and the nodes that the component may use, or why the class cannot carry it. Order is the contract.
///
/// # Errors
/// The first check that fails.
pub fn eligible(case: &Case<'_>, index: usize, class: &Class) -> Result<(Fit, Usable), ClassRejection> {
    let need = &case.need;
    let refused = not_supported_by(case.requirements, class)
        .or_else(|| not_preferred(case.component, class))
        .or_else(|| excluded(case.component, need, class))
        .or_else(|| no_matching_nodes(case.component, class))
        .or_else(|| resource_unknown(class))
        .or_else(|| insufficient_memory(need, class))
        .or_else(|| compute_capability_too_low(need, class))
        .or_else(|| missing_feature(need, class))
        .or_else(|| bandwidth_too_low(need, class))
        .or_else(|| performance_too_low(need, class));
    if let Some(rejection) = refused {
        return Err(rejection);
    }
    let usable = case.fleet.usable(case, index, class);
    let fit = fit::fit(case, class, &usable)?;
    let usable = fleet::for_replica(usable, fit.shape.nodes);
    match node_selector_conflict(&usable, class) {
        Some(rejection) => Err(rejection),
        None => Ok((fit, usable)),
    }
}

fn not_supported_by(runtime: &Requirements, class: &Class) -> Option<ClassRejection> {
    let supported = runtime.classes.as_ref()?;
    (!supported.contains(&class.name)).then(|| ClassRejection::NotSupportedByRuntime { supported: supported.clone() })
}

/// A preference restricts: Story 4 says that the service requires H100.
fn not_preferred(component: &ComponentDemand, class: &Class) -> Option<ClassRejection> {
    let preferred = &component.selector.preferred;
    (!preferred.is_empty() && !preferred.contains(&class.name))
        .then(|| ClassRejection::NotPreferred { preferred: preferred.clone() })
}

fn excluded(component: &ComponentDemand, need: &Capabilities, class: &Class) -> Option<ClassRejection> {
    if component.selector.excluded.contains(&class.name) {
        return Some(ClassRejection::ExcludedClass { because: Exclusion::ByName });
    }
    let families = &component.selector.families;
    if !families.is_empty() && !of_family(families, class) {
        return Some(ClassRejection::ExcludedClass { because: Exclusion::ByFamily { family: class.family.clone() } });
    }
    let (allowed, offered) = (need.max_memory?, class.memory?);
    (scaled(offered, 1.0 - TOLERANCE) > allowed)
        .then_some(ClassRejection::ExcludedClass { because: Exclusion::TooMuchMemory { allowed, offered } })
}

/// `hopper` names a family, `nvidia-hopper` a vendor's; case does not matter.
fn of_family(families: &std::collections::BTreeSet<String>, class: &Class) -> bool {
    let family = class.family.as_deref().unwrap_or_default();
    let full = format!("{}-{family}", class.vendor.as_deref().unwrap_or_default());
    families.iter().any(|wanted| wanted.eq_ignore_ascii_case(family) || wanted.eq_ignore_ascii_case(&full))
}

fn no_matching_nodes(component: &ComponentDemand, class: &Class) -> Option<ClassRejection> {
    let known = class.availability.as_ref()?;
    if known.nodes.is_empty() {
        return Some(ClassRejection::NoMatchingNodes { selector: None });
    }
    let selector = &component.selector.node_selector;
    known
        .narrowed(selector)
        .nodes
        .is_empty()
        .then(|| ClassRejection::NoMatchingNodes { selector: Some(written(selector)) })
}

fn written(selector: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    pairs.join(",")
}

fn resource_unknown(class: &Class) -> Option<ClassRejection> {
    class.resource_name().is_none().then(|| ClassRejection::ResourceUnknown { vendor: class.vendor.clone() })
}

fn insufficient_memory(need: &Capabilities, class: &Class) -> Option<ClassRejection> {
    let needed = need.memory?;
    let enough = class.memory.is_some_and(|offered| offered >= scaled(needed, 1.0 - TOLERANCE));
    (!enough).then_some(ClassRejection::InsufficientMemory { needed, offered: class.memory })
}

fn compute_capability_too_low(need: &Capabilities, class: &Class) -> Option<ClassRejection> {
    let needed = need.compute.as_ref()?;
    let enough = class.compute.as_ref().is_some_and(|offered| offered >= needed);
    (!enough).then(|| ClassRejection::ComputeCapabilityTooLow {
        needed: needed.to_string(),
        offered: class.compute.as_ref().map(ToString::to_string),
    })
}

fn missing_feature(need: &Capabilities, class: &Class) -> Option<ClassRejection> {
    let missing: Vec<String> = need.features.difference(&class.features).cloned().collect();
    (!missing.is_empty()).then_some(ClassRejection::MissingFeature { missing })
}

fn bandwidth_too_low(need: &Capabilities, class: &Class) -> Option<ClassRejection> {
    let needed = need.bandwidth?;
    let enough = class.bandwidth.is_some_and(|offered| offered >= needed);
    (!enough).then_some(ClassRejection::BandwidthTooLow { needed, offered: class.bandwidth })
}

fn performance_too_low(need: &Capabilities, class: &Class) -> Option<ClassRejection> {
    let pairs = need.performance.by_precision().into_iter().zip(class.performance.by_precision());
    pairs.into_iter().find_map(|((precision, needed), (_, offered))| {
        let needed = needed?;
        let enough = offered.is_some_and(|offered| offered >= needed);
        (!enough).then_some(ClassRejection::PerformanceTooLow { precision, needed, offered })
    })
}

/// Only if no node of the class satisfies the merged placement; otherwise the stronger layer simply wins.
fn node_selector_conflict(usable: &Usable, class: &Class) -> Option<ClassRejection> {
    let nodes = class.availability.as_ref()?.nodes.len();
    let none = usable.as_ref().is_some_and(|usable| usable.lacks_a_place());
    none.then_some(ClassRejection::NodeSelectorConflict { nodes })
}

fn scaled(bytes: u64, factor: f64) -> u64 {
    (bytes as f64 * factor) as u64
}
