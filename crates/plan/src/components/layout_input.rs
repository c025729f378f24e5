//! Input of the layout of a service.

use std::collections::BTreeMap;

use api::ome::{BaseModelSpec, InferenceServiceSpec, ServingRuntimeSpec};
use decide::{Component, ComponentDemand, RuntimeComponent, TokenRange};

use crate::adapters::Adapter;
use crate::replicas::AutoscalerSupport;
use crate::runner::Accelerators;

/// Input of the layout of a service: its spec, the selected objects and the cluster's capabilities.
#[derive(Debug, Clone)]
pub(crate) struct LayoutInput<'a> {
    pub service: &'a InferenceServiceSpec,
    pub runtime: Option<SelectedRuntime<'a>>,
    pub model: Option<SelectedModel<'a>>,
    /// LoRA adapters of the service.
    pub adapters: Vec<Adapter>,
    /// Autoscalers that the cluster supports.
    pub autoscaler_support: AutoscalerSupport,
    /// Selections for the engine and, if present, the decoder.
    pub components: BTreeMap<Component, ComponentSelection>,
}

/// The selected runtime.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SelectedRuntime<'a> {
    /// Name of the runtime.
    pub name: &'a str,
    /// Spec of the runtime.
    pub spec: &'a ServingRuntimeSpec,
}

/// The model of the service.
#[derive(Debug, Clone)]
pub(crate) struct SelectedModel<'a> {
    /// Name of the model.
    pub name: &'a str,
    /// Spec of the model.
    pub spec: &'a BaseModelSpec,
    /// Annotation `models.ome.io/category`.
    pub category: Option<&'a str>,
    /// Label key that a model agent sets on Nodes with the model's files; `None` if no Node has this label.
    pub node_label: Option<String>,
}

/// The selection for one component.
#[derive(Debug, Clone, Default)]
pub(crate) struct ComponentSelection {
    /// Component of the runtime, as parsed for the decision.
    pub runtime_component: RuntimeComponent,
    pub demand: ComponentDemand,
    /// One replica set, or one per class if classes serve different request sizes.
    pub replica_sets: Vec<ReplicaSet>,
}

/// A set of identical replicas of one component.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReplicaSet {
    /// `None` if the resources of the runtime apply.
    pub accelerators: Option<Accelerators>,
    /// Prompt sizes that this set serves; `None` if it is the only set.
    pub request_tokens: Option<TokenRange>,
}
