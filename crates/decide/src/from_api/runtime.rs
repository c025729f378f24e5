//! ServingRuntime and ClusterServingRuntime → [`Runtime`].

use std::collections::BTreeMap;

use api::AcceleratorMemory;
use api::ParameterCount;
use api::ome::{
    AcceleratorModelConfig, AcceleratorPreference, AcceleratorRequirements, Component as ComponentSpec,
    ServingRuntimeSpec, SupportedModelFormat,
};
use serde_json::{Map, Value, json};

use super::{FieldError, capabilities, compute_capability, configurations, named};
use crate::demand::{Capabilities, Component, Performance};
use crate::merge::ClassConfiguration;
use crate::preference::{ClassPreference, Comparison, ComparisonOperator, PreferenceCondition};
use crate::supply::{ClassRequirements, Runtime, RuntimeComponent, Scope, SizeRange, SupportedFormat};

impl Runtime {
    /// Reads a runtime of either kind. `created` is its creationTimestamp in RFC 3339.
    ///
    /// # Errors
    /// A version, condition or capability that cannot be understood.
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
            components: components(spec),
        })
    }
}

fn format(index: usize, entry: &SupportedModelFormat) -> Result<SupportedFormat, FieldError> {
    let path = format!("spec.supportedModelFormats[{index}]");
    let stated = entry.format();
    let framework = entry.model_framework.as_ref();
    Ok(SupportedFormat {
        format: stated.as_ref().map(|stated| named(&format!("{path}.modelFormat"), stated)).transpose()?,
        format_operator: stated.as_ref().and_then(|stated| stated.operator).unwrap_or_default(),
        framework: framework.map(|framework| named(&format!("{path}.modelFramework"), framework)).transpose()?,
        framework_operator: framework.and_then(|framework| framework.operator).unwrap_or_default(),
        architecture: super::stated(entry.model_architecture.as_ref()),
        quantization: super::stated(entry.quantization.as_ref()),
        pipeline: entry.diffusion_pipeline.clone(),
        auto_select: entry.auto_select.unwrap_or(false),
        priority: entry.priority,
        configurations: entry.accelerator_config.iter().map(|(class, config)| deployed(class, config)).collect(),
    })
}

/// The deployed per-format tuning means the same as an `acceleratorConfigurations` entry.
fn deployed(class: &str, config: &AcceleratorModelConfig) -> ClassConfiguration {
    let parallel = config.tensor_parallelism_override.clone().unwrap_or_default();
    let flag = |name: &str, size: Option<i64>| size.map(|size| format!("--{name}={size}"));
    let sizes = [
        flag("tensor-parallel-size", parallel.tensor_parallel_size),
        flag("pipeline-parallel-size", parallel.pipeline_parallel_size),
        flag("data-parallel-size", parallel.data_parallel_size),
    ];
    let args: Vec<String> = config.runtime_args_override.iter().cloned().chain(sizes.into_iter().flatten()).collect();
    let mut runner = Map::new();
    if !args.is_empty() {
        runner.insert("args".to_owned(), args.into());
    }
    let env = config.environment_override.iter().map(|(name, value)| json!({"name": name, "value": value}));
    ClassConfiguration { class: class.to_owned(), env: env.collect(), resources: Value::Null, runner }
}

fn requirements(stated: Option<&AcceleratorRequirements>) -> Result<ClassRequirements, FieldError> {
    let Some(stated) = stated else { return Ok(ClassRequirements::default()) };
    let path = "spec.acceleratorRequirements";
    let specified = match &stated.required_capabilities {
        Some(required) => capabilities(&format!("{path}.requiredCapabilities"), required)?,
        None => Capabilities::default(),
    };
    let classes: Vec<String> = stated.all_supported_classes().map(str::to_owned).collect();
    let preferences = stated.preference_order.iter().enumerate();
    Ok(ClassRequirements {
        declared: true,
        supported_classes: (!classes.is_empty()).then_some(classes),
        required: specified.combine(&deployed_limits(stated, path)?),
        preferences: preferences
            .map(|(index, entry)| preference(&format!("{path}.preferenceOrder[{index}]"), entry))
            .collect::<Result<_, _>>()?,
    })
}

fn deployed_limits(stated: &AcceleratorRequirements, path: &str) -> Result<Capabilities, FieldError> {
    Ok(Capabilities {
        memory: stated.min_memory.map(gibibytes),
        compute_capability: compute_capability(
            &format!("{path}.minArchitectureVersion"),
            stated.min_architecture_version.as_ref(),
        )?,
        features: stated.required_features.iter().map(|feature| feature.to_lowercase()).collect(),
        performance: Performance { fp16: stated.min_compute_performance_tflops.map(tflops), ..Performance::default() },
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
    let read =
        |(index, item): (usize, &BTreeMap<String, String>)| condition(&format!("{path}.conditions[{index}]"), item);
    let conditions = entry.conditions.iter().enumerate().map(read).collect::<Result<_, _>>()?;
    Ok(ClassPreference { class: entry.class.clone(), score: entry.score, conditions })
}

fn condition(path: &str, item: &BTreeMap<String, String>) -> Result<PreferenceCondition, FieldError> {
    let mut condition = PreferenceCondition::default();
    for (key, text) in item {
        let path = format!("{path}.{key}");
        match key.as_str() {
            "modelSize" => condition.model_size = Some(comparison(&path, text)?),
            "requestSize" => condition.request_size = Some(comparison(&path, text)?),
            _ => return Err(FieldError::new(path, "is not a condition; one of modelSize, requestSize")),
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
    let read = OPERATORS.iter().find_map(|(sign, operator)| Some((*operator, text.strip_prefix(sign)?)));
    let (operator, rest) =
        read.ok_or_else(|| FieldError::new(path, format!("\"{text}\" is not a comparison; write one like \"<30B\"")))?;
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

/// A component with what the runtime says for all of them beneath it.
fn component(spec: &ServingRuntimeSpec, stated: &ComponentSpec) -> RuntimeComponent {
    let mut own = stated.clone();
    if super::runner(&own).is_none() {
        own.runner = spec.containers.first().cloned();
    }
    let mut node_selector = spec.node_selector.clone();
    node_selector.extend(own.node_selector.clone());
    RuntimeComponent {
        resources: super::resources(&own),
        parallelism: super::parallelism(&own),
        multi_node: super::multi_node(&own),
        nodes: super::nodes(&own),
        min_replicas: super::count(own.min_replicas),
        max_replicas: super::count(own.max_replicas),
        node_selector,
        affinities: spec.affinity.iter().chain(&own.affinity).cloned().collect(),
        configurations: configurations(&own.accelerator_configurations),
        roles: super::groups(&own),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    // spec: ACC-89
    #[test]
    fn affinities_of_the_runtime_and_of_its_engine_both_hold() {
        let in_zone = |zone: &str| {
            let term = json!({"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]});
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}})
        };
        let spec: Value = json!({"affinity": in_zone("a"), "engineConfig": {"affinity": in_zone("b")}});
        let spec: ServingRuntimeSpec = serde_json::from_value(spec).unwrap();
        assert_eq!(components(&spec)[&Component::Engine].affinities, [in_zone("a"), in_zone("b")]);
    }
}
