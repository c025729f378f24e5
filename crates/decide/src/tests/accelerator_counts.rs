//! Tests of the number of accelerators of a replica: what runtime and service state, and what the model requires.

use rstest::rstest;

use super::fixture::{RUNTIME, fixture_with_classes, model, selection, service, warning_codes};

#[rstest]
// spec: ACC-82
#[case::two_nodes("405B", "leader: {runner: {image: i}}, worker: {runner: {image: i}}", (8, 2))]
#[case::eight_nodes("1.6T", "leader: {runner: {image: i}}, worker: {runner: {image: i}}", (8, 8))]
#[case::fewest_nodes_that_fit("70B", "leader: {runner: {image: i}}, worker: {runner: {image: i}}", (4, 1))]
#[case::stated_worker_size("70B", "leader: {runner: {image: i}}, worker: {size: 1, runner: {image: i}}", (2, 2))]
#[case::fixed_per_node("405B", "leader: {runner: {image: i, resources: {limits: {nvidia.com/gpu: 4}}}}, worker: {runner: {image: i}}", (4, 4))]
#[case::flag_split_over_nodes("405B", "leader: {runner: {image: i, args: [--tp=16]}}, worker: {runner: {image: i}}", (8, 2))]
#[case::without_workers("405B", "runner: {image: i}", (0, 0))]
fn spans_several_nodes(#[case] size: &str, #[case] engine: &str, #[case] expected: (u32, u32)) {
    let runtime = RUNTIME.replace("runner: {image: i}", engine);
    let selector = "acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}";
    let decision = fixture_with_classes(&[&model(size, ""), &runtime, &service(selector, "")]).decide();
    let engine = decision.components.get("engine").cloned().unwrap_or_default();
    assert_eq!((engine.accelerators_per_node, engine.nodes), expected, "{}", decision.message);
    assert_eq!(decision.feasible, expected != (0, 0));
}

#[rstest]
// spec: ACC-83
#[case::flag_agrees_with_resources("args: [--tp-size, \"4\"], resources: {limits: {nvidia.com/gpu: 4}}", 4, false)]
#[case::flag_takes_precedence("args: [--tp-size, \"4\"], resources: {limits: {nvidia.com/gpu: 2}}", 4, true)]
#[case::tensor_times_pipeline("args: [--tp=4, --pp=2]", 8, false)]
#[case::by_environment(
    "env: [{name: TENSOR_PARALLEL_SIZE, value: \"4\"}], resources: {limits: {nvidia.com/gpu: 8}}",
    4,
    true
)]
fn parallelism_sets_the_count(#[case] runner: &str, #[case] count: u32, #[case] warns: bool) {
    let runtime = RUNTIME.replace("image: i", &format!("image: i, {runner}"));
    let mut fixture = fixture_with_classes(&[&model("13B", ""), &runtime]);
    let decision = fixture.decide();
    assert_eq!(selection(&decision).2, count);
    assert_eq!(warning_codes(&decision).contains(&"ParallelismMismatch"), warns, "{:?}", decision.warnings);
    // Without a class the Pods are unchanged, but the mismatch is reported.
    fixture.supply.accelerator_aware = false;
    assert_eq!(warning_codes(&fixture.decide()).contains(&"ParallelismMismatch"), warns);
}

