//! Compatibility of a runtime with a model, before accelerators are considered (`eligibility`).

use std::sync::LazyLock;

use api::Version;
use serde_json::Value;

use crate::component::Component;
use crate::demand::{Demand, Model, NamedVersion};
use crate::engine::{Engine, EngineSettings, LayeredSettings};
use crate::reason::{MissingField, ModelField, RuntimeRejection};
use crate::supply::{Runtime, SupportedFormat, VersionOperator};

/// Protocol of services and runtimes that do not set one.
pub(crate) const DEFAULT_PROTOCOL: &str = "openAI";

/// Returns the format entry of `runtime` that matches `demand`; `None` if the model is unknown and no entry is needed.
///
/// # Errors
/// The first check that fails. If no entry matches, this is the rejection of the entry that passes the most checks.
pub fn check_compatibility<'a>(
    demand: &Demand,
    runtime: &'a Runtime,
) -> Result<Option<&'a SupportedFormat>, RuntimeRejection> {
    if runtime.disabled {
        return Err(RuntimeRejection::Disabled);
    }
    // An engine that the service defines itself accepts any model (seed 000, Story 8).
    let model = demand.model.resolved().filter(|_| !runtime.is_custom_engine());
    let size = model.map_or(Ok(()), |model| check_size(model, runtime));
    let matching = model.map(|model| matching_formats(model, runtime)).transpose();
    let matching =
        matching.map_err(|rejection| with_next_rejection(rejection, size.as_ref().err()))?.unwrap_or_default();
    size?;
    check_protocol(demand, runtime)?;
    model.map_or(Ok(()), |model| check_task(model, demand, runtime))?;
    check_adapters(demand, runtime)?;
    check_sleep_mode(demand, runtime)?;
    let is_named = demand.runtime.is_some();
    let selectable = matching.into_iter().filter(|format| is_named || format.auto_select);
    match selectable.min_by_key(|format| format_order(format)) {
        None if model.is_some() => Err(RuntimeRejection::AutoSelectDisabled),
        best => Ok(best),
    }
}

/// Adds the size rejection to a rejection for missing fields, because setting the fields does not resolve it.
fn with_next_rejection(rejection: RuntimeRejection, size: Option<&RuntimeRejection>) -> RuntimeRejection {
    match (rejection, size) {
        (RuntimeRejection::MissingFields { fields, next: None }, Some(size)) => {
            RuntimeRejection::MissingFields { fields, next: Some(Box::new(size.clone())) }
        }
        (rejection, _) => rejection,
    }
}

/// Orders the entries of one runtime: those that set an architecture first, then by descending priority.
fn format_order(format: &SupportedFormat) -> (bool, std::cmp::Reverse<i32>) {
    let priority = format.priority.filter(|_| format.auto_select).unwrap_or(0);
    (format.architecture.is_none(), std::cmp::Reverse(priority))
}

fn matching_formats<'a>(model: &Model, runtime: &'a Runtime) -> Result<Vec<&'a SupportedFormat>, RuntimeRejection> {
    let mut matching = Vec::new();
    let mut closest: Option<RuntimeRejection> = None;
    for format in &runtime.formats {
        match format_mismatch(model, format) {
            None => matching.push(format),
            Some(rejection) if closest.as_ref().is_none_or(|known| is_closer(&rejection, known)) => {
                closest = Some(rejection);
            }
            Some(_) => {}
        }
    }
    if !matching.is_empty() {
        return Ok(matching);
    }
    Err(closest.unwrap_or_else(|| RuntimeRejection::FormatMismatch {
        required: model.format.as_ref().map(|format| format.name.clone()),
        offered: None,
    }))
}

/// Whether `a` is closer to a match than `b`.
fn is_closer(a: &RuntimeRejection, b: &RuntimeRejection) -> bool {
    (a.stage(), b.remaining_checks()) > (b.stage(), a.remaining_checks())
}

/// Returns why one format entry does not match the model; `None` if it does.
pub(crate) fn format_mismatch(model: &Model, format: &SupportedFormat) -> Option<RuntimeRejection> {
    let mismatch = first_mismatch(model, format);
    let fields = missing_fields(model, format);
    match fields.first() {
        Some(first) if mismatch.as_ref().is_none_or(|known| first.field.stage() < known.stage()) => {
            Some(RuntimeRejection::MissingFields { fields, next: mismatch.map(Box::new) })
        }
        _ => mismatch,
    }
}

