//! Resolves a decision into the input of the layout: the selected runtime and model, and the configuration of each class.

use std::collections::BTreeMap;

use api::ome;
use decide::{
    Component, ComponentDecision, Decision, Demand, Inventory, Origin, OverriddenValue, PreferenceSource, ReplicaShape,
    Setting, SettingField, Supply, Variant,
};

use crate::adapters::Adapter;
use crate::components::{ComponentSelection, LayoutInput, ReplicaSet, SelectedModel, SelectedRuntime};
use crate::model_files::{self, READY};
use crate::owner::Owner;
use crate::replicas::AutoscalerSupport;
use crate::runner::Accelerators;
use crate::runtime::Runtime;
use crate::snapshot::{Model, Snapshot};

/// The result of a decision together with the objects that it refers to.
pub(crate) struct Selection<'a> {
    runtime: Option<&'a Runtime>,
    parsed_runtime: Option<&'a decide::Runtime>,
    components: BTreeMap<Component, ComponentSelection>,
    autoscaler_support: AutoscalerSupport,
    inventory: &'a Inventory,
}

impl<'a> Selection<'a> {
    /// Looks up the selected runtime and computes the configuration of each component.
    pub(crate) fn from_decision(
        snapshot: &'a Snapshot,
        supply: &'a Supply,
        owner: &Owner,
        demand: &Demand,
        decision: &Decision,
    ) -> Self {
        let is_visible = |namespace: &str| namespace.is_empty() || namespace == owner.namespace;
        let selected = decision.runtime.as_ref();
        let runtime = selected.and_then(|selected| {
            let mut visible = snapshot.runtimes.iter().filter(|runtime| is_visible(&runtime.namespace));
            visible.find(|runtime| runtime.name == selected.name && runtime.scope == selected.scope)
        });
        let parsed_runtime = selected.and_then(|selected| {
            let mut visible =
                supply.runtimes.iter().map(AsRef::as_ref).filter(|runtime| is_visible(&runtime.namespace));
            visible.find(|runtime| runtime.name == selected.name && runtime.scope == selected.scope)
        });
        let selected_components =
            Component::ALL.into_iter().filter(|component| decision.components.contains_key(component.as_str()));
        let select = |component: Component| {
            (component, component_selection(component, supply, parsed_runtime, demand, decision))
        };
        Self {
            runtime,
            parsed_runtime,
            components: selected_components.map(select).collect(),
            autoscaler_support: snapshot.autoscaler_support,
            inventory: &snapshot.inventory,
        }
    }

    /// Returns the input for the layout of the service's components.
    pub(crate) fn layout_input<'b>(
        &'b self,
        service: &'b ome::InferenceService,
        model: Option<&'b Model>,
        adapters: Vec<Adapter>,
    ) -> LayoutInput<'b> {
        LayoutInput {
            service: &service.spec,
            runtime: self.runtime.map(|runtime| SelectedRuntime { name: &runtime.name, spec: runtime.spec() }),
            model: model.map(|model| SelectedModel {
                name: &model.name,
                spec: &model.spec,
                category: model.category.as_deref(),
                node_label: model_files::model_node_label(model.namespace.as_deref(), &model.name).filter(|label| {
                    self.inventory.nodes().any(|node| node.labels.get(label).is_some_and(|state| state == READY))
                }),
            }),
            adapters,
            autoscaler_support: self.autoscaler_support,
            components: self.components.clone(),
        }
    }

    /// Returns the origin of each component's class. An annotation overrides the service's fields, which override the runtime's
    /// preferences.
    pub(crate) fn class_settings(
        &self,
        service: &ome::InferenceService,
        demand: &Demand,
        decision: &Decision,
    ) -> BTreeMap<String, Vec<Setting>> {
        let setting = |component: &Component| {
            let class = decision.components.get(component.as_str())?.accelerator_class.clone()?;
            let mut values = class_preferences(service, *component, demand, self.parsed_runtime);
            let mut setting = Setting::new(SettingField::named("acceleratorClass"), class, Origin::Ostler);
            if let Some(effective) = values.first() {
                setting.origin = effective.origin;
                setting.overridden = values.split_off(1);
            }
            Some((component.as_str().to_owned(), vec![setting]))
        };
        self.components.keys().filter_map(setting).collect()
    }
}

