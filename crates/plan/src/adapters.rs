//! LoRA adapters of a service: `spec.model.fineTunedWeights` becomes flags of the engine, volumes, and model names of requests.

use api::ome::ModelStorage;
use serde_json::{Value, json};

use crate::code;
use crate::launch;
use crate::model_files::{self, ModelFiles};
use crate::plan_error::PlanError;
use crate::pod;

/// Directory of the mount paths of adapters in PersistentVolumeClaims.
const CLAIM_MOUNTS: &str = "/mnt/adapters";

/// A LoRA adapter of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Adapter {
    /// Name in requests.
    pub name: String,
    /// Location of the files.
    pub files: ModelFiles,
}

/// Resolves entries of `fineTunedWeights` for Pods in `namespace`: the name of a model whose `storage` has the adapter, a URI,
/// a directory of the node, or a Hugging Face name, each optionally as `NAME=LOCATION`. `find_storage` returns the storage of a
/// model; `None` if no model has this name.
///
/// # Errors
/// The first entry that has no location in a Pod, or whose name another entry has.
pub(crate) fn resolve<'m>(
    entries: &[String],
    namespace: &str,
    find_storage: impl Fn(&str) -> Option<Option<&'m ModelStorage>>,
) -> Result<Vec<Adapter>, PlanError> {
    let mut adapters: Vec<Adapter> = Vec::new();
    for (index, entry) in entries.iter().enumerate() {
        let error = |code, cause| PlanError::new(code, format!("spec.model.fineTunedWeights[{index}]: {cause}"));
        let invalid = |cause: String| error(code::error::ADAPTER_INVALID, cause);
        // A location may contain `=`.
        let (stated_name, location) = match entry.split_once('=').filter(|(name, _)| !name.contains(['/', ':'])) {
            Some((name, location)) => (Some(name), location),
            None => (None, entry.as_str()),
        };
        let name = stated_name.unwrap_or_else(|| last_segment(location));
        if !is_valid_name(name) {
            return Err(invalid(format!(
                "`{entry}` has no name of letters, digits, `-`, `_` and `.`; use NAME=LOCATION"
            )));
        }
        if adapters.iter().any(|adapter| volume_name(&adapter.name) == volume_name(name)) {
            return Err(invalid(format!("another entry has the name {name}; use NAME=LOCATION with different names")));
        }
        let storage = match uri(location) {
            Some(uri) => Some(ModelStorage { storage_uri: Some(uri), ..ModelStorage::default() }),
            None => match find_storage(location) {
                Some(storage) => storage.cloned(),
                None => {
                    let cause = format!(
                        "adapter {location} not found: no BaseModel {namespace}/{location} and no ClusterBaseModel {location} exists; \
                         create one with the storage of the adapter, or use a location such as hf://ORG/NAME"
                    );
                    return Err(error(code::error::ADAPTER_NOT_FOUND, cause));
                }
            },
        };
        let mount = format!("{CLAIM_MOUNTS}/{name}");
        let files = model_files::from_storage(storage.as_ref(), namespace, &mount).map_err(|error| {
            invalid(format!("adapter {name}: {error}; use hf://ORG/NAME, pvc://CLAIM/PATH or a directory on the nodes"))
        })?;
        if let Some(revision) = &files.revision {
            return Err(invalid(format!(
                "adapter {name}: the flags of the engines select no revision of an adapter; omit {revision}"
            )));
        }
        // Both engines separate names and locations with `=`, and vLLM parses an item with a comma as JSON.
        if files.path.contains(['=', ',']) {
            return Err(invalid(format!("adapter {name}: the location {} contains `=` or `,`", files.path)));
        }
        adapters.push(Adapter { name: name.to_owned(), files });
    }
    Ok(adapters)
}

