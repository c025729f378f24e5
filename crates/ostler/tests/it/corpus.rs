//! `ostler plan` over the runtimes and models that the deployed upstream project ships: what each model gets, or the
//! reason that gets furthest. Run by `cargo xtask test --with corpus`, which sets `OSTLER_CORPUS` to the folder.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::session::{Folder, ostler, outcome};

#[test]
#[ignore = "needs the corpus: cargo xtask test --with corpus"]
fn every_model_gets_its_runtime_or_the_furthest_reason() {
    let models = documents("ClusterBaseModel");
    let stated = models.iter().filter(|model| model["spec"]["modelArchitecture"].is_string()).count();
    let names: Vec<&str> = models.iter().map(|model| model["metadata"]["name"].as_str().unwrap()).collect();
    let manifests: String = names.iter().map(|name| service(name)).collect();
    let services = plan(&manifests, &[]);
    assert_eq!(services.len(), names.len());
    let mut rows: Vec<_> = services.iter().map(row).collect();
    rows.sort();
    let facts = format!("{} models, {stated} with facts", names.len());
    insta::assert_snapshot!(format!("{facts}\n{}", grouped(rows)), @r"
    131 models, 17 with facts
    AutoSelectDisabled of srt-grok-1: matches, but autoSelect is off; name it in spec.runtime.name to use it ← grok-1
    AutoSelectDisabled of srt-hermes-2-pro-llama-3-8b: matches, but autoSelect is off; name it in spec.runtime.name to use it ← hermes-2-pro-llama-3-8b
    AutoSelectDisabled of srt-internlm2-7b: matches, but autoSelect is off; name it in spec.runtime.name to use it ← internlm2-7b
    AutoSelectDisabled of srt-llama-3-1-405b-instruct-fp8: matches, but autoSelect is off; name it in spec.runtime.name to use it ← llama-3-1-405b-instruct-fp8
    AutoSelectDisabled of srt-vicuna-13b-v1-5: matches, but autoSelect is off; name it in spec.runtime.name to use it ← vicuna-13b-v1-5
    AutoSelectDisabled of srt-vicuna-7b-v1-5: matches, but autoSelect is off; name it in spec.runtime.name to use it ← vicuna-7b-v1-5
    AutoSelectDisabled of srt-xverse-moe-a36b: matches, but autoSelect is off; name it in spec.runtime.name to use it ← xverse-moe-a36b
    FormatMismatch of all: the model does not say what the runtime asks for ← 112 models: afm-4-5b-base, baichuan2-13b-chat, …
    FormatVersionMismatch of all: the model does not say what the runtime asks for ← minicpm-v-2-6
    FrameworkMismatch of all: the model does not say what the runtime asks for ← xgen-7b-8k-inst
    srt-falcon3-10b-instruct ← falcon3-10b-instruct
    srt-gpt-oss-120b-grpc (a tie) ← gpt-oss-120b
    srt-gpt-oss-20b (a tie) ← gpt-oss-20b
    srt-grok-2 ← grok-2
    srt-internvl2-5-8b ← internvl2-5-8b
    srt-llama-3-2-11b-vision-instruct ← unsloth-llama-3-2-11b-vision-instruct
    srt-llama-4-maverick-17b-128e-instruct-fp8 (a tie) ← llama-4-maverick-17b-128e-instruct, llama-4-maverick-17b-128e-instruct-fp8
    srt-llama-4-scout-17b-16e-instruct (a tie) ← llama-4-scout-17b-16e-instruct
    srt-skywork-or1-7b-preview ← skywork-or1-7b-preview
    ");
}

/// Models that the corpus has no manifest for, of a family for which it has a small runtime only.
#[test]
#[ignore = "needs the corpus: cargo xtask test --with corpus"]
fn a_large_model_never_lands_on_a_small_runtime() {
    let sizes = ["7.6B", "14.8B", "32.8B", "72.7B"];
    let manifests: String = sizes.iter().map(|size| qwen(size)).collect();
    let rows: Vec<_> = plan(&manifests, &[]).iter().map(row).collect();
    let rows: Vec<_> = rows.iter().map(|(outcome, name)| format!("{name}: {outcome}")).collect();
    insta::assert_snapshot!(rows.join("\n"), @r"
    qwen2-5-7-6b-instruct: SizeOutOfRange of srt-deepseek-r1-distill-qwen-14b: model 7.6B; the runtime states no range, and its name says 14B
    qwen2-5-14-8b-instruct: srt-deepseek-r1-distill-qwen-14b
    qwen2-5-32-8b-instruct: srt-deepseek-r1-distill-qwen-32b
    qwen2-5-72-7b-instruct: SizeOutOfRange of srt-deepseek-r1-distill-qwen-32b: model 72.7B; the runtime states no range, and its name says 32B
    ");
}

/// Every auto-selected runtime, asked for a model with exactly the facts of its entry: itself, or one that fits closer.
#[test]
#[ignore = "needs the corpus: cargo xtask test --with corpus"]
fn runtimes_select_themselves() {
    let mut manifests = String::new();
    let mut made_for = BTreeMap::new();
    for runtime in documents("ClusterServingRuntime") {
        let name = runtime["metadata"]["name"].as_str().unwrap();
        let entries = runtime["spec"]["supportedModelFormats"].as_array().unwrap().iter().enumerate();
        for (index, entry) in entries.filter(|(_, entry)| entry["autoSelect"] == true) {
            let model = format!("{name}-{index}");
            manifests += &model_of(&model, entry, &runtime["spec"]["modelSizeRange"]["max"]);
            manifests += &service(&model);
            made_for.insert(model, name.to_owned());
        }
    }
    let (mut itself, mut others) = (0, Vec::new());
    for service in plan(&manifests, &[]) {
        let wanted = &made_for[service["name"].as_str().unwrap()];
        match service["runtime"]["name"].as_str() {
            Some(chosen) if chosen == wanted => itself += 1,
            chosen => others.push(format!("{wanted} → {}{}", chosen.unwrap_or("–"), tie(&service))),
        }
    }
    others.sort();
    others.dedup();
    insta::assert_snapshot!(format!("{itself} of {} themselves\n{}", made_for.len(), others.join("\n")), @r"
    51 of 58 themselves
    srt-deepseek-r1-distill-qwen-32b → srt-deepseek-r1-distill-qwen-14b (a tie)
    srt-gpt-oss-20b-grpc → srt-gpt-oss-120b-grpc (a tie)
    srt-llama-2-7b → srt-llama-2-13b-chat-hf (a tie)
    srt-llama-2-7b-chat-hf → srt-llama-2-13b (a tie)
    srt-mixtral-8x7b → vllm-mixtral-8x7b-instruct
    vllm-e5-mistral-7b-instruct → srt-e5-7b-mistral-instruct (a tie)
    vllm-llama-3-3-70b-instruct → srt-deepseek-r1-distill-llama-70b
    ");
}

/// What became of a service, without the code of what cannot be laid out yet: the decision counts here.
fn row(service: &Value) -> (String, String) {
    let name = service["name"].as_str().unwrap().to_owned();
    let outcome = match service["runtime"]["name"].as_str() {
        Some(runtime) => format!("{runtime}{}", tie(service)),
        None => {
            let nearest = &service["candidates"][0];
            let rejected = &nearest["rejected"];
            let (code, message) = (rejected["code"].as_str().unwrap(), rejected["message"].as_str().unwrap());
            // Whatever runtime is shown first here, and whatever it asks for, the reason is the model's alone.
            match message.split_once("; spec.") {
                Some((silent, _)) => format!("{code} of all: {silent}"),
                None => format!("{code} of {}: {message}", nearest["runtime"].as_str().unwrap()),
            }
        }
    };
    (outcome, name)
}

fn tie(service: &Value) -> &'static str {
    let ambiguous =
        service["warnings"].as_array().unwrap().iter().any(|warning| warning["code"] == "AmbiguousRuntimes");
    if ambiguous { " (a tie)" } else { "" }
}

/// One line per outcome: how many, and which.
fn grouped(rows: Vec<(String, String)>) -> String {
    let mut groups = BTreeMap::<String, Vec<String>>::new();
    for (outcome, name) in rows {
        groups.entry(outcome).or_default().push(name);
    }
    let line = |(outcome, names): (String, Vec<String>)| match names.len() {
        0..4 => format!("{outcome} ← {}", names.join(", ")),
        many => format!("{outcome} ← {many} models: {}, {}, …", names[0], names[1]),
    };
    groups.into_iter().map(line).collect::<Vec<_>>().join("\n")
}

fn plan(manifests: &str, args: &[&str]) -> Vec<Value> {
    let folder = Folder::new();
    let services = folder.file("services.yaml", manifests);
    let corpus = ome();
    let (runtimes, models) = (corpus.join("runtimes"), corpus.join("models"));
    let mut command = ostler(&["plan", "--no-catalog", "-o", "json", "-f", &services]);
    let output = command.arg(&runtimes).arg(&models).args(args).output().unwrap();
    let (stdout, stderr, _) = outcome(&output);
    assert_eq!(stderr, "");
    serde_json::from_str::<Value>(&stdout).unwrap()["services"].as_array().unwrap().clone()
}

fn service(model: &str) -> String {
    format!(
        "---\napiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {{name: {model}}}\nspec:\n  model: {{name: {model}}}\n"
    )
}

fn qwen(size: &str) -> String {
    let name = format!("qwen2-5-{}-instruct", size.to_lowercase().replace('.', "-"));
    let entry = serde_json::json!({
        "modelFormat": {"name": "safetensors", "version": "1.0.0"},
        "modelFramework": {"name": "transformers", "version": "4.43.1"},
        "modelArchitecture": "Qwen2ForCausalLM",
    });
    model_of(&name, &entry, &size.into()) + &service(&name)
}

fn model_of(name: &str, entry: &Value, size: &Value) -> String {
    let fact = |field: &str| entry[field].clone();
    let named = |field: &str| {
        let mut named = fact(field);
        if let Some(named) = named.as_object_mut() {
            named.retain(|key, _| key == "name" || key == "version");
        }
        named
    };
    let mut model = serde_json::json!({
        "apiVersion": "ome.io/v1beta1",
        "kind": "ClusterBaseModel",
        "metadata": {"name": name},
        "spec": {
            "modelFormat": named("modelFormat"),
            "modelFramework": named("modelFramework"),
            "modelArchitecture": fact("modelArchitecture"),
            "quantization": fact("quantization"),
            "diffusionPipeline": fact("diffusionPipeline"),
            "modelParameterSize": size,
        },
    });
    model["spec"].as_object_mut().unwrap().retain(|_, fact| !fact.is_null());
    format!("---\n{model}\n")
}

fn documents(kind: &str) -> Vec<Value> {
    let mut found = Vec::new();
    for file in manifests(&ome()) {
        let text = std::fs::read_to_string(&file).unwrap();
        let read = api::manifest::read(&file.to_string_lossy(), &text).unwrap();
        found.extend(read.into_iter().filter(|document| document.kind() == kind).map(|document| document.value));
    }
    found
}

fn ome() -> PathBuf {
    let corpus = std::env::var_os("OSTLER_CORPUS").expect("OSTLER_CORPUS names the folder of the corpus");
    Path::new(&corpus).join("ome")
}

/// YAML files below `folder`, sorted.
fn manifests(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(manifests(&path));
        } else if path.extension().is_some_and(|extension| extension == "yaml") {
            files.push(path);
        }
    }
    files.sort();
    files
}