/// Returns the classes that annotation, service and runtime request, in order of precedence.
fn class_preferences(
    service: &ome::InferenceService,
    component: Component,
    demand: &Demand,
    runtime: Option<&decide::Runtime>,
) -> Vec<OverriddenValue> {
    let selector = demand.components.get(&component).map(|demand| &demand.selector);
    let annotation = selector.filter(|selector| selector.preference_source == PreferenceSource::Annotation);
    let preferences = [
        (Origin::Annotation, annotation.map(|selector| selector.preferred.join(", "))),
        (Origin::Service, service_classes(service, component)),
        (Origin::Runtime, runtime.map(runtime_classes)),
    ];
    let non_empty = |(origin, value): (Origin, Option<String>)| {
        Some(OverriddenValue { origin, value: value.filter(|value| !value.is_empty())? })
    };
    preferences.into_iter().filter_map(non_empty).collect()
}

/// Returns the classes that the component requests, otherwise those that the whole service requests.
fn service_classes(service: &ome::InferenceService, component: Component) -> Option<String> {
    let spec = match component {
        Component::Engine => service.spec.engine.as_ref().or(service.spec.predictor.as_ref()),
        Component::Decoder => service.spec.decoder.as_ref(),
    };
    let selectors =
        [spec.and_then(|spec| spec.accelerator_override.as_ref()), service.spec.accelerator_selector.as_ref()];
    let mut preferences = selectors.into_iter().flatten().map(|selector| selector.class_preferences().join(", "));
    preferences.find(|classes| !classes.is_empty())
}

/// Returns the classes that the runtime supports; if it does not restrict them, those that it prefers.
fn runtime_classes(runtime: &decide::Runtime) -> String {
    match &runtime.requirements.supported_classes {
        Some(supported) => supported.join(", "),
        None => {
            let preferred = runtime.requirements.preferences.iter().map(|entry| entry.class.as_str());
            preferred.collect::<Vec<_>>().join(", ")
        }
    }
}

/// Returns the replica sets of a component and the specifications that the layout merges.
fn component_selection(
    component: Component,
    supply: &Supply,
    runtime: Option<&decide::Runtime>,
    demand: &Demand,
    decision: &Decision,
) -> ComponentSelection {
    let runtime_component = runtime.and_then(|runtime| runtime.components.get(&component)).cloned().unwrap_or_default();
    let mut component_demand = demand.components.get(&component).cloned().unwrap_or_default();
    if !supply.accelerator_aware {
        // With the feature gate off, the accelerator selector has no effect on Pods.
        component_demand.selector.node_selector.clear();
    }
    let custom_engine = decide::Runtime::custom_engine();
    let runtime = runtime.unwrap_or(&custom_engine);
    let entry = decide::check_compatibility(demand, runtime).ok().flatten();
    let configurations = runtime.configuration_layers(entry, &runtime_component, &component_demand);
    let accelerators = |class: &str, per_node: u32, nodes: u32| {
        let class = supply.class(class)?;
        Some(Accelerators {
            class: class.clone(),
            shape: ReplicaShape { per_node, nodes },
            configuration: decide::merge_configurations(&class.name, &configurations),
            resource_names: supply.accelerator_resources(),
        })
    };
    let sets = decision.components.get(component.as_str()).map(|decision| replica_sets(decision, accelerators));
    ComponentSelection {
        replica_sets: sets.unwrap_or_else(|| vec![ReplicaSet::default()]),
        runtime_component,
        demand: component_demand,
    }
}

/// Returns one replica set per variant, or a single one.
fn replica_sets(
    decision: &ComponentDecision,
    accelerators: impl Fn(&str, u32, u32) -> Option<Accelerators>,
) -> Vec<ReplicaSet> {
    if decision.variants.is_empty() {
        let class = decision.accelerator_class.as_deref();
        let accelerators = class.and_then(|class| accelerators(class, decision.accelerators_per_node, decision.nodes));
        return vec![ReplicaSet { accelerators, request_tokens: None }];
    }
    let set = |variant: &Variant| ReplicaSet {
        accelerators: accelerators(&variant.accelerator_class, variant.accelerators_per_node, variant.nodes),
        request_tokens: Some(variant.request_tokens),
    };
    decision.variants.iter().map(set).collect()
}
