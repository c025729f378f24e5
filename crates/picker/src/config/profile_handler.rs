//! Builds the profile handler: which profiles run, and when a prefill endpoint is used.

use std::collections::BTreeMap;

use super::{
    error::{ConfigError, ConfigWarning},
    parameters::{DisaggregatedParameters, PrefillDecodeParameters},
    plugins::{Plugin, Plugins, ProfileHandlerConfig},
};
use crate::{
    policy::{Decider, ProfileHandler},
    profile::Profile,
};

/// Default decider of `pd-profile-handler`.
const DEFAULT_DECIDER: &str = "prefix-based-pd-decider";

/// Names of the prefill and decode profiles, and the decider.
struct PrefillDecodeConfig {
    handler: String,
    prefill: String,
    decode: String,
    decider: Option<Decider>,
}

/// Returns the profile handler, and the port that forwards to all engines of a Pod, if configured.
pub(super) fn build_profile_handler(
    plugins: &mut Plugins,
    mut profiles: BTreeMap<String, Profile>,
    warnings: &mut Vec<ConfigWarning>,
) -> Result<(ProfileHandler, Option<u16>), ConfigError> {
    let mut handlers = plugins.profile_handlers().map(|(name, handler)| (name.to_owned(), handler.clone()));
    let default = || ("single-profile-handler".to_owned(), ProfileHandlerConfig::Single);
    let (name, handler) = handlers.next().unwrap_or_else(default);
    if let Some((second, _)) = handlers.next() {
        return Err(ConfigError::MultipleProfileHandlers { first: name, second });
    }
    drop(handlers);
    match handler {
        ProfileHandlerConfig::Single => Ok((build_single(&name, profiles)?, None)),
        ProfileHandlerConfig::DataParallel(parameters) => {
            Ok((build_single(&name, profiles)?, Some(parameters.primary_port)))
        }
        ProfileHandlerConfig::PrefillDecode(parameters) => {
            let port = parameters.primary_port.filter(|port| *port > 0);
            let config = prefill_decode_config(plugins, name, parameters)?;
            Ok((build_prefill_decode(plugins, config, &mut profiles, warnings)?, port))
        }
        ProfileHandlerConfig::Disaggregated(parameters) => {
            let config = disaggregated_config(plugins, name, parameters, &mut profiles, warnings)?;
            Ok((build_prefill_decode(plugins, config, &mut profiles, warnings)?, None))
        }
    }
}

fn build_single(handler: &str, mut profiles: BTreeMap<String, Profile>) -> Result<ProfileHandler, ConfigError> {
    let count = profiles.len();
    match (count, profiles.pop_first()) {
        (1, Some((_, profile))) => Ok(ProfileHandler::Single(profile)),
        _ => {
            let required = format!("one profile, but {count} are configured");
            Err(ConfigError::InvalidProfiles { handler: handler.to_owned(), required })
        }
    }
}

fn prefill_decode_config(
    plugins: &Plugins,
    handler: String,
    parameters: PrefillDecodeParameters,
) -> Result<PrefillDecodeConfig, ConfigError> {
    let field = format!("plugins ({handler}).parameters.deciderPluginName");
    let decider = match (parameters.decider_plugin_name, parameters.threshold) {
        (Some(name), _) => plugins.decider(&field, &name)?,
        (None, None) if matches!(plugins.get(DEFAULT_DECIDER), Some(Plugin::Decider(_))) => {
            plugins.decider(&field, DEFAULT_DECIDER)?
        }
        (None, threshold) => Some(Decider::UncachedBytesAbove { bytes: threshold.unwrap_or(0) }),
    };
    let (prefill, decode) = (parameters.prefill_profile, parameters.decode_profile);
    Ok(PrefillDecodeConfig { handler, prefill, decode, decider })
}

fn disaggregated_config(
    plugins: &Plugins,
    handler: String,
    parameters: DisaggregatedParameters,
    profiles: &mut BTreeMap<String, Profile>,
    warnings: &mut Vec<ConfigWarning>,
) -> Result<PrefillDecodeConfig, ConfigError> {
    let field = |stage: &str| format!("plugins ({handler}).parameters.deciders.{stage}");
    if let Some(name) = &parameters.deciders.encode {
        plugins.decider(&field("encode"), name)?;
        let message =
            "images are not encoded on separate Pods: the engine that computes the prompt encodes them".to_owned();
        warnings.push(ConfigWarning { field: field("encode"), message });
    }
    profiles.remove(parameters.profiles.encode.as_deref().unwrap_or("encode"));
    let decider = match parameters.deciders.prefill.or(parameters.decider_plugin_name) {
        Some(name) => plugins.decider(&field("prefill"), &name)?,
        None => None,
    };
    let name_or = |name: Option<String>, legacy_name: Option<String>, default: &str| {
        name.or(legacy_name).unwrap_or_else(|| default.to_owned())
    };
    let prefill = name_or(parameters.profiles.prefill, parameters.prefill_profile, "prefill");
    let decode = name_or(parameters.profiles.decode, parameters.decode_profile, "decode");
    Ok(PrefillDecodeConfig { handler, prefill, decode, decider })
}

fn build_prefill_decode(
    plugins: &mut Plugins,
    config: PrefillDecodeConfig,
    profiles: &mut BTreeMap<String, Profile>,
    warnings: &mut Vec<ConfigWarning>,
) -> Result<ProfileHandler, ConfigError> {
    let missing = |name: &str| ConfigError::InvalidProfiles {
        handler: config.handler.clone(),
        required: format!("a profile named {name:?}"),
    };
    let decode = profiles.remove(&config.decode).ok_or_else(|| missing(&config.decode))?;
    let prefill = profiles.remove(&config.prefill);
    for name in profiles.keys() {
        let field = format!("schedulingProfiles[{name}]");
        warnings.push(ConfigWarning { field, message: format!("{} does not use this profile", config.handler) });
    }
    let Some(decider) = config.decider else {
        if prefill.is_some() {
            let message =
                "no prompt is sent to a prefill endpoint: no decider is configured, or its nonCachedTokens is 0";
            let field = format!("plugins ({})", config.handler);
            warnings.push(ConfigWarning { field, message: message.to_owned() });
        }
        return Ok(ProfileHandler::Single(decode));
    };
    if plugins.prefix_configs.is_empty() {
        // The decider needs a prefix index to estimate which prompts are cached.
        let config = plugins.default_prefix_config();
        plugins.prefix_index_for(config);
    }
    let prefill = prefill.ok_or_else(|| missing(&config.prefill))?;
    Ok(ProfileHandler::PrefillDecode { prefill, decode, decider })
}
