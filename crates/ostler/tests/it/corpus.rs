//! Runs `ostler plan` with the runtimes and models of the upstream project OME: the selected runtime of each model, or the
//! nearest rejection. `cargo xtask test --with corpus` sets `OSTLER_CORPUS` to the directory of the corpus.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::lint_and_plan;
use crate::session::{TempDirectory, ostler, outcome};

/// Runtimes that the corpus contains again, with the same name and different content, in a later file.
const REPLACED_RUNTIMES: [&str; 2] =
    ["srt/meta/llama-3-2-11b-vision-instruct-rt.yaml", "srt/mistralai/mixtral-8x7b-instruct-v0-1-rt.yaml"];

#[test]
#[ignore = "needs the corpus: cargo xtask test --with corpus"]
fn models_select_runtimes() {
    let models = documents("ClusterBaseModel");
    let with_architecture = models.iter().filter(|model| model["spec"]["modelArchitecture"].is_string()).count();
    let names: Vec<&str> = models.iter().map(|model| model["metadata"]["name"].as_str().unwrap()).collect();
    let manifests: String = names.iter().map(|name| service(name)).collect();
    let services = plan(&manifests, &[]);
    assert_eq!(services.len(), names.len());
    let mut rows: Vec<_> = services.iter().map(row).collect();
    rows.sort();
    let summary = format!("{} models, {with_architecture} with an architecture", names.len());
    insta::assert_snapshot!(format!("{summary}\n{}", group_by_outcome(rows)), @r"
    131 models, 17 with an architecture
    AutoSelectDisabled of srt-grok-1: the runtime matches, but autoSelect is off; set spec.runtime.name to use it ← grok-1
    AutoSelectDisabled of srt-hermes-2-pro-llama-3-8b: the runtime matches, but autoSelect is off; set spec.runtime.name to use it ← hermes-2-pro-llama-3-8b
    AutoSelectDisabled of srt-internlm2-7b: the runtime matches, but autoSelect is off; set spec.runtime.name to use it ← internlm2-7b
    AutoSelectDisabled of srt-llama-3-1-405b-instruct-fp8: the runtime matches, but autoSelect is off; set spec.runtime.name to use it ← llama-3-1-405b-instruct-fp8
    AutoSelectDisabled of srt-vicuna-13b-v1-5: the runtime matches, but autoSelect is off; set spec.runtime.name to use it ← vicuna-13b-v1-5
    AutoSelectDisabled of srt-vicuna-7b-v1-5: the runtime matches, but autoSelect is off; set spec.runtime.name to use it ← vicuna-7b-v1-5
    AutoSelectDisabled of srt-xverse-moe-a36b: the runtime matches, but autoSelect is off; set spec.runtime.name to use it ← xverse-moe-a36b
    FormatMismatch of all runtimes: the model does not set fields that the runtime requires ← 112 models: afm-4-5b-base, baichuan2-13b-chat, …
    FormatVersionMismatch of all runtimes: the model does not set fields that the runtime requires ← minicpm-v-2-6
    FrameworkMismatch of all runtimes: the model does not set fields that the runtime requires ← xgen-7b-8k-inst
    srt-falcon3-10b-instruct ← falcon3-10b-instruct
    srt-gpt-oss-120b-grpc (ambiguous) ← gpt-oss-120b
    srt-gpt-oss-20b ← gpt-oss-20b
    srt-grok-2 ← grok-2
    srt-internvl2-5-8b ← internvl2-5-8b
    srt-llama-3-2-11b-vision-instruct ← unsloth-llama-3-2-11b-vision-instruct
    srt-llama-4-maverick-17b-128e-instruct-fp8 (ambiguous) ← llama-4-maverick-17b-128e-instruct, llama-4-maverick-17b-128e-instruct-fp8
    srt-llama-4-scout-17b-16e-instruct (ambiguous) ← llama-4-scout-17b-16e-instruct
    srt-skywork-or1-7b-preview ← skywork-or1-7b-preview
    ");
}

/// `ostler lint` and `ostler plan` reject the same manifests of this repository: catalog, examples, installation and fixtures of
/// tests.
#[test]
#[ignore = "takes minutes: cargo xtask test --with corpus"]
fn lint_and_plan_agree_on_the_manifests_of_the_repository() {
    let directory = TempDirectory::new();
    let service = directory.file("service.yaml", lint_and_plan::SERVICE);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let parts = ["catalog", "crates", "deploy", "docs"];
    let files: Vec<PathBuf> = parts.iter().flat_map(|part| list_manifests(&root.join(part))).collect();
    assert!(files.len() > 60, "{files:?}");
    let count_rejected = |files: &[PathBuf]| {
        let is_rejected = |file: &&PathBuf| {
            let (lint, plan, messages) = lint_and_plan::rejections(&file.display().to_string(), &service);
            assert_eq!(lint, plan, "{}: {messages}", file.display());
            lint
        };
        files.iter().filter(is_rejected).count()
    };
    let (first, second) = files.split_at(files.len() / 2);
    let rejected = std::thread::scope(|scope| {
        let others = scope.spawn(|| count_rejected(second));
        count_rejected(first) + others.join().unwrap()
    });
    assert!(rejected < files.len() / 2, "{rejected} of {} files are rejected", files.len());
}

/// Plans models that have no manifest in the corpus and belong to a family with few runtimes.
#[test]
#[ignore = "needs the corpus: cargo xtask test --with corpus"]
fn models_prefer_runtimes_named_for_their_size() {
    let sizes = ["7.6B", "14.8B", "32.8B", "72.7B"];
    let manifests: String = sizes.iter().map(|size| qwen_model_and_service(size)).collect();
    let rows: Vec<_> = plan(&manifests, &[]).iter().map(row).collect();
    let rows: Vec<_> = rows.iter().map(|(outcome, name)| format!("{name}: {outcome}")).collect();
    insta::assert_snapshot!(rows.join("\n"), @r"
    qwen2-5-7-6b-instruct: srt-deepseek-r1-distill-qwen-14b
    qwen2-5-14-8b-instruct: srt-deepseek-r1-distill-qwen-14b
    qwen2-5-32-8b-instruct: srt-deepseek-r1-distill-qwen-32b
    qwen2-5-72-7b-instruct: srt-deepseek-r1-distill-qwen-32b
    ");
}

/// For each auto-selected format, plans a model with exactly its properties: the runtime of the format or a better
/// match is selected.
#[test]
#[ignore = "needs the corpus: cargo xtask test --with corpus"]
fn formats_select_their_runtime() {
    let mut manifests = String::new();
    let mut expected_runtimes = BTreeMap::new();
    for runtime in documents("ClusterServingRuntime") {
        let name = runtime["metadata"]["name"].as_str().unwrap();
        let entries = runtime["spec"]["supportedModelFormats"].as_array().unwrap().iter().enumerate();
        for (index, entry) in entries.filter(|(_, entry)| entry["autoSelect"] == true) {
            let model = format!("{name}-{index}");
            manifests += &model_manifest(&model, entry, &runtime["spec"]["modelSizeRange"]["max"]);
            manifests += &service(&model);
            expected_runtimes.insert(model, name.to_owned());
        }
    }
    let (mut matching, mut others) = (0, Vec::new());
    for service in plan(&manifests, &[]) {
        let expected = &expected_runtimes[service["name"].as_str().unwrap()];
        match service["runtime"]["name"].as_str() {
            Some(selected) if selected == expected => matching += 1,
            selected => others.push(format!("{expected} → {}{}", selected.unwrap_or("–"), ambiguity(&service))),
        }
    }
    others.sort();
    others.dedup();
    insta::assert_snapshot!(format!("{matching} of {} select their own runtime\n{}", expected_runtimes.len(), others.join("\n")), @r"
    52 of 58 select their own runtime
    srt-gpt-oss-20b-grpc → srt-gpt-oss-120b-grpc (ambiguous)
    srt-llama-2-7b → srt-llama-2-13b-chat-hf (ambiguous)
    srt-llama-2-7b-chat-hf → srt-llama-2-13b (ambiguous)
    srt-mixtral-8x7b → vllm-mixtral-8x7b-instruct
    vllm-e5-mistral-7b-instruct → srt-e5-7b-mistral-instruct (ambiguous)
    vllm-llama-3-3-70b-instruct → srt-deepseek-r1-distill-llama-70b
    ");
}

/// Returns the selected runtime or the nearest rejection, and the name of the service.
fn row(service: &Value) -> (String, String) {
    let name = service["name"].as_str().unwrap().to_owned();
    let outcome = match service["runtime"]["name"].as_str() {
        Some(runtime) => format!("{runtime}{}", ambiguity(service)),
        None => {
            let nearest = &service["candidates"][0];
            let rejected = &nearest["rejected"];
            let (code, message) = (rejected["code"].as_str().unwrap(), rejected["message"].as_str().unwrap());
            // If the message names a field of the model, the rejection does not depend on the runtime.
            match message.split_once(": spec.") {
                Some((reason, _)) => format!("{code} of all runtimes: {reason}"),
                None => format!("{code} of {}: {message}", nearest["runtime"].as_str().unwrap()),
            }
        }
    };
    (outcome, name)
}

fn ambiguity(service: &Value) -> &'static str {
    let ambiguous =
        service["warnings"].as_array().unwrap().iter().any(|warning| warning["code"] == "AmbiguousRuntimes");
    if ambiguous { " (ambiguous)" } else { "" }
}

/// Renders one line per outcome, with the models that have this outcome.
fn group_by_outcome(rows: Vec<(String, String)>) -> String {
    let mut groups = BTreeMap::<String, Vec<String>>::new();
    for (outcome, name) in rows {
        groups.entry(outcome).or_default().push(name);
    }
    let line = |(outcome, names): (String, Vec<String>)| match names.len() {
        0..4 => format!("{outcome} ← {}", names.join(", ")),
        count => format!("{outcome} ← {count} models: {}, {}, …", names[0], names[1]),
    };
    groups.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

fn plan(manifests: &str, args: &[&str]) -> Vec<Value> {
    let directory = TempDirectory::new();
    let services = directory.file("services.yaml", manifests);
    let corpus = corpus_directory();
    let mut runtimes = list_manifests(&corpus.join("runtimes"));
    runtimes.retain(|file| !REPLACED_RUNTIMES.iter().any(|replaced| file.ends_with(replaced)));
    let mut command = ostler(&["plan", "--no-catalog", "-o", "json", "-f", &services]);
    let output = command.args(&runtimes).arg(corpus.join("models")).args(args).output().unwrap();
    let (stdout, stderr, _) = outcome(&output);
    // Several upstream runtimes have the same priority.
    let is_warning = |line: &str| line.starts_with("warning: ") || line.starts_with("  hint: ");
    assert!(stderr.lines().all(is_warning), "{stderr}");
    serde_json::from_str::<Value>(&stdout).unwrap()["services"].as_array().unwrap().clone()
}

fn service(model: &str) -> String {
    format!(
        "---\napiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {{name: {model}}}\nspec:\n  model: {{name: {model}}}\n"
    )
}

fn qwen_model_and_service(size: &str) -> String {
    let name = format!("qwen2-5-{}-instruct", size.to_lowercase().replace('.', "-"));
    let entry = serde_json::json!({
        "modelFormat": {"name": "safetensors", "version": "1.0.0"},
        "modelFramework": {"name": "transformers", "version": "4.43.1"},
        "modelArchitecture": "Qwen2ForCausalLM",
    });
    model_manifest(&name, &entry, &size.into()) + &service(&name)
}

fn model_manifest(name: &str, entry: &Value, size: &Value) -> String {
    let property = |field: &str| entry[field].clone();
    let name_and_version = |field: &str| {
        let mut value = property(field);
        if let Some(object) = value.as_object_mut() {
            object.retain(|key, _| key == "name" || key == "version");
        }
        value
    };
    let mut model = serde_json::json!({
        "apiVersion": "ome.io/v1beta1",
        "kind": "ClusterBaseModel",
        "metadata": {"name": name},
        "spec": {
            "modelFormat": name_and_version("modelFormat"),
            "modelFramework": name_and_version("modelFramework"),
            "modelArchitecture": property("modelArchitecture"),
            "quantization": property("quantization"),
            "diffusionPipeline": property("diffusionPipeline"),
            "modelParameterSize": size,
        },
    });
    model["spec"].as_object_mut().unwrap().retain(|_, value| !value.is_null());
    format!("---\n{model}\n")
}

fn documents(kind: &str) -> Vec<Value> {
    let mut documents = Vec::new();
    for file in list_manifests(&corpus_directory()) {
        let text = std::fs::read_to_string(&file).unwrap();
        let parsed = api::parse_manifest(&file.to_string_lossy(), &text).unwrap();
        documents.extend(parsed.into_iter().filter(|document| document.kind() == kind).map(|document| document.value));
    }
    documents
}

fn corpus_directory() -> PathBuf {
    let corpus = std::env::var_os("OSTLER_CORPUS").expect("OSTLER_CORPUS must be the directory of the corpus");
    Path::new(&corpus).join("ome")
}

/// Lists the YAML files below `directory`, sorted.
fn list_manifests(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(list_manifests(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    files
}
