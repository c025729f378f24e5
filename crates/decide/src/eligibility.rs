//! May this class carry this component? The first check that fails is the reason shown.
//!
//! Whether a check fails is asked of thousands of pairs, why it fails only of the few that are shown: the one costs no
//! memory, the other makes the words' numbers.

use std::collections::{BTreeMap, BTreeSet};

use crate::case::Case;
use crate::fit::{self, Fit};
use crate::fleet::{Fleet, Held};
use crate::nodes::{TOLERANCE, has_all};
use crate::reason::{ClassRejection, Exclusion};
use crate::room::{self, Usable};
use crate::supply::Class;

/// A class that is looked at for a case.
#[derive(Clone, Copy)]
pub struct Candidacy<'a> {
    pub case: &'a Case<'a>,
    pub class: &'a Class,
    /// Of the class among those on offer.
    pub index: usize,
    pub fleet: &'a Fleet,
    /// Accelerators that other components have taken.
    pub held: &'a [Held<'a>],
}

/// A check that looks at no node's labels or load.
pub struct Check {
    fails: fn(&Candidacy<'_>) -> bool,
    why: fn(&Candidacy<'_>) -> ClassRejection,
}

/// Order is the contract. What comes after these has numbers of its own: room and placement.
const CHECKS: [Check; 10] = [
    Check { fails: is_not_supported, why: not_supported_by },
    Check { fails: is_not_preferred, why: not_preferred },
    Check { fails: |one| exclusion(one).is_some(), why: excluded },
    Check { fails: has_no_matching_node, why: no_matching_nodes },
    Check { fails: |one| one.class.resource_name().is_none(), why: resource_unknown },
    Check { fails: has_too_little_memory, why: insufficient_memory },
    Check { fails: has_too_low_a_capability, why: compute_capability_too_low },
    Check { fails: |one| !one.case.need.features.is_subset(&one.class.features), why: missing_feature },
    Check { fails: has_too_low_a_bandwidth, why: bandwidth_too_low },
    Check { fails: |one| lacking_precision(one).is_some(), why: performance_too_low },
];

/// Why a class cannot carry a component, before it is put into words.
pub enum Refusal {
    /// By the check at this place of [`CHECKS`].
    Check(usize),
    Placed(ClassRejection),
}

impl Refusal {
    /// That of the rejection it becomes; stage 0 are classes that do not exist.
    #[must_use]
    pub fn stage(&self) -> u8 {
        match self {
            Self::Check(place) => u8::try_from(*place).unwrap_or(u8::MAX).saturating_add(1),
            Self::Placed(rejection) => rejection.stage(),
        }
    }

    #[must_use]
    pub fn told(self, of: &Candidacy<'_>) -> ClassRejection {
        match self {
            Self::Check(place) => CHECKS.get(place).map_or(ClassRejection::UnknownClass, |check| (check.why)(of)),
            Self::Placed(rejection) => rejection,
        }
    }
}

impl Candidacy<'_> {
    /// The fit of the class, and the nodes that the component may use, or why the class cannot carry it.
    ///
    /// # Errors
    /// The first check that fails.
    pub fn judged(&self) -> Result<(Fit, Usable), Refusal> {
        if let Some(place) = CHECKS.iter().position(|check| (check.fails)(self)) {
            return Err(Refusal::Check(place));
        }
        let Self { case, class, index, fleet, held } = *self;
        let usable = fleet.usable((index, class), case.offer, case.component, held);
        let placed = usable.as_deref().filter(|usable| !usable.lacks_a_place());
        let whole = if placed.is_none() { fleet.whole(index, class, case.component) } else { None };
        let known = placed.or(whole.as_deref()).map(room::Nodes::smallest);
        let fit = fit::fit(case, class, known).map_err(Refusal::Placed)?;
        let usable = room::for_replica(usable, fit.shape.nodes);
        match node_selector_conflict(&usable, class) {
            Some(rejection) => Err(Refusal::Placed(rejection)),
            None => Ok((fit, usable)),
        }
    }
}

fn is_not_supported(of: &Candidacy<'_>) -> bool {
    of.case.requirements.classes.as_ref().is_some_and(|supported| !supported.contains(&of.class.name))
}

fn not_supported_by(of: &Candidacy<'_>) -> ClassRejection {
    ClassRejection::NotSupportedByRuntime { supported: of.case.requirements.classes.clone().unwrap_or_default() }
}

/// A preference restricts: Story 4 says that the service requires H100.
fn is_not_preferred(of: &Candidacy<'_>) -> bool {
    let preferred = &of.case.component.selector.preferred;
    !preferred.is_empty() && !preferred.contains(&of.class.name)
}

fn not_preferred(of: &Candidacy<'_>) -> ClassRejection {
    ClassRejection::NotPreferred { preferred: of.case.component.selector.preferred.clone() }
}

/// What excludes the class.
enum Excluded {
    Name,
    Family,
    Memory { allowed: u64, offered: u64 },
}

fn exclusion(of: &Candidacy<'_>) -> Option<Excluded> {
    let (selector, class) = (&of.case.component.selector, of.class);
    if selector.excluded.contains(&class.name) {
        return Some(Excluded::Name);
    }
    if !selector.families.is_empty() && !of_family(&selector.families, class) {
        return Some(Excluded::Family);
    }
    let (allowed, offered) = (of.case.need.max_memory?, class.memory?);
    (scaled(offered, 1.0 - TOLERANCE) > allowed).then_some(Excluded::Memory { allowed, offered })
}

fn excluded(of: &Candidacy<'_>) -> ClassRejection {
    let because = match exclusion(of) {
        Some(Excluded::Memory { allowed, offered }) => Exclusion::TooMuchMemory { allowed, offered },
        Some(Excluded::Family) => Exclusion::ByFamily { family: of.class.family.clone() },
        Some(Excluded::Name) | None => Exclusion::ByName,
    };
    ClassRejection::ExcludedClass { because }
}

/// `hopper` names a family, `nvidia-hopper` a vendor's; case does not matter.
fn of_family(families: &BTreeSet<String>, class: &Class) -> bool {
    let (vendor, family) = (class.vendor.as_deref().unwrap_or_default(), class.family.as_deref().unwrap_or_default());
    let in_full = |wanted: &str| {
        let parts = wanted.split_at_checked(vendor.len());
        parts.is_some_and(|(of_vendor, rest)| {
            let rest = rest.strip_prefix('-').filter(|_| of_vendor.eq_ignore_ascii_case(vendor));
            rest.is_some_and(|rest| rest.eq_ignore_ascii_case(family))
        })
    };
    families.iter().any(|wanted| wanted.eq_ignore_ascii_case(family) || in_full(wanted))
}

fn has_no_matching_node(of: &Candidacy<'_>) -> bool {
    let Some(known) = of.class.availability.as_ref() else { return false };
    let selector = &of.case.component.selector.node_selector;
    let fits = |labels: &BTreeMap<String, String>| selector.is_empty() || has_all(labels, selector);
    !known.nodes.iter().any(|node| node.labels.as_ref().is_none_or(|labels| fits(labels)))
}

fn no_matching_nodes(of: &Candidacy<'_>) -> ClassRejection {
    let some = of.class.availability.as_ref().is_some_and(|known| !known.nodes.is_empty());
    let selector = &of.case.component.selector.node_selector;
    let pairs: Vec<String> = selector.iter().map(|(key, value)| format!("{key}={value}")).collect();
    ClassRejection::NoMatchingNodes { selector: some.then(|| pairs.join(",")) }
}

fn resource_unknown(of: &Candidacy<'_>) -> ClassRejection {
    ClassRejection::ResourceUnknown { vendor: of.class.vendor.clone() }
}

fn has_too_little_memory(of: &Candidacy<'_>) -> bool {
    let Some(needed) = of.case.need.memory else { return false };
    of.class.memory.is_none_or(|offered| offered < scaled(needed, 1.0 - TOLERANCE))
}

fn insufficient_memory(of: &Candidacy<'_>) -> ClassRejection {
    ClassRejection::InsufficientMemory { needed: of.case.need.memory.unwrap_or_default(), offered: of.class.memory }
}

fn has_too_low_a_capability(of: &Candidacy<'_>) -> bool {
    let Some(needed) = &of.case.need.compute else { return false };
    of.class.compute.as_ref().is_none_or(|offered| offered < needed)
}

fn compute_capability_too_low(of: &Candidacy<'_>) -> ClassRejection {
    ClassRejection::ComputeCapabilityTooLow {
        needed: of.case.need.compute.as_ref().map(ToString::to_string).unwrap_or_default(),
        offered: of.class.compute.as_ref().map(ToString::to_string),
    }
}

fn missing_feature(of: &Candidacy<'_>) -> ClassRejection {
    ClassRejection::MissingFeature { missing: of.case.need.features.difference(&of.class.features).cloned().collect() }
}

fn has_too_low_a_bandwidth(of: &Candidacy<'_>) -> bool {
    let Some(needed) = of.case.need.bandwidth else { return false };
    !of.class.bandwidth.is_some_and(|offered| offered >= needed)
}

fn bandwidth_too_low(of: &Candidacy<'_>) -> ClassRejection {
    ClassRejection::BandwidthTooLow { needed: of.case.need.bandwidth.unwrap_or_default(), offered: of.class.bandwidth }
}

/// The first precision at which the class computes less than is asked for.
fn lacking_precision(of: &Candidacy<'_>) -> Option<(&'static str, f64, Option<f64>)> {
    let pairs = of.case.need.performance.by_precision().into_iter().zip(of.class.performance.by_precision());
    pairs.into_iter().find_map(|((precision, needed), (_, offered))| {
        let needed = needed?;
        let enough = offered.is_some_and(|offered| offered >= needed);
        (!enough).then_some((precision, needed, offered))
    })
}

fn performance_too_low(of: &Candidacy<'_>) -> ClassRejection {
    let (precision, needed, offered) = lacking_precision(of).unwrap_or_default();
    ClassRejection::PerformanceTooLow { precision, needed, offered }
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
