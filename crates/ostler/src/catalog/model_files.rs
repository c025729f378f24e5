//! Creates a ClusterBaseModel from the files of a model: `config.json`, and the weights beside it.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use decide::DisplayCount;
use serde_json::{Map, Value, json};

use crate::files;
use crate::report::errors::error_with_hint;

/// Name of the file with the dimensions of a model.
const CONFIG: &str = "config.json";
/// Name of the file that lists the tensors of all files of a model.
const INDEX: &str = "model.safetensors.index.json";
/// Extension of files with weights.
const WEIGHTS: &str = "safetensors";
/// Maximum bytes of the list of tensors at the start of a file with weights.
const MAX_HEADER: u64 = 100 << 20;
/// Longest name of an object.
const MAX_NAME: usize = 63;

/// The fields of `config.json` that determine the memory of a model.
const FIELDS: [&str; 32] = [
    "model_type",
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "hidden_size",
    "n_embd",
    "d_model",
    "intermediate_size",
    "ffn_dim",
    "num_attention_heads",
    "n_head",
    "n_heads",
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "multi_query",
    "head_dim",
    "kv_lora_rank",
    "qk_rope_head_dim",
    "vocab_size",
    "tie_word_embeddings",
    "max_position_embeddings",
    "original_max_position_embeddings",
    "rope_scaling",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "sliding_window_pattern",
    "layer_types",
    "hybrid_override_pattern",
    "quantization_config",
];

/// Parameters and bytes of the weights, as far as they are known.
#[derive(Debug, Default, PartialEq, Eq)]
struct Weights {
    parameters: Option<u64>,
    bytes: Option<u64>,
}

/// Whether a path is a `config.json` of a model, or a directory that contains one.
pub(crate) fn is_model(path: &Path) -> bool {
    let config = config_path(path);
    let is_json = config.extension().is_some_and(|extension| extension == "json");
    is_json && read_config(&config).is_ok_and(|config| config["architectures"].is_array())
}

/// Returns the ClusterBaseModel of the model in `path`: a `config.json`, or its directory. The name is that of the directory unless
/// `name` sets another one; `storage` is the URI of the files.
///
/// # Errors
/// A file that cannot be read, or a configuration without `architectures`.
pub(crate) fn read(path: &Path, name: Option<&str>, storage: Option<&str>) -> Result<Value> {
    let config_path = config_path(path);
    let config = read_config(&config_path)?;
    let Some(architecture) = config["architectures"][0].as_str() else {
        let cause = format!("{}: no field `architectures`", config_path.display());
        return Err(error_with_hint(cause, "pass the config.json of a model, or its directory"));
    };
    let directory = config_path.parent().map(Path::to_owned).unwrap_or_default();
    let name = name.map_or_else(|| default_name(&directory, &config), str::to_owned);
    let weights = read_weights(&directory)?;
    let mut spec = json!({
        "modelFormat": {"name": "safetensors", "version": "1.0.0"},
        "modelFramework": {"name": "transformers", "version": config["transformers_version"]},
        "modelArchitecture": architecture,
        "modelType": config["model_type"],
        "quantization": quantization(&config),
        "modelParameterSize": weights.parameters.map(|parameters| DisplayCount(parameters).to_string()),
        "modelCapabilities": capabilities(architecture),
        "modelConfiguration": dimensions(&config),
        "additionalMetadata": weights.bytes.map(|bytes| json!({"total_size": bytes.to_string()})),
        "storage": storage.map(|uri| json!({"storageUri": uri})),
    });
    remove_nulls(&mut spec);
    Ok(json!({"apiVersion": "ome.io/v1beta1", "kind": "ClusterBaseModel", "metadata": {"name": name}, "spec": spec}))
}

fn config_path(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(CONFIG) } else { path.to_owned() }
}

fn read_config(path: &Path) -> Result<Value> {
    serde_json::from_str(&files::read_text(path)?).with_context(|| path.display().to_string())
}

/// Returns the name of the directory as an object name, otherwise the type of the model.
fn default_name(directory: &Path, config: &Value) -> String {
    let absolute = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    let name = absolute.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.or_else(|| config["model_type"].as_str().map(str::to_owned)).unwrap_or_default();
    let lower_case = name.to_ascii_lowercase();
    let words = lower_case.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name: String = words.collect::<Vec<_>>().join("-").chars().take(MAX_NAME).collect();
    let name = name.trim_matches('-');
    if name.starts_with(|c: char| c.is_ascii_lowercase()) { name.to_owned() } else { format!("model-{name}") }
}

