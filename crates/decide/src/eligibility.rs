//! Checks whether a class can run a component. The first check that fails is the reported rejection.
//!
//! Thousands of classes are checked per decision and few rejections are read, so a check is a predicate without
//! allocations, and the rejection with its values is built separately.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use api::Code;

use crate::capacity::{self, EligibleNodes, ReplicaNodes};
use crate::code;
use crate::demand::Capabilities;
use crate::fit::{self, AcceleratorFit};
use crate::match_context::MatchContext;
use crate::node_pool::{NodePool, Reservation};
use crate::nodes::{MEMORY_TOLERANCE, labels_match_selector};
use crate::number_format::FormatSupport;
use crate::reason::{ClassRejection, ExclusionReason, class_stage};
use crate::supply::Class;

/// A class to check for a component.
#[derive(Clone, Copy)]
pub(crate) struct Candidate<'a> {
    pub(crate) context: &'a MatchContext<'a>,
    pub(crate) class: &'a Class,
    /// Index of the class in the supply.
    pub(crate) index: usize,
    pub(crate) node_pool: &'a NodePool,
    /// Accelerators reserved by other components.
    pub(crate) reservations: &'a [Reservation<'a>],
}

/// A check that needs neither the fit of the model nor the placement of Pods.
#[derive(Clone, Copy)]
struct Check {
    stage: u8,
    fails: fn(&Candidate<'_>) -> bool,
    rejection: fn(&Candidate<'_>) -> ClassRejection,
}

/// The checks in the order of [`code::class::ALL`], which alone defines the order. Fit and placement are checked afterwards.
static CHECKS: LazyLock<Vec<Check>> =
    LazyLock::new(|| code::class::ALL.iter().filter_map(|code| check_for_code(*code)).collect());

/// The check that a class failed; the rejection is built on demand.
pub(crate) enum FailedCheck {
    /// Index in [`CHECKS`].
    Check(usize),
    /// A rejection because of fit or placement.
    Rejection(ClassRejection),
}

// === impl FailedCheck ===

impl FailedCheck {
    /// Returns the stage of the rejection, see [`ClassRejection::stage`].
    pub(crate) fn stage(&self) -> u8 {
        match self {
            Self::Check(index) => CHECKS.get(*index).map_or(u8::MAX, |check| check.stage),
            Self::Rejection(rejection) => rejection.stage(),
        }
    }

    /// Builds the rejection of `candidate`.
    pub(crate) fn into_rejection(self, candidate: &Candidate<'_>) -> ClassRejection {
        match self {
            Self::Check(index) => {
                let unknown = ClassRejection::UnknownClass { suggestion: None };
                CHECKS.get(index).map_or(unknown, |check| (check.rejection)(candidate))
            }
            Self::Rejection(rejection) => rejection,
        }
    }
}

// === impl Candidate ===

impl Candidate<'_> {
    /// Returns the fit of the model on the class and the nodes that the component may use.
    ///
    /// # Errors
    /// The first check that fails.
    pub(crate) fn evaluate(&self) -> Result<(AcceleratorFit, EligibleNodes), FailedCheck> {
        if let Some(index) = CHECKS.iter().position(|check| (check.fails)(self)) {
            return Err(FailedCheck::Check(index));
        }
        let Self { context, class, index, node_pool, reservations } = *self;
        let eligible = if context.excludes_all_nodes {
            class.availability.as_ref().map(|_| Arc::default())
        } else {
            node_pool.eligible_nodes((index, class), context.runtime, context.demand, reservations)
        };
        let placeable = eligible.as_deref().filter(|nodes| !nodes.is_missing_nodes());
        let all = if placeable.is_none() { node_pool.all_nodes(index, class, context.demand) } else { None };
        let limiting = placeable.or(all.as_deref()).map(ReplicaNodes::smallest_pool);
        let fit = fit::fit(context, class, limiting).map_err(FailedCheck::Rejection)?;
        let eligible = capacity::nodes_for_replica(eligible, fit.shape.nodes);
        let rejection = self
            .unsuitable_nodes(&eligible, &fit)
            .or_else(|| self.vendor_mismatch())
            .or_else(|| self.unsupported_accelerator());
        match rejection {
            Some(rejection) => Err(FailedCheck::Rejection(rejection)),
            None => Ok((fit, eligible)),
        }
    }

    /// Returns a rejection if the runtime is for accelerators of another vendor and declares nothing for that of the class.
    fn vendor_mismatch(&self) -> Option<ClassRejection> {
        let (required, offered) = (self.context.bound_vendors()?, self.class.resource_vendor()?);
        let is_suitable = required.contains(&offered) || self.context.declares_vendor(offered);
        (!is_suitable)
            .then(|| ClassRejection::VendorMismatch { required: required.to_vec(), offered: offered.to_owned() })
    }

    /// Returns a rejection if the engine does not start on the class, or not with the number format of the model.
    fn unsupported_accelerator(&self) -> Option<ClassRejection> {
        match self.context.format_support(self.class) {
            FormatSupport::Unsupported(reason) => Some(ClassRejection::AcceleratorUnsupported(reason)),
            FormatSupport::Native | FormatSupport::Emulated(_) => None,
        }
    }

    /// Returns a rejection if no node of the class can ever run a Pod of the component.
    fn unsuitable_nodes(&self, eligible: &EligibleNodes, fit: &AcceleratorFit) -> Option<ClassRejection> {
        let nodes = eligible.as_ref()?;
        if !nodes.is_missing_nodes() {
            let shortage = nodes.compute_shortage(&fit.pod())?;
            let names = nodes.all.nodes_of(self.class.availability.as_ref()?).map(|node| node.name.clone()).collect();
            return Some(ClassRejection::InsufficientNodeResources { shortage, nodes: names });
        }
        let class = (self.index, self.class);
        match self.node_pool.untolerated_taint(class, self.context.runtime, self.context.demand) {
            Some((taint, nodes)) => Some(ClassRejection::TaintNotTolerated { taint, nodes }),
            None => node_selector_conflict(eligible, self.class),
        }
    }
}

/// Returns the check for `code`; `None` for codes of fit and placement.
fn check_for_code(code: Code) -> Option<Check> {
    type CheckFunctions = (fn(&Candidate<'_>) -> bool, fn(&Candidate<'_>) -> ClassRejection);
    let (fails, rejection): CheckFunctions = match code {
        code::class::NOT_SUPPORTED_BY_RUNTIME => (is_not_supported, not_supported_by_runtime),
        code::class::NOT_PREFERRED => (is_not_preferred, not_preferred),
        code::class::EXCLUDED_CLASS => (is_excluded, excluded_class),
        code::class::NO_MATCHING_NODES => (has_no_matching_node, no_matching_nodes),
        code::class::RESOURCE_UNKNOWN => (has_unknown_resource, resource_unknown),
        code::class::INSUFFICIENT_MEMORY => (has_insufficient_memory, insufficient_memory),
        code::class::COMPUTE_CAPABILITY_TOO_LOW => (has_low_compute_capability, compute_capability_too_low),
        code::class::MISSING_FEATURE => (is_missing_feature, missing_feature),
        code::class::BANDWIDTH_TOO_LOW => (has_low_bandwidth, bandwidth_too_low),
        code::class::PERFORMANCE_TOO_LOW => (has_low_performance, performance_too_low),
        _ => return None,
    };
    Some(Check { stage: class_stage(code), fails, rejection })
}

fn is_not_supported(candidate: &Candidate<'_>) -> bool {
    let supported = candidate.context.requirements.supported_classes.as_ref();
    supported.is_some_and(|supported| !supported.contains(&candidate.class.name))
}

fn not_supported_by_runtime(candidate: &Candidate<'_>) -> ClassRejection {
    let supported = candidate.context.requirements.supported_classes.clone();
    ClassRejection::NotSupportedByRuntime { supported: supported.unwrap_or_default() }
}

/// Preferred classes restrict the selection (seed 000, Story 4: the service requires H100).
fn is_not_preferred(candidate: &Candidate<'_>) -> bool {
    let preferred = &candidate.context.demand.selector.preferred;
    !preferred.is_empty() && !preferred.contains(&candidate.class.name)
}

fn not_preferred(candidate: &Candidate<'_>) -> ClassRejection {
    ClassRejection::NotPreferred { preferred: candidate.context.demand.selector.preferred.clone() }
}

fn is_excluded(candidate: &Candidate<'_>) -> bool {
    is_excluded_by_name(candidate) || is_excluded_by_family(candidate) || excess_memory(candidate).is_some()
}

fn excluded_class(candidate: &Candidate<'_>) -> ClassRejection {
    let reason = match excess_memory(candidate) {
        _ if is_excluded_by_name(candidate) => ExclusionReason::ByName,
        _ if is_excluded_by_family(candidate) => ExclusionReason::ByFamily { family: candidate.class.family.clone() },
        Some((allowed, offered)) => ExclusionReason::TooMuchMemory { allowed, offered },
        None => ExclusionReason::ByName,
    };
    ClassRejection::ExcludedClass { reason }
}

fn is_excluded_by_name(candidate: &Candidate<'_>) -> bool {
    candidate.context.demand.selector.excluded.contains(&candidate.class.name)
}

fn is_excluded_by_family(candidate: &Candidate<'_>) -> bool {
    let families = &candidate.context.demand.selector.families;
    !families.is_empty() && !is_of_family(families, candidate.class)
}

/// Returns the maximum memory that the service allows and the memory of the class, if it is greater.
fn excess_memory(candidate: &Candidate<'_>) -> Option<(u64, u64)> {
    let (allowed, offered) = (candidate.context.required.max_memory?, candidate.class.memory?);
    (scale_bytes(offered, 1.0 - MEMORY_TOLERANCE) > allowed).then_some((allowed, offered))
}

/// Matches `hopper` or `nvidia-hopper`, ignoring case.
fn is_of_family(families: &BTreeSet<String>, class: &Class) -> bool {
    let (vendor, family) = (class.vendor.as_deref().unwrap_or_default(), class.family.as_deref().unwrap_or_default());
    let matches_qualified = |wanted: &str| {
        wanted.split_at_checked(vendor.len()).is_some_and(|(prefix, rest)| {
            let rest = rest.strip_prefix('-').filter(|_| prefix.eq_ignore_ascii_case(vendor));
            rest.is_some_and(|rest| rest.eq_ignore_ascii_case(family))
        })
    };
    families.iter().any(|wanted| wanted.eq_ignore_ascii_case(family) || matches_qualified(wanted))
}

fn has_no_matching_node(candidate: &Candidate<'_>) -> bool {
    let Some(availability) = candidate.class.availability.as_ref() else { return false };
    let selector = &candidate.context.demand.selector.node_selector;
    let matches = |labels: &BTreeMap<String, String>| selector.is_empty() || labels_match_selector(labels, selector);
    !availability.nodes.iter().any(|node| node.labels.as_ref().is_none_or(|labels| matches(labels)))
}

fn no_matching_nodes(candidate: &Candidate<'_>) -> ClassRejection {
    let has_nodes = candidate.class.availability.as_ref().is_some_and(|known| !known.nodes.is_empty());
    let selector = &candidate.context.demand.selector.node_selector;
    let pairs: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    ClassRejection::NoMatchingNodes { selector: has_nodes.then(|| pairs.join(",")) }
}

fn has_unknown_resource(candidate: &Candidate<'_>) -> bool {
    candidate.class.resource_name().is_none()
}

fn resource_unknown(candidate: &Candidate<'_>) -> ClassRejection {
    ClassRejection::ResourceUnknown { vendor: candidate.class.vendor.clone() }
}

fn has_insufficient_memory(candidate: &Candidate<'_>) -> bool {
    is_memory_insufficient(&candidate.context.required, candidate.class.memory)
}

/// Whether a class that offers this memory has less than required.
pub(crate) fn is_memory_insufficient(required: &Capabilities, offered: Option<u64>) -> bool {
    let Some(required) = required.memory else { return false };
    offered.is_none_or(|offered| offered < scale_bytes(required, 1.0 - MEMORY_TOLERANCE))
}

fn insufficient_memory(candidate: &Candidate<'_>) -> ClassRejection {
    let required = candidate.context.required.memory.unwrap_or_default();
    ClassRejection::InsufficientMemory { required, offered: candidate.class.memory }
}

fn has_low_compute_capability(candidate: &Candidate<'_>) -> bool {
    let Some(required) = &candidate.context.required.compute_capability else { return false };
    candidate.class.compute_capability.as_ref().is_none_or(|offered| offered < required)
}

fn compute_capability_too_low(candidate: &Candidate<'_>) -> ClassRejection {
    let required = candidate.context.required.compute_capability.as_ref();
    ClassRejection::ComputeCapabilityTooLow {
        required: required.map(ToString::to_string).unwrap_or_default(),
        offered: candidate.class.compute_capability.as_ref().map(ToString::to_string),
    }
}

fn is_missing_feature(candidate: &Candidate<'_>) -> bool {
    !candidate.context.required.features.is_subset(&candidate.class.features)
}

fn missing_feature(candidate: &Candidate<'_>) -> ClassRejection {
    let missing = candidate.context.required.features.difference(&candidate.class.features);
    ClassRejection::MissingFeature { missing: missing.cloned().collect() }
}

fn has_low_bandwidth(candidate: &Candidate<'_>) -> bool {
    is_bandwidth_low(&candidate.context.required, candidate.class.bandwidth)
}

/// Whether a class that offers this bandwidth has less than required.
pub(crate) fn is_bandwidth_low(required: &Capabilities, offered: Option<f64>) -> bool {
    let Some(required) = required.bandwidth else { return false };
    !offered.is_some_and(|offered| offered >= required)
}

fn bandwidth_too_low(candidate: &Candidate<'_>) -> ClassRejection {
    let required = candidate.context.required.bandwidth.unwrap_or_default();
    ClassRejection::BandwidthTooLow { required, offered: candidate.class.bandwidth }
}

/// Returns the first precision at which the class provides less throughput than required.
fn insufficient_precision(candidate: &Candidate<'_>) -> Option<(&'static str, f64, Option<f64>)> {
    let required = candidate.context.required.performance.by_precision();
    let mut pairs = required.into_iter().zip(candidate.class.performance.by_precision());
    pairs.find_map(|((precision, required), (_, offered))| {
        let required = required?;
        let is_sufficient = offered.is_some_and(|offered| offered >= required);
        (!is_sufficient).then_some((precision, required, offered))
    })
}

fn has_low_performance(candidate: &Candidate<'_>) -> bool {
    insufficient_precision(candidate).is_some()
}

fn performance_too_low(candidate: &Candidate<'_>) -> ClassRejection {
    let (precision, required, offered) = insufficient_precision(candidate).unwrap_or_default();
    ClassRejection::PerformanceTooLow { precision, required, offered }
}

/// Returns a rejection if no node of the class satisfies the merged placement.
fn node_selector_conflict(eligible: &EligibleNodes, class: &Class) -> Option<ClassRejection> {
    let nodes = class.availability.as_ref()?.nodes.len();
    let conflicts = eligible.as_ref().is_some_and(|eligible| eligible.is_missing_nodes());
    conflicts.then_some(ClassRejection::NodeSelectorConflict { nodes })
}

fn scale_bytes(bytes: u64, factor: f64) -> u64 {
    (bytes as f64 * factor) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_run_in_order_of_their_stages() {
        let stages: Vec<u8> = CHECKS.iter().map(|check| check.stage).collect();
        assert_eq!(stages, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    }
}
