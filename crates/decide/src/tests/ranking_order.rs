//! The order of the criteria that rank runtimes: a criterion decides although all later ones favor the other runtime.

use rstest::rstest;

use super::fixture::{fixture, selection};

/// Advantages in the order of the criteria, each as a replacement in the manifest of a runtime.
const ADVANTAGES: [(&str, &str); 8] = [
    // Scope.
    ("ClusterServingRuntime, metadata: {", "ServingRuntime, metadata: {namespace: default, "),
    // Architecture.
    ("modelFormat: {name: safetensors}", "modelFormat: {name: safetensors}, modelArchitecture: BertModel"),
    // Router, which the service requests.
    ("engineConfig:", "routerConfig: {runner: {image: r}}, engineConfig:"),
    // Task of the model.
    ("image: vllm", "image: vllm, args: [--runner=pooling, --convert=embed]"),
    // Size.
    ("spec: {", "spec: {modelSizeRange: {min: 6B, max: 8B}, "),
    // Priority.
    ("autoSelect: true", "autoSelect: true, priority: 9"),
    // Free capacity of the best class.
    ("supportedClasses: [full]", "supportedClasses: [free]"),
    // Age.
    ("creationTimestamp: 2026-01-01T00:00:00Z", "creationTimestamp: 2026-02-01T00:00:00Z"),
];

/// Returns a runtime with these advantages.
fn runtime(name: &str, advantages: &[(&str, &str)]) -> String {
    let manifest = format!(
        "{{apiVersion: ome.io/v1beta1, kind: ClusterServingRuntime, metadata: {{name: {name}, creationTimestamp: 2026-01-01T00:00:00Z}}, \
         spec: {{supportedModelFormats: [{{modelFormat: {{name: safetensors}}, autoSelect: true}}], \
         acceleratorRequirements: {{supportedClasses: [full]}}, engineConfig: {{runner: {{image: vllm}}}}}}}}"
    );
    advantages.iter().fold(manifest, |manifest, (from, to)| {
        assert!(manifest.contains(from), "{from}");
        manifest.replacen(from, to, 1)
    })
}

fn class_and_node(name: &str, price: u32, used: u32) -> String {
    format!(
        "---\n{{apiVersion: ome.io/v1beta1, kind: AcceleratorClass, metadata: {{name: {name}}}, spec: {{vendor: nvidia, discovery: {{nodeSelector: {{gpu: {name}}}}}, \
         capabilities: {{memoryGB: 80}}, resources: [{{name: nvidia.com/gpu}}], cost: {{perHour: {price}}}}}}}\n\
         ---\n{{apiVersion: v1, kind: Node, metadata: {{name: node-{name}, labels: {{gpu: {name}}}}}, status: {{allocatable: {{nvidia.com/gpu: 1, cpu: 64, memory: 512Gi}}}}}}\n\
         ---\n{{apiVersion: v1, kind: Pod, metadata: {{name: pod-{name}}}, spec: {{nodeName: node-{name}, containers: [{{resources: {{limits: {{nvidia.com/gpu: {used}}}}}}}]}}, status: {{phase: Running}}}}\n"
    )
}

// spec: RT-76
#[rstest]
fn earlier_criteria_decide(#[values(0, 1, 2, 3, 4, 5, 6, 7)] criterion: usize) {
    let (first, rest) = ADVANTAGES[criterion..].split_first().unwrap();
    let model = "---\n{apiVersion: ome.io/v1beta1, kind: ClusterBaseModel, metadata: {name: m}, spec: {modelFormat: {name: safetensors}, \
                 modelArchitecture: BertModel, modelParameterSize: 7B, modelCapabilities: [TEXT_TO_EMBEDDING]}}\n";
    let service = "---\n{apiVersion: ome.io/v1beta1, kind: InferenceService, metadata: {name: s, namespace: default}, spec: {model: {name: m}, router: {}}}\n";
    // The last criterion is the name.
    let (better, worse) = (runtime("z", std::slice::from_ref(first)), runtime("a", rest));
    for runtimes in [[&better, &worse], [&worse, &better]] {
        let manifests = [
            runtimes[0],
            "\n---\n",
            runtimes[1],
            "\n",
            model,
            service,
            &class_and_node("full", 1, 1),
            &class_and_node("free", 9, 0),
        ];
        assert_eq!(selection(&fixture(&[&manifests.concat()]).decide()).0, "z");
    }
}
