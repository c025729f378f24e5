//! Plans the manifests of the stories in seed 000 and the examples in seed 001. The files contain the text as printed, with its
//! indentation restored; what a test adds to it is stated here.

use rstest::rstest;
use serde_json::json;

use super::{
    args, class, code, codes, container, env, kinds, node, plan_manifests, service, snapshot, template, variable,
    verdicts,
};

const CLASSES: &str = include_str!("stories/classes.yaml");
const MORE_CLASSES: &str = include_str!("stories/more-classes.yaml");
const MODELS: &str = include_str!("stories/models.yaml");
/// The printed text omits the API version and the container.
const UNIVERSAL: &str = concat!(
    "apiVersion: ome.io/v1beta1\n",
    include_str!("stories/story-2.yaml"),
    "  engineConfig: {runner: {image: lmsysorg/sglang:v0.4.6.post6}}\n"
);
/// The printed text omits the API version.
const STORY_1: &str = concat!("apiVersion: ome.io/v1beta1\n", include_str!("stories/story-1.yaml"));
/// The printed text omits the container.
const PERFORMANCE_OPTIMIZED: &str =
    concat!(include_str!("stories/story-7.yaml"), "  engineConfig: {runner: {image: lmsysorg/sglang:v0.4.6.post6}}\n");
/// The printed runtime, and a model for which it is meant.
const EXAMPLE_RUNTIME: &str = concat!(
    include_str!("stories/runtime-example.yaml"),
    "---\n{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {name: mistral-7b-instruct}, spec: {\
     modelFormat: {name: safetensors, version: 1.0.0}, modelFramework: {name: transformers, version: 4.36.2}, \
     modelArchitecture: MistralForCausalLM, modelParameterSize: 7.2B}}\n"
);
const EXAMPLE_SERVICE: &str = include_str!("stories/runtime-example-service.yaml");

/// Returns runtime and service of story 6. The printed text omits the container of the runtime.
pub(super) fn story_6() -> String {
    include_str!("stories/story-6.yaml").replacen(
        "---\n",
        "  engineConfig: {runner: {image: lmsysorg/sglang:v0.4.6.post6}}\n---\n",
        1,
    )
}

/// Returns class and service of story 4. The printed text omits the capabilities of the class, which the API requires.
fn story_4() -> String {
    let capabilities = "  capabilities: {computeCapability: '9.0', features: [tensor-cores]}\n---\n";
    include_str!("stories/story-4.yaml").replacen("---\n", capabilities, 1)
}

/// Returns a service with the given model, runtime and class.
fn service_with_class(class: &str, model: &str, runtime: &str) -> String {
    service(
        "chat",
        &format!(
            "{{model: {{name: {model}}}, runtime: {{name: {runtime}}}, acceleratorSelector: {{preferredClasses: [{class}]}}}}"
        ),
    )
}

// spec: ACC-98
#[rstest]
#[case::named(STORY_1)]
#[case::by_model(concat!("apiVersion: ome.io/v1beta1\n", include_str!("stories/story-1-before.yaml")))]
fn story_1_selects_runtime_and_class(#[case] manifest: &str) {
    let plan = plan_manifests(&[CLASSES, MODELS, UNIVERSAL, manifest]);
    assert_eq!(code(&plan), (true, "Selected"), "{}", plan.message);
    assert_eq!(plan.runtime.as_ref().unwrap().name, "sglang-universal");
    assert!(class(&plan).unwrap().starts_with("nvidia-"));
    assert_eq!(container(&plan, "-engine")["image"], "lmsysorg/sglang:v0.4.6.post6");
}

// spec: ACC-99
#[test]
fn story_2_before_uses_one_conservative_runtime() {
    let manifest = service("chat", "{model: {name: llama-7b}, runtime: {name: sglang-all-gpus}}");
    // The printed text omits the API version and the image.
    let runtime = format!("apiVersion: ome.io/v1beta1\n{}", include_str!("stories/story-2-before.yaml"));
    let runtime = runtime.replace("  - name: sglang\n", "  - name: sglang\n    image: lmsysorg/sglang:v0.4.6.post6\n");
    let plan = plan_manifests(&[CLASSES, MODELS, &runtime, &manifest]);
    assert_eq!((class(&plan), code(&plan).0), (None, true));
    assert_eq!(env(&plan, "-engine"), "GPU_MEMORY_UTILIZATION=0.85 MAX_MODEL_LEN=16384");
    assert_eq!(container(&plan, "-engine")["name"], "sglang");
}

