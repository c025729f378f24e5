//! What was decided, with what rendering needs of it: templates, tuning, and who wished for the class.

use std::collections::BTreeMap;

use api::ome;
use decide::decision::{ComponentDecision, Decision};
use decide::demand::{Component, Demand, PreferredIn};
use decide::fit::Shape;
use decide::inventory::Index;
use decide::merge::origin::{Origin, Said, Setting};
use decide::supply::{self, Supply};
use decide::{Variant, compatibility, merge};

use crate::components::{Decided, Granted, NamedModel, NamedRuntime, ReplicaSet};
use crate::model_files::{self, READY};
use crate::runner::Accelerators;
use crate::snapshot::{Model, Snapshot};
use crate::supply::Runtime;
use crate::topology::{Autoscalers, Owner};

/// The winner, with what rendering needs of it.
pub(crate) struct Chosen<'a> {
    runtime: Option<&'a Runtime>,
    facts: Option<&'a supply::Runtime>,
    components: BTreeMap<Component, Granted>,
    autoscalers: Autoscalers,
    inventory: &'a Index,
}

impl<'a> Chosen<'a> {
    pub(crate) fn of(
        snapshot: &'a Snapshot,
        supply: &'a Supply,
        owner: &Owner,
        demand: &Demand,
        decision: &Decision,
    ) -> Self {
        let visible = |namespace: &str| namespace.is_empty() || namespace == owner.namespace;
        let chosen = decision.runtime.as_ref();
        let runtime = chosen.and_then(|chosen| {
            let mut all = snapshot.runtimes.iter().filter(|one| visible(&one.namespace));
            all.find(|one| one.name == chosen.name && one.scope == chosen.scope)
        });
        let facts = chosen.and_then(|chosen| {
            let mut all = supply.runtimes.iter().map(AsRef::as_ref).filter(|one| visible(&one.namespace));
            all.find(|one| one.name == chosen.name && one.scope == chosen.scope)
        });
        let decided = Component::ALL.into_iter().filter(|one| decision.components.contains_key(one.as_str()));
        let granted = |component: Component| (component, granted(component, supply, facts, demand, decision));
        Self {
            runtime,
            facts,
            components: decided.map(granted).collect(),
            autoscalers: snapshot.autoscalers,
            inventory: &snapshot.inventory,
        }
    }

    pub(crate) fn decided<'b>(&'b self, service: &'b ome::InferenceService, model: Option<&'b Model>) -> Decided<'b> {
        Decided {
            service: &service.spec,
            runtime: self.runtime.map(|runtime| NamedRuntime { name: &runtime.name, spec: runtime.spec() }),
            model: model.map(|model| NamedModel {
                name: &model.name,
                spec: &model.spec,
                category: model.category.as_deref(),
                ready_nodes: model_files::agent_label(model.namespace.as_deref(), &model.name).filter(|label| {
                    self.inventory.nodes().any(|node| node.labels.get(label).is_some_and(|state| state == READY))
                }),
            }),
            autoscalers: self.autoscalers,
            components: self.components.clone(),
        }
    }

    /// Who chose the class of each component: the annotation over the service's fields over the runtime's wishes.
    pub(crate) fn class_settings(
        &self,
        service: &ome::InferenceService,
        demand: &Demand,
        decision: &Decision,
    ) -> BTreeMap<String, Vec<Setting>> {
        let wish = |component: &Component| {
            let class = decision.components.get(component.as_str())?.accelerator_class.clone()?;
            let mut said = class_wishes(service, *component, demand, self.facts);
            let mut setting = Setting::new("acceleratorClass", class, Origin::Ostler);
            if let Some(strongest) = said.first() {
                setting.origin = strongest.origin;
                setting.overridden = said.split_off(1);
            }
            Some((component.as_str().to_owned(), vec![setting]))
        };
        self.components.keys().filter_map(wish).collect()
    }
}