/// Adds the flags that load `adapters`, unless the command names them. `component` is the name for messages.
///
/// # Errors
/// The command is a script or starts an engine without LoRA, so that requests would silently use the base model.
pub(crate) fn add_flags(container: &mut Value, adapters: &[Adapter], component: &str) -> Result<(), PlanError> {
    const ENABLE: &str = "--enable-lora";
    let missing: Vec<String> = adapters
        .iter()
        .filter(|adapter| !launch::mentions_value(container, &format!("{}=", adapter.name)))
        .map(|adapter| format!("{}={}", adapter.name, adapter.files.path))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let not_configured = |cause: String| {
        let message = format!("{component}: the adapters in spec.model.fineTunedWeights would not be loaded: {cause}");
        PlanError::new(code::error::ADAPTERS_NOT_CONFIGURED, message)
    };
    // docs.vllm.ai, LoRA Adapters; docs.sglang.io, LoRA Serving.
    let list = match launch::inspect(container).engine {
        Some("vllm") => "--lora-modules",
        Some("sglang") => "--lora-paths",
        engine => {
            let engine = engine.unwrap_or("an unknown engine");
            return Err(not_configured(format!("the command starts {engine}; use vllm or sglang")));
        }
    };
    if launch::flag_recipient(container).is_none() {
        let flags = format!("{ENABLE} {list} {}", missing.join(" "));
        return Err(not_configured(format!("the command is a script; add `{flags}` to it")));
    }
    if !launch::mentions(container, ENABLE) {
        launch::append_args(container, [ENABLE]);
    }
    let words = missing.iter().map(String::as_str);
    if launch::insert_after(container, list, words.clone()) {
        return Ok(());
    }
    if launch::mentions(container, list) {
        return Err(not_configured(format!(
            "the command has another list of adapters; add `{}` to {list}",
            missing.join(" ")
        )));
    }
    launch::append_args(container, std::iter::once(list).chain(words));
    Ok(())
}

/// Mounts the directories of `adapters` read-only.
pub(crate) fn mount(spec: &mut Value, container: &mut Value, adapters: &[Adapter]) {
    for Adapter { name, files } in adapters {
        let Some((mut volume, path)) = files.volume.clone() else { continue };
        let volume_name = volume_name(name);
        volume["name"] = json!(volume_name);
        pod::add_if_absent(spec, "volumes", "name", volume);
        let mount = json!({"name": volume_name, "mountPath": path, "readOnly": true});
        pod::add_if_absent(container, "volumeMounts", "mountPath", mount);
    }
}

/// Returns the model name with which requests select `adapter`: SGLang expects `BASE:ADAPTER` (docs.sglang.io, LoRA Serving), vLLM
/// the name of the adapter.
pub(crate) fn target_model(adapter: &Adapter, engine: &str, base: &str) -> String {
    match engine {
        "sglang" => format!("{base}:{}", adapter.name),
        _ => adapter.name.clone(),
    }
}

fn volume_name(adapter: &str) -> String {
    model_files::volume_name(&format!("adapter-{adapter}"))
}

/// Returns whether an adapter may have this name, which is part of flags, mount paths and volume names.
fn is_valid_name(name: &str) -> bool {
    let is_end_valid = |end: Option<char>| end.is_some_and(|end| end.is_ascii_alphanumeric());
    let is_valid = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    is_end_valid(name.chars().next()) && is_end_valid(name.chars().next_back()) && name.chars().all(is_valid)
}

/// Returns the URI of a location; `None` if it is the name of a model.
fn uri(location: &str) -> Option<String> {
    if location.contains("://") {
        Some(location.to_owned())
    } else if location.starts_with('/') {
        Some(format!("file://{location}"))
    } else {
        location.contains('/').then(|| format!("hf://{location}"))
    }
}