/// Returns the quantization as the shipped runtimes name it.
fn quantization(config: &Value) -> Option<&str> {
    let quantization = [config, &config["text_config"]].map(|config| &config["quantization_config"]);
    let quantization = quantization.into_iter().find(|quantization| quantization.is_object())?;
    match (quantization["quant_method"].as_str()?, quantization["quant_algo"].as_str()) {
        ("modelopt", Some("NVFP4")) => Some("nvfp4"),
        ("modelopt", Some("FP8")) => Some("fp8"),
        (method, _) => Some(method),
    }
}

/// Returns the capabilities by the suffix of the architecture.
fn capabilities(architecture: &str) -> Vec<&'static str> {
    match architecture {
        name if name.ends_with("ForSequenceClassification") => vec!["text-rerank"],
        name if name.ends_with("ForConditionalGeneration") => vec!["text-to-text", "image-text-to-text"],
        name if name.ends_with("Model") => vec!["text-to-embeddings"],
        _ => vec!["text-to-text"],
    }
}

/// Returns the fields that determine the memory, those of the language model if there are several.
fn dimensions(config: &Value) -> Value {
    let select = |config: &Value| {
        let fields = config.as_object().into_iter().flatten();
        let fields = fields.filter(|(name, value)| FIELDS.contains(&name.as_str()) && !value.is_null());
        fields.map(|(name, value)| (name.clone(), value.clone())).collect::<Map<_, _>>()
    };
    let mut fields = select(config);
    for nested in ["text_config", "llm_config", "language_config"] {
        let nested_fields = select(&config[nested]);
        if !nested_fields.is_empty() {
            fields.insert(nested.to_owned(), Value::Object(nested_fields));
        }
    }
    Value::Object(fields)
}

/// Reads the index of the weights, otherwise the files themselves.
fn read_weights(directory: &Path) -> Result<Weights> {
    let index = directory.join(INDEX);
    let mut weights = Weights::default();
    if index.exists() {
        let index: Value =
            serde_json::from_str(&files::read_text(&index)?).with_context(|| index.display().to_string())?;
        weights.bytes = index["metadata"]["total_size"].as_u64().filter(|bytes| *bytes > 0);
        weights.parameters = index["metadata"]["total_parameters"].as_u64().filter(|count| *count > 0);
    }
    let mut paths = Vec::new();
    for entry in fs::read_dir(if directory.as_os_str().is_empty() { Path::new(".") } else { directory })? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == WEIGHTS) {
            paths.push(path);
        }
    }
    paths.sort();
    if weights.bytes.is_none() && !paths.is_empty() {
        weights.bytes = Some(paths.iter().map(|path| Ok(fs::metadata(path)?.len())).sum::<Result<u64>>()?);
    }
    if weights.parameters.is_none() && !paths.is_empty() {
        let counts: Vec<Option<u64>> = paths.iter().map(|path| parameters(path)).collect::<Result<_>>()?;
        let sum = counts.into_iter().try_fold(0_u64, |sum, count| sum.checked_add(count?));
        weights.parameters = sum.filter(|count| *count > 0);
    }
    Ok(weights)
}

/// Returns the elements of all tensors of a file; `None` if some are quantized to less than a byte, because several elements share
/// one, or if the shapes are invalid.
fn parameters(path: &Path) -> Result<Option<u64>> {
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    let mut length = [0; 8];
    file.read_exact(&mut length).with_context(|| path.display().to_string())?;
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER {
        let cause = format!("{}: the list of tensors has {length} bytes", path.display());
        return Err(error_with_hint(cause, "check that the file is a safetensors file"));
    }
    let mut header = Vec::new();
    file.take(length).read_to_end(&mut header)?;
    let tensors: BTreeMap<String, Value> =
        serde_json::from_slice(&header).with_context(|| path.display().to_string())?;
    let tensors = tensors.iter().filter(|(name, _)| *name != "__metadata__").map(|(_, tensor)| tensor);
    let elements = |tensor: &Value| -> Option<u64> {
        let is_packed = matches!(tensor["dtype"].as_str()?, "U8" | "I32" | "U32");
        let mut dimensions = tensor["shape"].as_array()?.iter();
        let product = dimensions.try_fold(1_u64, |product, dimension| product.checked_mul(dimension.as_u64()?));
        product.filter(|_| !is_packed)
    };
    Ok(tensors.map(elements).try_fold(0_u64, |sum, elements| sum.checked_add(elements?)))
}

