//! The shipped models, and the runtimes that they select.

use rstest::rstest;
use serde_json::Value;

use super::{auto_selected_formats, list_objects, name, run_plan, runtime_name, service, services_of, warning_codes};

/// `docs/catalogue.md` shows the selections.
// spec: RT-86
#[test]
fn models_select_matching_runtimes() {
    let (models, runtimes) = (list_objects("models"), list_objects("runtimes"));
    let manifests: String = models.iter().map(|model| service(name(model), name(model), None)).collect();
    let (stdout, stderr, _) = run_plan(&manifests, &[]);
    assert_eq!(stderr, "");
    let (mut ambiguous, mut served_by_vllm) = (Vec::new(), Vec::new());
    for (model, service) in models.iter().zip(services_of(&stdout)) {
        let selected = runtime_name(&service);
        let runtime = runtimes.iter().find(|runtime| name(runtime) == selected).unwrap();
        let has_architecture = |entry: &&Value| {
            [Some(&model["spec"]["modelArchitecture"]), None].contains(&entry.get("modelArchitecture"))
        };
        assert!(auto_selected_formats(runtime).iter().any(has_architecture), "{}", name(model));
        if warning_codes(&service).contains(&"AmbiguousRuntimes") {
            ambiguous.push(name(model));
        }
        let candidates = service["candidates"].as_array().unwrap();
        let is_ranked = |candidate: &&Value| candidate["rank"].is_u64();
        let is_sglang = |candidate: &Value| ["srt-nvidia", "srt-amd"].iter().any(|name| candidate["runtime"] == *name);
        if ["vllm-nvidia", "vllm-amd", "vllm-amd-fp8"].contains(&selected)
            && candidates.iter().filter(is_ranked).any(is_sglang)
        {
            served_by_vllm.push(name(model));
        }
        let second_candidate = candidates.iter().find(|candidate| candidate["rank"] == 2);
        let second = second_candidate.map_or("–", |candidate| candidate["runtime"].as_str().unwrap());
        if let (Some(second), Some(selected)) = (second.strip_prefix("vllm-"), selected.strip_prefix("srt-")) {
            let is_general = ["nvidia", "amd"].iter().any(|vendor| second.starts_with(vendor));
            assert!(is_general || second == selected, "SGLang has the higher priority: {selected}, {second}");
        }
    }
    assert_eq!(ambiguous, Vec::<&str>::new());
    // SGLang does not implement their architectures itself.
    assert_eq!(served_by_vllm, ["olmo-3-7b-instruct", "olmo-3-32b-think", "seed-oss-36b-instruct", "smollm3-3b"]);
}

/// Of the runtimes for all models, SGLang is selected.
// spec: RT-86
#[rstest]
#[case("8×H100-80G", "phi-4", "srt-nvidia")]
#[case("8×MI300X", "phi-4", "srt-amd")]
#[case("8×MI300X", "llama-3-1-8b-instruct", "srt-amd")]
fn sglang_has_priority(#[case] nodes: &str, #[case] model: &str, #[case] expected: &str) {
    let (stdout, stderr, _) = run_plan(&service("chat", model, None), &["--nodes", nodes]);
    assert_eq!(stderr, "");
    let service = &services_of(&stdout)[0];
    assert_eq!((runtime_name(service), warning_codes(service).as_slice()), (expected, [].as_slice()));
}