// spec: ACC-1
#[rstest]
#[case("NVIDIA-A100-SXM4-40GB", "nvidia-a100-40gb")]
#[case("NVIDIA-H100-80GB-HBM3", "nvidia-h100-80gb")]
#[case("NVIDIA-H200-96GB", "nvidia-h200-96gb")]
fn story_2_one_runtime_on_each_class(#[case] product: &str, #[case] expect: &str) {
    let plan = plan_manifests(&[CLASSES, MORE_CLASSES, MODELS, UNIVERSAL, STORY_1, &node("n", product)]);
    assert_eq!((class(&plan), code(&plan)), (Some(expect), (true, "Selected")));
}

// spec: ACC-100
#[test]
fn story_2_capabilities_determine_eligibility() {
    let plan = plan_manifests(&[CLASSES, MORE_CLASSES, MODELS, UNIVERSAL, STORY_1]);
    let verdicts = verdicts(&plan);
    for eligible in ["nvidia-a100-40gb", "nvidia-a100-80gb", "nvidia-h100-80gb", "nvidia-h200-96gb"] {
        assert_eq!(verdicts[eligible], "Eligible", "{eligible}");
    }
    assert_eq!(verdicts["nvidia-t4-16gb"], "ComputeCapabilityTooLow");
    assert_eq!(verdicts["without-tensor-cores"], "MissingFeature");
}

// spec: ACC-101
// spec: RT-3
#[test]
fn story_2_one_runtime_for_several_architectures() {
    let manifests = ["llama-7b", "mistral-7b"].map(|model| service(model, &format!("{{model: {{name: {model}}}}}")));
    let plan = crate::plan(&snapshot(&[CLASSES, MODELS, UNIVERSAL, &manifests[0], &manifests[1]]));
    for service in &plan.services {
        assert_eq!(service.runtime.as_ref().unwrap().name, "sglang-universal", "{}", service.message);
        assert_eq!(kinds(service)[0], format!("Deployment {}-engine", service.name));
    }
}

#[rstest]
// spec: ACC-102
#[case(
    "nvidia-a100-40gb",
    "TENSOR_PARALLEL_SIZE=2 GPU_MEMORY_UTILIZATION=0.90 MAX_MODEL_LEN=16384",
    "--enable-prefix-caching",
    "2"
)]
// spec: ACC-103
#[case(
    "nvidia-h100-80gb",
    "TENSOR_PARALLEL_SIZE=1 ENABLE_FP8=true GPU_MEMORY_UTILIZATION=0.95 MAX_MODEL_LEN=32768",
    "--enable-prefix-caching --enable-chunked-prefill --speculative-model=llama-68m",
    "1"
)]
fn story_2_each_class_has_its_configuration(
    #[case] class: &str,
    #[case] variables: &str,
    #[case] arguments: &str,
    #[case] count: &str,
) {
    let plan =
        plan_manifests(&[CLASSES, MODELS, UNIVERSAL, &service_with_class(class, "llama-7b", "sglang-universal")]);
    assert_eq!((env(&plan, "-engine").as_str(), args(&plan).as_str()), (variables, arguments));
    // spec: ACC-26
    let resources = json!({"limits": {"nvidia.com/gpu": count}, "requests": {"nvidia.com/gpu": count}});
    assert_eq!(container(&plan, "-engine")["resources"], resources);
}

// spec: ACC-105
#[test]
fn story_4_merges_node_selectors() {
    let plan = plan_manifests(&[MODELS, UNIVERSAL, &story_4()]);
    let expect = json!({
        "nvidia.com/gpu.product": "H100-SXM5-80GB",
        "topology.kubernetes.io/zone": "us-west-2a",
        "compliance": "pci",
    });
    assert_eq!(template(&plan, "-engine")["spec"]["nodeSelector"], expect);
    assert!(!codes(&plan).contains(&"NodeSelectorOverridden"));
}

