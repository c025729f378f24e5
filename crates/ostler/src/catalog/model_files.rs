//! Creates a ClusterBaseModel from the files of a model: `config.json`, and the weights beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use api::{Document, parse_manifest};
use decide::{DisplayCount, ModelArchitecture};
use serde_json::{Value, json};

use crate::report::errors::error_with_hint;
use crate::{files, manifest_validation};

/// Name of the file with the dimensions of a model.
const CONFIG: &str = "config.json";
/// Name of the file that lists the tensors of all files of a model.
const INDEX: &str = "model.safetensors.index.json";
/// Extension of files with weights.
const WEIGHTS: &str = "safetensors";
/// Prefix of the files that repeat the weights in the format of the vendor's own code.
const VENDOR_WEIGHTS: &str = "consolidated";
/// Bytes of the length at the start of a file with weights.
const LENGTH_SIZE: u64 = 8;
/// Maximum bytes of the list of tensors at the start of a file with weights.
const MAX_HEADER: u64 = 100 << 20;
/// Longest name of an object.
const MAX_NAME: usize = 63;

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

/// Returns the ClusterBaseModel of the model in `path`, a `config.json` or its directory, as a document.
///
/// # Errors
/// As [`read`], and a directory with manifests, which would be ignored.
pub(crate) fn document(path: &Path) -> Result<Document> {
    if let Some(manifest) = manifest_in(path)? {
        let cause = format!("{}: contains a model and the manifest {}", path.display(), manifest.display());
        let hint = format!("pass the manifests and {}/config.json as separate arguments", path.display());
        return Err(error_with_hint(cause, hint));
    }
    Ok(Document { source: path.display().to_string(), index: 1, value: read(path, None, None)? })
}

/// Returns a manifest in the directory of a model; `None` for a file. Files of models, such as `tokenizer.json`, are no manifests.
fn manifest_in(path: &Path) -> Result<Option<PathBuf>> {
    if !path.is_dir() {
        return Ok(None);
    }
    let mut manifests = files::manifests(&[path.to_owned()])?.into_iter();
    Ok(manifests.find(|path| files::read_text(path).is_ok_and(|text| is_manifest(&text))))
}

/// Returns whether the text is a manifest. The first condition avoids parsing the vocabulary of a tokenizer.
fn is_manifest(text: &str) -> bool {
    text.contains("apiVersion") && parse_manifest("", text).is_ok_and(|documents| !documents.is_empty())
}

/// Returns the ClusterBaseModel of the model in `path`: a `config.json`, or its directory. The name is that of the directory unless
/// `name` sets another one; `storage` is the URI of the files.
///
/// # Errors
/// A file that cannot be read, a configuration without `architectures`, or one that is no valid model.
pub(crate) fn read(path: &Path, name: Option<&str>, storage: Option<&str>) -> Result<Value> {
    let config_path = config_path(path);
    let config = read_config(&config_path)?;
    let Some(architecture) = config["architectures"][0].as_str() else {
        let cause = format!("{}: no field `architectures`", config_path.display());
        return Err(error_with_hint(cause, "pass the config.json of a model, or its directory"));
    };
    let directory = config_path.parent().map(non_empty).unwrap_or_default();
    let name = name.map_or_else(|| default_name(&directory, &config), str::to_owned);
    let weights = read_weights(&directory)?;
    let max_context = ModelArchitecture::from_config(&config).and_then(|architecture| architecture.max_context);
    let mut spec = json!({
        "modelFormat": {"name": "safetensors", "version": "1.0.0"},
        "modelFramework": {"name": "transformers", "version": config["transformers_version"].as_str()},
        "modelArchitecture": architecture,
        "modelType": config["model_type"].as_str(),
        "quantization": quantization(&config),
        "modelParameterSize": weights.parameters.map(|parameters| DisplayCount(parameters).to_string()),
        "modelCapabilities": capabilities(architecture, &config),
        "maxTokens": max_context,
        "modelConfiguration": dimensions(&config),
        "additionalMetadata": weights.bytes.map(|bytes| json!({"total_size": bytes.to_string()})),
        "storage": storage.map(|uri| json!({"storageUri": uri})),
    });
    remove_nulls(&mut spec);
    let model =
        json!({"apiVersion": "ome.io/v1beta1", "kind": "ClusterBaseModel", "metadata": {"name": name}, "spec": spec});
    let document = Document { source: config_path.display().to_string(), index: 1, value: model };
    manifest_validation::validate(&document)?;
    Ok(document.value)
}