/// Returns the fields that the entry sets and the model does not.
fn missing_fields(model: &Model, format: &SupportedFormat) -> Vec<MissingField> {
    let mut fields = Vec::new();
    let mut check_named =
        |name: ModelField, version: ModelField, model: &Option<NamedVersion>, runtime: &Option<NamedVersion>| {
            let Some(runtime) = runtime else { return };
            if model.is_none() {
                fields.push(MissingField { field: name, required: runtime.name.clone() });
            }
            let has_version = model.as_ref().is_some_and(|model| model.version.is_some());
            let required = runtime.version.as_ref().filter(|_| !has_version);
            fields.extend(required.map(|required| MissingField { field: version, required: required.to_string() }));
        };
    check_named(ModelField::Format, ModelField::FormatVersion, &model.format, &format.format);
    check_named(ModelField::Framework, ModelField::FrameworkVersion, &model.framework, &format.framework);
    let architecture = format.architecture.as_ref().filter(|_| model.architecture.is_none());
    let missing = |required: &String| MissingField { field: ModelField::Architecture, required: required.clone() };
    fields.extend(architecture.map(missing));
    fields
}

/// Returns the first check at which model and entry set different values.
fn first_mismatch(model: &Model, format: &SupportedFormat) -> Option<RuntimeRejection> {
    format_name_mismatch(model, format)
        .or_else(|| format_version_mismatch(model, format))
        .or_else(|| framework_mismatch(model, format))
        .or_else(|| framework_version_mismatch(model, format))
        .or_else(|| architecture_mismatch(model, format))
        .or_else(|| quantization_mismatch(model, format))
        .or_else(|| pipeline_mismatch(model, format))
}

fn format_name_mismatch(model: &Model, format: &SupportedFormat) -> Option<RuntimeRejection> {
    let offered = &format.format.as_ref()?.name;
    let required = &model.format.as_ref()?.name;
    (!required.eq_ignore_ascii_case(offered))
        .then(|| RuntimeRejection::FormatMismatch { required: Some(required.clone()), offered: Some(offered.clone()) })
}

fn format_version_mismatch(model: &Model, format: &SupportedFormat) -> Option<RuntimeRejection> {
    let (offered, required) = (format.format.as_ref()?, model.format.as_ref()?);
    let (required, offered) = version_mismatch(required, offered, format.format_operator)?;
    Some(RuntimeRejection::FormatVersionMismatch { required, offered })
}

fn framework_mismatch(model: &Model, format: &SupportedFormat) -> Option<RuntimeRejection> {
    let offered = format.framework.as_ref()?;
    let required = &model.framework.as_ref()?.name;
    (*required != offered.name)
        .then(|| RuntimeRejection::FrameworkMismatch { required: required.clone(), offered: offered.name.clone() })
}

fn framework_version_mismatch(model: &Model, format: &SupportedFormat) -> Option<RuntimeRejection> {
    let (offered, required) = (format.framework.as_ref()?, model.framework.as_ref()?);
    let (required, offered) = version_mismatch(required, offered, format.framework_operator)?;
    Some(RuntimeRejection::FrameworkVersionMismatch { required, offered })
}

/// Returns the model's version and the versions that the runtime accepts, if both are set and do not match.
fn version_mismatch(
    model: &NamedVersion,
    runtime: &NamedVersion,
    operator: VersionOperator,
) -> Option<(String, String)> {
    let (offered, required) = (runtime.version.as_ref()?, model.version.as_ref()?);
    if accepts_version(offered, operator, required) {
        return None;
    }
    let accepted = match operator {
        VersionOperator::Equal => offered.to_string(),
        VersionOperator::GreaterThan => format!("versions before {offered}"),
        VersionOperator::GreaterThanOrEqual => format!("versions up to {offered}"),
    };
    Some((required.to_string(), accepted))
}

/// Evaluates "runtime version OPERATOR model version" over the version parts that the runtime sets.
fn accepts_version(runtime: &Version, operator: VersionOperator, model: &Version) -> bool {
    let order = runtime.cmp_specified(model);
    match operator {
        VersionOperator::Equal => order.is_eq(),
        VersionOperator::GreaterThan => order.is_gt(),
        VersionOperator::GreaterThanOrEqual => order.is_ge(),
    }
}

fn architecture_mismatch(model: &Model, format: &SupportedFormat) -> Option<RuntimeRejection> {
    let (offered, required) = (format.architecture.as_ref()?, model.architecture.as_ref()?);
    (required != offered)
        .then(|| RuntimeRejection::ArchitectureMismatch { required: required.clone(), offered: offered.clone() })
}

