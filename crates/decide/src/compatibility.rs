//! May this runtime serve this model at all? Accelerators come afterwards (`eligibility`).

use api::version::Version;
use serde_json::Value;

use crate::demand::{Demand, Model, Named};
use crate::naming;
use crate::reason::{ModelField, Rejection, Unstated};
use crate::size::SizeRange;
use crate::supply::{Format, Runtime, VersionOperator};

/// What a service asks for, and a runtime speaks, where neither says anything.
pub const DEFAULT_PROTOCOL: &str = "openAI";

/// The entry of `runtime` that serves `demand`, or why none does. Without a known model no entry is looked for.
///
/// # Errors
/// The first check that fails; with several entries, that of the entry that gets furthest.
pub fn compatible<'a>(demand: &Demand, runtime: &'a Runtime) -> Result<Option<&'a Format>, Rejection> {
    if runtime.disabled {
        return Err(Rejection::Disabled);
    }
    // A service's own engine says nothing of models: what it runs is its own affair (Story 8).
    let model = demand.model.known().filter(|_| !runtime.is_own());
    let size = model.map_or(Ok(()), |model| size_in_range(demand, model, runtime));
    let matching = model.map(|model| matching_entries(model, runtime)).transpose();
    let matching = matching.map_err(|why| before_size(why, size.as_ref().err()))?.unwrap_or_default();
    size?;
    protocol_spoken(demand, runtime)?;
    let named = demand.runtime.is_some();
    let usable = matching.into_iter().filter(|entry| named || entry.auto_select);
    match usable.min_by_key(|entry| entry_order(entry)) {
        None if model.is_some() => Err(Rejection::AutoSelectDisabled),
        best => Ok(best),
    }
}

/// A model that says too little may be of the wrong size as well, which is the next that would be found.
fn before_size(why: Rejection, size: Option<&Rejection>) -> Rejection {
    match (why, size) {
        (Rejection::Unstated { fields, next: None }, Some(size)) => {
            Rejection::Unstated { fields, next: Some(Box::new(size.clone())) }
        }
        (why, _) => why,
    }
}

/// Among entries of one runtime: one that states an architecture first, then the highest priority.
fn entry_order(entry: &Format) -> (bool, std::cmp::Reverse<i32>) {
    (entry.architecture.is_none(), std::cmp::Reverse(entry.priority.filter(|_| entry.auto_select).unwrap_or(0)))
}

fn matching_entries<'a>(model: &Model, runtime: &'a Runtime) -> Result<Vec<&'a Format>, Rejection> {
    let mut matching = Vec::new();
    let mut furthest: Option<Rejection> = None;
    for entry in &runtime.formats {
        match mismatch(model, entry) {
            None => matching.push(entry),
            Some(rejection) if furthest.as_ref().is_none_or(|known| further(&rejection, known)) => {
                furthest = Some(rejection);
            }
            Some(_) => {}
        }
    }
    if !matching.is_empty() {
        return Ok(matching);
    }
    Err(furthest.unwrap_or_else(|| Rejection::FormatMismatch {
        wanted: model.format.as_ref().map(|format| format.name.clone()),
        offered: None,
    }))
}

/// Whether the entry of `one` came nearer to matching than that of `other`.
fn further(one: &Rejection, other: &Rejection) -> bool {
    (one.stage(), other.distance()) > (other.stage(), one.distance())
}

/// Why one entry does not match as a whole, or `None`. Order is the contract.
pub(crate) fn mismatch(model: &Model, entry: &Format) -> Option<Rejection> {
    let contradiction = contradiction(model, entry);
    let unstated = unstated(model, entry);
    match unstated.first() {
        Some(first) if contradiction.as_ref().is_none_or(|known| first.field.stage() < known.stage()) => {
            Some(Rejection::Unstated { fields: unstated, next: contradiction.map(Box::new) })
        }
        _ => contradiction,
    }
}

/// What the entry states and the model does not.
fn unstated(model: &Model, entry: &Format) -> Vec<Unstated> {
    let mut fields = Vec::new();
    let mut named = |name: ModelField, version: ModelField, known: &Option<Named>, wanted: &Option<Named>| {
        let Some(wanted) = wanted else { return };
        if known.is_none() {
            fields.push(Unstated { field: name, wanted: wanted.name.clone() });
        }
        let stated = known.as_ref().is_some_and(|known| known.version.is_some());
        let wanted = wanted.version.as_ref().filter(|_| !stated);
        fields.extend(wanted.map(|wanted| Unstated { field: version, wanted: wanted.to_string() }));
    };
    named(ModelField::Format, ModelField::FormatVersion, &model.format, &entry.format);
    named(ModelField::Framework, ModelField::FrameworkVersion, &model.framework, &entry.framework);
    let wanted = entry.architecture.as_ref().filter(|_| model.architecture.is_none());
    fields.extend(wanted.map(|wanted| Unstated { field: ModelField::Architecture, wanted: wanted.clone() }));
    fields
}

/// The first check at which both sides say something, and not the same.
fn contradiction(model: &Model, entry: &Format) -> Option<Rejection> {
    format(model, entry)
        .or_else(|| format_version(model, entry))
        .or_else(|| framework(model, entry))
        .or_else(|| framework_version(model, entry))
        .or_else(|| architecture(model, entry))
        .or_else(|| quantization(model, entry))
        .or_else(|| pipeline(model, entry))
}

