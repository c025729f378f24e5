//! Converts an `ome.io` InferenceService and its model to a [`Demand`].

use std::collections::BTreeMap;

use api::dual_pods;
use api::ome::{
    AcceleratorConstraints, AcceleratorSelector, BaseModelSpec, Component as ComponentSpec, InferenceService,
    SelectionPolicy, SelectionStrategy,
};
use serde_json::Value;

use super::runtime::{gibibytes, tflops};
use super::{FieldError, capabilities, compute_capability, configurations, named_version, quantization_config};
use crate::code;
use crate::compatibility::DEFAULT_PROTOCOL;
use crate::component::Component;
use crate::demand::{
    Capabilities, ClassSelector, ComponentDemand, Demand, Model, ModelFacts, ModelReference, Performance,
    PreferenceSource, RankingPolicy,
};
use crate::model_architecture::ModelArchitecture;
use crate::naming;
use crate::reason::Warning;
use crate::taint::Toleration;
use crate::task::ModelTask;

// Annotations of a service that take precedence over its fields.
const CLASS_ANNOTATION: &str = "ome.io/accelerator-class";
const STRATEGY_ANNOTATION: &str = "ome.io/selection-strategy";
const COST_THRESHOLD_ANNOTATION: &str = "ome.io/cost-threshold";

impl Demand {
    /// Converts a service. `model` is the name and spec of the model that the service names, if it exists.
    ///
    /// # Errors
    /// An invalid version, capability or annotation.
    pub fn from_api(service: &InferenceService, model: Option<(&str, &BaseModelSpec)>) -> Result<Self, FieldError> {
        let spec = &service.spec;
        let mut warnings = Vec::new();
        let annotations = annotations(service, &mut warnings);
        let engine = engine(service, &mut warnings);
        let mut components = BTreeMap::new();
        components.insert(Component::Engine, component(service, engine.as_ref(), &annotations)?);
        components.insert(Component::Decoder, component(service, spec.decoder.as_ref(), &annotations)?);
        let protocol = spec.model.as_ref().and_then(|model| model.protocol_version.clone());
        let mut declared = [&engine, &spec.decoder].into_iter().flatten();
        let has_accelerator_field = declared.any(|component| {
            component.accelerator_override.is_some() || !component.accelerator_configurations.is_empty()
        });
        let keys = [CLASS_ANNOTATION, STRATEGY_ANNOTATION, COST_THRESHOLD_ANNOTATION];
        let has_annotation = keys.iter().any(|name| annotations.contains_key(*name));
        Ok(Self {
            namespace: service.metadata.namespace.clone().unwrap_or_else(|| "default".to_owned()),
            name: service.metadata.name.clone().unwrap_or_default(),
            model: model_reference(service, model)?,
            runtime: spec.runtime.as_ref().map(|runtime| runtime.name.clone()),
            protocol: protocol.unwrap_or_else(|| DEFAULT_PROTOCOL.to_owned()),
            has_adapters: spec.model.as_ref().is_some_and(|model| !model.fine_tuned_weights.is_empty()),
            uses_dual_pods: service
                .metadata
                .annotations
                .as_ref()
                .and_then(|annotations| annotations.get(dual_pods::OME_ACTUATION))
                .is_some_and(|value| value == dual_pods::DUAL_PODS),
            components,
            wants_router: spec.router.is_some(),
            uses_accelerators: spec.accelerator_selector.is_some() || has_accelerator_field || has_annotation,
            warnings,
        })
    }
}

impl Model {
    /// Converts a model.
    ///
    /// # Errors
    /// An invalid version or size.
    pub fn from_api(name: &str, spec: &BaseModelSpec) -> Result<Self, FieldError> {
        let format = spec.model_format.as_ref().map(|format| named_version("spec.modelFormat", format)).transpose()?;
        let (stated_size, size_in_name) = (parameters(spec)?, naming::model_size(name));
        Ok(Self {
            name: name.to_owned(),
            format,
            framework: spec
                .model_framework
                .as_ref()
                .map(|framework| named_version("spec.modelFramework", framework))
                .transpose()?,
            architecture: super::non_blank(spec.model_architecture.as_ref()),
            quantization: super::non_blank(spec.quantization.as_ref()),
            parameters: stated_size.or(size_in_name),
            is_size_inferred: stated_size.is_none() && size_in_name.is_some(),
            pipeline: spec.diffusion_pipeline.clone(),
            task: ModelTask::from_capabilities(&spec.model_capabilities),
            memory: model_facts(spec),
        })
    }
}