/// Returns the path; the current directory instead of the empty path.
fn non_empty(path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.to_owned() }
}

fn config_path(path: &Path) -> PathBuf {
    let path = non_empty(path);
    if path.is_dir() { path.join(CONFIG) } else { path }
}

fn read_config(path: &Path) -> Result<Value> {
    // A pipe would block, and cannot be read twice.
    let is_file = fs::metadata(path).with_context(|| path.display().to_string())?.is_file();
    if !is_file {
        return Err(error_with_hint(
            format!("{}: not a regular file", path.display()),
            "pass the path of a config.json",
        ));
    }
    serde_json::from_str(&files::read_text(path)?).with_context(|| path.display().to_string())
}

/// Returns the name of the directory as an object name, otherwise the type of the model.
fn default_name(directory: &Path, config: &Value) -> String {
    let absolute = fs::canonicalize(directory).unwrap_or_else(|_| directory.to_owned());
    let name = absolute.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.or_else(|| config["model_type"].as_str().map(str::to_owned)).unwrap_or_default();
    let lower_case = name.to_ascii_lowercase();
    let words = lower_case.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let name = words.collect::<Vec<_>>().join("-");
    let starts_with_letter = name.starts_with(|c: char| c.is_ascii_lowercase());
    let name = if starts_with_letter { name } else { format!("model-{name}") };
    name.chars().take(MAX_NAME).collect::<String>().trim_end_matches('-').to_owned()
}

/// Returns `quantization_config`, which some models have in `text_config`.
fn quantization_config(config: &Value) -> Option<&Value> {
    let quantization = [config, &config["text_config"]].map(|config| &config["quantization_config"]);
    quantization.into_iter().find(|quantization| quantization.is_object())
}

/// Returns the quantization as the shipped runtimes name it.
fn quantization(config: &Value) -> Option<&str> {
    let quantization = quantization_config(config)?;
    match (quantization["quant_method"].as_str()?, quantization["quant_algo"].as_str()) {
        ("modelopt", Some("NVFP4")) => Some("nvfp4"),
        ("modelopt", Some("FP8")) => Some("fp8"),
        (method, _) => Some(method),
    }
}

/// Returns the capabilities by the suffix of the architecture.
fn capabilities(architecture: &str, config: &Value) -> Vec<&'static str> {
    match architecture {
        name if name.ends_with("ForSequenceClassification") => vec!["text-rerank"],
        name if name.ends_with("LMHeadModel") => vec!["text-to-text"],
        name if name.ends_with("Model") => vec!["text-to-embeddings"],
        _ if config["vision_config"].is_object() => vec!["text-to-text", "image-text-to-text"],
        _ => vec!["text-to-text"],
    }
}

/// Returns the fields that determine the memory.
fn dimensions(config: &Value) -> Value {
    let mut fields = ModelArchitecture::relevant_fields(config);
    let quantization = quantization_config(config).map(without_modules);
    fields.extend(quantization.map(|quantization| ("quantization_config".to_owned(), quantization)));
    Value::Object(fields)
}

/// Returns the quantization without the format of each module, which checkpoints with several formats list: an object with the 22,422
/// modules of MiniMax-M3-NVFP4 would exceed what the API server stores. The list of modules that are not quantized remains.
fn without_modules(quantization: &Value) -> Value {
    let mut quantization = quantization.clone();
    if let Some(fields) = quantization.as_object_mut() {
        fields.remove("quantized_layers");
    }
    let groups = quantization["config_groups"].as_object_mut().into_iter().flatten();
    for (_, group) in groups {
        if let Some(fields) = group.as_object_mut() {
            fields.remove("targets");
        }
    }
    remove_nulls(&mut quantization);
    quantization
}

