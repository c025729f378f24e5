//! The shipped runtimes: those of specification 001, with flags that their engines support.

use std::collections::{BTreeMap, BTreeSet};

use rstest::rstest;
use serde_json::{Value, json};

use super::{
    auto_selected_formats, format_accelerators, list_objects, name, run_plan, runtime_name, service, services_of,
};
use crate::session::{TempDirectory, ostler, outcome};

/// Names and architectures in the tables of specification 001.
const SGLANG: [(&str, &str); 21] = [
    ("deepseek-rdma-pd-rt", "DeepseekV3ForCausalLM"),
    ("deepseek-rdma-rt", "DeepseekV3ForCausalLM"),
    ("e5-mistral-7b-instruct-rt", "MistralModel"),
    ("llama-3-1-70b-instruct-pd-rt", "LlamaForCausalLM"),
    ("llama-3-1-70b-instruct-rt", "LlamaForCausalLM"),
    ("llama-3-2-11b-vision-instruct-rt", "MllamaForConditionalGeneration"),
    ("llama-3-2-1b-instruct-pd-rt", "LlamaForCausalLM"),
    ("llama-3-2-1b-instruct-rt", "LlamaForCausalLM"),
    ("llama-3-2-3b-instruct-pd-rt", "LlamaForCausalLM"),
    ("llama-3-2-3b-instruct-rt", "LlamaForCausalLM"),
    ("llama-3-2-90b-vision-instruct-rt", "MllamaForConditionalGeneration"),
    ("llama-3-3-70b-instruct-pd-rt", "LlamaForCausalLM"),
    ("llama-3-3-70b-instruct-rt", "LlamaForCausalLM"),
    ("llama-4-maverick-17b-128e-instruct-fp8-pd-rt", "Llama4ForConditionalGeneration"),
    ("llama-4-maverick-17b-128e-instruct-fp8-rt", "Llama4ForConditionalGeneration"),
    ("llama-4-scout-17b-16e-instruct-pd-rt", "Llama4ForConditionalGeneration"),
    ("llama-4-scout-17b-16e-instruct-rt", "Llama4ForConditionalGeneration"),
    ("mistral-7b-instruct-pd-rt", "MistralForCausalLM"),
    ("mistral-7b-instruct-rt", "MistralForCausalLM"),
    ("mixtral-8x7b-instruct-pd-rt", "MixtralForCausalLM"),
    ("mixtral-8x7b-instruct-rt", "MixtralForCausalLM"),
];
const VLLM: [(&str, &str); 13] = [
    ("e5-mistral-7b-instruct-rt", "MistralModel"),
    ("llama-3-1-405b-instruct-fp8-rt", "LlamaForCausalLM"),
    ("llama-3-1-nemotron-nano-8b-v1-rt", "LlamaForCausalLM"),
    ("llama-3-1-nemotron-ultra-253b-v1-rt", "DeciLMForCausalLM"),
    ("llama-3-2-11b-vision-instruct-rt", "MllamaForConditionalGeneration"),
    ("llama-3-2-1b-instruct-rt", "LlamaForCausalLM"),
    ("llama-3-2-3b-instruct-rt", "LlamaForCausalLM"),
    ("llama-3-3-70b-instruct-rt", "LlamaForCausalLM"),
    ("llama-3-3-nemotron-super-49b-v1-rt", "DeciLMForCausalLM"),
    ("llama-4-maverick-17b-128e-instruct-fp8-rt", "Llama4ForConditionalGeneration"),
    ("llama-4-scout-17b-16e-instruct-rt", "Llama4ForConditionalGeneration"),
    ("mistral-7b-instruct-rt", "MistralForCausalLM"),
    ("mixtral-8x7b-instruct-rt", "MixtralForCausalLM"),
];

/// Two nodes with eight H100 GPUs each, with the labels of GPU feature discovery.
const NODES: &str = "
apiVersion: v1
kind: Node
metadata: {name: a, labels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}}
status: {allocatable: {cpu: '192', memory: 2Ti, pods: '250', nvidia.com/gpu: '8'}}
---
apiVersion: v1
kind: Node
metadata: {name: b, labels: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}}
status: {allocatable: {cpu: '192', memory: 2Ti, pods: '250', nvidia.com/gpu: '8'}}
";

