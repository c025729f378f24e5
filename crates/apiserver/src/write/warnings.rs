//! Warnings about accepted but suspicious values, with the messages of kube-apiserver.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::resources::Resource;
use apimachinery::object::{self, items};

/// Returns the warnings for an accepted object. `current` is the object before the write, or `None` for a new object.
pub(super) fn warnings_for(resource: &Resource, current: Option<&Value>, object: &Value) -> Vec<String> {
    let is_new = current.is_none_or(|current| generation(current) != generation(object));
    match resource.storage.as_str() {
        "services" => service_warnings(object),
        // Updates of Pods get no warnings, because most of them come from controllers.
        "pods" if current.is_none() => pod_spec_warnings(object.get("spec").unwrap_or(&Value::Null), "spec"),
        "deployments.apps" | "replicasets.apps" | "statefulsets.apps" | "jobs.batch" if is_new => {
            pod_spec_warnings(object.pointer("/spec/template/spec").unwrap_or(&Value::Null), "spec.template.spec")
        }
        _ if resource.custom => finalizer_warnings(current, object),
        _ => Vec::new(),
    }
}

/// Warns about added finalizers without a domain.
fn finalizer_warnings(current: Option<&Value>, object: &Value) -> Vec<String> {
    const STANDARD_FINALIZERS: [&str; 2] = ["orphan", "foregroundDeletion"];
    let previous = current.map(object::finalizers).unwrap_or_default();
    let is_unqualified =
        |name: &&str| !name.contains('/') && !STANDARD_FINALIZERS.contains(name) && !previous.contains(name);
    let unqualified = object::finalizers(object).into_iter().filter(is_unqualified);
    unqualified.map(|name| {
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

fn service_warnings(service: &Value) -> Vec<String> {
    let spec = service.get("spec").unwrap_or(&Value::Null);
    let is_headless = spec["type"] == "ClusterIP" && spec["clusterIP"] == "None";
    if is_headless && spec["sessionAffinity"] != "None" {
        return vec!["spec.SessionAffinity is ignored for headless services".to_owned()];
    }
    if spec["trafficDistribution"] == "PreferClose" {
        let warning = "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"";
        return vec![warning.to_owned()];
    }
    Vec::new()
}

/// Warns about conflicting container ports and negative grace periods.
fn pod_spec_warnings(spec: &Value, path: &str) -> Vec<String> {
    let ports: Vec<(String, &Value)> = ["initContainers", "containers"]
        .into_iter()
        .flat_map(|list| {
            items(spec.get(list))
                .enumerate()
                .map(move |(index, container)| (format!("{path}.{list}[{index}]"), container))
        })
        .flat_map(|(field, container)| {
            items(container.get("ports"))
                .enumerate()
                .map(move |(index, port)| (format!("{field}.ports[{index}]"), port))
        })
        .collect();
    let mut warnings = duplicate_port_warnings(&ports);
    warnings.extend(duplicate_port_name_warnings(&ports));
    if spec["terminationGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds < 0) {
        let hint = "must be >= 0; negative values are invalid and will be treated as 1";
        warnings.push(format!("{path}.terminationGracePeriodSeconds: {hint}"));
    }
    warnings
}

fn duplicate_port_warnings(ports: &[(String, &Value)]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (index, (field, port)) in ports.iter().enumerate() {
        let is_same = |other: &Value| ["containerPort", "protocol"].iter().all(|field| other[*field] == port[*field]);
        let host_address =
            |port: &Value| (object::text(port, "/hostIP").to_owned(), port["hostPort"].as_i64().unwrap_or(0));
        let ((host_ip, host_port), previous) = (host_address(port), &ports[..index]);
        for (other_field, other) in previous.iter().filter(|(_, other)| is_same(other)) {
            let (other_host_ip, other_host_port) = host_address(other);
            let problem = if (&host_ip, host_port) == (&other_host_ip, other_host_port) {
                "duplicate"
            } else if host_port == 0 || other_host_port == 0 {
                "overlapping"
            } else if host_port == other_host_port && host_ip.is_empty() != other_host_ip.is_empty() {
                "dangerously ambiguous"
            } else {
                continue;
            };
            warnings.push(format!("{field}: {problem} port definition with {other_field}"));
        }
    }
    warnings
}

fn duplicate_port_name_warnings(ports: &[(String, &Value)]) -> Vec<String> {
    let mut first_by_name: BTreeMap<&str, &str> = BTreeMap::new();
    let mut warnings = Vec::new();
    for (field, port) in ports {
        let name = object::text(port, "/name");
        if name.is_empty() {
            continue;
        }
        match first_by_name.get(name) {
            Some(other) => warnings.push(format!(
                "{field}: duplicate port name {} with {other}, services and probes that select ports by name will use {other}",
                json!(name)
            )),
            None => {
                first_by_name.insert(name, field);
            }
        }
    }
    warnings
}