fn format(model: &Model, entry: &Format) -> Option<Rejection> {
    let offered = &entry.format.as_ref()?.name;
    let wanted = &model.format.as_ref()?.name;
    (wanted != offered)
        .then(|| Rejection::FormatMismatch { wanted: Some(wanted.clone()), offered: Some(offered.clone()) })
}

fn format_version(model: &Model, entry: &Format) -> Option<Rejection> {
    let (offered, wanted) = (entry.format.as_ref()?, model.format.as_ref()?);
    let (wanted, offered) = version_mismatch(wanted, offered, entry.format_operator)?;
    Some(Rejection::FormatVersionMismatch { wanted, offered })
}

fn framework(model: &Model, entry: &Format) -> Option<Rejection> {
    let offered = entry.framework.as_ref()?;
    let wanted = &model.framework.as_ref()?.name;
    (*wanted != offered.name)
        .then(|| Rejection::FrameworkMismatch { wanted: wanted.clone(), offered: offered.name.clone() })
}

fn framework_version(model: &Model, entry: &Format) -> Option<Rejection> {
    let (offered, wanted) = (entry.framework.as_ref()?, model.framework.as_ref()?);
    let (wanted, offered) = version_mismatch(wanted, offered, entry.framework_operator)?;
    Some(Rejection::FrameworkVersionMismatch { wanted, offered })
}

fn version_mismatch(model: &Named, runtime: &Named, operator: VersionOperator) -> Option<(String, String)> {
    let (offered, wanted) = (runtime.version.as_ref()?, model.version.as_ref()?);
    if accepts(offered, operator, wanted) {
        return None;
    }
    let sign = match operator {
        VersionOperator::Equal => "",
        VersionOperator::GreaterThan => " (accepts older)",
        VersionOperator::GreaterThanOrEqual => " (accepts the same or older)",
    };
    Some((wanted.to_string(), format!("{offered}{sign}")))
}

/// Reads "runtime's version OP model's version", over the parts that the runtime states.
fn accepts(runtime: &Version, operator: VersionOperator, model: &Version) -> bool {
    let order = runtime.cmp_stated(model);
    match operator {
        VersionOperator::Equal => order.is_eq(),
        VersionOperator::GreaterThan => order.is_gt(),
        VersionOperator::GreaterThanOrEqual => order.is_ge(),
    }
}

fn architecture(model: &Model, entry: &Format) -> Option<Rejection> {
    let (offered, wanted) = (entry.architecture.as_ref()?, model.architecture.as_ref()?);
    (wanted != offered).then(|| Rejection::ArchitectureMismatch { wanted: wanted.clone(), offered: offered.clone() })
}

fn quantization(model: &Model, entry: &Format) -> Option<Rejection> {
    (model.quantization != entry.quantization).then(|| Rejection::QuantizationMismatch {
        wanted: model.quantization.clone(),
        offered: entry.quantization.clone(),
    })
}

/// A pipeline constrains only where the runtime states it, and only in the parts that it states.
fn pipeline(model: &Model, entry: &Format) -> Option<Rejection> {
    let offered = entry.pipeline.as_ref()?;
    let name = |pipeline: &Value| pipeline.get("className").and_then(Value::as_str).map(str::to_owned);
    (!contains(model.pipeline.as_ref(), offered))
        .then(|| Rejection::PipelineMismatch { wanted: model.pipeline.as_ref().and_then(name), offered: name(offered) })
}

fn contains(whole: Option<&Value>, part: &Value) -> bool {
    match part {
        Value::Null => true,
        Value::String(text) if text.is_empty() => true,
        Value::Object(part) => part.iter().all(|(key, value)| contains(whole.and_then(|whole| whole.get(key)), value)),
        part => whole == Some(part),
    }
}

/// Without a range any size is taken, but not by itself where the runtime's name says another: 72B on `…-qwen-14b`.
fn size_in_range(demand: &Demand, model: &Model, runtime: &Runtime) -> Result<(), Rejection> {
    let Some(parameters) = model.parameters else { return Ok(()) };
    let range = runtime.size;
    let below = range.min.is_some_and(|min| parameters < min);
    let above = range.max.is_some_and(|max| parameters > max);
    if below || above {
        return Err(Rejection::SizeOutOfRange { parameters, range });
    }
    let unstated = range == SizeRange::default() && demand.runtime.is_none();
    match naming::contradicts(&runtime.name, parameters).filter(|_| unstated) {
        Some(size) => Err(Rejection::NamedForAnotherSize { parameters, size }),
        None => Ok(()),
    }
}

fn protocol_spoken(demand: &Demand, runtime: &Runtime) -> Result<(), Rejection> {
    let spoken = match runtime.protocols.as_slice() {
        [] => demand.protocol == DEFAULT_PROTOCOL,
        protocols => protocols.contains(&demand.protocol),
    };
    let offered = || match runtime.protocols.as_slice() {
        [] => vec![DEFAULT_PROTOCOL.to_owned()],
        protocols => protocols.to_vec(),
    };
    if spoken {
        Ok(())
    } else {
        Err(Rejection::ProtocolUnsupported { wanted: demand.protocol.clone(), offered: offered() })
    }
}
