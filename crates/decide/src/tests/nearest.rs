//! Tests of the runtime that a decision without a compatible one reports as the closest, and of suggestions.

use rstest::rstest;

use super::fixture::{RUNTIME, fixture_with_classes, model, service};

/// A runtime with this name, these fields of its format entry, and these of its spec.
fn runtime(name: &str, format: &str, fields: &str) -> String {
    RUNTIME
        .replace("name: srt", &format!("name: {name}"))
        .replace("autoSelect: true", &format!("{format}autoSelect: true"))
        .replace("engineConfig", &format!("{fields}engineConfig"))
}

fn llama(size: &str) -> String {
    model(size, "")
        .replace("name: m}", "name: llama-3-1-70b}")
        .replace("modelParameterSize", "modelArchitecture: LlamaForCausalLM, modelParameterSize")
}

#[rstest]
// All of them fail the check of the size.
#[case::same_architecture(
    &[runtime("a", "modelArchitecture: LlamaForCausalLM, ", "modelSizeRange: {max: 8B}, "), runtime("b", "", "modelSizeRange: {max: 60B}, ")],
    "a"
)]
#[case::same_family(
    &[runtime("mistral-60b", "", "modelSizeRange: {max: 69B}, "), runtime("srt-llama-3-3-8b", "", "modelSizeRange: {max: 8B}, ")],
    "srt-llama-3-3-8b"
)]
#[case::closer_family(
    &[runtime("llama-2-70b", "", "modelSizeRange: {max: 69B}, "), runtime("llama-3-1-8b", "", "modelSizeRange: {max: 8B}, ")],
    "llama-3-1-8b"
)]
#[case::least_distance(
    &[runtime("llama-3-1-8b", "", "modelSizeRange: {max: 8B}, "), runtime("llama-3-1-60b", "", "modelSizeRange: {max: 60B}, ")],
    "llama-3-1-60b"
)]
#[case::later_check_first(
    &[runtime("llama-3-1-70b", "modelArchitecture: MistralForCausalLM, ", ""), runtime("other", "", "modelSizeRange: {max: 8B}, ")],
    "other"
)]
fn reports_the_closest_runtime(#[case] runtimes: &[String], #[case] expected: &str) {
    let service = service("", "").replace("name: m}", "name: llama-3-1-70b}");
    let mut documents = vec![llama("70B"), service];
    documents.extend(runtimes.iter().cloned());
    let decision = fixture_with_classes(&documents.iter().map(String::as_str).collect::<Vec<_>>()).decide();
    assert!(!decision.feasible);
    assert_eq!(decision.candidates[0].runtime, expected, "{}", decision.message);
}

/// Among runtimes that fail the same check, those for the vendor of the nodes come first, although others fail later.
#[rstest]
#[case::accelerators("acceleratorRequirements: {requiredCapabilities: {memoryGB: 500Gi}}, ")]
#[case::size("modelSizeRange: {max: 8B}, ")]
fn closest_runtime_is_for_the_vendor_of_the_nodes(#[case] fields: &str) {
    let of_vendor = |name: &str, image: &str| {
        let runtime = runtime(name, "", fields).replace("image: i", &format!("image: \"{image}\""));
        runtime.replacen("acceleratorRequirements: {requiredCapabilities: {features: [tensor-cores]}}, ", "", 1)
    };
    let node = "{apiVersion: v1, kind: Node, metadata: {name: node-1, labels: {gpu: h100}}, status: {allocatable: {nvidia.com/gpu: 8}, conditions: [{type: Ready, status: \"True\"}]}}";
    let runtimes = [of_vendor("a-amd", "e:rocm6.4"), of_vendor("b-nvidia", "e:cuda12.8")];
    let decision =
        fixture_with_classes(&[&model("70B", ""), &runtimes[0], &runtimes[1], node, &service("", "")]).decide();
    assert_eq!(decision.candidates[0].runtime, "b-nvidia", "{}", decision.message);
    let decision = fixture_with_classes(&[&model("70B", ""), &runtimes[0], &runtimes[1], &service("", "")]).decide();
    assert_eq!(decision.candidates[0].runtime, "a-amd", "without nodes: {}", decision.message);
}

/// A runtime that only its autoSelect withholds is named although another one passed more checks.
#[test]
fn names_a_withheld_runtime() {
    let withheld = runtime("withheld", "", "").replace("autoSelect: true", "autoSelect: false");
    let too_large = runtime("large", "", "").replace("features: [tensor-cores]", "memoryGB: 500Gi");
    let decision = fixture_with_classes(&[&model("7B", ""), &withheld, &too_large, &service("", "")]).decide();
    assert_eq!(decision.candidates[0].runtime, "large");
    let hint = "runtime withheld matches, but its autoSelect is off: set spec.runtime.name to use it";
    assert!(decision.message.ends_with(hint), "{}", decision.message);
    // The closest runtime is named once.
    let decision = fixture_with_classes(&[&model("7B", ""), &withheld, &service("", "")]).decide();
    assert_eq!(decision.message.matches("autoSelect").count(), 1, "{}", decision.message);
}

#[rstest]
#[case::misspelled("nvidia-h100-80g", "no AcceleratorClass with this name exists; did you mean nvidia-h100-80gb?")]
#[case::without_vendor("h100-80gb", "no AcceleratorClass with this name exists; did you mean nvidia-h100-80gb?")]
#[case::unknown("tpu", "no AcceleratorClass with this name exists")]
fn corrects_class_names(#[case] class: &str, #[case] expected: &str) {
    let selector = format!("acceleratorSelector: {{preferredClasses: [{class}]}}");
    let decision = fixture_with_classes(&[&model("7B", ""), RUNTIME, &service(&selector, "")]).decide();
    let candidate = decision.candidates[0].accelerators.iter().find(|candidate| candidate.class == class).unwrap();
    assert_eq!(candidate.evaluation.to_string(), expected);
}
