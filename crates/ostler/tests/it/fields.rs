//! Optional fields of manifests, and their effect on `ostler plan -o json`.

use serde_json::{Value, json};

use crate::session::{TempDirectory, ostler, outcome};

const MODEL: &str = "apiVersion: ome.io/v1beta1
kind: ClusterBaseModel
metadata: {name: acme-7b}
spec: {modelFormat: {name: safetensors, version: 1.0.0}, modelArchitecture: AcmeForCausalLM, modelParameterSize: 7B}
";
const CLASS: &str = "apiVersion: ome.io/v1beta1
kind: AcceleratorClass
metadata: {name: acme-npu}
spec:
  discovery: {nodeSelector: {acme.com/npu: x1}}
  capabilities: {memoryGB: 80Gi}
  resources: [{name: acme.com/npu}]
";

fn runtime(name: &str, entry: &str, spec: &str) -> String {
    format!(
        "apiVersion: ome.io/v1beta1\nkind: ClusterServingRuntime\nmetadata: {{name: {name}}}\nspec:\n  supportedModelFormats: [{{modelFormat: {{name: safetensors}}, modelArchitecture: AcmeForCausalLM, autoSelect: true{entry}}}]\n  {spec}\n"
    )
}

fn service(spec: &str) -> String {
    format!(
        "apiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {{name: svc}}\nspec:\n  model: {{name: acme-7b}}\n  {spec}\n"
    )
}

/// Returns the plan of the service in `documents`.
fn plan(documents: &[String]) -> Value {
    let directory = TempDirectory::new();
    directory.file("f.yaml", &documents.join("---\n"));
    let output =
        ostler(&["plan", "--no-catalog", "-o", "json", "-f", "f.yaml"]).current_dir(&directory.0).output().unwrap();
    let (stdout, stderr, _) = outcome(&output);
    let plan: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stderr}"));
    plan["services"][0].clone()
}

fn planned_object<'a>(service: &'a Value, kind: &str) -> &'a Value {
    let objects = service["objects"].as_array().unwrap();
    objects.iter().find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("no {kind}: {service:#}"))
}

// spec: ACC-4
#[test]
fn plans_without_accelerator_requirements() {
    let runtime = runtime("plain", "", "engineConfig: {runner: {name: ome-container, image: i}}");
    let service = plan(&[MODEL.to_owned(), runtime, service("runtime: {name: plain}")]);
    assert_eq!((&service["feasible"], &service["runtime"]["name"]), (&json!(true), &json!("plain")));
    assert!(service["components"]["engine"]["acceleratorClass"].is_null(), "{service:#}");
}

// spec: RT-18
#[test]
fn runtime_name_overrides_priority() {
    let engine = "engineConfig: {runner: {name: ome-container, image: i}}";
    let runtimes =
        [MODEL.to_owned(), runtime("low", ", priority: 1", engine), runtime("high", ", priority: 2", engine)];
    let selected_runtime = |spec: &str| {
        let documents: Vec<String> = runtimes.iter().cloned().chain([service(spec)]).collect();
        plan(&documents)["runtime"]["name"].clone()
    };
    assert_eq!(selected_runtime("engine: {}"), "high");
    assert_eq!(selected_runtime("runtime: {name: low}"), "low");
}

// spec: RT-24
#[test]
fn default_is_one_replica() {
    let replicas_of = |replicas: &str| {
        let engine = format!("engineConfig: {{{replicas}runner: {{name: ome-container, image: i}}}}");
        let service = plan(&[MODEL.to_owned(), runtime("r", "", &engine), service("engine: {}")]);
        planned_object(&service, "Deployment")["spec"]["replicas"].clone()
    };
    assert_eq!(replicas_of(""), 1);
    assert_eq!(replicas_of("minReplicas: 3, "), 3);
}

// spec: RT-27
#[test]
fn scale_target_configures_autoscaler() {
    let engine =
        "engineConfig: {maxReplicas: 3, scaleMetric: memory, scaleTarget: 65, runner: {name: ome-container, image: i}}";
    let service = plan(&[MODEL.to_owned(), runtime("r", "", engine), service("engine: {}")]);
    let metrics = &planned_object(&service, "HorizontalPodAutoscaler")["spec"]["metrics"];
    let expected = json!([{"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 65}}}]);
    assert_eq!(metrics, &expected);
}

// spec: ACC-60
#[test]
fn applies_configurations_of_runtime_engine_and_service() {
    let configuration = |name: &str| {
        format!(
            "acceleratorConfigurations: [{{selector: {{acceleratorClass: acme-npu}}, env: [{{name: {name}, value: set}}]}}]"
        )
    };
    let requirements = "acceleratorRequirements: {supportedClasses: [acme-npu]}";
    let spec = format!(
        "{requirements}\n  {}\n  engineConfig: {{runner: {{name: ome-container, image: i}}, {}}}",
        configuration("OF_RUNTIME"),
        configuration("OF_ENGINE_CONFIG")
    );
    let documents = [
        MODEL.to_owned(),
        CLASS.to_owned(),
        runtime("r", "", &spec),
        service(&format!("engine: {{{}}}", configuration("OF_SERVICE"))),
    ];
    let service = plan(&documents);
    let container = &planned_object(&service, "Deployment")["spec"]["template"]["spec"]["containers"][0];
    let variables: Vec<&Value> = container["env"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|variable| variable["value"] == "set")
        .map(|variable| &variable["name"])
        .collect();
    assert_eq!(variables.len(), 3, "{container:#}");
}