/// Key of `additionalMetadata` with the bytes of the weights, named as in the index file of safetensors.
const TOTAL_SIZE: &str = "total_size";

/// Reads the facts that determine the memory of a model. Unusable values are ignored, because other programs write them.
fn model_facts(spec: &BaseModelSpec) -> ModelFacts {
    let null = Value::Null;
    let config = spec.model_configuration.as_ref().unwrap_or(&null);
    let quantization = &config["quantization_config"];
    let compressed = compressed_weights(quantization);
    let stated = |field: &str, compressed_field: &str| {
        quantization[field].as_u64().or_else(|| compressed.and_then(|weights| weights[compressed_field].as_u64()))
    };
    let bits = stated("bits", "num_bits").map(|bits| format!("-int{bits}")).unwrap_or_default();
    let group_size = stated("group_size", "group_size");
    ModelFacts {
        stored_bytes: spec
            .additional_metadata
            .get(TOTAL_SIZE)
            .and_then(|size| size.parse().ok())
            .filter(|size| *size > 0),
        architecture: ModelArchitecture::from_config(config),
        quantization: quantization["quant_method"].as_str().map(|method| format!("{method}{bits}")),
        group_size: group_size.and_then(|size| u32::try_from(size).ok()),
        unquantized_attention: quantization_config::unquantized_attention(quantization),
        has_fp8_kv_cache: quantization_config::has_fp8_kv_cache(quantization),
        max_tokens: spec.max_tokens.and_then(|tokens| u64::try_from(tokens).ok()).filter(|tokens| *tokens > 0),
    }
}

/// Returns the format of weights of compressed-tensors: that of the first group of layers.
fn compressed_weights(quantization: &Value) -> Option<&Value> {
    quantization["config_groups"].as_object()?.values().next()?.get("weights")
}

/// Returns the number of parameters. Zero is invalid, because such a model would fit on every class.
fn parameters(spec: &BaseModelSpec) -> Result<Option<u64>, FieldError> {
    match spec.model_parameter_size {
        Some(size) if size.0 == 0 => Err(FieldError::new(
            "spec.modelParameterSize",
            "a model must have more than 0 parameters; omit the field if the size is unknown",
        )),
        size => Ok(size.map(|size| size.0)),
    }
}

fn model_reference(
    service: &InferenceService,
    model: Option<(&str, &BaseModelSpec)>,
) -> Result<ModelReference, FieldError> {
    Ok(match (&service.spec.model, model) {
        (_, Some((name, spec))) if spec.disabled == Some(true) => {
            ModelReference::Disabled(Model::from_api(name, spec)?)
        }
        (_, Some((name, spec))) => ModelReference::Resolved(Model::from_api(name, spec)?),
        (Some(reference), None) => ModelReference::NotFound { name: reference.name.clone(), suggestion: None },
        (None, None) => ModelReference::Unspecified,
    })
}

/// Merges the annotations of spec (seed 000, Story 6) and metadata; those in metadata take precedence.
fn annotations(service: &InferenceService, warnings: &mut Vec<Warning>) -> BTreeMap<String, String> {
    let mut annotations = service.spec.annotations.clone();
    for (name, value) in service.metadata.annotations.iter().flatten() {
        let previous = annotations.insert(name.clone(), value.clone());
        if previous.is_some_and(|previous| previous != *value) {
            warnings.push(Warning::new(
                code::warning::ANNOTATION_OVERRIDDEN,
                format!("Annotation {name} has different values in metadata.annotations and spec.annotations; metadata.annotations takes precedence"),
            ));
        }
    }
    annotations
}

/// Returns the engine, or the deprecated field `predictor`.
fn engine(service: &InferenceService, warnings: &mut Vec<Warning>) -> Option<ComponentSpec> {
    let spec = &service.spec;
    if spec.predictor.is_some() {
        warnings.push(Warning::new(
            code::warning::DEPRECATED_FIELD,
            "spec.predictor is deprecated; rename it to spec.engine",
        ));
    }
    spec.engine.clone().or_else(|| spec.predictor.clone())
}

