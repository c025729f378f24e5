use super::*;
use crate::ome;

fn error(text: &str) -> String {
    let error = parse_manifest("bad.yaml", text).unwrap_err();
    format!("{error}\nhint: {}", error.hint.as_deref().unwrap_or_default())
}

#[test]
fn empty_documents_are_counted() {
    let text = "# license\n---\napiVersion: v1\nkind: A\n---\n# only a comment\n---\napiVersion: v1\nkind: B\nmetadata: {name: b, namespace: ns}\n";
    let parsed = parse_manifest("f.yaml", text).unwrap();
    let documents: Vec<_> = parsed.iter().map(|document| (document.index, document.display_name())).collect();
    assert_eq!(documents, [(1, "A ".to_owned()), (3, "B ns/b".to_owned())]);
}

#[test]
fn parses_windows_line_endings_json_and_lists() {
    let text = "\u{feff}apiVersion: v1\r\nkind: List\r\nitems:\r\n- {apiVersion: v1, kind: A, metadata: {name: a}}\r\n- {apiVersion: v1, kind: B, metadata: {name: b}}\r\n";
    let names: Vec<_> =
        parse_manifest("f.yaml", text).unwrap().iter().map(|document| document.name().to_owned()).collect();
    assert_eq!(names, ["a", "b"]);
    let json = r#"{"apiVersion": "v1", "kind": "A", "metadata": {"name": "a"}, "x": "a\nb"}"#;
    assert_eq!(parse_manifest("f.json", json).unwrap()[0].value["x"], "a\nb");
}

#[test]
fn keeps_separators_in_block_scalars() {
    let text = "apiVersion: v1\nkind: ConfigMap\ndata:\n  x: |\n    ---\n    a: b\n";
    assert_eq!(parse_manifest("f.yaml", text).unwrap()[0].value["data"]["x"], "---\na: b\n");
}