/// Returns the last segment of a location, without the revision of a Hugging Face name.
fn last_segment(location: &str) -> &str {
    let segment = location.trim_end_matches('/').rsplit(['/', ':']).next().unwrap_or_default();
    segment.split('@').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn resolve_one(entry: &str) -> Result<Adapter, String> {
        let storage = ModelStorage { storage_uri: Some("pvc://weights/sql".to_owned()), ..ModelStorage::default() };
        let find = |name: &str| match name {
            "sql-lora" => Some(Some(&storage)),
            "no-storage" => Some(None),
            _ => None,
        };
        let adapters = resolve(&[entry.to_owned()], "team-a", find).map_err(|error| error.message)?;
        Ok(adapters.into_iter().next().unwrap())
    }

    #[rstest]
    #[case::model("sql-lora", "sql-lora", "/mnt/adapters/sql-lora/sql")]
    #[case::renamed_model("sql=sql-lora", "sql", "/mnt/adapters/sql/sql")]
    #[case::hugging_face("yard1/llama-2-7b-sql", "llama-2-7b-sql", "yard1/llama-2-7b-sql")]
    #[case::uri("sql=hf://yard1/llama-2-7b-sql", "sql", "yard1/llama-2-7b-sql")]
    #[case::directory("/models/loras/sql/", "sql", "/models/loras/sql/")]
    #[case::claim("pvc://weights/loras/sql", "sql", "/mnt/adapters/sql/loras/sql")]
    fn resolves_entries(#[case] entry: &str, #[case] name: &str, #[case] path: &str) {
        let adapter = resolve_one(entry).unwrap();
        assert_eq!((adapter.name.as_str(), adapter.files.path.as_str()), (name, path));
    }

    #[rstest]
    #[case::not_found("sqll-lora", "adapter sqll-lora not found: no BaseModel team-a/sqll-lora")]
    #[case::no_storage("no-storage", "adapter no-storage: the model states no storage")]
    #[case::bucket("s3://bucket/sql", "adapter sql: ostler does not download from s3://bucket/sql")]
    #[case::revision("yard1/sql@v2", "adapter sql: the flags of the engines select no revision of an adapter; omit v2")]
    #[case::no_name("=hf://a/b", "has no name")]
    fn rejects_entries(#[case] entry: &str, #[case] message: &str) {
        let error = resolve_one(entry).unwrap_err();
        assert!(error.contains(message), "{error}");
    }

    #[test]
    fn rejects_equal_names() {
        let entries = ["a/sql".to_owned(), "b/sql".to_owned()];
        let error = resolve(&entries, "team-a", |_| None).unwrap_err();
        assert!(
            error.message.starts_with("spec.model.fineTunedWeights[1]: another entry has the name sql"),
            "{}",
            error.message
        );
    }

    fn adapters() -> Vec<Adapter> {
        resolve(&["sql=a/sql".to_owned(), "/loras/code".to_owned()], "team-a", |_| None).unwrap()
    }

    #[rstest]
    #[case::vllm(
        json!({"command": ["vllm", "serve", "m"]}),
        "vllm serve m --enable-lora --lora-modules sql=a/sql code=/loras/code"
    )]
    #[case::sglang(
        json!({"command": ["python3", "-m", "sglang.launch_server"], "args": ["--tp", "2"]}),
        "python3 -m sglang.launch_server --tp 2 --enable-lora --lora-paths sql=a/sql code=/loras/code"
    )]
    #[case::named_by_the_user(
        json!({"command": ["vllm", "serve", "m", "--enable-lora", "--lora-modules", "sql=/x", "code=/y"]}),
        "vllm serve m --enable-lora --lora-modules sql=/x code=/y"
    )]
    #[case::more_of_the_user(
        json!({"command": ["vllm", "serve", "m"], "args": ["--lora-modules", "other=/x", "--port", "1"]}),
        "vllm serve m --lora-modules sql=a/sql code=/loras/code other=/x --port 1 --enable-lora"
    )]
    #[case::script_of_the_user(
        json!({"command": ["sh", "-c", "vllm serve m --enable-lora --lora-modules sql=/x code=/y"]}),
        "sh -c vllm serve m --enable-lora --lora-modules sql=/x code=/y"
    )]
    fn adds_flags_of_the_engine(#[case] mut container: Value, #[case] expected: &str) {
        add_flags(&mut container, &adapters(), "engine").unwrap();
        let words = ["command", "args"].iter().flat_map(|field| container[*field].as_array().into_iter().flatten());
        assert_eq!(words.map(|word| word.as_str().unwrap()).collect::<Vec<_>>().join(" "), expected);
    }

    #[rstest]
    #[case::script(json!({"command": ["sh", "-c", "vllm serve m"]}), "add `--enable-lora --lora-modules sql=a/sql code=/loras/code` to it")]
    #[case::triton(json!({"command": ["tritonserver"]}), "the command starts triton; use vllm or sglang")]
    #[case::unknown(json!({"image": "engine:1"}), "the command starts an unknown engine")]
    #[case::list_in_one_word(json!({"command": ["vllm", "serve", "m", "--lora-modules=x=/x"]}), "the command has another list of adapters")]
    fn never_loads_only_the_base_model(#[case] mut container: Value, #[case] message: &str) {
        let error = add_flags(&mut container, &adapters(), "engine").unwrap_err();
        assert_eq!(error.code, "AdaptersNotConfigured");
        assert!(error.message.contains(message), "{}", error.message);
    }
}
