//! The shipped catalog: its output, and the decisions with it.

mod classes;
mod commands;
mod models;
mod runtimes;

use serde_json::Value;

use crate::session::{TempDirectory, ostler, outcome};

/// Returns the shipped objects of a kind from `catalog list -o json`.
fn list_objects(kind: &str) -> Vec<Value> {
    let (stdout, stderr, code) = outcome(&ostler(&["catalog", "list", kind, "-o", "json"]).output().unwrap());
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    serde_json::from_str::<Value>(&stdout).unwrap()["items"].as_array().unwrap().clone()
}

fn run_plan(manifests: &str, args: &[&str]) -> (String, String, Option<i32>) {
    let directory = TempDirectory::new();
    directory.file("f.yaml", manifests);
    outcome(&ostler(&["plan", "-o", "json", "-f", "f.yaml"]).args(args).current_dir(&directory.0).output().unwrap())
}

fn services_of(plan: &str) -> Vec<Value> {
    serde_json::from_str::<Value>(plan).unwrap()["services"].as_array().unwrap().clone()
}

fn service(name: &str, model: &str, runtime: Option<&str>) -> String {
    let runtime = runtime.map_or_else(String::new, |runtime| format!("\n  runtime: {{name: {runtime}}}"));
    format!(
        "---\napiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {{name: {name}}}\nspec:\n  model: {{name: {model}}}{runtime}\n"
    )
}

fn name(object: &Value) -> &str {
    object.pointer("/metadata/name").or(object.get("name")).and_then(Value::as_str).unwrap()
}

fn runtime_name(service: &Value) -> &str {
    service["runtime"]["name"].as_str().unwrap_or("–")
}

/// Formats accelerators, nodes and cost of a service: `8×nvidia-h100-80gb ×2, $81.92`.
fn format_accelerators(service: &Value) -> String {
    let engine = &service["components"]["engine"];
    let class = engine["acceleratorClass"].as_str().unwrap_or("–");
    let nodes =
        engine["nodes"].as_u64().filter(|nodes| *nodes > 1).map(|nodes| format!(" ×{nodes}")).unwrap_or_default();
    let price = engine["costPerHour"].as_f64().map(|price| format!(", ${price:.2}")).unwrap_or_default();
    format!("{}×{class}{nodes}{price}", engine["acceleratorsPerNode"])
}

fn warning_codes(service: &Value) -> Vec<&str> {
    service["warnings"].as_array().unwrap().iter().map(|warning| warning["code"].as_str().unwrap()).collect()
}

fn auto_selected_formats(runtime: &Value) -> Vec<&Value> {
    let entries = runtime["spec"]["supportedModelFormats"].as_array().unwrap().iter();
    entries.filter(|entry| entry["autoSelect"] == true).collect()
}
