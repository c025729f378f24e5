//! Converts a ServingRuntime or ClusterServingRuntime to a [`Runtime`].

use std::collections::BTreeMap;

use api::AcceleratorMemory;
use api::ParameterCount;
use api::ome::{
    AcceleratorModelConfig, AcceleratorPreference, AcceleratorRequirements, Component as ComponentSpec,
    ServingRuntimeSpec, SupportedModelFormat,
};
use serde_json::{Map, Value, json};

use super::{FieldError, capabilities, compute_capability, configurations, named_version};
use crate::component::Component;
use crate::configuration::ClassConfiguration;
use crate::demand::{Capabilities, Performance};
use crate::preference::{ClassPreference, Comparison, ComparisonOperator, PreferenceCondition};
use crate::size::SizeRange;
use crate::supply::{ClassRequirements, Runtime, RuntimeComponent, Scope, SupportedFormat};
use crate::taint::Toleration;

impl Runtime {
    /// Converts a runtime of either kind. `created` is its creation timestamp in RFC 3339.
    ///
    /// # Errors
    /// An invalid version, condition or capability.
    pub fn from_api(
        name: &str,
        scope: Scope,
        namespace: &str,
        created: Option<String>,
        spec: &ServingRuntimeSpec,
    ) -> Result<Self, FieldError> {
        let formats = spec.supported_model_formats.iter().enumerate();
        let range = spec.model_size_range.unwrap_or_default();
        Ok(Self {
            name: name.to_owned(),
            scope,
            namespace: namespace.to_owned(),
            created,
            disabled: spec.disabled.unwrap_or(false),
            formats: formats.map(|(index, entry)| format(index, entry)).collect::<Result<_, _>>()?,
            size: SizeRange { min: range.min.map(|size| size.0), max: range.max.map(|size| size.0) },
            protocols: spec.protocol_versions.clone(),
            requirements: requirements(spec.accelerator_requirements.as_ref())?,
            configurations: configurations(&spec.accelerator_configurations),
            has_router: spec.router_config.is_some(),
            components: components(spec),
        })
    }
}

fn format(index: usize, entry: &SupportedModelFormat) -> Result<SupportedFormat, FieldError> {
    let path = format!("spec.supportedModelFormats[{index}]");
    let format = entry.format();
    let framework = entry.model_framework.as_ref();
    Ok(SupportedFormat {
        format: format.as_ref().map(|format| named_version(&format!("{path}.modelFormat"), format)).transpose()?,
        format_operator: format.as_ref().and_then(|format| format.operator).unwrap_or_default(),
        framework: framework
            .map(|framework| named_version(&format!("{path}.modelFramework"), framework))
            .transpose()?,
        framework_operator: framework.and_then(|framework| framework.operator).unwrap_or_default(),
        architecture: super::non_blank(entry.model_architecture.as_ref()),
        quantization: super::non_blank(entry.quantization.as_ref()),
        pipeline: entry.diffusion_pipeline.clone(),
        auto_select: entry.auto_select.unwrap_or(false),
        priority: entry.priority,
        configurations: entry
            .accelerator_config
            .iter()
            .map(|(class, config)| upstream_configuration(class, config))
            .collect(),
    })
}

/// Converts an entry of the deployed field `acceleratorConfig`, which corresponds to `acceleratorConfigurations`.
fn upstream_configuration(class: &str, config: &AcceleratorModelConfig) -> ClassConfiguration {
    let parallelism = config.tensor_parallelism_override.clone().unwrap_or_default();
    let flag = |name: &str, size: Option<i64>| size.map(|size| format!("--{name}={size}"));
    let sizes = [
        flag("tensor-parallel-size", parallelism.tensor_parallel_size),
        flag("pipeline-parallel-size", parallelism.pipeline_parallel_size),
        flag("data-parallel-size", parallelism.data_parallel_size),
    ];
    let args: Vec<String> = config.runtime_args_override.iter().cloned().chain(sizes.into_iter().flatten()).collect();
    let mut runner = Map::new();
    if !args.is_empty() {
        runner.insert("args".to_owned(), args.into());
    }
    let env = config.environment_override.iter().map(|(name, value)| json!({"name": name, "value": value}));
    ClassConfiguration { class: class.to_owned(), env: env.collect(), resources: Value::Null, runner }
}

fn requirements(spec: Option<&AcceleratorRequirements>) -> Result<ClassRequirements, FieldError> {
    let Some(spec) = spec else { return Ok(ClassRequirements::default()) };
    let path = "spec.acceleratorRequirements";
    let required = match &spec.required_capabilities {
        Some(required) => capabilities(&format!("{path}.requiredCapabilities"), required)?,
        None => Capabilities::default(),
    };
    let classes: Vec<String> = spec.all_supported_classes().map(str::to_owned).collect();
    let preferences = spec.preference_order.iter().enumerate();
    Ok(ClassRequirements {
        declared: true,
        supported_classes: (!classes.is_empty()).then_some(classes),
        required: required.combine(&upstream_capabilities(spec, path)?),
        preferences: preferences
            .map(|(index, entry)| preference(&format!("{path}.preferenceOrder[{index}]"), entry))
            .collect::<Result<_, _>>()?,
        precisions: spec.preferred_precisions.clone(),
    })
}