/// The configuration of the runtime for this class is meant for a smaller model.
#[test]
fn story_4_model_requires_more_accelerators_than_the_runtime_states() {
    let service = include_str!("stories/story-4.yaml").split("---").last().unwrap();
    let plan = plan_manifests(&[CLASSES, MODELS, UNIVERSAL, service]);
    assert_eq!(code(&plan), (true, "Selected"), "{}", plan.message);
    assert_eq!(
        env(&plan, "-engine"),
        "TENSOR_PARALLEL_SIZE=4 ENABLE_FP8=true GPU_MEMORY_UTILIZATION=0.95 MAX_MODEL_LEN=32768"
    );
    assert_eq!(container(&plan, "-engine")["resources"]["limits"]["nvidia.com/gpu"], "4");
    assert!(codes(&plan).contains(&"AcceleratorsAdded"));
}

// spec: ACC-84
/// Flags of the runtime keep their form; the rest of the accelerators is left to tensor parallelism.
#[rstest]
#[case::flag("[--tp-size, \"1\", --pp-size, \"2\"]", "--tp-size 2 --pp-size 2")]
#[case::variable("[--tp=$(PARALLELISM_SIZE), --pp=2]", "--tp=$(PARALLELISM_SIZE) --pp=2")]
fn tensor_parallelism_uses_the_accelerators_of_a_stage(#[case] runtime_args: &str, #[case] expect: &str) {
    let runtime = format!(
        "{{apiVersion: ome.io/v1beta1, kind: ClusterServingRuntime, metadata: {{name: r}}, spec: {{supportedModelFormats: [{{modelFormat: {{name: safetensors}}, autoSelect: true}}], acceleratorRequirements: {{requiredCapabilities: {{features: [tensor-cores]}}}}, engineConfig: {{runner: {{image: i, args: {runtime_args}}}}}}}}}"
    );
    let plan = plan_manifests(&[CLASSES, MODELS, &runtime, &service_with_class("nvidia-h100-80gb", "llama-70b", "r")]);
    assert_eq!(args(&plan), expect, "{}", plan.message);
    assert_eq!(container(&plan, "-engine")["resources"]["limits"]["nvidia.com/gpu"], "4");
    assert_eq!(variable(&plan, "PARALLELISM_SIZE"), "2");
    assert!(!codes(&plan).contains(&"ParallelismMismatch"));
}