#[test]
fn yaml_errors_have_document_and_line() {
    let text = "apiVersion: v1\nkind: A\n---\napiVersion: v1\nkind: B\nspec:\n  a: [1, 2\n";
    insta::assert_snapshot!(error(text), @r"
    bad.yaml, document 2, line 7: invalid YAML: unclosed bracket '['
    hint: check the indentation and quoting around that line
    ");
}

#[test]
fn rejects_duplicate_keys() {
    insta::assert_snapshot!(error("apiVersion: v1\nkind: A\nspec: {a: 1, a: 2}\n"), @r"
    bad.yaml, document 1, line 3: invalid YAML: duplicate mapping key: a
    hint: keys of a map must be unique; remove the duplicate
    ");
}

#[test]
fn rejects_documents_that_are_not_objects() {
    insta::assert_snapshot!(error("- a\n- b\n"), @r"
    bad.yaml, document 1: not a Kubernetes object
    hint: a manifest must have apiVersion, kind and metadata
    ");
    insta::assert_snapshot!(error("apiVersion: v1\nmetadata: {name: a}\n"), @r"
    bad.yaml, document 1: `kind` is missing
    hint: add `kind:` at the top of the document
    ");
}

#[test]
fn type_errors_have_the_field_path() {
    let text = r#"
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: llama, namespace: default}
spec:
  engine:
    acceleratorConfigurations:
    - selector: {acceleratorClass: 80}
"#;
    let error = parse_manifest("bad.yaml", text).unwrap()[0].parse::<ome::InferenceService>().unwrap_err();
    insta::assert_snapshot!(format!("{error}\nhint: {}", error.hint.clone().unwrap()), @r"
    bad.yaml, document 1 (InferenceService default/llama), spec.engine.acceleratorConfigurations[0].selector.acceleratorClass: invalid type: integer `80`, expected a string
    hint: put the value in quotes
    ");
}

// spec: ACC-50
#[test]
fn parses_the_class_of_story_3() {
    let text = r#"
apiVersion: ome.io/v1beta1
kind: AcceleratorClass
metadata:
  name: gpu-nvidia-a100
  annotations: {ome.io/kueue-resource-flavor: "gpu-nvidia-a100"}
spec:
  nodeSelector: {nvidia.com/gpu.product: "A100-SXM4-40GB"}
  capabilities: {memoryGB: 40, computeCapability: "8.0"}
"#;
    let documents = parse_manifest("f.yaml", text).unwrap();
    let class: ome::AcceleratorClass = documents[0].parse().unwrap();
    assert_eq!(class.spec.merged_node_selector()["nvidia.com/gpu.product"], "A100-SXM4-40GB");
    assert_eq!(class.spec.capabilities.memory, Some(crate::memory::AcceleratorMemory::from_gib(40)));
    assert_eq!(crate::lint::lint_document(&documents[0]), []);
}

// spec: ACC-25
#[test]
fn parses_capability_aliases() {
    let text = "apiVersion: ome.io/v1beta1\nkind: ServingRuntime\nmetadata: {name: r}\nspec: {acceleratorRequirements: {requiredCapabilities: {minComputeCapability: \"8.0\", requiredFeatures: [tensor-cores]}}}\n";
    let runtime: ome::ServingRuntime = parse_manifest("f.yaml", text).unwrap()[0].parse().unwrap();
    let required = runtime.spec.accelerator_requirements.unwrap().required_capabilities.unwrap();
    assert_eq!(required.compute_capability.as_deref(), Some("8.0"));
    assert_eq!(required.features, ["tensor-cores"]);
    let capabilities = r#"{minComputeCapability: "8.0", requiredFeatures: [tensor-cores]}"#;
    let class = format!(
        "apiVersion: ome.io/v1beta1\nkind: AcceleratorClass\nmetadata: {{name: c}}\nspec: {{discovery: {{}}, capabilities: {capabilities}}}\n"
    );
    let class: ome::AcceleratorClass = parse_manifest("f.yaml", &class).unwrap()[0].parse().unwrap();
    assert_eq!(class.spec.capabilities, required);
    let service = format!(
        "apiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {{name: s}}\nspec: {{acceleratorSelector: {{requiredCapabilities: {capabilities}}}}}\n"
    );
    let service: ome::InferenceService = parse_manifest("f.yaml", &service).unwrap()[0].parse().unwrap();
    assert_eq!(service.spec.accelerator_selector.unwrap().required_capabilities.unwrap(), required);
    let serialized = serde_json::to_value(&required).unwrap();
    assert_eq!(serialized, serde_json::json!({"computeCapability": "8.0", "features": ["tensor-cores"]}));
}

// spec: ACC-23
#[test]
fn parses_performance_aliases_with_decimals() {
    let parse = |text: &str| serde_json::from_str::<ome::AcceleratorPerformance>(text).unwrap();
    let with_specified_names = parse(r#"{"fp16TFLOPS": 383, "fp32TFLOPS": 47.9, "int8TOPS": 624, "fp8TFLOPS": 3958}"#);
    let with_upstream_names = parse(r#"{"fp16Tflops": 383, "fp32Tflops": 47.9, "int8Tops": 624, "fp8Tflops": 3958}"#);
    assert_eq!(with_specified_names, with_upstream_names);
    assert_eq!(with_specified_names.fp32, Some(47.9));
}

#[test]
fn preserves_pod_fields() {
    let text = r#"
apiVersion: ome.io/v1beta1
kind: InferenceService
metadata: {name: a}
spec:
  engine:
    minReplicas: 2
    hostNetwork: true
    futureField: {a: 1}
    runner: {image: x, newerField: true}
"#;
    let service: ome::InferenceService = parse_manifest("f.yaml", text).unwrap()[0].parse().unwrap();
    let engine = serde_json::to_value(service.spec.engine.unwrap()).unwrap();
    let expect = serde_json::json!({"minReplicas": 2, "hostNetwork": true, "futureField": {"a": 1}, "runner": {"image": "x", "newerField": true}});
    assert_eq!(engine, expect);
}

// spec: RT-5
#[test]
fn example_runtime_round_trips() {
    let documents = parse_manifest("runtime.yaml", include_str!("example_runtime.yaml")).unwrap();
    assert_eq!(crate::lint::lint_document(&documents[0]), []);
    let runtime: ome::ClusterServingRuntime = documents[0].parse().unwrap();
    let entry = &runtime.spec.supported_model_formats[0];
    let name_and_version = |name: &Option<ome::VersionedName>| {
        name.as_ref().map(|name| (name.name.clone(), name.version.clone().unwrap()))
    };
    assert_eq!(name_and_version(&entry.model_format), Some(("safetensors".to_owned(), "1.0.0".to_owned())));
    assert_eq!(name_and_version(&entry.model_framework), Some(("transformers".to_owned(), "4.36.2".to_owned())));
    assert_eq!(entry.model_architecture.as_deref(), Some("MistralForCausalLM"));
    assert_eq!((entry.auto_select, entry.priority), (Some(true), Some(1)));
    let range = runtime.spec.model_size_range.unwrap();
    assert_eq!((range.min.unwrap().0, range.max.unwrap().0), (5_000_000_000, 9_000_000_000));
    assert_eq!(runtime.spec.protocol_versions, ["openAI"]);
    assert_eq!(serde_json::to_value(&runtime).unwrap(), documents[0].value);
}

// spec: ACC-24
#[test]
fn vendor_versions_and_integration_round_trip() {
    let text = r#"
apiVersion: ome.io/v1beta1
kind: AcceleratorClass
metadata: {name: a}
spec:
  discovery: {nodeSelector: {a: b}}
  capabilities: {rocmVersion: "5.7", levelZeroVersion: "1.3"}
  integration: {kueueResourceFlavor: flavor, volcanoGPUType: a100}
"#;
    let document = &parse_manifest("f.yaml", text).unwrap()[0];
    let class: ome::AcceleratorClass = document.parse().unwrap();
    assert_eq!(serde_json::to_value(&class).unwrap(), document.value);
    let minimal_manifest = "apiVersion: ome.io/v1beta1\nkind: AcceleratorClass\nmetadata: {name: a}\nspec: {discovery: {nodeSelector: {a: b}}, capabilities: {}}\n";
    assert_eq!(crate::lint::lint_document(&parse_manifest("f.yaml", minimal_manifest).unwrap()[0]), []);
}

// spec: ACC-27
#[test]
fn parses_prices_exactly() {
    let cost: ome::AcceleratorCost = serde_json::from_str(
        r#"{"perHour": "2.21", "spotPerHour": 0.88, "perMillionTokens": "0.003", "tier": "medium"}"#,
    )
    .unwrap();
    let formatted = |price: Option<apimachinery::Quantity>| price.unwrap().to_string();
    assert_eq!(
        [formatted(cost.per_hour), formatted(cost.spot_per_hour), formatted(cost.per_million_tokens)],
        ["2210m", "880m", "3m"]
    );
}

// spec: RT-7
#[test]
fn quantities_as_numbers_and_strings_are_equal() {
    for (number, text) in [("10", "\"10\""), ("2", "\"2\""), ("30", "\"30\"")] {
        let parse = |text: &str| serde_json::from_str::<apimachinery::Quantity>(text).unwrap();
        assert_eq!(parse(number), parse(text));
        assert_eq!(serde_json::to_string(&parse(number)).unwrap(), serde_json::to_string(&parse(text)).unwrap());
    }
}

// spec: ACC-32
// spec: ACC-33
// spec: ACC-34
#[test]
fn example_classes_are_valid() {
    let documents = parse_manifest("classes.yaml", include_str!("example_classes.yaml")).unwrap();
    assert_eq!(documents.len(), 4);
    for document in &documents {
        assert_eq!(crate::lint::lint_document(document), [], "{}", document.name());
    }
    let classes: Vec<ome::AcceleratorClass> = documents.iter().map(|document| document.parse().unwrap()).collect();
    let a100 = &classes[0].spec;
    assert_eq!(a100.capabilities.memory_bandwidth.unwrap().as_f64(), 1555.0);
    assert_eq!(a100.cost.as_ref().unwrap().per_hour.unwrap().to_string(), "2210m");
    assert_eq!(a100.resources[1].divisible, Some(true));
    assert_eq!(classes[2].spec.capabilities.performance.as_ref().unwrap().fp32, Some(47.9));
    assert_eq!(classes[3].spec.capabilities.level_zero_version.as_deref(), Some("1.3"));
    let amd = &classes[2].spec.capabilities;
    assert_eq!(
        (amd.memory, amd.compute_capability.as_deref()),
        (Some(crate::memory::AcceleratorMemory::from_gib(128)), None)
    );
    let intel = &classes[3].spec;
    assert_eq!(intel.resources[0].name, "gpu.intel.com/i915");
    assert!(intel.cost.is_none() && intel.capabilities.performance.is_none());
}

// spec: ACC-19
#[test]
fn parses_memory_as_number_or_string() {
    for (written, gib) in
        [("80Gi", 80), ("80G", 80), ("80GB", 80), ("\"80\"", 80), ("80", 80), ("40", 40), ("80.0", 80)]
    {
        let text = format!(
            "apiVersion: ome.io/v1beta1\nkind: AcceleratorClass\nmetadata: {{name: c}}\nspec: {{discovery: {{}}, capabilities: {{memoryGB: {written}}}}}\n"
        );
        let documents = parse_manifest("f.yaml", &text).unwrap();
        let class: ome::AcceleratorClass = documents[0].parse().unwrap();
        assert_eq!(class.spec.capabilities.memory, Some(crate::memory::AcceleratorMemory::from_gib(gib)), "{written}");
    }
}