/// Converts the requirements of the upstream OME API.
fn upstream_capabilities(spec: &AcceleratorRequirements, path: &str) -> Result<Capabilities, FieldError> {
    Ok(Capabilities {
        memory: spec.min_memory.map(gibibytes),
        compute_capability: compute_capability(
            &format!("{path}.minArchitectureVersion"),
            spec.min_architecture_version.as_ref(),
        )?,
        features: spec.required_features.iter().map(|feature| feature.to_lowercase()).collect(),
        performance: Performance { fp16: spec.min_compute_performance_tflops.map(tflops), ..Performance::default() },
        ..Capabilities::default()
    })
}

pub(super) fn gibibytes(number: i64) -> u64 {
    AcceleratorMemory::from_gib(u64::try_from(number).unwrap_or(0)).0
}

pub(super) fn tflops(number: i64) -> f64 {
    number as f64
}

fn preference(path: &str, entry: &AcceleratorPreference) -> Result<ClassPreference, FieldError> {
    let parse =
        |(index, item): (usize, &BTreeMap<String, String>)| condition(&format!("{path}.conditions[{index}]"), item);
    let conditions = entry.conditions.iter().enumerate().map(parse).collect::<Result<_, _>>()?;
    Ok(ClassPreference { class: entry.class.clone(), score: entry.score, conditions })
}

fn condition(path: &str, item: &BTreeMap<String, String>) -> Result<PreferenceCondition, FieldError> {
    let mut condition = PreferenceCondition::default();
    for (key, text) in item {
        let path = format!("{path}.{key}");
        match key.as_str() {
            "modelSize" => condition.model_size = Some(comparison(&path, text)?),
            "requestSize" => condition.request_size = Some(comparison(&path, text)?),
            _ => {
                return Err(FieldError::new(
                    path,
                    "unknown condition; supported conditions are modelSize and requestSize",
                ));
            }
        }
    }
    Ok(condition)
}

fn comparison(path: &str, text: &str) -> Result<Comparison, FieldError> {
    const OPERATORS: [(&str, ComparisonOperator); 6] = [
        ("<=", ComparisonOperator::LessOrEqual),
        (">=", ComparisonOperator::GreaterOrEqual),
        ("==", ComparisonOperator::Equal),
        ("<", ComparisonOperator::Less),
        (">", ComparisonOperator::Greater),
        ("=", ComparisonOperator::Equal),
    ];
    let text = text.trim();
    let parsed = OPERATORS.iter().find_map(|(sign, operator)| Some((*operator, text.strip_prefix(sign)?)));
    let (operator, rest) = parsed.ok_or_else(|| {
        FieldError::new(path, format!("`{text}` is not a valid comparison; use a form such as `<30B`"))
    })?;
    let value = rest.trim().parse::<ParameterCount>().map_err(|error| FieldError::new(path, error))?;
    Ok(Comparison { operator, value: value.0 })
}

fn components(spec: &ServingRuntimeSpec) -> BTreeMap<Component, RuntimeComponent> {
    let engine = spec.engine_config.clone().unwrap_or_default();
    let mut components = BTreeMap::from([(Component::Engine, component(spec, &engine))]);
    if let Some(decoder) = &spec.decoder_config {
        components.insert(Component::Decoder, component(spec, decoder));
    }
    components
}

/// Converts a component, with the defaults of the runtime for all components.
fn component(spec: &ServingRuntimeSpec, component: &ComponentSpec) -> RuntimeComponent {
    // A runtime with `engineConfig` ignores the deprecated fields of its spec.
    let tolerations = if spec.engine_config.is_some() { &component.tolerations } else { &spec.tolerations };
    let tolerations = Toleration::read_all(tolerations);
    let mut component = component.clone();
    if super::engine_container(&component).is_none() {
        component.runner = spec.containers.first().cloned();
    }
    let mut node_selector = spec.node_selector.clone();
    node_selector.extend(component.node_selector.clone());
    RuntimeComponent {
        resources: super::resources(&component),
        parallelism: super::parallelism(&component),
        engine: super::engine_settings(&component),
        compute: super::replica_requests(&component),
        vendors: super::vendors(&component),
        tolerations,
        multi_node: super::is_multi_node(&component),
        nodes: super::nodes(&component),
        min_replicas: super::non_negative(component.min_replicas),
        max_replicas: super::non_negative(component.max_replicas),
        node_selector,
        affinities: spec.affinity.iter().chain(&component.affinity).cloned().collect(),
        configurations: configurations(&component.accelerator_configurations),
        roles: super::role_placements(&component),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    // spec: ACC-89
    #[test]
    fn collects_affinities_of_runtime_and_engine() {
        let in_zone = |zone: &str| {
            let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]});
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}})
        };
        let spec: Value = json!({"affinity": in_zone("a"), "engineConfig": {"affinity": in_zone("b")}});
        let spec: ServingRuntimeSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(components(&spec)[&Component::Engine].affinities, [in_zone("a"), in_zone("b")]);
    }
}