// spec: ACC-107
// spec: ACC-123
#[test]
fn story_5_router_runs_on_cpu_nodes() {
    let plan = plan_manifests(&[CLASSES, MODELS, UNIVERSAL, include_str!("stories/story-5.yaml")]);
    let router = template(&plan, "-router");
    let spec = &router["spec"];
    assert_eq!(spec["nodeSelector"], json!({"node-type": "cpu-only", "instance-type": "spot"}));
    assert!(spec.get("affinity").is_none());
    let container = &spec["containers"][0];
    let resources = json!({"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"cpu": "4", "memory": "8Gi"}});
    assert_eq!(container["resources"], resources);
    // The specification sets no image, and the runtime has no router.
    assert_eq!(container["image"], "docker.io/lmsysorg/sgl-model-gateway:v0.3.2");
    let engine = "http://llama-7b-with-router-engine.default:30000";
    assert_eq!(container["args"], json!(["--host", "0.0.0.0", "--port", "8080", "--worker-urls", engine]));
    assert_eq!(env(&plan, "-router"), "");
    assert!(router["metadata"]["labels"].get("ome.io/accelerator-class").is_none());
    assert!(plan.components["router"].accelerator_class.is_none());
    let pool = plan.objects.iter().find(|object| object["kind"] == "BackendPool").unwrap();
    assert_eq!(pool["spec"]["selector"]["component"], "router");
}

// spec: ACC-108
#[test]
fn story_5_engine_uses_the_resources_of_the_service() {
    let plan = plan_manifests(&[CLASSES, MODELS, UNIVERSAL, include_str!("stories/story-5.yaml")]);
    let engine = template(&plan, "-engine");
    assert_eq!(engine["metadata"]["labels"]["ome.io/accelerator-class"], "nvidia-a100-40gb");
    assert_eq!(container(&plan, "-engine")["resources"]["limits"], json!({"nvidia.com/gpu": "1"}));
    // In addition to its node selector, the class has terms, which become an affinity.
    let affinity = engine["spec"]["affinity"].to_string();
    assert!(affinity.contains("NVIDIA-A100-PCIE-40GB"), "{affinity}");
    assert!(engine["spec"].get("nodeSelector").is_none());
    // The runtime's configuration for this class sets two accelerators.
    assert!(codes(&plan).contains(&"ParallelismMismatch"));
}

// spec: ACC-109
// spec: ACC-110
#[test]
fn story_6_has_one_replica_set_per_class() {
    let plan = plan_manifests(&[CLASSES, MODELS, &story_6()]);
    assert_eq!(code(&plan), (true, "Selected"), "{}", plan.message);
    let variants = &plan.components["engine"].variants;
    let classes: Vec<&str> = variants.iter().map(|variant| variant.accelerator_class.as_str()).collect();
    assert_eq!(classes.len(), 2, "{variants:?}");
    assert_eq!(env(&plan, "-engine-nvidia-a100-40gb"), "MAX_BATCH_SIZE=32 QUANTIZATION=awq");
    assert_eq!(env(&plan, "-engine-nvidia-h100-80gb"), "MAX_BATCH_SIZE=256 QUANTIZATION=fp8");
    let annotation = |end: &str, bound: &str| {
        template(&plan, end)["metadata"]["annotations"][format!("ome.io/prompt-tokens-{bound}")].clone()
    };
    assert_eq!(annotation("-a100-40gb", "max"), "2047");
    assert_eq!(annotation("-h100-80gb", "min"), "4097");
    assert_eq!((annotation("-a100-40gb", "min"), annotation("-h100-80gb", "max")), (json!(null), json!(null)));
}

#[test]
fn replica_sets_share_service_and_pool() {
    let plan = plan_manifests(&[CLASSES, MODELS, &story_6()]);
    let mut kinds = kinds(&plan);
    kinds.sort();
    assert_eq!(
        kinds,
        [
            "BackendPool cost-sensitive-deployment",
            "Deployment cost-sensitive-deployment-engine-nvidia-a100-40gb",
            "Deployment cost-sensitive-deployment-engine-nvidia-h100-80gb",
            "LLMUseCaseSet cost-sensitive-deployment",
            "Service cost-sensitive-deployment-engine",
        ]
    );
    let selector = |kind: &str, name: &str| {
        let is_match = |object: &&serde_json::Value| {
            object["kind"] == kind && object["metadata"]["name"].as_str().unwrap().ends_with(name)
        };
        plan.objects.iter().find(is_match).unwrap()["spec"]["selector"].clone()
    };
    let shared = json!({"component": "engine", "ome.io/inferenceservice": "cost-sensitive-deployment"});
    assert_eq!((selector("Service", ""), selector("BackendPool", "")), (shared.clone(), shared));
    for class in ["nvidia-a100-40gb", "nvidia-h100-80gb"] {
        assert_eq!(selector("Deployment", class)["matchLabels"]["ome.io/accelerator-class"], class);
    }
}

#[rstest]
// spec: ACC-114
#[case(
    "nvidia-a100-40gb",
    "QUANTIZATION_METHOD=awq ENABLE_LORA=true KV_CACHE_DTYPE=fp16",
    "--enable-prefix-caching --enable-cuda-graph"
)]
// spec: ACC-115
#[case(
    "nvidia-h100-80gb",
    "QUANTIZATION_METHOD=fp8 ENABLE_SPECULATIVE_DECODING=true DRAFT_MODEL=llama-68m SPECULATION_LENGTH=5 KV_CACHE_DTYPE=fp8",
    "--enable-prefix-caching --enable-cuda-graph --enable-chunked-prefill --num-speculative-tokens=5 --spec-decoding-acceptance-method=typical"
)]
// spec: ACC-116
#[case(
    "nvidia-h200-96gb",
    "QUANTIZATION_METHOD=fp8 ENABLE_SPECULATIVE_DECODING=true DRAFT_MODEL=llama-160m TENSOR_PARALLEL_SIZE=1 MAX_MODEL_LEN=65536",
    "--enable-prefix-caching --enable-cuda-graph --enable-chunked-prefill --num-speculative-tokens=7 --enable-flashinfer"
)]
fn story_7_each_class_has_its_configuration(#[case] class: &str, #[case] variables: &str, #[case] arguments: &str) {
    let manifest = service_with_class(class, "llama-13b", "sglang-performance-optimized");
    let plan = plan_manifests(&[CLASSES, MORE_CLASSES, MODELS, PERFORMANCE_OPTIMIZED, &manifest]);
    assert_eq!((env(&plan, "-engine").as_str(), args(&plan).as_str()), (variables, arguments));
}

