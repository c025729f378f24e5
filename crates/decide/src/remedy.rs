//! What would help: decide again with one constraint lifted, and keep what becomes feasible.

use std::fmt;

use crate::decision::Decision;
use crate::demand::{Capabilities, Demand, ModelDemand};
use crate::reason::{Count, Rejection};
use crate::supply::{SizeRange, Supply};

/// One change that makes the service feasible, and what it would then get.
#[derive(Clone, Debug, PartialEq)]
pub struct Remedy {
    pub change: Change,
    pub outcome: Decision,
}

/// The constraint that was lifted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    DropPreferredClasses(Vec<String>),
    DropExcludedClasses,
    DropRequiredCapabilities,
    DropNodeSelector,
    DropNamedRuntime(String),
    NameRuntime(String),
    SpeakOpenAi,
    /// The runtime would serve the model if its range allowed the size.
    WidenSizeRange {
        runtime: String,
        parameters: u64,
    },
    /// The runtime fixes the number of accelerators.
    FreeAcceleratorCount {
        runtime: String,
    },
    /// The runtime runs on one node only.
    AddLeaderAndWorker {
        runtime: String,
    },
    /// The model's weights are too large as they are.
    Quantize(&'static str),
}

/// Changes to service, runtimes or model that make an infeasible demand feasible; empty if it is feasible already.
#[must_use]
pub fn remedies(demand: &Demand, supply: &Supply) -> Vec<Remedy> {
    let now = crate::decide(demand, supply, None);
    if now.feasible {
        return Vec::new();
    }
    let lifted = of_service(demand).into_iter().chain(of_runtimes(supply, &now, demand)).chain(of_model(demand));
    let tried = lifted.filter_map(|change| {
        let (demand, supply) = with(demand, supply, &change);
        let outcome = crate::decide(&demand, &supply, None);
        outcome.feasible.then_some(Remedy { change, outcome })
    });
    tried.collect()
}

fn of_service(demand: &Demand) -> Vec<Change> {
    let mut changes = Vec::new();
    let any = |test: fn(&crate::demand::Selector) -> bool| demand.components.values().any(|one| test(&one.selector));
    let preferred = demand.components.values().flat_map(|one| one.selector.preferred.clone());
    if any(|selector| !selector.preferred.is_empty()) {
        let mut names: Vec<String> = preferred.collect();
        names.sort_unstable();
        names.dedup();
        changes.push(Change::DropPreferredClasses(names));
    }
    if any(|selector| !selector.excluded.is_empty() || !selector.families.is_empty()) {
        changes.push(Change::DropExcludedClasses);
    }
    if any(|selector| selector.required != Capabilities::default()) {
        changes.push(Change::DropRequiredCapabilities);
    }
    let placed = demand.components.values().any(|one| !one.node_selector.is_empty() || one.affinity.is_some());
    if placed || any(|selector| !selector.node_selector.is_empty()) {
        changes.push(Change::DropNodeSelector);
    }
    if let Some(name) = &demand.runtime {
        changes.push(Change::DropNamedRuntime(name.clone()));
    }
    if demand.protocol != "openAI" {
        changes.push(Change::SpeakOpenAi);
    }
    changes
}

/// What the nearest runtimes could allow.
fn of_runtimes(supply: &Supply, now: &Decision, demand: &Demand) -> Vec<Change> {
    let mut changes = Vec::new();
    for candidate in &now.candidates {
        let runtime = candidate.runtime.clone();
        match &candidate.rejected {
            Some(Rejection::AutoSelectDisabled) => changes.push(Change::NameRuntime(runtime)),
            // Rejections stand nearest first: one proposal for the size is enough.
            Some(Rejection::SizeOutOfRange { parameters, .. }) if !proposes_size(&changes) => {
                changes.push(Change::WidenSizeRange { runtime, parameters: *parameters });
            }
            Some(Rejection::NoEligibleAccelerator { .. }) => {
                let known =
                    supply.runtimes.iter().find(|known| known.name == runtime && known.scope == candidate.scope);
                let stated = known.into_iter().flat_map(|known| known.components.values());
                if stated.clone().any(|one| !one.resources.is_empty() || one.parallelism.is_some()) {
                    changes.push(Change::FreeAcceleratorCount { runtime: runtime.clone() });
                }
                if stated.clone().all(|one| !one.multi_node) && demand.model.known().is_some() {
                    changes.push(Change::AddLeaderAndWorker { runtime });
                }
            }
            _ => {}
        }
    }
    changes
}