/// Reads the index of the weights, otherwise the files themselves.
fn read_weights(directory: &Path) -> Result<Weights> {
    let index = read_index(directory)?;
    let metadata = |field: &str| index["metadata"][field].as_u64().filter(|value| *value > 0);
    let mut weights = Weights { parameters: metadata("total_parameters"), bytes: metadata("total_size") };
    let paths = weight_files(directory, &index)?;
    if paths.is_empty() {
        return Ok(weights);
    }
    if weights.bytes.is_none() {
        let sizes: Vec<u64> = paths.iter().map(|path| Ok(fs::metadata(path)?.len())).collect::<Result<_>>()?;
        weights.bytes = sizes.into_iter().try_fold(0_u64, u64::checked_add);
    }
    if weights.parameters.is_none() {
        let counts: Vec<Option<u64>> = paths.iter().map(|path| parameters(path)).collect::<Result<_>>()?;
        let sum = counts.into_iter().try_fold(0_u64, |sum, count| sum.checked_add(count?));
        weights.parameters = sum.filter(|count| *count > 0);
    }
    Ok(weights)
}

/// Reads the index of the weights; null if there is none.
fn read_index(directory: &Path) -> Result<Value> {
    let path = directory.join(INDEX);
    if path.exists() { read_config(&path) } else { Ok(Value::Null) }
}

/// Lists the files with weights: those in the index, otherwise all in the directory.
fn weight_files(directory: &Path, index: &Value) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        let is_weights = path.extension().is_some_and(|extension| extension == WEIGHTS);
        if is_weights && fs::metadata(&path).with_context(|| path.display().to_string())?.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    let name = |path: &PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if let Some(map) = index["weight_map"].as_object().filter(|map| !map.is_empty()) {
        let listed: BTreeSet<&str> = map.values().filter_map(Value::as_str).collect();
        paths.retain(|path| listed.contains(name(path).as_str()));
    } else if paths.iter().any(|path| !name(path).starts_with(VENDOR_WEIGHTS)) {
        paths.retain(|path| !name(path).starts_with(VENDOR_WEIGHTS));
    }
    Ok(paths)
}