// spec: ACC-117
// spec: ACC-118
#[test]
fn story_8_custom_command_is_unchanged() {
    let manifest = include_str!("stories/story-8-command.yaml");
    let plan = plan_manifests(&[CLASSES, manifest]);
    assert_eq!((class(&plan), code(&plan).0), (Some("nvidia-h100-80gb"), true), "{}", plan.message);
    let container = container(&plan, "-engine");
    let script = "python3 -m sglang.launch_server --host 0.0.0.0 --port 8080 --model-path ${MODEL_PATH} --tp-size 16 \
                  --nccl-init $(LWS_LEADER_ADDRESS):5000 --nnodes ${LWS_GROUP_SIZE} --node-rank ${LWS_WORKER_INDEX} \
                  --trust-remote-code --enable-torch-compile --torch-compile-max-bs 1 --reasoning-parser deepseek-r1 \
                  --enable-metrics\n";
    assert_eq!(container["command"], json!(["sh", "-c", script]));
    assert!(container.get("args").is_none());
    // The specification sets no image; the command starts SGLang.
    assert_eq!(container["image"], "docker.io/lmsysorg/sglang:v0.5.23");
    assert!(codes(&plan).contains(&"EngineImageUnset"));
    let product = &template(&plan, "-engine")["spec"]["nodeSelector"]["nvidia.com/gpu.product"];
    assert_eq!(product, "NVIDIA-H100-80GB-HBM3");
    assert!(codes(&plan).contains(&"AcceleratorArgsNotApplied"));
}

/// The number of accelerators in the user's script is more than a node has.
#[test]
fn story_8_custom_command_uses_what_a_node_has() {
    let node = node("n", "NVIDIA-H100-80GB-HBM3");
    let plan = plan_manifests(&[CLASSES, include_str!("stories/story-8-command.yaml"), &node]);
    assert_eq!(class(&plan), Some("nvidia-h100-80gb"), "{}", plan.message);
    assert_eq!(container(&plan, "-engine")["resources"]["limits"]["nvidia.com/gpu"], "8");
    let warning = plan.warnings.iter().find(|warning| warning.code == "ParallelismMismatch").unwrap();
    assert!(warning.message.contains("16 accelerators, but its Pods request 8"), "{}", warning.message);
}

// spec: ACC-119
// spec: ACC-84
#[test]
fn story_8_arguments_precede_those_of_the_configuration() {
    let plan = plan_manifests(&[CLASSES, PERFORMANCE_OPTIMIZED, include_str!("stories/story-8-args.yaml")]);
    assert_eq!(
        args(&plan),
        "--host=0.0.0.0 --port=8080 --model-path=${MODEL_PATH} --tp-size=8 --trust-remote-code \
         --enable-prefix-caching --enable-cuda-graph --enable-chunked-prefill --num-speculative-tokens=5 \
         --spec-decoding-acceptance-method=typical"
    );
    assert_eq!(container(&plan, "-engine")["resources"]["limits"]["nvidia.com/gpu"], "8");
    assert_eq!(variable(&plan, "PARALLELISM_SIZE"), "8");
}

// spec: ACC-121
#[test]
fn story_8_variables_merge_with_the_runtime() {
    let plan = plan_manifests(&[CLASSES, PERFORMANCE_OPTIMIZED, include_str!("stories/story-8-env.yaml")]);
    assert_eq!(
        env(&plan, "-engine"),
        "QUANTIZATION_METHOD=fp8 ENABLE_SPECULATIVE_DECODING=true DRAFT_MODEL=llama-68m SPECULATION_LENGTH=5 \
         KV_CACHE_DTYPE=fp8 TENSOR_PARALLEL_SIZE=4 CUSTOM_SETTING=user-value"
    );
}