fn proposes_size(changes: &[Change]) -> bool {
    changes.iter().any(|change| matches!(change, Change::WidenSizeRange { .. }))
}

fn of_model(demand: &Demand) -> Vec<Change> {
    let plain = demand.model.known().is_some_and(|model| model.quantization.is_none() && model.parameters.is_some());
    if plain { vec![Change::Quantize("fp8"), Change::Quantize("int4")] } else { Vec::new() }
}

fn with(demand: &Demand, supply: &Supply, change: &Change) -> (Demand, Supply) {
    let (mut demand, mut supply) = (demand.clone(), supply.clone());
    match change {
        Change::DropNamedRuntime(_) => demand.runtime = None,
        Change::NameRuntime(name) => demand.runtime = Some(name.clone()),
        Change::SpeakOpenAi => "openAI".clone_into(&mut demand.protocol),
        Change::Quantize(kind) => quantize(&mut demand, &mut supply, kind),
        Change::WidenSizeRange { runtime, .. } => {
            // A new runtime may as well have leader and worker, if the model needs them.
            each_runtime(&mut supply, runtime, |runtime| {
                runtime.size = SizeRange::default();
                runtime.components.values_mut().for_each(|component| component.multi_node = true);
            });
        }
        Change::FreeAcceleratorCount { runtime } => each_runtime(&mut supply, runtime, |runtime| {
            for component in runtime.components.values_mut() {
                component.resources.clear();
                component.parallelism = None;
            }
        }),
        Change::AddLeaderAndWorker { runtime } => each_runtime(&mut supply, runtime, |runtime| {
            for component in runtime.components.values_mut() {
                component.multi_node = true;
            }
        }),
        _ => demand.components.values_mut().for_each(|component| lift(component, change)),
    }
    (demand, supply)
}

fn lift(component: &mut crate::demand::ComponentDemand, change: &Change) {
    match change {
        Change::DropPreferredClasses(_) => component.selector.preferred.clear(),
        Change::DropExcludedClasses => {
            component.selector.excluded.clear();
            component.selector.families.clear();
        }
        Change::DropRequiredCapabilities => component.selector.required = Capabilities::default(),
        Change::DropNodeSelector => {
            component.selector.node_selector.clear();
            component.node_selector.clear();
            component.affinity = None;
        }
        _ => {}
    }
}

fn each_runtime(supply: &mut Supply, name: &str, edit: impl Fn(&mut crate::supply::Runtime)) {
    supply.runtimes.iter_mut().filter(|runtime| runtime.name == name).for_each(edit);
}

/// A quantized variant needs a runtime that says so; only what the weights change is asked here.
fn quantize(demand: &mut Demand, supply: &mut Supply, kind: &str) {
    if let ModelDemand::Known(model) = &mut demand.model {
        model.quantization = Some(kind.to_owned());
    }
    for entry in
        supply.runtimes.iter_mut().flat_map(|runtime| &mut runtime.formats).filter(|entry| entry.quantization.is_none())
    {
        entry.quantization = Some(kind.to_owned());
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.change, self.outcome.message)?;
        let waits = self.outcome.warnings.iter().find(|warning| warning.code == "NoFreeCapacity");
        waits.map_or(Ok(()), |waits| write!(f, " — but {}", waits.message))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DropPreferredClasses(names) => write!(f, "ask for more classes than {}", names.join(", ")),
            Self::DropExcludedClasses => f.write_str("allow the excluded classes or families"),
            Self::DropRequiredCapabilities => f.write_str("lower acceleratorSelector.requiredCapabilities"),
            Self::DropNodeSelector => f.write_str("remove the service's node selector or affinity"),
            Self::DropNamedRuntime(name) => write!(f, "remove spec.runtime.name ({name})"),
            Self::NameRuntime(name) => write!(f, "set spec.runtime.name to {name}"),
            Self::SpeakOpenAi => f.write_str("remove spec.model.protocolVersion"),
            Self::WidenSizeRange { runtime, parameters } => {
                write!(
                    f,
                    "add a runtime for {} models, such as a copy of {runtime} with a wider modelSizeRange and, for several nodes, leader and worker",
                    Count(*parameters)
                )
            }
            Self::FreeAcceleratorCount { runtime } => {
                write!(f, "do not fix the number of accelerators in {runtime}")
            }
            Self::AddLeaderAndWorker { runtime } => write!(f, "add leader and worker to {runtime} (several nodes)"),
            Self::Quantize(kind) => write!(f, "serve a {kind} variant of the model, with a runtime for it"),
        }
    }
}