/// Returns the elements of all tensors of a file; `None` if some are quantized to less than a byte, because several elements share
/// one, or if the shapes are invalid.
fn parameters(path: &Path) -> Result<Option<u64>> {
    let mut file = File::open(path).with_context(|| path.display().to_string())?;
    let rest = file.metadata()?.len().saturating_sub(LENGTH_SIZE);
    let mut length = [0; LENGTH_SIZE as usize];
    file.read_exact(&mut length).with_context(|| path.display().to_string())?;
    let length = u64::from_le_bytes(length);
    if length > rest.min(MAX_HEADER) {
        let cause = format!("{}: the list of tensors has {length} bytes", path.display());
        return Err(error_with_hint(cause, "check that the file is a complete safetensors file"));
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
    use rstest::rstest;

    use super::*;

    const LLAMA: &str = r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "transformers_version": "4.43.0",
        "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 16, "n_positions": 2048,
        "attention_chunk_size": 1024, "torch_dtype": "bfloat16"}"#;

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
    fn omits_the_format_of_each_module() {
        let config = json!({"quantization_config": {"quant_method": "modelopt", "ignore": ["lm_head"],
            "quantized_layers": {"model.layers.0.mlp": {"quant_algo": "FP8"}},
            "config_groups": {"group_0": {"targets": ["model.layers.0.mlp"], "weights": {"num_bits": 8}}}}});
        let expected = json!({"quantization_config": {"quant_method": "modelopt", "ignore": ["lm_head"],
            "config_groups": {"group_0": {"weights": {"num_bits": 8}}}}});
        assert_eq!(dimensions(&config), expected);
        assert_eq!(
            dimensions(&json!({"quantization_config": {"quant_method": "fp8"}}))["quantization_config"]["quant_method"],
            "fp8"
        );
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
                    "maxTokens": 2048,
                    "modelConfiguration": {
                        "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "vocab_size": 16,
                        "n_positions": 2048, "attention_chunk_size": 1024
                    },
                    "additionalMetadata": {"total_size": weights.len().to_string()},
                    "storage": {"storageUri": "hf://org/tiny"},
                },
            })
        );
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
    fn ignores_other_copies_of_the_weights() {
        let shard = weights(r#"{"a": {"dtype": "BF16", "shape": [10]}}"#);
        let files: &[(&str, &[u8])] =
            &[("config.json", LLAMA.as_bytes()), ("model.safetensors", &shard), ("consolidated.safetensors", &shard)];
        let expected = Weights { parameters: Some(10), bytes: Some(shard.len() as u64) };
        let (_parent, directory_) = directory("copies", "m", files);
        assert_eq!(read_weights(&directory_).unwrap(), expected);

        let index = br#"{"metadata": {}, "weight_map": {"a": "model.safetensors"}}"#;
        let (_parent, directory_) = directory(
            "indexed-copies",
            "m",
            &[files, &[(INDEX, index.as_slice()), ("extra.safetensors", &shard)]].concat(),
        );
        assert_eq!(read_weights(&directory_).unwrap(), expected);
    }

    #[test]
    fn rejects_truncated_weights() {
        let header = 1000_u64.to_le_bytes();
        let (_parent, directory) =
            directory("truncated", "m", &[("config.json", LLAMA.as_bytes()), ("a.safetensors", &header)]);
        let error = read_weights(&directory).unwrap_err().to_string();
        assert!(error.ends_with("a.safetensors: the list of tensors has 1000 bytes"), "{error}");
    }

    #[test]
    fn ignores_directories_with_the_name_of_weights() {
        let (_parent, directory) = directory("special", "m", &[("config.json", LLAMA.as_bytes())]);
        fs::create_dir(directory.join("a.safetensors")).unwrap();
        assert_eq!(read_weights(&directory).unwrap(), Weights::default());
    }

    #[rstest]
    #[case::generation("LlamaForCausalLM", json!({}), &["text-to-text"])]
    #[case::language_model_head("GPT2LMHeadModel", json!({}), &["text-to-text"])]
    #[case::embeddings("XLMRobertaModel", json!({}), &["text-to-embeddings"])]
    #[case::reranker("XLMRobertaForSequenceClassification", json!({}), &["text-rerank"])]
    #[case::images("Qwen3VLForConditionalGeneration", json!({"vision_config": {}}), &["text-to-text", "image-text-to-text"])]
    #[case::encoder_and_decoder("T5ForConditionalGeneration", json!({}), &["text-to-text"])]
    fn derives_capabilities(#[case] architecture: &str, #[case] config: Value, #[case] expected: &[&str]) {
        assert_eq!(capabilities(architecture, &config), expected);
    }

    #[rstest]
    #[case("Meta-Llama_3.1", "meta-llama-3-1")]
    #[case("70B", "model-70b")]
    #[case("日本", "model")]
    #[case(&"a".repeat(80), &"a".repeat(63))]
    #[case(&format!("1{}", "b".repeat(80)), &format!("model-1{}", "b".repeat(56)))]
    fn names_models_by_directory(#[case] directory: &str, #[case] expected: &str) {
        assert_eq!(default_name(Path::new(directory), &json!({})), expected);
    }

    #[test]
    fn ignores_versions_that_are_no_strings() {
        let config = br#"{"architectures": ["LlamaForCausalLM"], "transformers_version": 4, "model_type": ["llama"]}"#;
        let (_parent, directory) = directory("types", "m", &[("config.json", config)]);
        let spec = &read(&directory, None, None).unwrap()["spec"];
        assert_eq!((&spec["modelFramework"], &spec["modelType"]), (&json!({"name": "transformers"}), &Value::Null));
    }

    #[rstest]
    #[case::empty("")]
    #[case::upper_case("Llama")]
    fn rejects_invalid_names(#[case] name: &str) {
        let (_parent, directory) = directory("names", "m", &[("config.json", LLAMA.as_bytes())]);
        let error = read(&directory, Some(name), None).unwrap_err().to_string();
        assert!(error.contains("metadata.name") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn the_empty_path_is_the_current_directory() {
        assert_eq!(config_path(Path::new("")), Path::new("./config.json"));
    }

    #[test]
    fn reports_other_files() {
        let (_parent, directory) = directory("other", "m", &[("config.json", br#"{"a": 1}"#)]);
        assert!(!is_model(&directory));
        let error = read(&directory, None, None).unwrap_err().to_string();
        assert!(error.ends_with("config.json: no field `architectures`"), "{error}");
    }
}
