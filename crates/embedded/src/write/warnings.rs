//! What is accepted and still is hardly meant, said in `Warning:` headers in kube-apiserver's words.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::validate::kinds::items;
use crate::object;
use crate::resources::Resource;

/// Of an object that was accepted; `current` is what it was before.
pub(super) fn of(resource: &Resource, current: Option<&Value>, object: &Value) -> Vec<String> {
    let is_new = current.is_none_or(|current| generation(current) != generation(object));
    match resource.storage.as_str() {
        "services" => service(object),
        // Hardly anybody changes Pods by hand.
        "pods" if current.is_none() => pod(object.get("spec").unwrap_or(&Value::Null), "spec"),
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" | "jobs.batch" if is_new => {
            pod(object.pointer("/spec/template/spec").unwrap_or(&Value::Null), "spec.template.spec")
        }
        _ if resource.custom => finalizers(current, object),
        _ => Vec::new(),
    }
}

/// New finalizers that belong to nobody's domain.
fn finalizers(current: Option<&Value>, object: &Value) -> Vec<String> {
    const STANDARD: [&str; 2] = ["orphan", "foregroundDeletion"];
    let before = current.map(object::finalizers).unwrap_or_default();
    let is_told = |name: &&str| !name.contains('/') && !STANDARD.contains(name) && !before.contains(name);
    let told = object::finalizers(object).into_iter().filter(is_told);
    told.map(|name| {
        format!(
            "metadata.finalizers: {}: prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers",
            json!(name)
        )
    })
    .collect()
}

fn generation(object: &Value) -> Option<&Value> {
    object.pointer("/metadata/generation")
}

fn service(service: &Value) -> Vec<String> {
    let spec = service.get("spec").unwrap_or(&Value::Null);
    let is_headless = spec["type"] == "ClusterIP" && spec["clusterIP"] == "None";
    if is_headless && spec["sessionAffinity"] != "None" {
        return vec!["spec.SessionAffinity is ignored for headless services".to_owned()];
    }
    if spec["trafficDistribution"] == "PreferClose" {
        let told = "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"";
        return vec![told.to_owned()];
    }
    Vec::new()
}

/// Ports of containers that hide each other.
fn pod(spec: &Value, at: &str) -> Vec<String> {
    let all: Vec<(String, &Value)> = ["initContainers", "containers"]
        .into_iter()
        .flat_map(|list| {
            items(spec.get(list)).enumerate().map(move |(index, it)| (format!("{at}.{list}[{index}]"), it))
        })
        .flat_map(|(field, it)| {
            items(it.get("ports")).enumerate().map(move |(index, port)| (format!("{field}.ports[{index}]"), port))
        })
        .collect();
    let mut warnings = doubled_ports(&all);
    warnings.extend(doubled_names(&all));
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        let hint = "must be >= 0; negative values are invalid and will be treated as 1";
        warnings.push(format!("{at}.terminationGracePeriodSeconds: {hint}"));
    }
    warnings
}

fn doubled_ports(all: &[(String, &Value)]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (index, (field, port)) in all.iter().enumerate() {
        let is_same = |other: &Value| ["containerPort", "protocol"].iter().all(|part| other[*part] == port[*part]);
        let host = |port: &Value| (object::text(port, "/hostIP").to_owned(), port["hostPort"].as_i64().unwrap_or(0));
        let ((ip, number), before) = (host(port), &all[..index]);
        for (other_field, other) in before.iter().filter(|(_, other)| is_same(other)) {
            let (other_ip, other_number) = host(other);
            let what = if (&ip, number) == (&other_ip, other_number) {
                "duplicate"
            } else if number == 0 || other_number == 0 {
                "overlapping"
            } else if number == other_number && ip.is_empty() != other_ip.is_empty() {
                "dangerously ambiguous"
            } else {
                continue;
            };
            warnings.push(format!("{field}: {what} port definition with {other_field}"));
        }
    }
    warnings
}

fn doubled_names(all: &[(String, &Value)]) -> Vec<String> {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    let mut warnings = Vec::new();
    for (field, port) in all {
        let name = object::text(port, "/name");
        if name.is_empty() {
            continue;
        }
        match first.get(name) {
            Some(other) => warnings.push(format!(
                "{field}: duplicate port name {} with {other}, services and probes that select ports by name will use {other}",
                json!(name)
            )),
            None => {
                first.insert(name, field);
            }
        }
    }
    warnings
}
