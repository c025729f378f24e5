//! Merging of runtime, accelerator configuration, service and annotations, from manifest to Pod.

use rstest::rstest;
use serde_json::json;

use super::{
    args, class, code, codes, container, env, plan_manifests, service, setting, snapshot, strings, template, variable,
};
use crate::ServicePlan;

const CLASSES: &str = include_str!("stories/classes.yaml");
const ACME: &str = "
apiVersion: ome.io/v1beta1
kind: AcceleratorClass
metadata: {name: acme-npu}
spec:
  vendor: acme
  discovery: {nodeSelector: {acme.com/npu.model: x1}}
  capabilities: {memoryGB: 64Gi}
  resources: [{name: acme.com/npu}]
";

/// Returns a runtime with the given fields of `engineConfig` and spec.
fn runtime(spec: &str, engine: &str) -> String {
    format!(
        "{{apiVersion: ome.io/v1beta1, kind: ClusterServingRuntime, metadata: {{name: rt}}, \
         spec: {{supportedModelFormats: [{{name: safetensors}}], engineConfig: {{{engine}}}, {spec}}}}}"
    )
}

fn configuration_for(class: &str, fields: &str) -> String {
    format!("acceleratorConfigurations: [{{selector: {{acceleratorClass: {class}}}, {fields}}}]")
}

fn service_with_class(class: &str, engine: &str) -> String {
    service(
        "chat",
        &format!(
            "{{runtime: {{name: rt}}, acceleratorSelector: {{preferredClasses: [{class}]}}, engine: {{{engine}}}}}"
        ),
    )
}

// spec: ACC-3
// spec: ACC-2
#[rstest]
#[case("amd-mi250x", "amd.com/gpu")]
#[case("acme-npu", "acme.com/npu")]
fn pods_request_only_the_resource_of_the_class(#[case] class: &str, #[case] resource: &str) {
    let engine = "runner: {image: x, resources: {limits: {nvidia.com/gpu: 2}, requests: {nvidia.com/gpu: 2}}}";
    let plan = plan_manifests(&[
        CLASSES,
        ACME,
        &runtime(&configuration_for(class, "env: []"), engine),
        &service_with_class(class, ""),
    ]);
    let resources = json!({"limits": {resource: "2"}, "requests": {resource: "2"}});
    assert_eq!(container(&plan, "-engine")["resources"], resources, "{}", plan.message);
}

// spec: ACC-4
// spec: ACC-5
// spec: ACC-125
#[test]
fn classes_have_no_effect_without_accelerator_fields() {
    let runtime =
        runtime("nodeSelector: {pool: a}", "runner: {image: x, args: [--a], resources: {limits: {nvidia.com/gpu: 2}}}");
    let manifest = service("chat", "{runtime: {name: rt}}");
    let with_classes = snapshot(&[CLASSES, &runtime, &manifest]);
    let without_classes = snapshot(&[&runtime, &manifest]);
    let mut disabled_gate = with_classes.clone();
    disabled_gate.accelerator_aware = false;
    let objects = |snapshot| crate::plan(snapshot).services.remove(0).objects;
    assert_eq!(objects(&with_classes), objects(&disabled_gate));
    assert_eq!(objects(&with_classes), objects(&without_classes));
    assert!(!objects(&with_classes).is_empty());
}

// spec: ACC-125
#[test]
fn disabled_feature_gate_ignores_classes_and_configurations() {
    let runtime = runtime(
        &configuration_for("nvidia-h100-80gb", "env: [{name: A, value: b}], runner: {args: [--tuned]}"),
        "runner: {image: x}",
    );
    let manifest = service(
        "chat",
        "{runtime: {name: rt}, acceleratorSelector: {preferredClasses: [nvidia-h100-80gb], nodeSelector: {zone: a}},
          engine: {runner: {args: [--mine]}}}",
    );
    let mut snapshot_with_gate = snapshot(&[CLASSES, &runtime, &manifest]);
    let enabled = crate::plan(&snapshot_with_gate).services.remove(0);
    assert_eq!((class(&enabled), args(&enabled).as_str()), (Some("nvidia-h100-80gb"), "--mine --tuned"));
    snapshot_with_gate.accelerator_aware = false;
    let disabled = crate::plan(&snapshot_with_gate).services.remove(0);
    assert_eq!((class(&disabled), args(&disabled).as_str(), env(&disabled, "-engine").as_str()), (None, "--mine", ""));
    assert!(template(&disabled, "-engine")["spec"].get("nodeSelector").is_none());
    assert!(template(&disabled, "-engine")["metadata"]["labels"].get("ome.io/accelerator-class").is_none());
}