/// A number of the runtime is a minimum; one of the service is only checked. The model requires four accelerators.
#[rstest]
#[case::flag("args: [--tp=1]", "", "the runtime sets --tp to 1")]
#[case::variable("env: [{name: TENSOR_PARALLEL_SIZE, value: \"2\"}]", "", "the runtime sets TENSOR_PARALLEL_SIZE to 2")]
#[case::resources("resources: {limits: {nvidia.com/gpu: 2}}", "", "the runtime sets nvidia.com/gpu to 2")]
#[case::sufficient("args: [--tp=8]", "", "8")]
#[case::flag_of_the_service("", "args: [--tp-size, \"1\"]", "(the service sets --tp-size to 1)")]
#[case::resources_of_the_service(
    "args: [--tp=8]",
    "resources: {limits: {nvidia.com/gpu: 2}}",
    "(the service sets nvidia.com/gpu to 2)"
)]
#[case::script_of_the_runtime("command: [sh, -c, \"exec x --tp 2\"]", "", "(the runtime sets --tp to 2)")]
// spec: ACC-83
fn number_of_the_runtime_is_a_minimum(#[case] runtime: &str, #[case] service_runner: &str, #[case] expected: &str) {
    let runtime = RUNTIME.replace("image: i", &format!("image: i, {runtime}"));
    let spec = format!(
        "acceleratorSelector: {{preferredClasses: [nvidia-h100-80gb]}}, engine: {{runner: {{{service_runner}}}}}"
    );
    let decision = fixture_with_classes(&[&model("70B", ""), &runtime, &service(&spec, "")]).decide();
    let Some(engine) = decision.components.get("engine").filter(|_| decision.feasible) else {
        let class = decision.candidates[0].accelerators.iter().find(|class| class.class == "nvidia-h100-80gb").unwrap();
        assert_eq!(class.evaluation.code(), "ModelDoesNotFit");
        let message = class.evaluation.to_string();
        return assert!(message.ends_with(expected), "{message}");
    };
    let added = decision.warnings.iter().find(|warning| warning.code == "AcceleratorsAdded");
    match added {
        Some(warning) => {
            assert_eq!(engine.accelerators_per_node, 4);
            assert!(warning.message.ends_with(expected), "{}", warning.message);
        }
        None => assert_eq!(engine.accelerators_per_node.to_string(), expected),
    }
}

/// Sizes that are not stated follow from the memory of the model, for each copy of it.
#[rstest]
#[case::pipeline("--pp-size=2", 4)]
#[case::three_stages("--pp-size=3", 3)]
#[case::copies("--dp-size=2", 8)]
#[case::copies_of_stated_size("--dp-size=2, --tp-size=4", 8)]
#[case::copies_of_the_attention("--dp-size=8, --enable-dp-attention", 8)]
fn number_is_divisible_by_stated_sizes(#[case] args: &str, #[case] expected: u32) {
    let spec = format!(
        "acceleratorSelector: {{preferredClasses: [nvidia-h100-80gb]}}, engine: {{runner: {{args: [{args}]}}}}"
    );
    let decision = fixture_with_classes(&[&model("70B", ""), RUNTIME, &service(&spec, "")]).decide();
    assert_eq!(selection(&decision).2, expected);
}

/// A number in a shell script of the service does not make a class ineligible.
#[rstest]
#[case::more_than_a_node_has("13B", "--tp-size 16", "", 8, true)]
#[case::more_stages_than_a_node_has("13B", "--pp-size 16", "", 8, true)]
#[case::more_copies_than_a_node_has("13B", "--dp-size 16", "", 8, true)]
#[case::too_few_for_the_model("70B", "--tp-size 1", "", 1, true)]
#[case::sufficient("13B", "--tp-size 4", "", 4, false)]
#[case::more_than_the_resources("13B", "--tp-size 4 --dp-size 8", "8", 8, true)]
#[case::fewer_than_the_resources("13B", "--tp-size 4", "8", 8, true)]
#[case::as_the_resources("13B", "--tp-size 4", "4", 4, false)]
fn number_in_a_script_of_the_service_is_a_hint(
    #[case] size: &str,
    #[case] flags: &str,
    #[case] resources: &str,
    #[case] expected: u32,
    #[case] warns: bool,
) {
    let resources = match resources {
        "" => String::new(),
        count => format!(", resources: {{limits: {{nvidia.com/gpu: {count}}}}}"),
    };
    let runner = format!("{{image: i, command: [sh, -c, \"python3 -m sglang.launch_server {flags}\"]{resources}}}");
    let spec = format!("acceleratorSelector: {{preferredClasses: [nvidia-h100-80gb]}}, engine: {{runner: {runner}}}");
    let nodes = "{apiVersion: v1, kind: Node, metadata: {name: n, labels: {gpu: h100}}, status: {allocatable: {nvidia.com/gpu: 8}, conditions: [{type: Ready, status: \"True\"}]}}";
    let decision = fixture_with_classes(&[&model(size, ""), RUNTIME, nodes, &service(&spec, "")]).decide();
    assert_eq!(selection(&decision).2, expected, "{}", decision.message);
    assert_eq!(warning_codes(&decision).contains(&"ParallelismMismatch"), warns);
}

