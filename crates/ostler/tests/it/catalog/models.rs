//! The shipped models, and the runtimes that they select.

use super::{
    auto_selected_formats, format_accelerators, list_objects, name, run_plan, runtime_name, service, services_of,
    warning_codes,
};

/// The selection for each model without a cluster, and the candidate with rank 2.
// spec: RT-86
#[test]
fn models_select_matching_runtimes() {
    let (models, runtimes) = (list_objects("models"), list_objects("runtimes"));
    let manifests: String = models.iter().map(|model| service(name(model), name(model), None)).collect();
    let (stdout, stderr, _) = run_plan(&manifests, &[]);
    assert_eq!(stderr, "");
    let mut rows = Vec::new();
    for (model, service) in models.iter().zip(services_of(&stdout)) {
        let selected = runtime_name(&service);
        let runtime = runtimes.iter().find(|runtime| name(runtime) == selected).unwrap();
        let entries = auto_selected_formats(runtime);
        assert!(entries.iter().any(|entry| entry["modelArchitecture"] == model["spec"]["modelArchitecture"]));
        assert!(!warning_codes(&service).contains(&"AmbiguousRuntimes"), "{}: {service}", name(model));
        let second_candidate =
            service["candidates"].as_array().unwrap().iter().find(|candidate| candidate["rank"] == 2);
        let second = second_candidate.map_or("–", |candidate| candidate["runtime"].as_str().unwrap());
        rows.push(format!("{:<40} {selected:<43} {:<30} {second}", name(model), format_accelerators(&service)));
        if let Some(name) = second.strip_prefix("vllm-") {
            assert_eq!(selected.strip_prefix("srt-"), Some(name), "SGLang has the higher priority");
        }
    }
    insta::assert_snapshot!(rows.join("\n"), @r"
    deepseek-v3                              srt-deepseek-rdma                           8×nvidia-h100-80gb ×2, $81.92  –
    deepseek-v3-0324                         srt-deepseek-rdma                           8×nvidia-h100-80gb ×2, $81.92  –
    deepseek-r1                              srt-deepseek-rdma                           8×nvidia-h100-80gb ×2, $81.92  –
    deepseek-r1-0528                         srt-deepseek-rdma                           8×nvidia-h100-80gb ×2, $81.92  –
    deepseek-r1-distill-llama-8b             vllm-llama-3-1-nemotron-nano-8b-v1          1×nvidia-l4, $0.81             –
    deepseek-r1-distill-llama-70b            srt-llama-3-3-70b-instruct                  1×nvidia-b200, $14.24          vllm-llama-3-3-70b-instruct
    e5-mistral-7b-instruct                   srt-e5-mistral-7b-instruct                  1×nvidia-l4, $0.81             vllm-e5-mistral-7b-instruct
    llama-3-8b-instruct                      vllm-llama-3-1-nemotron-nano-8b-v1          1×nvidia-l4, $0.81             –
    llama-3-70b-instruct                     srt-llama-3-1-70b-instruct                  1×nvidia-b200, $14.24          srt-llama-3-3-70b-instruct
    llama-3-1-8b-instruct                    vllm-llama-3-1-nemotron-nano-8b-v1          1×nvidia-l4, $0.81             –
    llama-3-1-70b-instruct                   srt-llama-3-1-70b-instruct                  1×nvidia-b200, $14.24          srt-llama-3-3-70b-instruct
    llama-3-1-405b-instruct-fp8              vllm-llama-3-1-405b-instruct-fp8            8×nvidia-h100-80gb, $40.96     –
    llama-3-2-1b-instruct                    srt-llama-3-2-1b-instruct                   1×nvidia-l4, $0.81             vllm-llama-3-2-1b-instruct
    llama-3-2-3b-instruct                    srt-llama-3-2-3b-instruct                   1×nvidia-l4, $0.81             vllm-llama-3-2-3b-instruct
    llama-3-2-11b-vision-instruct            srt-llama-3-2-11b-vision-instruct           1×nvidia-a100-40gb, $2.21      vllm-llama-3-2-11b-vision-instruct
    llama-3-2-90b-vision-instruct            srt-llama-3-2-90b-vision-instruct           4×nvidia-h100-80gb, $20.48     –
    llama-3-3-70b-instruct                   srt-llama-3-3-70b-instruct                  1×nvidia-b200, $14.24          vllm-llama-3-3-70b-instruct
    llama-4-scout-17b-16e-instruct           srt-llama-4-scout-17b-16e-instruct          4×nvidia-h100-80gb, $20.48     vllm-llama-4-scout-17b-16e-instruct
    llama-4-maverick-17b-128e-instruct-fp8   srt-llama-4-maverick-17b-128e-instruct-fp8  8×nvidia-h100-80gb, $40.96     vllm-llama-4-maverick-17b-128e-instruct-fp8
    llama-guard-3-1b                         srt-llama-3-2-1b-instruct                   1×nvidia-l4, $0.81             vllm-llama-3-2-1b-instruct
    llama-guard-3-8b                         vllm-llama-3-1-nemotron-nano-8b-v1          1×nvidia-l4, $0.81             –
    mistral-7b-instruct                      srt-mistral-7b-instruct                     1×nvidia-l4, $0.81             vllm-mistral-7b-instruct
    mistral-7b-instruct-v0-3                 srt-mistral-7b-instruct                     1×nvidia-l4, $0.81             vllm-mistral-7b-instruct
    mixtral-8x7b-instruct                    srt-mixtral-8x7b-instruct                   2×nvidia-h100-80gb, $10.24     vllm-mixtral-8x7b-instruct
    llama-3-1-nemotron-nano-8b-v1            vllm-llama-3-1-nemotron-nano-8b-v1          1×nvidia-l4, $0.81             –
    llama-3-1-nemotron-70b-instruct          srt-llama-3-1-70b-instruct                  1×nvidia-b200, $14.24          srt-llama-3-3-70b-instruct
    llama-3-3-nemotron-super-49b-v1          vllm-llama-3-3-nemotron-super-49b-v1        2×nvidia-h100-80gb, $10.24     –
    llama-3-1-nemotron-ultra-253b-v1         vllm-llama-3-1-nemotron-ultra-253b-v1       8×nvidia-h100-80gb, $40.96     –
    ");
}