// spec: ACC-60
#[test]
fn merges_configurations_of_spec_component_and_service() {
    let entry = |name: &str| {
        configuration_for(
            "nvidia-h100-80gb",
            &format!("env: [{{name: {name}, value: x}}, {{name: LAST, value: {name}}}]"),
        )
    };
    let runtime = runtime(&entry("SPEC"), &format!("runner: {{image: x}}, {}", entry("COMPONENT")));
    let plan = plan_manifests(&[CLASSES, &runtime, &service_with_class("nvidia-h100-80gb", &entry("SERVICE"))]);
    assert_eq!(env(&plan, "-engine"), "SPEC=x LAST=SERVICE COMPONENT=x SERVICE=x");
}

#[test]
fn merges_the_runner_of_a_configuration_below_the_service() {
    let fields = "runner: {image: tuned, command: [tuned], volumeMounts: [{name: a, mountPath: /a}], resources: {limits: {cpu: 8}}}";
    let runtime = runtime(
        &configuration_for("nvidia-h100-80gb", fields),
        "runner: {image: x, command: [other], args: [--old], volumeMounts: [{name: b, mountPath: /b}], resources: {limits: {cpu: 4}}}",
    );
    let plan = plan_manifests(&[CLASSES, &runtime, &service_with_class("nvidia-h100-80gb", "")]);
    let engine = container(&plan, "-engine");
    assert_eq!((&engine["image"], strings(&engine["command"])), (&json!("tuned"), vec!["tuned".to_owned()]));
    assert!(engine.get("args").is_none());
    assert_eq!(engine["volumeMounts"], json!([{"name": "b", "mountPath": "/b"}, {"name": "a", "mountPath": "/a"}]));
    assert_eq!(engine["resources"]["limits"], json!({"cpu": "8", "nvidia.com/gpu": "1"}));
    let overriding_plan =
        plan_manifests(&[CLASSES, &runtime, &service_with_class("nvidia-h100-80gb", "runner: {image: mine}")]);
    assert_eq!(container(&overriding_plan, "-engine")["image"], "mine");
    assert_eq!(
        setting(&overriding_plan, "image"),
        ("mine".to_owned(), "service", vec!["tuned".to_owned(), "x".to_owned()])
    );
}

// spec: ACC-86
#[rstest]
#[case::all(true, true, "service", "service", &["accelerator", "runtime"])]
#[case::without_service(false, true, "accelerator", "accelerator configuration", &["runtime"])]
#[case::runtime_only(false, false, "runtime", "runtime", &[])]
fn records_overridden_values_of_each_layer(
    #[case] service: bool,
    #[case] configured: bool,
    #[case] value: &str,
    #[case] origin: &str,
    #[case] overridden: &[&str],
) {
    let variable_from = |layer: &str| format!("env: [{{name: LEVEL, value: {layer}}}]");
    let class = if configured { "nvidia-h100-80gb" } else { "nvidia-a100-40gb" };
    let runtime = runtime(
        &configuration_for("nvidia-h100-80gb", &variable_from("accelerator")),
        &format!("runner: {{image: x, {}}}", variable_from("runtime")),
    );
    let engine = if service { format!("runner: {{{}}}", variable_from("service")) } else { String::new() };
    let plan = plan_manifests(&[CLASSES, &runtime, &service_with_class(class, &engine)]);
    assert_eq!(variable(&plan, "LEVEL"), value);
    let expect = (value.to_owned(), origin, overridden.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>());
    let (value, origin, overridden) = setting(&plan, "env LEVEL");
    assert_eq!((value, origin, overridden), (expect.0, expect.1, expect.2));
}

