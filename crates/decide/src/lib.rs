//! Selects the serving runtime and the accelerator classes of an inference service, and explains every rejection.
//!
//! Input: the requirements of one service ([`Demand`]) and the available runtimes and classes ([`Supply`]). Output: a
//! [`Decision`] with the selected runtime, the shape of each component, and a reason for each rejected candidate. The crate
//! performs no I/O and reads no clock, random numbers or environment variables: [`decide`] cannot fail for reasons outside
//! its input, and equal input gives byte-identical output.
//!
//! Layers, from low to high:
//! - types: `demand`, `supply` (with `component`, `configuration`, `role_placement`, `nodes`, `taint`, `compute_request`, `vendor`,
//!   `size`, `preference`, `engine`, `task`, `model_architecture`), `reason` (with `memory_budget`), `decision` (with `rank_reason`,
//!   `shape`, `variants`); `merge` combines the fields of runtime, class and service, and reads
//!   parallelism from flags and variables;
//! - input: `from_api` reads the types from manifests, `inventory` accounts for accelerators of nodes and Pods;
//! - checks of one runtime or one class: `compatibility` (with `naming`), `eligibility` (with `match_context`, `node_labels`, `node_pool`,
//!   `capacity`, `fit`, `engine_memory`);
//! - orders over all candidates: `ranking` (with `scoring`);
//! - the decision: `context`, `assessment`, `retention`, `warnings`, and `record`, which builds the [`Decision`]; `status`
//!   bounds its size; [`decide`] calls them;
//! - `remedy` decides again with one change applied.

#![warn(missing_docs)]

pub mod code;

mod accelerator_request;
mod assessment;
mod capacity;
mod compatibility;
mod component;
mod compute_request;
mod configuration;
mod context;
mod decision;
mod demand;
mod eligibility;
mod engine;
mod engine_memory;
mod fit;
mod from_api;
mod inventory;
mod lazy_list;
mod leader_worker;
mod match_context;
mod memory_budget;
mod merge;
mod model_architecture;
mod naming;
mod node_labels;
mod node_pool;
mod nodes;
mod number_format;
mod parallelism;
mod preference;
mod quantization;
mod rank_reason;
mod ranking;
mod reason;
mod record;
mod remedy;
mod retention;
mod role_placement;
mod scoring;
mod shape;
mod size;
mod suggestion;
mod supply;
mod taint;
mod task;
mod units;
mod variants;
mod vendor;
mod warnings;

pub use accelerator_request::{AcceleratorRequest, RequestStrength, StatedCount};
pub use compatibility::check_compatibility;
pub use component::Component;
pub use compute_request::{ComputeRequest, ComputeShortage, NodeCompute, PodRequests, ReplicaRequests};
pub use configuration::ClassConfiguration;
pub use decision::{
    AcceleratorCandidate, AcceleratorCandidates, ClassEvaluation, ComponentDecision, CurrentSelection, Decision,
    Eligibility, RankBasis, RuntimeCandidate, RuntimeCandidates, RuntimeRef,
};
pub use demand::{
    Capabilities, ClassSelector, ComponentDemand, CustomContainer, Demand, Model, ModelFacts, ModelReference,
    NamedVersion, Performance, PreferenceSource, RankingPolicy,
};
pub use engine::{Engine, EngineSettings};
pub use fit::estimated_memory;
pub use from_api::{FieldError, FieldKind};
pub use inventory::{
    BaseSet, BaseSetError, ClassTotals, FlavorError, FlavorLink, Inventory, NodeInfo, PROVENANCE_ANNOTATION,
    Provenance, SERVICE_LABEL, ServiceUsage, UnschedulableReason, class_availability, class_from_flavor,
    complete_partitions, discover_classes, flavor_from_class, flavor_link, free_replica_slots, is_accelerator_flavor,
    is_pod_terminal, is_unmodified, node_info, node_infos, nodes_without_pods, place_pods, provenance,
    unschedulable_reason,
};
pub use lazy_list::LazyList;
pub use leader_worker::apply_role_placement;
pub use memory_budget::{MemoryBudget, Reserve};
pub use merge::affinity::{MergedAffinity, TooManyTerms};
pub use merge::args::{
    CommandLine, MergedCommandLine, is_shell, merge_args, replace_tensor_parallel_size, shell_script_index,
};
pub use merge::env::{MergedEnv, merge_env, replace_variable};
pub use merge::merge_configurations;
pub use merge::origin::{Origin, OverriddenValue, Setting, SettingField, Sources};
pub use merge::parallelism::ParallelismSettings;
pub use merge::placement::{Placement, merge_placement};
pub use merge::resources::{AcceleratorAllocation, MergedResources, merge_resources, overlay_resources};
pub use model_architecture::ModelArchitecture;
pub use naming::{NamedSize, model_size};
pub use nodes::{
    Availability, ClassNode, Discovery, UnschedulableNodes, labels_match_selector, matches_discovery, term_matches,
};
pub use number_format::UnsupportedAccelerator;
pub use parallelism::{Parallelism, StatedSize};
pub use preference::{ClassPreference, Comparison, ComparisonOperator, PreferenceCondition};
pub use quantization::NumberFormat;
pub use rank_reason::{ClassRankReason, OUTRANKED, RuntimeRankReason, SizeFit};
pub use reason::{
    ClassRejection, CountLimit, ExclusionReason, MissingField, ModelField, RuntimeRejection, UnavailableAccelerators,
    Warning, WarningSubject, is_capacity_shortage,
};
pub use remedy::{
    CapabilityChange, ConstraintSource, ProposedChange, Remedy, RuntimeField, components_without_capacity,
    find_remedies,
};
pub use role_placement::{PodRole, RolePlacement, RolePlacements};
pub use shape::ReplicaShape;
pub use size::{DisplayCount, SizeRange};
pub use suggestion::nearest_name;
pub use supply::{
    Class, ClassRequirements, ClassResource, Cost, CostTier, NodeResources, Runtime, RuntimeComponent, Scope, Supply,
    SupportedFormat,
};
pub use taint::{Taint, Toleration};
pub use units::extended_resources;
pub use variants::{TokenRange, Variant};