// spec: RT-78
#[rstest]
#[case::sglang("srt-", SGLANG.as_slice(), "lmsysorg/sglang:")]
// spec: RT-79
// spec: RT-80
#[case::vllm("vllm-", VLLM.as_slice(), "vllm/vllm-openai:")]
fn ships_runtimes_of_the_specification(#[case] prefix: &str, #[case] table: &[(&str, &str)], #[case] image: &str) {
    let shipped = list_objects("runtimes");
    let is_in_table = |runtime: &&Value| {
        let of_engine = name(runtime).strip_prefix(prefix).map(|name| format!("{name}-rt"));
        table.iter().any(|(name, _)| Some(*name) == of_engine.as_deref())
    };
    let engine_runtimes = shipped.iter().filter(is_in_table);
    let mut names: Vec<_> =
        engine_runtimes.clone().map(|runtime| name(runtime).replacen(prefix, "", 1) + "-rt").collect();
    names.sort_unstable();
    assert_eq!(names, table.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    for runtime in engine_runtimes {
        let expected = table
            .iter()
            .find(|(name_in_table, _)| format!("{prefix}{name_in_table}") == format!("{}-rt", name(runtime)));
        for entry in runtime["spec"]["supportedModelFormats"].as_array().unwrap() {
            let names = ["modelFormat", "modelFramework"].map(|field| entry[field]["name"].as_str().unwrap());
            assert_eq!(names, ["safetensors", "transformers"], "{}", name(runtime));
            assert_eq!(entry["modelArchitecture"], expected.unwrap().1, "{}", name(runtime));
        }
        assert!(runners(runtime).iter().all(|runner| runner["image"].as_str().unwrap().contains(image)));
    }
}

#[test]
fn disaggregated_runtimes_are_not_auto_selected() {
    let shipped = list_objects("runtimes");
    let disaggregated_runtimes: Vec<_> = shipped.iter().filter(|runtime| name(runtime).ends_with("-pd")).collect();
    assert_eq!(disaggregated_runtimes.len(), 9);
    for runtime in disaggregated_runtimes {
        assert!(auto_selected_formats(runtime).is_empty(), "{}", name(runtime));
        for (component, mode) in [("engineConfig", "prefill"), ("decoderConfig", "decode")] {
            let component = &runtime["spec"][component];
            let args = component.pointer("/runner/args").or(component.pointer("/leader/runner/args")).unwrap();
            let mode = json!(format!("--disaggregation-mode={mode}"));
            assert!(args.as_array().unwrap().contains(&mode), "{}: {args}", name(runtime));
        }
    }
}

/// Whether the runtime serves models of one size range, as all runtimes of the specification do.
fn serves_one_size(runtime: &&Value) -> bool {
    let names = SGLANG.iter().map(|(name, _)| ("srt-", name)).chain(VLLM.iter().map(|(name, _)| ("vllm-", name)));
    names.into_iter().any(|(prefix, table_name)| format!("{prefix}{table_name}") == format!("{}-rt", name(runtime)))
}

/// SGLang has priority over vLLM for models that both serve.
#[test]
fn priority_depends_on_engine() {
    for runtime in list_objects("runtimes").iter().filter(serves_one_size) {
        let expected = if name(runtime).starts_with("srt-") { 2 } else { 1 };
        for entry in runtime["spec"]["supportedModelFormats"].as_array().unwrap() {
            assert_eq!(entry["priority"], expected, "{}", name(runtime));
        }
    }
}

// spec: RT-85
#[test]
fn engines_support_all_flags() {
    let mut releases = BTreeSet::new();
    for runtime in list_objects("runtimes") {
        for runner in runners(&runtime) {
            let image = runner["image"].as_str().unwrap();
            let release = engine_release(image);
            let options = supported_options(&release);
            let args = ["command", "args"].into_iter().flat_map(|field| runner[field].as_array().unwrap());
            // `-m` is a flag of `python3`; all others are flags of the engine.
            for arg in args.filter_map(Value::as_str).filter(|arg| arg.starts_with('-') && *arg != "-m") {
                let (flag, value) = arg.split_once('=').unwrap_or((arg, ""));
                let choices =
                    options.get(flag).unwrap_or_else(|| panic!("{}: {release} has no {flag}", name(&runtime)));
                let is_permitted = choices.is_empty() || choices.contains(value);
                assert!(is_permitted, "{}: {release} does not permit {arg}", name(&runtime));
            }
            releases.insert(format!("{release} in {image}"));
        }
    }
    insta::assert_debug_snapshot!(releases, @r#"
    {
        "sglang-0.5.20 in docker.io/lmsysorg/sglang-rocm:v0.5.20-rocm10-mi30x-20260920",
        "sglang-0.5.23 in docker.io/lmsysorg/sglang:v0.5.23",
        "vllm-0.10.2 in docker.io/vllm/vllm-openai:v0.10.2",
        "vllm-0.26.0 in vault.habana.ai/gaudi-docker/1.24.1/ubuntu24.04/habanalabs/vllm-0.26.0-ptupstream-2.11.0:latest",
        "vllm-0.27.0 in docker.io/vllm/vllm-tpu:v0.27.0",
        "vllm-0.31.0 in docker.io/vllm/vllm-openai-rocm:v0.31.0",
        "vllm-0.32.0 in docker.io/vllm/vllm-openai:v0.32.0",
    }
    "#);
}

/// An engine of a Pod that is deleted completes its requests: SGLang always does, vLLM since 0.18 if the flag is set. By default
/// the kubelet kills the engine after 30 s.
#[test]
fn engines_have_time_to_complete_their_requests() {
    for runtime in list_objects("runtimes") {
        for template in pod_templates(&runtime) {
            let runner = &template["runner"];
            let args = runner["args"].as_array().unwrap().iter().filter_map(Value::as_str);
            let timeouts: Vec<i64> =
                args.filter_map(|arg| arg.strip_prefix("--shutdown-timeout=")?.parse().ok()).collect();
            let release = engine_release(runner["image"].as_str().unwrap());
            let has_flag = release.starts_with("vllm") && release != "vllm-0.10.2";
            let expected = if has_flag { [120].as_slice() } else { &[] };
            let grace_period = template["terminationGracePeriodSeconds"].as_i64();
            assert_eq!((timeouts.as_slice(), grace_period), (expected, Some(150)), "{}", name(&runtime));
        }
    }
}

// spec: RT-84
#[test]
fn runtimes_serve_their_models() {
    let mut manifests = String::new();
    for runtime in list_objects("runtimes").iter().filter(serves_one_size) {
        manifests += &model_and_service_for(runtime);
    }
    let directory = TempDirectory::new();
    directory.file("services.yaml", &manifests);
    directory.file("nodes.yaml", NODES);
    let args = ["plan", "-f", "services.yaml", "--cluster", "nodes.yaml", "-o", "json"];
    let (stdout, stderr, _) = outcome(&ostler(&args).current_dir(&directory.0).output().unwrap());
    assert_eq!(stderr, "");
    let rows = services_of(&stdout).into_iter().map(|service| {
        let reason = if service["feasible"] == true { "feasible" } else { service["reason"].as_str().unwrap() };
        format!("{:<46} {:<30} {reason}", runtime_name(&service), format_accelerators(&service))
    });
    insta::assert_snapshot!(rows.collect::<Vec<_>>().join("\n"), @r"
    srt-deepseek-rdma                              8×nvidia-h100-80gb ×2, $81.92  feasible
    srt-deepseek-rdma-pd                           8×nvidia-h100-80gb ×2, $81.92  feasible
    srt-e5-mistral-7b-instruct                     1×nvidia-h100-80gb, $5.12      feasible
    srt-llama-3-2-11b-vision-instruct              1×nvidia-h100-80gb, $5.12      feasible
    srt-llama-3-2-90b-vision-instruct              4×nvidia-h100-80gb, $20.48     feasible
    srt-llama-3-1-70b-instruct                     4×nvidia-h100-80gb, $20.48     feasible
    srt-llama-3-1-70b-instruct-pd                  4×nvidia-h100-80gb, $20.48     feasible
    srt-llama-3-2-1b-instruct                      1×nvidia-h100-80gb, $5.12      feasible
    srt-llama-3-2-1b-instruct-pd                   1×nvidia-h100-80gb, $5.12      feasible
    srt-llama-3-2-3b-instruct                      1×nvidia-h100-80gb, $5.12      feasible
    srt-llama-3-2-3b-instruct-pd                   1×nvidia-h100-80gb, $5.12      feasible
    srt-llama-3-3-70b-instruct                     4×nvidia-h100-80gb, $20.48     feasible
    srt-llama-3-3-70b-instruct-pd                  4×nvidia-h100-80gb, $20.48     feasible
    srt-llama-4-maverick-17b-128e-instruct-fp8     8×nvidia-h100-80gb, $40.96     feasible
    srt-llama-4-maverick-17b-128e-instruct-fp8-pd  8×nvidia-h100-80gb, $40.96     feasible
    srt-llama-4-scout-17b-16e-instruct             4×nvidia-h100-80gb, $20.48     feasible
    srt-llama-4-scout-17b-16e-instruct-pd          4×nvidia-h100-80gb, $20.48     feasible
    srt-mistral-7b-instruct                        1×nvidia-h100-80gb, $5.12      feasible
    srt-mistral-7b-instruct-pd                     1×nvidia-h100-80gb, $5.12      feasible
    srt-mixtral-8x7b-instruct                      2×nvidia-h100-80gb, $10.24     feasible
    srt-mixtral-8x7b-instruct-pd                   2×nvidia-h100-80gb, $10.24     feasible
    vllm-e5-mistral-7b-instruct                    1×nvidia-h100-80gb, $5.12      feasible
    vllm-llama-3-2-11b-vision-instruct             1×nvidia-h100-80gb, $5.12      feasible
    vllm-llama-3-1-405b-instruct-fp8               8×nvidia-h100-80gb, $40.96     feasible
    vllm-llama-3-1-405b-instruct-fp8               8×nvidia-h100-80gb, $40.96     feasible
    vllm-llama-3-2-1b-instruct                     1×nvidia-h100-80gb, $5.12      feasible
    vllm-llama-3-2-3b-instruct                     1×nvidia-h100-80gb, $5.12      feasible
    vllm-llama-3-3-70b-instruct                    4×nvidia-h100-80gb, $20.48     feasible
    vllm-llama-4-maverick-17b-128e-instruct-fp8    8×nvidia-h100-80gb, $40.96     feasible
    vllm-llama-4-scout-17b-16e-instruct            4×nvidia-h100-80gb, $20.48     feasible
    vllm-mistral-7b-instruct                       1×nvidia-h100-80gb, $5.12      feasible
    vllm-mixtral-8x7b-instruct                     2×nvidia-h100-80gb, $10.24     feasible
    vllm-llama-3-1-nemotron-nano-8b-v1             1×nvidia-h100-80gb, $5.12      feasible
    vllm-llama-3-3-nemotron-super-49b-v1           2×nvidia-h100-80gb, $10.24     feasible
    vllm-llama-3-1-nemotron-ultra-253b-v1          8×nvidia-h100-80gb, $40.96     feasible
    ");
}

/// The runtimes that serve models of all sizes, on a fleet with accelerators of all vendors.
// spec: RT-84
#[test]
fn general_runtimes_serve_their_formats() {
    let runtimes = list_objects("runtimes");
    let general = runtimes.iter().filter(|runtime| !serves_one_size(runtime));
    let manifests: String = general.map(model_and_service_for).collect();
    let (stdout, stderr, _) = run_plan(&manifests, &["--nodes", "8×B200 ×2, 8×MI300X, 8×Gaudi3, 8×TPU-v6e"]);
    assert_eq!(stderr, "");
    let services = services_of(&stdout);
    let infeasible = services.iter().filter(|service| service["feasible"] != true);
    let infeasible: Vec<String> =
        infeasible.map(|service| format!("{}: {}", name(service), service["message"])).collect();
    assert!(services.len() > 100 && infeasible.is_empty(), "{} services: {infeasible:#?}", services.len());
}

/// An entry with an architecture ranks before entries without one, so the accelerators of a model would depend on it instead of the
/// priority if only some vendors had it.
#[test]
fn entries_with_an_architecture_exist_for_all_vendors() {
    let runtimes = list_objects("runtimes");
    let entries = |requirement: fn(&Value) -> bool| -> BTreeSet<(String, String)> {
        let of_vendor = runtimes
            .iter()
            .filter(|runtime| requirement(&runtime["spec"]["acceleratorRequirements"]["requiredCapabilities"]));
        let entries = of_vendor.flat_map(auto_selected_formats).filter(|entry| entry["modelArchitecture"].is_string());
        entries.map(|entry| (entry["modelArchitecture"].to_string(), entry["quantization"].to_string())).collect()
    };
    let nvidia = entries(|capabilities| capabilities["computeCapability"].is_string());
    let amd = entries(|capabilities| capabilities["features"][0] == "rocm");
    let others = entries(|capabilities| capabilities["features"][0] == "mme" || capabilities["features"][0] == "mxu");
    assert!(others.len() > 10, "{others:?}");
    let missing = |of_vendor: &BTreeSet<(String, String)>| others.difference(of_vendor).cloned().collect::<Vec<_>>();
    assert_eq!((missing(&nvidia), missing(&amd)), (vec![], vec![]));
}

/// Returns a model for each supported format, with a size in the middle of the runtime's range, and a service for it.
fn model_and_service_for(runtime: &Value) -> String {
    let spec = &runtime["spec"];
    let range_bound =
        |end: &str| spec["modelSizeRange"][end].as_str().map(|size| size.parse::<api::ParameterCount>().unwrap().0);
    let min = range_bound("min").unwrap_or(8_000_000_000);
    let parameters = min.midpoint(range_bound("max").unwrap_or(min));
    let entries = spec["supportedModelFormats"].as_array().unwrap().iter().enumerate();
    let manifests = |(index, entry): (usize, &Value)| {
        let model = format!("{}-{index}", name(runtime));
        let mut model_manifest = json!({
            "apiVersion": "ome.io/v1beta1",
            "kind": "ClusterBaseModel",
            "metadata": {"name": model},
            "spec": {
                "modelFormat": {"name": entry["modelFormat"]["name"], "version": entry["modelFormat"]["version"]},
                "modelFramework": entry.get("modelFramework").map(|framework| {
                    json!({"name": framework["name"], "version": framework["version"]})
                }),
                "modelArchitecture": entry.get("modelArchitecture").unwrap_or(&json!("LlamaForCausalLM")),
                "quantization": entry["quantization"],
                "modelParameterSize": parameters.to_string(),
            },
        });
        model_manifest["spec"].as_object_mut().unwrap().retain(|_, value| !value.is_null());
        format!("---\n{model_manifest}\n{}", service(&model, &model, Some(name(runtime))))
    };
    entries.map(manifests).collect()
}

/// Returns the Pod templates with a runner: of engine and decoder, and of their leaders and workers.
fn pod_templates(runtime: &Value) -> Vec<&Value> {
    let components = ["engineConfig", "decoderConfig"].into_iter().map(|component| &runtime["spec"][component]);
    let groups = components.flat_map(|component| [component, &component["leader"], &component["worker"]]);
    groups.filter(|group| !group["runner"].is_null()).collect()
}

/// Returns the runners of [`pod_templates`].
fn runners(runtime: &Value) -> Vec<&Value> {
    pod_templates(runtime).into_iter().map(|template| &template["runner"]).collect()
}

/// Returns engine and version of an image, such as `vllm-0.32.0`.
fn engine_release(image: &str) -> String {
    let engine = if image.contains("sglang") { "sglang" } else { "vllm" };
    let (_, rest) = image.split_once(engine).unwrap();
    let words = rest.split(|c: char| !c.is_ascii_digit() && c != '.');
    let version = words.map(|word| word.trim_matches('.')).find(|word| word.matches('.').count() == 2);
    format!("{engine}-{}", version.unwrap_or_else(|| panic!("no version in {image}")))
}

/// Returns the options of an engine's server and their permitted values, written by `xtask/engine-flags.py`.
fn supported_options(release: &str) -> BTreeMap<String, BTreeSet<String>> {
    let path = format!("{}/tests/data/flags/{release}.txt", env!("CARGO_MANIFEST_DIR"));
    let text =
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}: see xtask/engine-flags.py"));
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let option = |line: &str| {
        let (flag, choices) = line.split_once(' ').unwrap_or((line, ""));
        (flag.to_owned(), choices.split('|').filter(|choice| !choice.is_empty()).map(str::to_owned).collect())
    };
    lines.map(option).collect()
}