// spec: ACC-86
#[test]
fn annotation_overrides_service_and_runtime() {
    let runtime = runtime(
        "acceleratorRequirements: {supportedClasses: [nvidia-a100-40gb, nvidia-h100-80gb, amd-mi250x]}",
        "runner: {image: x}",
    );
    let service_manifest = service_with_class("nvidia-h100-80gb", "");
    let annotated =
        service_manifest.replace("{name: chat}", "{name: chat, annotations: {ome.io/accelerator-class: amd-mi250x}}");
    let manifest_without_class = service("chat", "{runtime: {name: rt}}");
    let class_of = |manifest: &str| setting(&plan_manifests(&[CLASSES, &runtime, manifest]), "acceleratorClass");
    let supported_classes = "nvidia-a100-40gb, nvidia-h100-80gb, amd-mi250x".to_owned();
    let (value, origin, overridden) = class_of(&annotated);
    assert_eq!((value.as_str(), origin), ("amd-mi250x", "annotation"));
    assert_eq!(overridden, ["nvidia-h100-80gb".to_owned(), supported_classes.clone()]);
    assert_eq!(class_of(&service_manifest), ("nvidia-h100-80gb".to_owned(), "service", vec![supported_classes]));
    assert_eq!(class_of(&manifest_without_class).1, "runtime");
    // An annotation with the same value is still the origin.
    let same_class = annotated.replace("amd-mi250x", "nvidia-h100-80gb");
    assert_eq!(class_of(&same_class).1, "annotation");
}

// spec: ACC-93
#[test]
fn command_of_the_service_keeps_env_and_resources_of_the_configuration() {
    let fields = "env: [{name: A, value: b}], resources: {limits: {cpu: 3}}, runner: {args: [--tuned]}";
    let runtime = runtime(
        &configuration_for("nvidia-h100-80gb", fields),
        "runner: {image: x, command: [theirs], args: [--theirs]}",
    );
    let plan =
        plan_manifests(&[CLASSES, &runtime, &service_with_class("nvidia-h100-80gb", "runner: {command: [mine]}")]);
    let container = container(&plan, "-engine");
    assert_eq!((strings(&container["command"]), container.get("args")), (vec!["mine".to_owned()], None));
    assert_eq!(env(&plan, "-engine"), "A=b");
    assert_eq!(container["resources"]["limits"], json!({"cpu": "3", "nvidia.com/gpu": "1"}));
    assert_eq!(template(&plan, "-engine")["spec"]["nodeSelector"]["nvidia.com/gpu.product"], "NVIDIA-H100-80GB-HBM3");
    assert!(codes(&plan).contains(&"AcceleratorArgsNotApplied"));
}

// spec: ACC-94
#[rstest]
#[case::list("[python3, -m, engine, --tp, \"4\", --x]", "python3 -m engine --x", "--tp-size 2", false)]
#[case::script("[sh, -c, exec engine --tp 4]", "sh -c exec engine --tp 4", "", true)]
fn command_of_the_runtime(#[case] command: &str, #[case] expect: &str, #[case] arguments: &str, #[case] warned: bool) {
    let runtime = runtime(
        &configuration_for("nvidia-h100-80gb", "runner: {args: [--tp-size, \"2\"]}"),
        &format!("runner: {{image: x, command: {command}}}"),
    );
    let plan = plan_manifests(&[CLASSES, &runtime, &service_with_class("nvidia-h100-80gb", "")]);
    assert_eq!(
        (strings(&container(&plan, "-engine")["command"]).join(" ").as_str(), args(&plan).as_str()),
        (expect, arguments)
    );
    assert_eq!(codes(&plan).contains(&"AcceleratorArgsNotApplied"), warned);
}

