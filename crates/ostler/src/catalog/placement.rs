//! Decides what a shipped model runs on, without knowledge of nodes.

use std::fmt;

use anyhow::Result;
use api::Document;
use api::ome::{InferenceService, InferenceServiceSpec, ModelRef};
use decide::{AcceleratorCandidate, ClassEvaluation, Eligibility, RuntimeCandidate};
use plan::{Service, ServicePlan, Snapshot};

use super::CatalogKind;

/// Plans services with the objects of the catalog.
pub(crate) struct Planner {
    snapshot: Snapshot,
}

/// The runtime and the accelerators of a model.
pub(crate) struct Placement {
    pub(crate) runtime: String,
    pub(crate) class: String,
    pub(crate) accelerators_per_node: u32,
    pub(crate) nodes: u32,
    pub(crate) eligibility: Eligibility,
}

// === impl Planner ===

impl Planner {
    /// Reads the objects of the catalog, or others.
    pub(crate) fn new(documents: &[Document]) -> Result<Self> {
        Ok(Self { snapshot: Snapshot::from_documents(&[], documents)? })
    }

    /// Reads the objects without the classes of other names.
    pub(crate) fn with_class(documents: &[Document], class: &str) -> Result<Self> {
        let is_other = |document: &&Document| CatalogKind::Classes.matches(document) && document.name() != class;
        Self::new(&documents.iter().filter(|document| !is_other(document)).cloned().collect::<Vec<_>>())
    }

    /// Returns the placement of a service with this model.
    ///
    /// # Errors
    /// Why the model cannot be served.
    pub(crate) fn place(&self, model: &str) -> Result<Placement, String> {
        placement(&self.plan(model))
    }

    /// Returns the names of the runtimes that can serve the model, best first.
    pub(crate) fn runtimes(&self, model: &str) -> Vec<String> {
        let eligible = self.plan(model).candidates.into_iter().filter(|candidate| candidate.rank.is_some());
        eligible.map(|candidate| candidate.runtime).collect()
    }

    fn plan(&self, model: &str) -> ServicePlan {
        let model = ModelRef { name: model.to_owned(), ..ModelRef::default() };
        let spec = InferenceServiceSpec { model: Some(model), ..InferenceServiceSpec::default() };
        let service = Service::Ome(Box::new(InferenceService::new("model", spec)));
        plan::plan_service(&self.snapshot, &service)
    }
}

/// Returns the placement of the engine.
fn placement(plan: &ServicePlan) -> Result<Placement, String> {
    let component = plan.components.get("engine").zip(plan.runtime.as_ref()).filter(|_| plan.feasible);
    let Some((engine, runtime)) = component else { return Err(rejection(plan)) };
    let selected = plan.candidates.iter().filter(|candidate| candidate.selected);
    let classes = selected.flat_map(|candidate| candidate.accelerators.iter());
    let mut eligible = classes.filter_map(|candidate| match &candidate.evaluation {
        ClassEvaluation::Eligible(eligibility) if Some(&candidate.class) == engine.accelerator_class.as_ref() => {
            Some((candidate, eligibility))
        }
        _ => None,
    });
    let Some((candidate, eligibility)) = eligible.next() else { return Err(rejection(plan)) };
    Ok(Placement {
        runtime: runtime.name.clone(),
        class: candidate.class.clone(),
        accelerators_per_node: engine.accelerators_per_node,
        nodes: engine.nodes,
        eligibility: eligibility.clone(),
    })
}

/// Returns why the runtime that is closest to a match rejects the class, otherwise why no runtime serves the model.
fn rejection(plan: &ServicePlan) -> String {
    let rejected_class = |candidate: &AcceleratorCandidate| match &candidate.evaluation {
        ClassEvaluation::Rejected(rejection) => Some(rejection.to_string()),
        ClassEvaluation::Eligible(_) => None,
    };
    let of_runtime = |candidate: &RuntimeCandidate| {
        let reason = candidate.accelerators.iter().find_map(rejected_class)?;
        Some(format!("{}: {reason}", candidate.runtime))
    };
    plan.candidates.first().and_then(of_runtime).unwrap_or_else(|| plan.message.clone())
}

// === impl Placement ===

impl fmt::Display for Placement {
    /// Formats the accelerators of a replica: `8×nvidia-h100-80gb ×2`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}×{}", self.accelerators_per_node, self.class)?;
        if self.nodes > 1 { write!(f, " ×{}", self.nodes) } else { Ok(()) }
    }
}