// spec: ACC-120
#[test]
fn story_8_variables_merge_with_the_runtime_of_story_2() {
    let manifest = include_str!("stories/story-8-env.yaml").replace("sglang-performance-optimized", "sglang-universal");
    let plan = plan_manifests(&[CLASSES, UNIVERSAL, &manifest]);
    assert_eq!(
        env(&plan, "-engine"),
        "TENSOR_PARALLEL_SIZE=4 ENABLE_FP8=true GPU_MEMORY_UTILIZATION=0.95 MAX_MODEL_LEN=32768 CUSTOM_SETTING=user-value"
    );
    assert_eq!(container(&plan, "-engine")["resources"]["limits"]["nvidia.com/gpu"], "4");
}

// spec: ACC-130
#[rstest]
#[case("nvidia-a100-40gb", "nvidia.com/gpu")]
#[case("nvidia-h100-80gb", "nvidia.com/gpu")]
#[case("amd-mi250x", "amd.com/gpu")]
#[case("intel-max-1550", "gpu.intel.com/i915")]
fn plans_the_four_example_classes(#[case] class: &str, #[case] resource: &str) {
    let manifest = service_with_class(class, "llama-7b", "sglang-performance-optimized");
    let plan = plan_manifests(&[CLASSES, MODELS, PERFORMANCE_OPTIMIZED, &manifest]);
    assert_eq!(code(&plan), (true, "Selected"), "{}", plan.message);
    assert_eq!(container(&plan, "-engine")["resources"]["limits"], json!({resource: "1"}));
}

// spec: RT-6
// spec: RT-45
#[test]
fn example_runtime() {
    let manifest =
        EXAMPLE_SERVICE.replace("    minReplicas: 1\n    maxReplicas: 1\n", "    terminationGracePeriodSeconds: 5\n");
    let plan = plan_manifests(&[EXAMPLE_RUNTIME, &manifest]);
    let runtime = plan.runtime.clone().unwrap();
    assert_eq!((runtime.name.as_str(), runtime.scope), ("srt-mistral-7b-instruct", decide::Scope::Cluster));
    let container = container(&plan, "-engine");
    assert_eq!(container["image"], "lmsysorg/sglang:v0.4.6.post6");
    let amounts = json!({"cpu": "10", "memory": "30Gi", "nvidia.com/gpu": "2"});
    assert_eq!(container["resources"], json!({"requests": amounts, "limits": amounts}));
    let scaler = plan.objects.iter().find(|object| object["kind"] == "HorizontalPodAutoscaler").unwrap();
    assert_eq!((&scaler["spec"]["minReplicas"], &scaler["spec"]["maxReplicas"]), (&json!(1), &json!(3)));
}

// spec: RT-39
#[test]
fn example_service_has_a_fixed_number_of_replicas() {
    let plan = plan_manifests(&[EXAMPLE_RUNTIME, EXAMPLE_SERVICE]);
    assert!(!kinds(&plan).iter().any(|kind| kind.starts_with("HorizontalPodAutoscaler")));
    assert_eq!(plan.objects[0]["spec"]["replicas"], 1);
}

// spec: RT-51
#[test]
fn example_service_without_a_runtime() {
    let plan = plan_manifests(&[EXAMPLE_RUNTIME, include_str!("stories/runtime-example-service-automatic.yaml")]);
    assert_eq!(plan.runtime.unwrap().name, "srt-mistral-7b-instruct");
}

// spec: RT-68
#[test]
fn example_of_priorities() {
    let second = include_str!("stories/runtime-example-2.yaml");
    let manifest = include_str!("stories/runtime-example-service-automatic.yaml");
    let plan = plan_manifests(&[EXAMPLE_RUNTIME, second, manifest]);
    let ranks: Vec<(&str, Option<usize>)> =
        plan.candidates.iter().map(|candidate| (candidate.runtime.as_str(), candidate.rank)).collect();
    assert_eq!(ranks, [("srt-mistral-7b-instruct-2", Some(1)), ("srt-mistral-7b-instruct", Some(2))]);
}

// spec: RT-63
#[test]
fn rejects_an_unsupported_protocol() {
    let manifest = service(
        "chat",
        "{model: {name: mistral-7b-instruct, protocolVersion: openInference-v2}, runtime: {name: srt-mistral-7b-instruct}}",
    );
    assert_eq!(code(&plan_manifests(&[EXAMPLE_RUNTIME, &manifest])), (false, "ProtocolUnsupported"));
}