// spec: ACC-90
// spec: ACC-91
// spec: ACC-92
#[test]
fn merges_arguments_of_all_layers() {
    let runtime = runtime(
        &configuration_for("nvidia-h100-80gb", "runner: {args: [--tensor-parallel-size=8, --tuned]}"),
        "runner: {image: x, args: [--r1, a, b, --port, \"80\", --chat-template, \"{{ bos }}{% x %}\", '--json={\"a\": [1, 2]}']}",
    );
    let plan = plan_manifests(&[
        CLASSES,
        &runtime,
        &service_with_class("nvidia-h100-80gb", "runner: {args: [--port=81, --tp, \"4\"]}"),
    ]);
    assert_eq!(
        strings(&container(&plan, "-engine")["args"]),
        [
            "--r1",
            "a",
            "b",
            "--chat-template",
            "{{ bos }}{% x %}",
            "--json={\"a\": [1, 2]}",
            "--port=81",
            "--tp",
            "4",
            "--tuned"
        ]
    );
}

// spec: ACC-87
// spec: ACC-88
// spec: ACC-89
#[test]
fn merges_placement_of_all_layers() {
    let affinity = |key: &str| {
        format!(
            "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{{matchExpressions: [{{key: {key}, operator: Exists}}]}}]}}}}}}"
        )
    };
    let runtime = runtime(
        "acceleratorRequirements: {}, nodeSelector: {node-pool: gpu-pool}",
        &format!("runner: {{image: x}}, nodeSelector: {{tier: runtime}}, {}", affinity("a")),
    );
    let manifest = service_with_class(
        "nvidia-h100-80gb",
        &format!("nodeSelector: {{dedicated: team-alpha, tier: service}}, {}", affinity("b")),
    );
    let plan = plan_manifests(&[CLASSES, &runtime, &manifest]);
    let spec = &template(&plan, "-engine")["spec"];
    let expect = json!({
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "node-pool": "gpu-pool", "dedicated": "team-alpha", "tier": "service",
    });
    assert_eq!(spec["nodeSelector"], expect);
    let terms_pointer =
        "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions";
    assert_eq!(spec.pointer(terms_pointer).unwrap().as_array().unwrap().len(), 2);
    assert_eq!(codes(&plan).iter().filter(|code| **code == "NodeSelectorOverridden").count(), 1);
    assert_eq!(setting(&plan, "nodeSelector tier"), ("service".to_owned(), "service", vec!["runtime".to_owned()]));
}

// spec: ACC-95
// spec: ACC-96
#[test]
fn merges_variables_and_resources_of_all_layers() {
    let runtime = runtime(
        &configuration_for(
            "nvidia-h100-80gb",
            "env: [{name: B, value: accelerator}, {name: C, value: accelerator}], resources: {limits: {memory: 20Gi, cpu: 2}}",
        ),
        "runner: {image: x, env: [{name: A, value: runtime}, {name: B, value: runtime}], resources: {limits: {memory: 10Gi, cpu: 4}}}",
    );
    let plan = plan_manifests(&[
        CLASSES,
        &runtime,
        &service_with_class("nvidia-h100-80gb", "runner: {env: [{name: D, value: s}, {name: C, value: s}]}"),
    ]);
    assert_eq!(env(&plan, "-engine"), "A=runtime B=accelerator C=s D=s");
    let limits = json!({"memory": "20Gi", "cpu": "4", "nvidia.com/gpu": "1"});
    assert_eq!(
        container(&plan, "-engine")["resources"],
        json!({"limits": limits, "requests": {"nvidia.com/gpu": "1"}})
    );
}

#[test]
fn rejects_affinities_with_too_many_combinations() {
    let terms = |letter: char| {
        let term = |n: usize| format!("{{matchExpressions: [{{key: {letter}{n}, operator: Exists}}]}}");
        let terms: Vec<String> = (0..30).map(term).collect();
        format!(
            "affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {{nodeSelectorTerms: [{}]}}}}}}",
            terms.join(", ")
        )
    };
    let runtime = runtime("acceleratorRequirements: {}", &format!("runner: {{image: x}}, {}", terms('a')));
    let plan = plan_manifests(&[CLASSES, &runtime, &service_with_class("nvidia-h100-80gb", &terms('b'))]);
    assert_eq!(code(&plan), (false, "AffinityTooLarge"), "{}", plan.message);
}

