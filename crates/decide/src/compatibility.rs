//! May this runtime serve this model at all? Accelerators come afterwards (`eligibility`).

use api::version::Version;
use serde_json::Value;

use crate::demand::{Demand, Model, Named};
use crate::reason::Rejection;
use crate::supply::{Format, Runtime, VersionOperator};

/// The entry of `runtime` that serves `demand`, or why none does. Without a known model no entry is looked for.
///
/// # Errors
/// The first check that fails; with several entries, that of the entry that gets furthest.
pub fn compatible<'a>(demand: &Demand, runtime: &'a Runtime) -> Result<Option<&'a Format>, Rejection> {
    if runtime.disabled {
        return Err(Rejection::Disabled);
    }
    let matching = match demand.model.known() {
        Some(model) => matching_entries(model, runtime)?,
        None => Vec::new(),
    };
    if let Some(model) = demand.model.known() {
        size_in_range(model, runtime)?;
    }
    protocol_spoken(demand, runtime)?;
    let named = demand.runtime.is_some();
    let best =
        matching.iter().copied().filter(|entry| named || entry.auto_select).min_by_key(|entry| entry_order(entry));
    match best {
        None if demand.model.known().is_some() => Err(Rejection::AutoSelectDisabled),
        best => Ok(best),
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
            Some(rejection) if furthest.as_ref().is_none_or(|known| rejection.stage() > known.stage()) => {
                furthest = Some(rejection);
            }
            Some(_) => {}
        }
    }
    if !matching.is_empty() {
        return Ok(matching);
    }
    Err(furthest.unwrap_or_else(|| Rejection::FormatMismatch {
        wanted: model.format.name.clone(),
        offered: "none (supportedModelFormats is empty)".to_owned(),
    }))
}

/// Why one entry does not match as a whole, or `None`. Order is the contract.
fn mismatch(model: &Model, entry: &Format) -> Option<Rejection> {
    format(model, entry)
        .or_else(|| format_version(model, entry))
        .or_else(|| framework(model, entry))
        .or_else(|| framework_version(model, entry))
        .or_else(|| architecture(model, entry))
        .or_else(|| quantization(model, entry))
        .or_else(|| pipeline(model, entry))
}

fn format(model: &Model, entry: &Format) -> Option<Rejection> {
    (entry.format.name != model.format.name)
        .then(|| Rejection::FormatMismatch { wanted: model.format.name.clone(), offered: entry.format.name.clone() })
}

fn format_version(model: &Model, entry: &Format) -> Option<Rejection> {
    let (wanted, offered) = version_mismatch(&model.format, &entry.format, entry.format_operator)?;
    Some(Rejection::FormatVersionMismatch { wanted, offered })
}

/// What the runtime leaves unstated accepts any.
fn framework(model: &Model, entry: &Format) -> Option<Rejection> {
    let offered = entry.framework.as_ref()?;
    let wanted = model.framework.as_ref().map(|framework| framework.name.as_str());
    (wanted != Some(offered.name.as_str())).then(|| Rejection::FrameworkMismatch {
        wanted: wanted.unwrap_or("(unstated)").to_owned(),
        offered: offered.name.clone(),
    })
}

fn framework_version(model: &Model, entry: &Format) -> Option<Rejection> {
    let (offered, wanted) = (entry.framework.as_ref()?, model.framework.as_ref()?);
    let (wanted, offered) = version_mismatch(wanted, offered, entry.framework_operator)?;
    Some(Rejection::FrameworkVersionMismatch { wanted, offered })
}

fn version_mismatch(model: &Named, runtime: &Named, operator: VersionOperator) -> Option<(String, String)> {
    let offered = runtime.version.as_ref()?;
    let accepted = model.version.as_ref().is_some_and(|wanted| accepts(offered, operator, wanted));
    if accepted {
        return None;
    }
    let sign = match operator {
        VersionOperator::Equal => "",
        VersionOperator::GreaterThan => " (accepts older)",
        VersionOperator::GreaterThanOrEqual => " (accepts the same or older)",
    };
    let wanted = model.version.as_ref().map_or_else(|| "(unstated)".to_owned(), ToString::to_string);
    Some((wanted, format!("{offered}{sign}")))
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
    let offered = entry.architecture.as_ref()?;
    (model.architecture.as_ref() != Some(offered))
        .then(|| Rejection::ArchitectureMismatch { wanted: model.architecture.clone(), offered: offered.clone() })
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
    let wanted = model.pipeline.as_ref()?;
    (!contains(wanted, offered)).then(|| Rejection::PipelineMismatch {
        offered: offered.get("className").and_then(Value::as_str).unwrap_or("pipeline").to_owned(),
    })
}

fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, value)| whole.get(key).is_some_and(|other| contains(other, value)))
        }
        (_, Value::String(text)) if text.is_empty() => true,
        (whole, part) => whole == part,
    }
}

fn size_in_range(model: &Model, runtime: &Runtime) -> Result<(), Rejection> {
    let Some(parameters) = model.parameters else { return Ok(()) };
    let range = runtime.size;
    let below = range.min.is_some_and(|min| parameters < min);
    let above = range.max.is_some_and(|max| parameters > max);
    if below || above {
        return Err(Rejection::SizeOutOfRange { parameters, range });
    }
    Ok(())
}

fn protocol_spoken(demand: &Demand, runtime: &Runtime) -> Result<(), Rejection> {
    let offered = if runtime.protocols.is_empty() { vec!["openAI".to_owned()] } else { runtime.protocols.clone() };
    if offered.contains(&demand.protocol) {
        return Ok(());
    }
    Err(Rejection::ProtocolUnsupported { wanted: demand.protocol.clone(), offered })
}