fn quantization_mismatch(model: &Model, format: &SupportedFormat) -> Option<RuntimeRejection> {
    (model.quantization != format.quantization).then(|| RuntimeRejection::QuantizationMismatch {
        required: model.quantization.clone(),
        offered: format.quantization.clone(),
    })
}

/// Compares only the parts of the pipeline that the runtime sets.
fn pipeline_mismatch(model: &Model, format: &SupportedFormat) -> Option<RuntimeRejection> {
    let offered = format.pipeline.as_ref()?;
    let class_name = |pipeline: &Value| pipeline.get("className").and_then(Value::as_str).map(str::to_owned);
    (!contains(model.pipeline.as_ref(), offered)).then(|| RuntimeRejection::PipelineMismatch {
        required: model.pipeline.as_ref().and_then(class_name),
        offered: class_name(offered),
    })
}

/// Whether `value` contains everything that `subset` sets.
fn contains(value: Option<&Value>, subset: &Value) -> bool {
    match subset {
        Value::Null => true,
        Value::String(text) if text.is_empty() => true,
        Value::Object(fields) => {
            fields.iter().all(|(key, field)| contains(value.and_then(|value| value.get(key)), field))
        }
        subset => value == Some(subset),
    }
}

/// Checks the size that the model states against the runtime's range. Without a range any size is accepted.
fn check_size(model: &Model, runtime: &Runtime) -> Result<(), RuntimeRejection> {
    let range = runtime.size;
    match model.parameters.filter(|parameters| !model.is_size_inferred && !range.contains(*parameters)) {
        Some(parameters) => Err(RuntimeRejection::SizeOutOfRange { parameters, range }),
        None => Ok(()),
    }
}

/// Checks that the engine does not exclude the task of the model.
fn check_task(model: &Model, demand: &Demand, runtime: &Runtime) -> Result<(), RuntimeRejection> {
    let is_served = model.task.is_none_or(|task| task.is_served_by(engine_settings(demand, runtime).task()));
    if is_served { Ok(()) } else { Err(RuntimeRejection::TaskUnsupported) }
}

/// Returns the settings of the engine of runtime and service.
pub(crate) fn engine_settings<'a>(demand: &'a Demand, runtime: &'a Runtime) -> LayeredSettings<'a> {
    static UNSET: LazyLock<EngineSettings> = LazyLock::new(EngineSettings::default);
    let runtime = runtime.components.get(&Component::Engine).map_or(&*UNSET, |component| &component.engine);
    let service = demand.components.get(&Component::Engine).map_or(&*UNSET, |component| &component.engine);
    LayeredSettings::new(runtime, [].iter(), service)
}

/// Checks that the engine loads LoRA adapters if the service has some.
fn check_adapters(demand: &Demand, runtime: &Runtime) -> Result<(), RuntimeRejection> {
    if !demand.has_adapters {
        return Ok(());
    }
    match engine_settings(demand, runtime).engine() {
        Some(engine) if engine.supports_adapters() => Ok(()),
        engine => Err(RuntimeRejection::AdaptersUnsupported { engine: engine.map(Engine::as_str) }),
    }
}

/// Checks that the engine can sleep if the service requests dual pods. Of the service's own engine, the command decides, which is
/// checked when its Pods are planned.
fn check_sleep_mode(demand: &Demand, runtime: &Runtime) -> Result<(), RuntimeRejection> {
    if !demand.uses_dual_pods || runtime.is_custom_engine() {
        return Ok(());
    }
    match engine_settings(demand, runtime).engine() {
        Some(Engine::Vllm) => Ok(()),
        engine => Err(RuntimeRejection::EngineCannotSleep { engine: engine.map(Engine::as_str) }),
    }
}

fn check_protocol(demand: &Demand, runtime: &Runtime) -> Result<(), RuntimeRejection> {
    let is_supported = match runtime.protocols.as_slice() {
        [] => demand.protocol == DEFAULT_PROTOCOL,
        protocols => protocols.contains(&demand.protocol),
    };
    let offered = || match runtime.protocols.as_slice() {
        [] => vec![DEFAULT_PROTOCOL.to_owned()],
        protocols => protocols.to_vec(),
    };
    if is_supported {
        Ok(())
    } else {
        Err(RuntimeRejection::ProtocolUnsupported { required: demand.protocol.clone(), offered: offered() })
    }
}
