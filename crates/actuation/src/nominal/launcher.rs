//! Launcher mode: the nominal provider becomes the Pod of a launcher, and its engine a request to it.
//!
//! The Pod runs `ostler launcher` from the image of the engine: an init container copies the program. What differs between engines,
//! which is command, arguments and variables, is part of the request, so that a launcher can run several engines.

use std::collections::{BTreeMap, BTreeSet};

use apimachinery::expand_variables;
use apimachinery::object::{self, items};
use serde_json::{Value, json};

use super::accelerators::VARIABLE;
use super::patch::PatchError;
use crate::identity::{IdentityInput, identity};
use crate::instance::PORT_ANNOTATION;
use crate::settings::LauncherSettings;

/// Port of the REST API of launchers, which the deployed controller expects, too.
pub(crate) const LAUNCHER_PORT: u16 = 8001;

const VOLUME: &str = "ostler-launcher";
const DIRECTORY: &str = "/ostler";
/// Fields of the container that differ between engines, or that the launcher replaces.
const ENGINE_FIELDS: [&str; 6] = ["command", "args", "env", "readinessProbe", "livenessProbe", "startupProbe"];

/// How the engine of a nominal provider runs as an instance of a launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NominalInstance {
    /// Identity of the launchers that can run it.
    pub launcher: String,
    /// Maximum number of instances of a launcher that is created for it.
    pub max_instances: usize,
    /// Program and first arguments; empty for those of the launcher.
    pub command: Vec<String>,
    /// Arguments.
    pub args: Vec<String>,
    /// Variables in addition to those of the launcher.
    pub env: BTreeMap<String, String>,
}

impl NominalInstance {
    /// Returns the body of the request that creates the instance.
    #[must_use]
    pub fn request(&self, accelerators: &BTreeSet<String>, port: u16) -> Value {
        let mut request = json!({
            "args": self.args,
            "env_vars": self.env,
            "gpu_uuids": accelerators,
            "annotations": {PORT_ANNOTATION: port.to_string()},
        });
        if !self.command.is_empty() {
            request["command"] = json!(self.command);
        }
        request
    }
}

/// What a launcher is derived from, beside its spec.
#[derive(Clone, Copy, Debug)]
pub(super) struct LauncherInput<'a> {
    pub(super) annotations: &'a BTreeMap<String, String>,
    pub(super) node: &'a str,
    pub(super) namespace: &'a str,
    /// Port of the engine.
    pub(super) port: u16,
    pub(super) settings: &'a LauncherSettings,
}

/// Turns the spec of a nominal provider, whose engine is the container at `index`, into that of a launcher, and returns the engine.
///
/// # Errors
/// The engine has the port of the launcher, or refers to a variable that only the kubelet can resolve.
pub(super) fn run_in_launcher(
    spec: &mut Value,
    index: usize,
    input: &LauncherInput,
) -> Result<NominalInstance, PatchError> {
    if input.port == LAUNCHER_PORT {
        return Err(PatchError::LauncherPort { port: input.port, container: index });
    }
    let container = &mut spec["containers"][index];
    let (env, inherited) = split_env(container, index)?;
    let [command, args] = ["command", "args"].map(|field| words(container, field, index, &env, &inherited));
    let (command, args) = (command?, args?);
    let fields = object::members(container);
    ENGINE_FIELDS.iter().for_each(|field| drop(fields.remove(*field)));
    if !inherited.is_empty() {
        fields.insert("env".to_owned(), json!(inherited));
    }
    // Before the parts of the launcher are added: another version of it runs the same engines.
    let launcher = identity(&IdentityInput {
        spec,
        annotations: input.annotations,
        accelerators: &BTreeSet::new(),
        node: input.node,
        namespace: input.namespace,
    });
    add_launcher(spec, index, input.settings);
    Ok(NominalInstance { launcher, max_instances: input.settings.max_instances, command, args, env })
}

/// Returns the variables with a value, with references to earlier ones expanded, and the entries of those that the kubelet resolves.
fn split_env(container: &Value, index: usize) -> Result<(BTreeMap<String, String>, Vec<Value>), PatchError> {
    let (mut env, mut inherited) = (BTreeMap::new(), Vec::new());
    let entries = items(container.get("env")).filter(|entry| entry["name"] != VARIABLE);
    for (position, entry) in entries.enumerate() {
        let name = object::text(entry, "/name").to_owned();
        if entry.get("valueFrom").is_some_and(|source| !source.is_null()) {
            env.remove(&name);
            inherited.push(entry.clone());
            continue;
        }
        let field = || format!("spec.containers[{index}].env[{position}].value");
        let value = expand(object::text(entry, "/value"), &env, &inherited, field)?;
        inherited.retain(|other| object::text(other, "/name") != name);
        env.insert(name, value);
    }
    Ok((env, inherited))
}

/// Returns a list of words of the container with references to variables expanded.
fn words(
    container: &Value,
    list: &str,
    index: usize,
    env: &BTreeMap<String, String>,
    inherited: &[Value],
) -> Result<Vec<String>, PatchError> {
    let words = items(container.get(list)).enumerate();
    let expanded = words.map(|(position, word)| {
        let field = || format!("spec.containers[{index}].{list}[{position}]");
        expand(word.as_str().unwrap_or_default(), env, inherited, field)
    });
    expanded.collect()
}

fn expand(
    text: &str,
    env: &BTreeMap<String, String>,
    inherited: &[Value],
    field: impl Fn() -> String,
) -> Result<String, PatchError> {
    let names = inherited.iter().map(|entry| object::text(entry, "/name"));
    match names.into_iter().find(|name| text.contains(&format!("$({name})"))) {
        Some(variable) => Err(PatchError::UnresolvedVariable { field: field(), variable: variable.to_owned() }),
        None => Ok(expand_variables(text, env)),
    }
}

/// Adds the launcher: the container that copies the program, and the command that runs it.
fn add_launcher(spec: &mut Value, index: usize, settings: &LauncherSettings) {
    let mount = json!({"name": VOLUME, "mountPath": DIRECTORY});
    let installer = json!({
        "name": VOLUME,
        "image": settings.image,
        "args": ["launcher", format!("--install={DIRECTORY}")],
        "volumeMounts": [mount],
    });
    // Other init containers may be sidecars, which never end.
    insert(spec, "initContainers", 0, installer);
    insert(spec, "volumes", usize::MAX, json!({"name": VOLUME, "emptyDir": {}}));
    let container = &mut spec["containers"][index];
    insert(container, "volumeMounts", usize::MAX, mount);
    // All GPUs of the node are visible to the launcher; each engine uses those of its request.
    for (name, value) in [("NVIDIA_VISIBLE_DEVICES", "all"), ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility")] {
        insert(container, "env", usize::MAX, json!({"name": name, "value": value}));
    }
    container["command"] = json!([
        format!("{DIRECTORY}/ostler"),
        "launcher",
        format!("--port={LAUNCHER_PORT}"),
        format!("--max-instances={}", settings.max_instances),
        format!("--log-dir={DIRECTORY}/logs"),
    ]);
    container["readinessProbe"] = json!({"httpGet": {"path": "/health", "port": LAUNCHER_PORT}, "periodSeconds": 1});
}

/// Inserts an item into a list at a position, at most at its end.
fn insert(value: &mut Value, list: &str, position: usize, item: Value) {
    let mut items: Vec<Value> = items(value.get(list)).cloned().collect();
    items.insert(position.min(items.len()), item);
    value[list] = Value::Array(items);
}