/// A number that the service requests replaces a smaller one of the runtime, with a warning.
#[rstest]
#[case::flag(
    "args: [--tp-size, \"4\"]",
    "runner: {resources: {limits: {nvidia.com/gpu: 8}}}",
    Some("the runtime sets --tp-size to 4; the engine is started with 8")
)]
#[case::variable(
    "env: [{name: TENSOR_PARALLEL_SIZE, value: \"2\"}]",
    "resources: {limits: {nvidia.com/gpu: 8}}",
    Some("the runtime sets TENSOR_PARALLEL_SIZE to 2; the engine is started with 8")
)]
#[case::of_a_pipeline_stage(
    "args: [--tp=2, --pp=2]",
    "runner: {resources: {limits: {nvidia.com/gpu: 8}}}",
    Some("the runtime sets --tp to 2; the engine is started with 4")
)]
#[case::equal("args: [--tp=8]", "runner: {resources: {limits: {nvidia.com/gpu: 8}}}", None)]
#[case::fewer("args: [--tp=8]", "runner: {resources: {limits: {nvidia.com/gpu: 4}}}", None)]
#[case::flag_of_the_service(
    "args: [--tp=2]",
    "runner: {args: [--tp=8], resources: {limits: {nvidia.com/gpu: 8}}}",
    None
)]
// spec: ACC-84
fn warns_if_the_service_requests_more_than_the_runtime_states(
    #[case] runner: &str,
    #[case] engine: &str,
    #[case] expected: Option<&str>,
) {
    let plan = plan_manifests(&[
        CLASSES,
        &runtime("acceleratorRequirements: {}", &format!("runner: {{image: vllm, {runner}}}")),
        &service_with_class("nvidia-h100-80gb", engine),
    ]);
    let warning = plan.warnings.iter().find(|warning| warning.code == "AcceleratorsAdded");
    assert_eq!(warning.is_some(), expected.is_some(), "{:?}", plan.warnings);
    if let (Some(warning), Some(expected)) = (warning, expected) {
        assert!(warning.message.ends_with(expected), "{}", warning.message);
    }
}

/// Plans a service on H100 with these fields of the runners of runtime and service.
fn plan_on_h100(runtime_runner: &str, service_runner: &str) -> ServicePlan {
    plan_manifests(&[
        CLASSES,
        &runtime(&configuration_for("nvidia-h100-80gb", "env: []"), &format!("runner: {{{runtime_runner}}}")),
        &service_with_class("nvidia-h100-80gb", &format!("runner: {{{service_runner}}}")),
    ])
}

/// Each size is that of its flag, of the variable that the flag names, or of the variable that is named after the flag.
#[rstest]
#[case::variable_beside_another_flag(
    "args: [--dp-size, \"2\"], env: [{name: TENSOR_PARALLEL_SIZE, value: \"2\"}]",
    "",
    "4",
    "--dp-size 2"
)]
#[case::variable_of_a_flag("args: [--tp-size, $(TP)], env: [{name: TP, value: \"2\"}]", "", "2", "--tp-size $(TP)")]
#[case::variable_of_the_service(
    "args: [--tp-size, $(TP)], env: [{name: TP, value: \"2\"}]",
    "env: [{name: TP, value: \"4\"}]",
    "4",
    "--tp-size $(TP)"
)]
fn parallelism_sets_the_accelerators(
    #[case] runtime_fields: &str,
    #[case] service_fields: &str,
    #[case] accelerators: &str,
    #[case] expected: &str,
) {
    let plan = plan_on_h100(&format!("image: x, {runtime_fields}"), service_fields);
    assert_eq!(container(&plan, "-engine")["resources"]["limits"]["nvidia.com/gpu"], accelerators, "{}", plan.message);
    assert_eq!(args(&plan), expected);
    assert!(!codes(&plan).contains(&"ParallelismMismatch"));
}

