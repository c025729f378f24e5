//! InferenceService (`ome.io`) and its model → [`Demand`].

use std::collections::BTreeMap;

use api::ome::{
    AcceleratorConstraints, AcceleratorSelector, BaseModelSpec, Component as ComponentSpec, InferenceService,
    SelectionPolicy, SelectionStrategy,
};

use super::runtime::{gibibytes, tflops};
use super::{FieldError, capabilities, compute_capability, configurations, named};
use crate::code;
use crate::demand::{
    Capabilities, ClassSelector, Component, ComponentDemand, Demand, Model, ModelReference, Performance,
    PreferenceSource, RankingPolicy,
};
use crate::reason::Warning;

// Annotations of a service that outrank its fields.
const CLASS: &str = "ome.io/accelerator-class";
const STRATEGY: &str = "ome.io/selection-strategy";
const COST_THRESHOLD: &str = "ome.io/cost-threshold";

impl Demand {
    /// Reads a service. `model` is the name and spec of the model it refers to, if that exists.
    ///
    /// # Errors
    /// A version, capability or annotation that cannot be understood, with its path.
    pub fn from_api(service: &InferenceService, model: Option<(&str, &BaseModelSpec)>) -> Result<Self, FieldError> {
        let spec = &service.spec;
        let mut warnings = Vec::new();
        let annotations = annotations(service, &mut warnings);
        let engine = engine(service, &mut warnings);
        let mut components = BTreeMap::new();
        components.insert(Component::Engine, component(service, engine.as_ref(), &annotations)?);
        components.insert(Component::Decoder, component(service, spec.decoder.as_ref(), &annotations)?);
        let protocol = spec.model.as_ref().and_then(|model| model.protocol_version.clone());
        let tuned = [&engine, &spec.decoder].into_iter().flatten();
        let tuned =
            tuned.into_iter().any(|c| c.accelerator_override.is_some() || !c.accelerator_configurations.is_empty());
        let annotated = [CLASS, STRATEGY, COST_THRESHOLD].iter().any(|name| annotations.contains_key(*name));
        Ok(Self {
            namespace: service.metadata.namespace.clone().unwrap_or_else(|| "default".to_owned()),
            name: service.metadata.name.clone().unwrap_or_default(),
            model: model_demand(service, model)?,
            runtime: spec.runtime.as_ref().map(|runtime| runtime.name.clone()),
            protocol: protocol.unwrap_or_else(|| "openAI".to_owned()),
            components,
            uses_accelerators: spec.accelerator_selector.is_some() || tuned || annotated,
            warnings,
        })
    }
}

impl Model {
    /// Reads a model's facts.
    ///
    /// # Errors
    /// A version or size that cannot be understood.
    pub fn from_api(name: &str, spec: &BaseModelSpec) -> Result<Self, FieldError> {
        let format = spec.model_format.as_ref().map(|format| named("spec.modelFormat", format)).transpose()?;
        Ok(Self {
            name: name.to_owned(),
            format,
            framework: spec
                .model_framework
                .as_ref()
                .map(|framework| named("spec.modelFramework", framework))
                .transpose()?,
            architecture: super::stated(spec.model_architecture.as_ref()),
            quantization: super::stated(spec.quantization.as_ref()),
            parameters: parameters(spec)?,
            pipeline: spec.diffusion_pipeline.clone(),
        })
    }
}

/// A size of nothing is a slip, never a model that fits everywhere.
fn parameters(spec: &BaseModelSpec) -> Result<Option<u64>, FieldError> {
    match spec.model_parameter_size {
        Some(size) if size.0 == 0 => Err(FieldError::new(
            "spec.modelParameterSize",
            "no model has 0 parameters; leave it out if it is not known",
        )),
        size => Ok(size.map(|size| size.0)),
    }
}

fn model_demand(
    service: &InferenceService,
    model: Option<(&str, &BaseModelSpec)>,
) -> Result<ModelReference, FieldError> {
    Ok(match (&service.spec.model, model) {
        (_, Some((name, spec))) if spec.disabled == Some(true) => {
            ModelReference::Disabled(Model::from_api(name, spec)?)
        }
        (_, Some((name, spec))) => ModelReference::Resolved(Model::from_api(name, spec)?),
        (Some(missing), None) => ModelReference::NotFound { name: missing.name.clone(), suggestion: None },
        (None, None) => ModelReference::Unspecified,
    })
}

/// Those of the metadata win over those that Story 6 writes into the spec.
fn annotations(service: &InferenceService, warnings: &mut Vec<Warning>) -> BTreeMap<String, String> {
    let mut all = service.spec.annotations.clone();
    for (name, value) in service.metadata.annotations.iter().flatten() {
        let before = all.insert(name.clone(), value.clone());
        if before.is_some_and(|before| before != *value) {
            warnings.push(Warning::new(
                code::warning::ANNOTATION_OVERRIDDEN,
                format!("{name}: metadata.annotations win over spec.annotations"),
            ));
        }
    }
    all
}

/// `predictor` is the engine's old name.
fn engine(service: &InferenceService, warnings: &mut Vec<Warning>) -> Option<ComponentSpec> {
    let spec = &service.spec;
    if spec.predictor.is_some() {
        warnings
            .push(Warning::new(code::warning::DEPRECATED_FIELD, "spec.predictor is read as spec.engine; rename it"));
    }
    spec.engine.clone().or_else(|| spec.predictor.clone())
}