/// A class on whose accelerators the model does not fit ranks last, although the service prefers it.
#[test]
fn number_in_a_script_does_not_select_a_class_that_is_too_small() {
    let runner = "{image: i, command: [sh, -c, \"vllm serve m --tp-size 1\"]}";
    let spec = format!(
        "acceleratorSelector: {{preferredClasses: [nvidia-a100-40gb, nvidia-h100-80gb]}}, engine: {{runner: {runner}}}"
    );
    let decision = fixture_with_classes(&[&model("25B", ""), RUNTIME, &service(&spec, "")]).decide();
    assert_eq!(selection(&decision).1, "nvidia-h100-80gb", "{}", decision.message);
}

/// Resources of the service replace the tensor parallelism of the runtime, but not its copies: one copy of 70B fits on four
/// accelerators, two copies do not.
#[rstest]
#[case::tensor_parallelism("--tp-size=8", "70B", true)]
#[case::copies("--dp-size=2", "70B", false)]
#[case::copies_that_fit("--dp-size=2", "13B", true)]
#[case::stages("--pp-size=2", "70B", true)]
fn copies_of_the_runtime_share_the_resources_of_the_service(
    #[case] args: &str,
    #[case] size: &str,
    #[case] is_feasible: bool,
) {
    let runtime = RUNTIME.replace("image: i", &format!("image: i, args: [{args}]"));
    let spec = "acceleratorSelector: {preferredClasses: [nvidia-h100-80gb]}, engine: {runner: {resources: {limits: {nvidia.com/gpu: 4}}}}";
    let decision = fixture_with_classes(&[&model(size, ""), &runtime, &service(spec, "")]).decide();
    assert_eq!(decision.feasible, is_feasible, "{}", decision.message);
    assert_eq!(selection(&decision).2, if is_feasible { 4 } else { 0 });
}

/// Resources of the service replace those of the runtime; a script of the runtime is not changed.
#[rstest]
#[case::fewer("resources: {limits: {nvidia.com/gpu: 8}}", "13B", "2", 2, None)]
#[case::more("resources: {limits: {nvidia.com/gpu: 1}}", "13B", "2", 2, None)]
#[case::too_few("resources: {limits: {nvidia.com/gpu: 8}}", "70B", "2", 0, None)]
#[case::script("command: [sh, -c, 'vllm serve m --tp 2']", "13B", "4", 2, Some("ParallelismMismatch"))]
#[case::script_that_is_too_small("command: [sh, -c, 'vllm serve m --tp 1']", "70B", "4", 0, None)]
fn resources_of_the_service_replace_those_of_the_runtime(
    #[case] runtime: &str,
    #[case] size: &str,
    #[case] requested: &str,
    #[case] expected: u32,
    #[case] warning: Option<&str>,
) {
    let runtime = RUNTIME.replace("image: i", &format!("image: i, {runtime}"));
    let spec = format!(
        "acceleratorSelector: {{preferredClasses: [nvidia-h100-80gb]}}, engine: {{runner: {{resources: {{limits: {{nvidia.com/gpu: {requested}}}}}}}}}"
    );
    let decision = fixture_with_classes(&[&model(size, ""), &runtime, &service(&spec, "")]).decide();
    assert_eq!(selection(&decision).2, expected, "{}", decision.message);
    let mismatch = warning_codes(&decision).into_iter().find(|code| *code == "ParallelismMismatch");
    assert_eq!(mismatch, warning);
}

/// SGLang requires that tensor parallelism is a multiple of the copies of the attention.
#[rstest]
#[case::multiple(8, false)]
#[case::no_multiple(4, true)]
fn copies_of_the_attention_divide_tensor_parallelism(#[case] requested: u32, #[case] warns: bool) {
    let spec = format!(
        "acceleratorSelector: {{preferredClasses: [nvidia-h100-80gb]}}, engine: {{runner: {{args: [--dp-size=8, --enable-dp-attention], resources: {{limits: {{nvidia.com/gpu: {requested}}}}}}}}}"
    );
    let decision = fixture_with_classes(&[&model("70B", ""), RUNTIME, &service(&spec, "")]).decide();
    assert_eq!(selection(&decision).2, requested);
    assert_eq!(warning_codes(&decision).contains(&"ParallelismMismatch"), warns, "{:?}", decision.warnings);
}