use std::sync::Arc;

use assessment::{Extent, RuntimeAssessment};
use context::DecisionContext;

/// Selects the runtime and the accelerator classes of one service. The current selection is retained while it is eligible,
/// even if another candidate ranks higher.
#[must_use]
pub fn decide(demand: &Demand, supply: &Supply, current: Option<&CurrentSelection>) -> Decision {
    let context = Arc::new(DecisionContext::new(demand, supply, custom_engine_runtime(demand), current));
    let runtimes = match candidate_runtimes(&context) {
        Ok(runtimes) => runtimes,
        Err(decision) => return *decision,
    };
    let Selection { assessments, index, is_retained } = select(&context, &runtimes, Extent::Selection);
    match index {
        Some(index) => {
            let context = Arc::clone(&context);
            let candidates = RuntimeCandidates::new(move || all_candidates(&context));
            Decision { candidates, ..record::selected(demand, supply, &assessments, index, is_retained) }
        }
        None => record::infeasible(demand, assessments),
    }
}

/// The assessed runtimes and which of them is selected.
struct Selection<'a> {
    /// In rank order.
    assessments: Vec<RuntimeAssessment<'a>>,
    /// Index of the selected runtime; `None` if the service cannot run.
    index: Option<usize>,
    /// Whether the current selection is retained.
    is_retained: bool,
}

/// Selects one of `runtimes`, or the engine that the service defines itself if none can serve.
fn select<'a>(context: &'a Arc<DecisionContext>, runtimes: &[&'a Arc<Runtime>], extent: Extent) -> Selection<'a> {
    let demand = &context.demand;
    let mut assessments = assessment::assess(context, runtimes, extent);
    let none_viable = assessments.first().is_none_or(|first| first.order().is_none());
    if none_viable && demand.runtime.is_none() && has_complete_container(demand) && demand.model.resolved().is_some() {
        assessments.splice(..0, assessment::assess(context, &[&context.custom_engine], extent));
    }
    let current = context.current.as_ref();
    let retained = current.and_then(|current| retention::retain_current_selection(&mut assessments, current));
    let first_viable = || assessments.iter().position(|assessment| assessment.order().is_some());
    Selection { index: retained.or_else(first_viable), is_retained: retained.is_some(), assessments }
}

/// Returns the candidates of a decision.
fn all_candidates(context: &Arc<DecisionContext>) -> Vec<RuntimeCandidate> {
    let runtimes = candidate_runtimes(context).unwrap_or_default();
    let Selection { assessments, index, .. } = select(context, &runtimes, Extent::All);
    record::runtime_candidates(&context.demand, assessments, index)
}

/// Returns the runtimes to assess: the named one, or every runtime of the namespace and the cluster.
///
/// # Errors
/// The decision, if the model or the named runtime does not exist, or if no engine container is defined.
fn candidate_runtimes(context: &DecisionContext) -> Result<Vec<&Arc<Runtime>>, Box<Decision>> {
    let DecisionContext { demand, supply, custom_engine, .. } = context;
    match &demand.model {
        ModelReference::NotFound { name, suggestion } => {
            return Err(Box::new(record::model_not_found(demand, name, suggestion.as_deref())));
        }
        ModelReference::Disabled(model) => return Err(Box::new(record::model_disabled(demand, &model.name))),
        ModelReference::Unspecified | ModelReference::Resolved(_) => {}
    }
    let visible_runtimes = || supply.runtimes.iter().filter(|runtime| is_visible(demand, runtime));
    if let Some(name) = &demand.runtime {
        // A namespaced runtime takes precedence over a cluster runtime of the same name.
        let runtime = visible_runtimes().filter(|runtime| runtime.name == *name).min_by_key(|runtime| runtime.scope);
        return runtime
            .map(|runtime| vec![runtime])
            .ok_or_else(|| Box::new(record::runtime_not_found(demand, name, visible_runtimes().map(AsRef::as_ref))));
    }
    if demand.model.resolved().is_some() {
        return Ok(visible_runtimes().collect());
    }
    let has_image = engine_container(demand) >= CustomContainer::ImageOnly;
    if has_image { Ok(vec![custom_engine]) } else { Err(Box::new(record::no_engine_container(demand))) }
}

/// Whether the service may use `runtime`: cluster-scoped, or in the service's namespace.
pub(crate) fn is_visible(demand: &Demand, runtime: &Runtime) -> bool {
    runtime.scope == Scope::Cluster || runtime.namespace == demand.namespace
}

/// Returns the pseudo-runtime of a service that defines its own engine container (seed 000, Story 8).
fn custom_engine_runtime(demand: &Demand) -> Runtime {
    Runtime { protocols: vec![demand.protocol.clone()], ..Runtime::custom_engine() }
}

/// Whether the service's engine container runs without a runtime. With a model, an image alone only replaces the runtime's
/// image; an image with a command or arguments is a complete engine.
fn has_complete_container(demand: &Demand) -> bool {
    engine_container(demand) == CustomContainer::Complete
}

fn engine_container(demand: &Demand) -> CustomContainer {
    demand.components.get(&Component::Engine).map(|engine| engine.custom_container).unwrap_or_default()
}

#[cfg(test)]
mod tests;
