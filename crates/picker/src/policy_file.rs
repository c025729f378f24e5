//! Reads an `EndpointPickerConfig`: the configuration file that endpoint pickers share.
//!
//! `document` is the file as written, `plugins` what each plugin means here, `elsewhere` those that only others have,
//! `profiles` and `handler` how plugins become a [`Policy`]. As in other pickers, a type, a parameter or a field that
//! nobody knows is refused. A plugin that others have and this one has not is passed over with a [`Warning`] that says what
//! happens instead; it is refused where requests would go wrong without it.

mod document;
mod elsewhere;
mod handler;
mod parameters;
mod plugins;
mod profiles;

use crate::policy::{Bodies, Policy};
use document::{File, Reference};
use plugins::Plugins;

/// What a file asks for.
#[derive(Debug)]
pub struct Configuration {
    pub policy: Policy,
    pub warnings: Vec<Warning>,
}

/// Something that is asked for and not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {told}")]
pub struct Warning {
    /// Where it stands.
    pub field: String,
    /// What is not done, and what happens instead.
    pub told: String,
}

/// What is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    #[error("not an EndpointPickerConfig: {0}")]
    NotRead(String),
    #[error("apiVersion {found:?}, kind {kind:?}: expected kind EndpointPickerConfig of {}", document::API_VERSIONS.join(" or "))]
    WrongKind { found: String, kind: String },
    #[error("featureGates: {0:?} is not known")]
    FeatureGate(String),
    #[error("plugins[{at}].type: {kind:?} is not known")]
    UnknownType { at: usize, kind: String },
    #[error("plugins[{at}].type: {kind} is not supported: {why}")]
    Impossible { at: usize, kind: String, why: &'static str },
    #[error("dataLayer.discovery is not supported: endpoints are those of the InferencePool")]
    Discovery,
    #[error("plugins[{at}].parameters of {kind}: {cause}")]
    Parameters { at: usize, kind: String, cause: String },
    #[error("plugins[{at}].name: {name:?} is given twice")]
    SameName { at: usize, name: String },
    #[error("{field}: {name:?} is not among the plugins")]
    UnknownPlugin { field: String, name: String },
    #[error("{field}: {name:?} is no {expected}")]
    AnotherPlugin { field: String, name: String, expected: &'static str },
    #[error("schedulingProfiles[{profile}].plugins: the weight of {name:?} must be a number from 0 on")]
    Weight { profile: String, name: String },
    #[error("schedulingProfiles[{profile}].plugins: {name:?} is the second picker")]
    Pickers { profile: String, name: String },
    #[error("schedulingProfiles: the name {name:?} is given twice")]
    SameProfile { name: String },
    #[error("plugins: {one:?} and {other:?} are both profile handlers")]
    Handlers { one: String, other: String },
    #[error("schedulingProfiles: {handler} needs {needed}")]
    Profiles { handler: String, needed: String },
}

/// Reads `text`; empty text is the default configuration.
///
/// # Errors
/// [`PolicyError`], one line: nothing that is stated is passed over unsaid.
pub fn read(text: &str) -> Result<Configuration, PolicyError> {
    let file = document::parse(text)?;
    let mut warnings = Vec::new();
    gates(&file, &mut warnings)?;
    sections(&file, &mut warnings)?;
    let mut plugins = Plugins::of(&file.plugins, &mut warnings)?;
    let bodies = bodies(&file, &plugins)?;
    let profiles = profiles::of(&file, &plugins)?;
    let (handler, primary_port) = handler::of(&mut plugins, profiles, &mut warnings)?;
    Ok(Configuration { policy: Policy { handler, prefixes: plugins.prefixes, bodies, primary_port }, warnings })
}

/// Gates that ask for what is always so here, or for nothing that shows.
const GATES: [&str; 5] =
    ["dataLayer", "prepareDataPlugins", "enableLegacyMetrics", "experimentalDatalayer", "haPopulateNonLeaderDatastore"];

const FLOW_CONTROL: &str = "flowControl";

fn gates(file: &File, warnings: &mut Vec<Warning>) -> Result<(), PolicyError> {
    for gate in file.feature_gates.iter().flatten() {
        let (name, on) = gate.split_once('=').map_or((gate.as_str(), true), |(name, value)| (name, value != "false"));
        match name.trim() {
            FLOW_CONTROL if on => warnings.push(Warning {
                field: "featureGates".to_owned(),
                told: "flowControl is not done: no request waits here or is shed, whatever its priority".to_owned(),
            }),
            FLOW_CONTROL => {}
            known if GATES.contains(&known) => {}
            // Switching off what is not there is done.
            _ if !on => {}
            unknown => return Err(PolicyError::FeatureGate(unknown.to_owned())),
        }
    }
    Ok(())
}

fn sections(file: &File, warnings: &mut Vec<Warning>) -> Result<(), PolicyError> {
    let layer = &file.data_layer;
    if !layer["discovery"].is_null() {
        return Err(PolicyError::Discovery);
    }
    for field in ["peerDiscovery", "crossReplicaSyncerPluginRef"] {
        if !layer[field].is_null() {
            let told = "replicas of this picker do not tell each other what they know".to_owned();
            warnings.push(Warning { field: format!("dataLayer.{field}"), told });
        }
    }
    Ok(())
}

/// The parser that is referred to decides; several stand for several paths, and what one passes, passes.
fn bodies(file: &File, plugins: &Plugins) -> Result<Bodies, PolicyError> {
    let several = file.request_handler.iter().flat_map(|handler| handler.parsers.iter().flatten());
    let several = several.map(|reference| ("requestHandler.parsers", reference));
    let mut found = Bodies::Refused;
    for (field, Reference { plugin_ref, .. }) in file.parser.iter().map(|one| ("parser", one)).chain(several) {
        if plugins.parser(field, plugin_ref)? == Bodies::Pass {
            found = Bodies::Pass;
        }
    }
    if let Some(Reference { plugin_ref, .. }) = &file.saturation_detector {
        plugins.named_or_known("saturationDetector", plugin_ref)?;
    }
    Ok(found)
}

impl PolicyError {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            PolicyError::UnknownType { kind, .. } => match api::lint::nearest(kind, plugins::known()) {
                Some(nearest) => format!("did you mean {nearest}?"),
                None => format!("types that choose are {}", plugins::OURS.join(", ")),
            },
            PolicyError::FeatureGate(_) => "leave it out".to_owned(),
            PolicyError::Impossible { .. } => "leave the plugin out, or run the picker that has it".to_owned(),
            PolicyError::Discovery => "leave it out, and name the pool with --pool-name".to_owned(),
            PolicyError::UnknownPlugin { .. } => "list it under plugins, or correct the pluginRef".to_owned(),
            PolicyError::Handlers { .. } => "keep the one that is meant".to_owned(),
            _ => "correct the configuration, or leave --config-file out".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests;