/// Resources of the service replace the size of weaker layers, in both directions.
#[rstest]
#[case::more("args: [--tp-size=2]", "4", "--tp-size=4", "AcceleratorsAdded")]
#[case::fewer("args: [--tp-size=2]", "1", "--tp-size=1", "ParallelismMismatch")]
#[case::variable("args: [--tp=$(TP)], env: [{name: TP, value: \"2\"}]", "1", "--tp=$(TP)", "ParallelismMismatch")]
fn resources_of_the_service_replace_tensor_parallelism(
    #[case] runtime_fields: &str,
    #[case] requested: &str,
    #[case] expected: &str,
    #[case] warning: &str,
) {
    let resources = format!("resources: {{limits: {{nvidia.com/gpu: {requested}}}}}");
    let plan = plan_on_h100(&format!("image: x, {runtime_fields}"), &resources);
    assert_eq!(args(&plan), expected, "{}", plan.message);
    assert_eq!(container(&plan, "-engine")["resources"]["limits"]["nvidia.com/gpu"], requested);
    let messages: Vec<&str> =
        plan.warnings.iter().filter(|found| found.code == warning).map(|found| found.message.as_str()).collect();
    assert_eq!(messages.len(), 1, "{:?}", plan.warnings);
    let end = format!("the engine is started with {requested}");
    assert!(messages[0].ends_with(&end), "{messages:?}");
    if runtime_fields.contains("TP,") {
        assert_eq!(variable(&plan, "TP"), requested);
    }
}

/// An engine without the flag of tensor parallelism would use one accelerator.
#[rstest]
#[case::arguments("image: vllm/vllm-openai:v1, args: [--model, m]", "--model m --tensor-parallel-size 4", false)]
#[case::copies("image: vllm/vllm-openai:v1, args: [--dp-size, \"4\"]", "--dp-size 4", false)]
#[case::stages("image: vllm/vllm-openai:v1, args: [--pp, \"2\"]", "--pp 2 --tensor-parallel-size 2", false)]
#[case::command("image: x, command: [tini, --, /usr/bin/vllm, serve, m]", "--tensor-parallel-size 4", false)]
#[case::variable(
    "image: vllm/vllm-openai:v1, args: [--model, m], env: [{name: TENSOR_PARALLEL_SIZE, value: \"4\"}]",
    "--model m --tensor-parallel-size $(TENSOR_PARALLEL_SIZE)",
    false
)]
#[case::router("image: x, command: [python3, -m, sglang_router.launch_router], args: [--x]", "--x", false)]
#[case::another_program("image: lmcache/vllm-router:v1, args: [--x]", "--x", false)]
#[case::benchmark("image: x, command: [vllm, bench, serve], args: [--x]", "--x", false)]
#[case::computed("image: lmsysorg/sglang:v1, args: [--tp, $(PARALLELISM_SIZE)]", "--tp $(PARALLELISM_SIZE)", false)]
#[case::unknown_engine("image: x, args: [--model, m]", "--model m", false)]
#[case::script("image: vllm/vllm-openai:v1, command: [sh, -c], args: [exec vllm serve m]", "exec vllm serve m", true)]
#[case::script_with_flag(
    "image: vllm/vllm-openai:v1, command: [sh, -c], args: [exec vllm serve m -tp $PARALLELISM_SIZE]",
    "exec vllm serve m -tp $PARALLELISM_SIZE",
    false
)]
fn engines_use_all_accelerators(#[case] runner: &str, #[case] expected: &str, #[case] warns: bool) {
    let plan = plan_on_h100(&format!("{runner}, resources: {{limits: {{nvidia.com/gpu: 4}}}}"), "");
    assert_eq!(args(&plan), expected, "{}", plan.message);
    assert_eq!(container(&plan, "-engine")["resources"]["limits"]["nvidia.com/gpu"], "4");
    assert_eq!(codes(&plan).contains(&"ParallelismMismatch"), warns, "{:?}", plan.warnings);
}