fn component(
    service: &InferenceService,
    component: Option<&ComponentSpec>,
    annotations: &BTreeMap<String, String>,
) -> Result<ComponentDemand, FieldError> {
    let declared = component.is_some();
    let component = component.cloned().unwrap_or_default();
    Ok(ComponentDemand {
        declared,
        selector: selector(service, component.accelerator_override.as_ref(), annotations)?,
        resources: super::resources(&component),
        parallelism: super::parallelism(&component),
        engine: super::engine_settings(&component),
        compute: super::replica_requests(&component),
        image_vendor: super::image_vendor(&component),
        tolerations: Toleration::read_all(&component.tolerations),
        nodes: super::nodes(&component),
        min_replicas: super::non_negative(component.min_replicas),
        max_replicas: super::non_negative(component.max_replicas),
        node_selector: component.node_selector.clone(),
        affinity: component.affinity.clone(),
        multi_node: super::is_multi_node(&component),
        custom_container: super::custom_container(&component),
        configurations: configurations(&component.accelerator_configurations),
        roles: super::role_placements(&component),
    })
}

/// Merges the selectors of service, component and annotations, weakest first. Preferred classes and strategies replace those of
/// weaker layers; required capabilities are combined.
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
    for (layer, path, source) in layers.into_iter().filter_map(|(layer, path, source)| Some((layer?, path, source))) {
        let preferred = layer.class_preferences();
        if !preferred.is_empty() {
            merged.preferred = preferred.into_iter().map(str::to_owned).collect();
            merged.preference_source = source;
        }
        merged.wait_for_preferred = layer.wait_for_preferred.unwrap_or(merged.wait_for_preferred);
        merged.excluded.extend(layer.all_excluded_classes().map(str::to_owned));
        merged.node_selector.extend(layer.node_selector.clone());
        if let Some(required) = &layer.required_capabilities {
            merged.required =
                merged.required.combine(&capabilities(&format!("{path}.requiredCapabilities"), required)?);
        }
        if let Some(constraints) = &layer.constraints {
            merged.required =
                merged.required.combine(&constraint_capabilities(constraints, &format!("{path}.constraints"))?);
            merged.families.extend(constraints.architecture_families.iter().cloned());
            if !constraints.preferred_precisions.is_empty() {
                merged.precisions.clone_from(&constraints.preferred_precisions);
            }
        }
        merged.ranking = ranking(layer).unwrap_or(merged.ranking);
    }
    apply_annotations(&mut merged, annotations, service)?;
    Ok(merged)
}

/// Returns the policy of a selector. An explicit policy takes precedence over strategy `balanced`, which may be an API server
/// default.
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

fn constraint_capabilities(constraints: &AcceleratorConstraints, path: &str) -> Result<Capabilities, FieldError> {
    Ok(Capabilities {
        memory: constraints.min_memory.map(gibibytes),
        max_memory: constraints.max_memory.map(gibibytes),
        compute_capability: compute_capability(
            &format!("{path}.minArchitectureVersion"),
            constraints.min_architecture_version.as_ref(),
        )?,
        features: constraints.required_features.iter().map(|feature| feature.to_lowercase()).collect(),
        bandwidth: None,
        performance: Performance {
            fp16: constraints.min_compute_performance_tflops.map(tflops),
            ..Performance::default()
        },
    })
}

fn apply_annotations(
    selector: &mut ClassSelector,
    annotations: &BTreeMap<String, String>,
    service: &InferenceService,
) -> Result<(), FieldError> {
    let in_metadata =
        |name: &str| service.metadata.annotations.as_ref().is_some_and(|annotations| annotations.contains_key(name));
    let path = |name: &str| format!("{}.annotations[{name}]", if in_metadata(name) { "metadata" } else { "spec" });
    if let Some(class) = annotations.get(CLASS_ANNOTATION).filter(|class| !class.is_empty()) {
        selector.preferred = vec![class.clone()];
        selector.preference_source = PreferenceSource::Annotation;
    }
    if let Some(strategy) = annotations.get(STRATEGY_ANNOTATION) {
        selector.ranking = match strategy.as_str() {
            "balanced" => RankingPolicy::Balanced,
            "cost" => RankingPolicy::Cost,
            "performance" => RankingPolicy::Performance,
            other => {
                let cause = format!("unknown strategy `{other}`; use one of performance, cost, balanced");
                return Err(FieldError::annotation(path(STRATEGY_ANNOTATION), cause));
            }
        };
    }
    if let Some(text) = annotations.get(COST_THRESHOLD_ANNOTATION) {
        let dollars =
            text.trim().trim_start_matches('$').parse::<f64>().ok().filter(|price| price.is_finite() && *price > 0.0);
        let cause = || format!("`{text}` is not a valid price; use dollars per hour and replica, such as \"2.50\"");
        selector.cost_threshold =
            Some(dollars.ok_or_else(|| FieldError::annotation(path(COST_THRESHOLD_ANNOTATION), cause()))?);
    }
    Ok(())
}
