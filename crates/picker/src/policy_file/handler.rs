//! Which profiles are asked, and when a prefiller is.

use std::collections::BTreeMap;

use super::{
    PolicyError, Warning,
    parameters::{PairSpec, StagesSpec},
    plugins::{HandlerSpec, Plugin, Plugins},
};
use crate::{
    policy::{Decider, Handler},
    profile::Profile,
};

/// The decider that `pd-profile-handler` asks where none is named.
const USUAL_DECIDER: &str = "prefix-based-pd-decider";

/// A pair of profiles by name, and who decides.
struct Pair {
    handler: String,
    prefill: String,
    decode: String,
    decider: Option<Decider>,
}

/// The handler, and the port that stands for all ports of a Pod.
pub(super) fn of(
    plugins: &mut Plugins,
    mut profiles: BTreeMap<String, Profile>,
    warnings: &mut Vec<Warning>,
) -> Result<(Handler, Option<u16>), PolicyError> {
    let mut handlers = plugins.handlers().map(|(name, handler)| (name.to_owned(), handler.clone()));
    let (name, spec) = handlers.next().unwrap_or_else(|| ("single-profile-handler".to_owned(), HandlerSpec::Single));
    if let Some((other, _)) = handlers.next() {
        return Err(PolicyError::Handlers { one: name, other });
    }
    drop(handlers);
    match spec {
        HandlerSpec::Single => Ok((single(&name, profiles)?, None)),
        HandlerSpec::Ranks(spec) => Ok((single(&name, profiles)?, Some(spec.primary_port))),
        HandlerSpec::Pair(spec) => {
            let port = spec.primary_port.filter(|port| *port > 0);
            let found = pair_of(plugins, name, spec)?;
            Ok((pair(plugins, found, &mut profiles, warnings)?, port))
        }
        HandlerSpec::Stages(spec) => {
            let found = stages_of(plugins, name, spec, &mut profiles, warnings)?;
            Ok((pair(plugins, found, &mut profiles, warnings)?, None))
        }
    }
}

fn single(handler: &str, mut profiles: BTreeMap<String, Profile>) -> Result<Handler, PolicyError> {
    let stated = profiles.len();
    match (stated, profiles.pop_first()) {
        (1, Some((_, only))) => Ok(Handler::Single(only)),
        _ => {
            let needed = format!("one profile, {stated} are stated");
            Err(PolicyError::Profiles { handler: handler.to_owned(), needed })
        }
    }
}

fn pair_of(plugins: &Plugins, handler: String, spec: PairSpec) -> Result<Pair, PolicyError> {
    let field = format!("plugins ({handler}).parameters.deciderPluginName");
    let decider = match (spec.decider_plugin_name, spec.threshold) {
        (Some(name), _) => plugins.decider(&field, &name)?,
        (None, None) if matches!(plugins.get(USUAL_DECIDER), Some(Plugin::Decider(_))) => {
            plugins.decider(&field, USUAL_DECIDER)?
        }
        (None, threshold) => Some(Decider::Over { bytes: threshold.unwrap_or(0) }),
    };
    Ok(Pair { handler, prefill: spec.prefill_profile, decode: spec.decode_profile, decider })
}

fn stages_of(
    plugins: &Plugins,
    handler: String,
    spec: StagesSpec,
    profiles: &mut BTreeMap<String, Profile>,
    warnings: &mut Vec<Warning>,
) -> Result<Pair, PolicyError> {
    let of = |stage: &str| format!("plugins ({handler}).parameters.deciders.{stage}");
    if let Some(name) = &spec.deciders.encode {
        plugins.decider(&of("encode"), name)?;
        let told = "images are not encoded elsewhere: the engine that computes the prompt does it".to_owned();
        warnings.push(Warning { field: of("encode"), told });
    }
    profiles.remove(spec.profiles.encode.as_deref().unwrap_or("encode"));
    let decider = match spec.deciders.prefill.or(spec.decider_plugin_name) {
        Some(name) => plugins.decider(&of("prefill"), &name)?,
        None => None,
    };
    let named = |stated: Option<String>, older, usual: &str| stated.or(older).unwrap_or_else(|| usual.to_owned());
    let prefill = named(spec.profiles.prefill, spec.prefill_profile, "prefill");
    let decode = named(spec.profiles.decode, spec.decode_profile, "decode");
    Ok(Pair { handler, prefill, decode, decider })
}

fn pair(
    plugins: &mut Plugins,
    pair: Pair,
    profiles: &mut BTreeMap<String, Profile>,
    warnings: &mut Vec<Warning>,
) -> Result<Handler, PolicyError> {
    let missing = |name: &str| PolicyError::Profiles {
        handler: pair.handler.clone(),
        needed: format!("a profile named {name:?}"),
    };
    let decode = profiles.remove(&pair.decode).ok_or_else(|| missing(&pair.decode))?;
    let prefill = profiles.remove(&pair.prefill);
    for name in profiles.keys() {
        let field = format!("schedulingProfiles[{name}]");
        warnings.push(Warning { field, told: format!("{} never asks this profile", pair.handler) });
    }
    let Some(decider) = pair.decider else {
        if prefill.is_some() {
            let told = "no prompt is sent to a prefiller: there is no decider, or it asks for 0 new tokens".to_owned();
            warnings.push(Warning { field: format!("plugins ({})", pair.handler), told });
        }
        return Ok(Handler::Single(decode));
    };
    if plugins.prefixes.is_empty() {
        // Nothing would ever be known of a prompt.
        let prefix = plugins.any_prefix();
        plugins.memory(prefix);
    }
    Ok(Handler::PrefillDecode { prefill: prefill.ok_or_else(|| missing(&pair.prefill))?, decode, decider })
}