fn remove_nulls(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.values_mut().for_each(remove_nulls);
        fields.retain(|_, field| !field.is_null());
    }
}

#[cfg(test)]
mod tests {
    use api::parse_manifest;
    use rstest::rstest;

    use super::*;

    const LLAMA: &str = r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "transformers_version": "4.43.0",
        "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 16, "torch_dtype": "bfloat16"}"#;

    /// A directory that is removed on drop.
    struct Directory(PathBuf);

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Creates the directory `name` in a directory of the test.
    fn directory(test: &str, name: &str, entries: &[(&str, &[u8])]) -> (Directory, PathBuf) {
        let parent = std::env::temp_dir().join(format!("ostler-model-files-{test}-{}", std::process::id()));
        let directory = parent.join(name);
        fs::create_dir_all(&directory).unwrap();
        for (name, content) in entries {
            fs::write(directory.join(name), content).unwrap();
        }
        (Directory(parent), directory)
    }

    fn weights(header: &str) -> Vec<u8> {
        let length = u64::try_from(header.len()).unwrap().to_le_bytes();
        [&length[..], header.as_bytes(), &[0; 4]].concat()
    }

    #[test]
    fn reads_configuration_and_weights() {
        let header = r#"{"__metadata__": {"format": "pt"}, "a": {"dtype": "BF16", "shape": [1600, 8]}, "b": {"dtype": "F32", "shape": []}}"#;
        let weights = weights(header);
        let (_parent, directory) = directory(
            "configuration",
            "Tiny_Llama-1.1",
            &[("config.json", LLAMA.as_bytes()), ("model.safetensors", &weights)],
        );
        let model = read(&directory, None, Some("hf://org/tiny")).unwrap();
        assert_eq!(
            model,
            json!({
                "apiVersion": "ome.io/v1beta1",
                "kind": "ClusterBaseModel",
                "metadata": {"name": "tiny-llama-1-1"},
                "spec": {
                    "modelFormat": {"name": "safetensors", "version": "1.0.0"},
                    "modelFramework": {"name": "transformers", "version": "4.43.0"},
                    "modelArchitecture": "LlamaForCausalLM",
                    "modelType": "llama",
                    "modelParameterSize": "12.8K",
                    "modelCapabilities": ["text-to-text"],
                    "modelConfiguration": {
                        "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 16
                    },
                    "additionalMetadata": {"total_size": weights.len().to_string()},
                    "storage": {"storageUri": "hf://org/tiny"},
                },
            })
        );
        let documents = parse_manifest("model", &model.to_string()).unwrap();
        assert_eq!(api::lint_document(&documents[0]), []);
    }

    #[test]
    fn reads_index() {
        let index = r#"{"metadata": {"total_size": 160, "total_parameters": 80}, "weight_map": {}}"#;
        let (_parent, directory) = directory(
            "index",
            "m",
            &[("config.json", LLAMA.as_bytes()), ("model.safetensors.index.json", index.as_bytes())],
        );
        assert_eq!(read_weights(&directory).unwrap(), Weights { parameters: Some(80), bytes: Some(160) });
    }

    #[rstest]
    #[case::packed("packed", r#"{"a": {"dtype": "I32", "shape": [16, 8]}}"#)]
    #[case::overflow("overflow", r#"{"a": {"dtype": "F32", "shape": [18446744073709551615, 2]}}"#)]
    #[case::negative("negative", r#"{"a": {"dtype": "F32", "shape": [-1]}}"#)]
    fn parameters_may_be_unknown(#[case] test: &str, #[case] header: &str) {
        let weights = weights(header);
        let (_parent, directory) =
            directory(test, "m", &[("config.json", LLAMA.as_bytes()), ("a.safetensors", &weights)]);
        assert_eq!(read_weights(&directory).unwrap().parameters, None);
    }

    #[test]
    fn reports_other_files() {
        let (_parent, directory) = directory("other", "m", &[("config.json", br#"{"a": 1}"#)]);
        assert!(!is_model(&directory));
        let error = read(&directory, None, None).unwrap_err().to_string();
        assert!(error.ends_with("config.json: no field `architectures`"), "{error}");
    }
}