/// What annotation, service and runtime say about the class, the strongest first.
fn class_wishes(
    service: &ome::InferenceService,
    component: Component,
    demand: &Demand,
    runtime: Option<&supply::Runtime>,
) -> Vec<Said> {
    let selector = demand.components.get(&component).map(|need| &need.selector);
    let annotated = selector.filter(|selector| selector.preferred_in == PreferredIn::Annotation);
    let wishes = [
        (Origin::Annotation, annotated.map(|selector| selector.preferred.join(", "))),
        (Origin::Service, service_wish(service, component)),
        (Origin::Runtime, runtime.map(runtime_wish)),
    ];
    let said = |(origin, value): (Origin, Option<String>)| {
        Some(Said { origin, value: value.filter(|value| !value.is_empty())? })
    };
    wishes.into_iter().filter_map(said).collect()
}

/// The component's own classes, else those of the whole service.
fn service_wish(service: &ome::InferenceService, component: Component) -> Option<String> {
    let own = match component {
        Component::Engine => service.spec.engine.as_ref().or(service.spec.predictor.as_ref()),
        Component::Decoder => service.spec.decoder.as_ref(),
    };
    let selectors = [own.and_then(|own| own.accelerator_override.as_ref()), service.spec.accelerator_selector.as_ref()];
    let mut stated = selectors.into_iter().flatten().map(|selector| selector.wanted_classes().join(", "));
    stated.find(|classes| !classes.is_empty())
}

/// The classes that the runtime supports, or else those that it prefers.
fn runtime_wish(runtime: &supply::Runtime) -> String {
    match &runtime.requirements.classes {
        Some(supported) => supported.join(", "),
        None => {
            let preferred = runtime.requirements.preferences.iter().map(|entry| entry.class.as_str());
            preferred.collect::<Vec<_>>().join(", ")
        }
    }
}

/// What one component gets: its replica sets, and the facts that rendering merges.
fn granted(
    component: Component,
    supply: &Supply,
    runtime: Option<&supply::Runtime>,
    demand: &Demand,
    decision: &Decision,
) -> Granted {
    let offer = runtime.and_then(|runtime| runtime.components.get(&component)).cloned().unwrap_or_default();
    let mut need = demand.components.get(&component).cloned().unwrap_or_default();
    if !supply.accelerator_aware {
        // With the gate off pods are as before it: the accelerator selector does not exist.
        need.selector.node_selector.clear();
    }
    let own = supply::Runtime::own();
    let runtime = runtime.unwrap_or(&own);
    let entry = compatibility::compatible(demand, runtime).ok().flatten();
    let tuning = runtime.tuning(entry, &offer, &need);
    let accelerators = |class: &str, per_node: u32, nodes: u32| {
        let class = supply.class(class)?;
        Some(Accelerators {
            class: class.clone(),
            shape: Shape { per_node, nodes },
            configuration: merge::configuration(&class.name, &tuning),
            names: supply.accelerator_resources(),
        })
    };
    let sets = decision.components.get(component.as_str()).map(|chosen| sets(chosen, accelerators));
    Granted { sets: sets.unwrap_or_else(|| vec![ReplicaSet::default()]), offer, demand: need }
}

/// One replica set per variant, or the only one.
fn sets(chosen: &ComponentDecision, accelerators: impl Fn(&str, u32, u32) -> Option<Accelerators>) -> Vec<ReplicaSet> {
    if chosen.variants.is_empty() {
        let class = chosen.accelerator_class.as_deref();
        let accelerators = class.and_then(|class| accelerators(class, chosen.accelerators_per_node, chosen.nodes));
        return vec![ReplicaSet { accelerators, request_tokens: None }];
    }
    let set = |one: &Variant| ReplicaSet {
        accelerators: accelerators(&one.accelerator_class, one.accelerators_per_node, one.nodes),
        request_tokens: Some(one.request_tokens),
    };
    chosen.variants.iter().map(set).collect()
}
