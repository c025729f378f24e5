//! Fields that a manifest may leave out or state, as `ostler plan -o json` follows them.

use serde_json::{Value, json};

use crate::session::{Folder, ostler, outcome};

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

/// The plan of the one service among `documents`.
fn plan(documents: &[String]) -> Value {
    let folder = Folder::new();
    folder.file("f.yaml", &documents.join("---\n"));
    let output =
        ostler(&["plan", "--no-catalog", "-o", "json", "-f", "f.yaml"]).current_dir(&folder.0).output().unwrap();
    let (stdout, stderr, _) = outcome(&output);
    let plan: Value = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stderr}"));
    plan["services"][0].clone()
}

fn made<'a>(service: &'a Value, kind: &str) -> &'a Value {
    let objects = service["objects"].as_array().unwrap();
    objects.iter().find(|object| object["kind"] == kind).unwrap_or_else(|| panic!("no {kind}: {service:#}"))
}

// spec: ACC-4
#[test]
fn a_service_and_a_runtime_of_before_accelerators_are_feasible() {
    let runtime = runtime("plain", "", "engineConfig: {runner: {name: ome-container, image: i}}");
    let service = plan(&[MODEL.to_owned(), runtime, service("runtime: {name: plain}")]);
    assert_eq!((&service["feasible"], &service["runtime"]["name"]), (&json!(true), &json!("plain")));
    assert!(service["components"]["engine"]["acceleratorClass"].is_null(), "{service:#}");
}

// spec: RT-18
#[test]
fn the_higher_priority_wins_and_a_name_overrides_it() {
    let engine = "engineConfig: {runner: {name: ome-container, image: i}}";
    let runtimes =
        [MODEL.to_owned(), runtime("low", ", priority: 1", engine), runtime("high", ", priority: 2", engine)];
    let chosen = |spec: &str| {
        let documents: Vec<String> = runtimes.iter().cloned().chain([service(spec)]).collect();
        plan(&documents)["runtime"]["name"].clone()
    };
    assert_eq!(chosen("engine: {}"), "high");
    assert_eq!(chosen("runtime: {name: low}"), "low");
}

// spec: RT-24
#[test]
fn one_replica_unless_stated() {
    let of = |replicas: &str| {
        let engine = format!("engineConfig: {{{replicas}runner: {{name: ome-container, image: i}}}}");
        let service = plan(&[MODEL.to_owned(), runtime("r", "", &engine), service("engine: {}")]);
        made(&service, "Deployment")["spec"]["replicas"].clone()
    };
    assert_eq!(of(""), 1);
    assert_eq!(of("minReplicas: 3, "), 3);
}

// spec: RT-27
#[test]
fn the_scale_target_is_the_autoscalers() {
    let engine =
        "engineConfig: {maxReplicas: 3, scaleMetric: memory, scaleTarget: 65, runner: {name: ome-container, image: i}}";
    let service = plan(&[MODEL.to_owned(), runtime("r", "", engine), service("engine: {}")]);
    let metrics = &made(&service, "HorizontalPodAutoscaler")["spec"]["metrics"];
    let expect = json!([{"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 65}}}]);
    assert_eq!(metrics, &expect);
}

// spec: ACC-60
#[test]
fn tuning_may_stand_in_three_places() {
    let tuned = |name: &str| {
        format!(
            "acceleratorConfigurations: [{{selector: {{acceleratorClass: acme-npu}}, env: [{{name: {name}, value: set}}]}}]"
        )
    };
    let requirements = "acceleratorRequirements: {supportedClasses: [acme-npu]}";
    let spec = format!(
        "{requirements}\n  {}\n  engineConfig: {{runner: {{name: ome-container, image: i}}, {}}}",
        tuned("OF_RUNTIME"),
        tuned("OF_ENGINE_CONFIG")
    );
    let documents = [
        MODEL.to_owned(),
        CLASS.to_owned(),
        runtime("r", "", &spec),
        service(&format!("engine: {{{}}}", tuned("OF_SERVICE"))),
    ];
    let service = plan(&documents);
    let container = &made(&service, "Deployment")["spec"]["template"]["spec"]["containers"][0];
    let set: Vec<&Value> = container["env"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["value"] == "set")
        .map(|one| &one["name"])
        .collect();
    assert_eq!(set.len(), 3, "{container:#}");
}
