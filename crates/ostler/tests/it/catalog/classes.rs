//! The shipped accelerator classes, and the example classes of the documentation.

use std::collections::BTreeMap;

use super::{list_objects, name, run_plan, service, services_of};
use crate::session::{ostler, outcome};

// spec: ACC-44
#[test]
fn ships_at_least_80_complete_classes() {
    let classes = list_objects("classes");
    assert!(classes.len() >= 80, "{}", classes.len());
    let mut vendors = BTreeMap::<String, usize>::new();
    for class in &classes {
        let spec = &class["spec"];
        for fact in [
            "/capabilities/memoryGB",
            "/capabilities/memoryBandwidthGBps",
            "/capabilities/features/0",
            "/capabilities/performance/fp16TFLOPS",
            "/resources/0/name",
            "/cost/tier",
        ] {
            assert!(spec.pointer(fact).is_some(), "{} lacks {fact}", name(class));
        }
        let has_discovery =
            ["nodeSelector", "nodeSelectorTerms", "deviceIDs"].iter().any(|field| !spec["discovery"][field].is_null());
        assert!(has_discovery, "{} matches no node", name(class));
        let capability = spec["capabilities"]["computeCapability"].is_string();
        assert_eq!(capability, spec["vendor"] == "nvidia", "{}: only NVIDIA defines compute capabilities", name(class));
        // Existing runtimes require these feature names.
        let platform = [("nvidia", "cuda"), ("amd", "rocm")].into_iter().find(|(vendor, _)| spec["vendor"] == *vendor);
        let features = spec["capabilities"]["features"].as_array().unwrap();
        assert!(platform.is_none_or(|(_, platform)| features.contains(&platform.into())), "{}", name(class));
        *vendors.entry(spec["vendor"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    insta::assert_debug_snapshot!(vendors, @r#"
    {
        "amd": 14,
        "aws": 5,
        "google": 5,
        "huawei": 8,
        "intel": 8,
        "nvidia": 70,
    }
    "#);
}

/// If two classes selected the same label value, its nodes would be counted twice.
#[test]
fn classes_select_distinct_labels() {
    let mut class_by_label = BTreeMap::new();
    for class in list_objects("classes") {
        let discovery = &class["spec"]["discovery"];
        let selector = discovery["nodeSelector"].as_object().into_iter().flatten();
        let mut labels: Vec<(String, String)> =
            selector.map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned())).collect();
        for term in discovery["nodeSelectorTerms"].as_array().into_iter().flatten() {
            for expression in term["matchExpressions"].as_array().unwrap() {
                let key = expression["key"].as_str().unwrap();
                let values = expression["values"].as_array().unwrap().iter();
                labels.extend(values.map(|value| (key.to_owned(), value.as_str().unwrap().to_owned())));
            }
        }
        for label in labels {
            let other_class = class_by_label.insert(label.clone(), name(&class).to_owned());
            assert!(
                other_class.as_deref().is_none_or(|other| other == name(&class)),
                "{label:?}: {other_class:?}, {}",
                name(&class)
            );
        }
    }
}

/// The example classes have the values of specification 000.
// spec: ACC-32
// spec: ACC-33
// spec: ACC-34
// spec: ACC-130
#[test]
fn example_classes_are_valid_and_planned() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/examples/accelerator-classes.yaml");
    let (_, stderr, code) = outcome(&ostler(&["lint", "-f", examples]).output().unwrap());
    assert_eq!((stderr.as_str(), code), ("4 documents: 0 errors, 0 warnings\n", Some(0)));

    let runtime = "
apiVersion: ome.io/v1beta1
kind: ClusterServingRuntime
metadata: {name: universal}
spec:
  supportedModelFormats: [{modelFormat: {name: safetensors}, autoSelect: true}]
  acceleratorRequirements: {requiredCapabilities: {memoryGB: 40Gi}}
  engineConfig: {runner: {image: example/engine, args: [--port=8080]}}
---
apiVersion: ome.io/v1beta1
kind: ClusterBaseModel
metadata: {name: llama-13b}
spec: {modelFormat: {name: safetensors}, modelArchitecture: LlamaForCausalLM, modelParameterSize: 13B}
";
    let manifests =
        format!("{}{}---{runtime}", service("balanced", "llama-13b", None), cost_optimized_service("llama-13b"));
    let (stdout, stderr, _) = run_plan(&manifests, &[examples, "--no-catalog"]);
    assert_eq!(stderr, "");
    let rows = services_of(&stdout).into_iter().flat_map(|service| {
        let classes = service["candidates"][0]["accelerators"].as_array().unwrap().clone();
        let service = name(&service).to_owned();
        classes.into_iter().map(move |class| {
            format!("{service:<9} {:<17} {}", class["class"].as_str().unwrap(), class["message"].as_str().unwrap())
        })
    });
    insta::assert_snapshot!(rows.collect::<Vec<_>>().join("\n"), @r"
    balanced  nvidia-a100-40gb  balanced 0.65 (cost 1.00, performance 0.27), ×1, $2.21/h, availability unknown
    balanced  nvidia-h100-80gb  balanced 0.60 (cost 0.43, performance 1.00), ×1, $5.12/h, availability unknown
    balanced  amd-mi250x        balanced 0.43 (performance 0.43), ×1, availability unknown
    balanced  intel-max-1550    balanced 0.00 (performance 0.00), ×1, availability unknown
    cheap     nvidia-a100-40gb  cost 1.00 (cost 1.00, performance 0.27), ×1, $2.21/h, availability unknown
    cheap     nvidia-h100-80gb  cost 0.43 (cost 0.43, performance 1.00), ×1, $5.12/h, availability unknown
    cheap     amd-mi250x        cost 0.00 (performance 0.43), ×1, availability unknown
    cheap     intel-max-1550    cost 0.00 (performance 0.00), ×1, availability unknown
    ");
}

fn cost_optimized_service(model: &str) -> String {
    service("cheap", model, None) + "  acceleratorSelector: {strategy: cost}\n"
}