fn component(
    service: &InferenceService,
    stated: Option<&ComponentSpec>,
    annotations: &BTreeMap<String, String>,
) -> Result<ComponentDemand, FieldError> {
    let own = stated.cloned().unwrap_or_default();
    Ok(ComponentDemand {
        declared: stated.is_some(),
        selector: selector(service, own.accelerator_override.as_ref(), annotations)?,
        resources: super::resources(&own),
        parallelism: super::parallelism(&own),
        nodes: super::nodes(&own),
        min_replicas: super::count(own.min_replicas),
        max_replicas: super::count(own.max_replicas),
        node_selector: own.node_selector.clone(),
        affinity: own.affinity.clone(),
        multi_node: super::multi_node(&own),
        custom_container: super::own_container(&own),
        configurations: configurations(&own.accelerator_configurations),
        roles: super::groups(&own),
    })
}

/// Service < component < annotation. Non-empty preferences and strategies replace, capabilities are united.
fn selector(
    service: &InferenceService,
    component: Option<&AcceleratorSelector>,
    annotations: &BTreeMap<String, String>,
) -> Result<ClassSelector, FieldError> {
    let mut merged = ClassSelector::default();
    let layers = [
        (service.spec.accelerator_selector.as_ref(), "spec.acceleratorSelector", PreferenceSource::Selector),
        (component, "acceleratorOverride", PreferenceSource::Override),
    ];
    for (layer, path, place) in layers.into_iter().filter_map(|(layer, path, place)| Some((layer?, path, place))) {
        let wanted = layer.class_preferences();
        if !wanted.is_empty() {
            merged.preferred = wanted.into_iter().map(str::to_owned).collect();
            merged.preference_source = place;
        }
        merged.excluded.extend(layer.all_excluded_classes().map(str::to_owned));
        merged.node_selector.extend(layer.node_selector.clone());
        if let Some(required) = &layer.required_capabilities {
            merged.required =
                merged.required.combine(&capabilities(&format!("{path}.requiredCapabilities"), required)?);
        }
        if let Some(constraints) = &layer.constraints {
            merged.required = merged.required.combine(&limits(constraints, &format!("{path}.constraints"))?);
            merged.families.extend(constraints.architecture_families.iter().cloned());
        }
        merged.ranking = ranking(layer).unwrap_or(merged.ranking);
    }
    annotate(&mut merged, annotations, service)?;
    Ok(merged)
}

/// An explicit policy outranks the default strategy, which the API server may have filled in.
fn ranking(layer: &AcceleratorSelector) -> Option<RankingPolicy> {
    match (layer.strategy, layer.policy) {
        (Some(SelectionStrategy::Performance), _) => Some(RankingPolicy::Performance),
        (Some(SelectionStrategy::Cost), _) => Some(RankingPolicy::Cost),
        (_, Some(SelectionPolicy::BestFit)) => Some(RankingPolicy::BestFit),
        (_, Some(SelectionPolicy::Cheapest)) => Some(RankingPolicy::Cost),
        (_, Some(SelectionPolicy::MostCapable)) => Some(RankingPolicy::Performance),
        (_, Some(SelectionPolicy::FirstAvailable)) => Some(RankingPolicy::FirstAvailable),
        (Some(SelectionStrategy::Balanced), None) => Some(RankingPolicy::Balanced),
        (None, None) => None,
    }
}

fn limits(stated: &AcceleratorConstraints, path: &str) -> Result<Capabilities, FieldError> {
    Ok(Capabilities {
        memory: stated.min_memory.map(gibibytes),
        max_memory: stated.max_memory.map(gibibytes),
        compute_capability: compute_capability(
            &format!("{path}.minArchitectureVersion"),
            stated.min_architecture_version.as_ref(),
        )?,
        features: stated.required_features.iter().map(|feature| feature.to_lowercase()).collect(),
        bandwidth: None,
        performance: Performance { fp16: stated.min_compute_performance_tflops.map(tflops), ..Performance::default() },
    })
}

fn annotate(
    selector: &mut ClassSelector,
    annotations: &BTreeMap<String, String>,
    service: &InferenceService,
) -> Result<(), FieldError> {
    let in_metadata = |name: &str| service.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(name));
    let path = |name: &str| format!("{}.annotations[{name}]", if in_metadata(name) { "metadata" } else { "spec" });
    if let Some(class) = annotations.get(CLASS).filter(|class| !class.is_empty()) {
        selector.preferred = vec![class.clone()];
        selector.preference_source = PreferenceSource::Annotation;
    }
    if let Some(strategy) = annotations.get(STRATEGY) {
        selector.ranking = match strategy.as_str() {
            "balanced" => RankingPolicy::Balanced,
            "cost" => RankingPolicy::Cost,
            "performance" => RankingPolicy::Performance,
            other => {
                let cause = format!("\"{other}\" is not a strategy; one of balanced, cost, performance");
                return Err(FieldError::new(path(STRATEGY), cause));
            }
        };
    }
    if let Some(text) = annotations.get(COST_THRESHOLD) {
        let dollars =
            text.trim().trim_start_matches('$').parse::<f64>().ok().filter(|price| price.is_finite() && *price > 0.0);
        let cause = || format!("\"{text}\" is not a price; write dollars per hour, such as \"2.50\"");
        selector.cost_threshold = Some(dollars.ok_or_else(|| FieldError::new(path(COST_THRESHOLD), cause()))?);
    }
    Ok(())
}
