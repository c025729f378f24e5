//! Validation of Services: ports, type, session affinity and cluster IP.

use std::collections::BTreeSet;

use apimachinery::StatusCause;
use serde_json::{Value, json};

use super::super::names::{LABEL_MESSAGE, is_label, subdomain_hints};
use super::field::Field;
use super::probe;
use crate::write::validate::metadata;
use apimachinery::object::{self, items};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const AFFINITIES: [&str; 2] = ["ClientIP", "None"];
const SERVICE_TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

pub(super) fn causes(service: &Value) -> Vec<StatusCause> {
    let spec = Field::root(service).get("spec");
    let (kind, ports_field, external_name) = (spec.get("type"), spec.get("ports"), spec.get("externalName"));
    let mut causes = Vec::new();
    let is_external_name = kind.text() == "ExternalName";
    if ports_field.is_empty() && spec.get("clusterIP").text() != "None" && !is_external_name {
        causes.push(ports_field.required());
    }
    if is_external_name {
        let name = Field::at(external_name.value, external_name.path.clone());
        // A trailing dot is allowed.
        let hints = subdomain_hints(name.text().strip_suffix('.').unwrap_or(name.text()));
        if name.is_empty() {
            causes.push(name.required());
        } else {
            causes.extend(hints.iter().map(|hint| name.invalid(hint)));
        }
    }
    causes.extend(check_ports(&ports_field));
    causes.extend(metadata::check_labels("spec.selector", spec.get("selector").value.as_object()));
    let affinity = spec.get("sessionAffinity");
    causes.extend((!AFFINITIES.contains(&affinity.text())).then(|| affinity.not_supported(&AFFINITIES)));
    let timeout = spec.get("sessionAffinityConfig.clientIP.timeoutSeconds");
    if affinity.text() == "ClientIP" && timeout.number().is_some_and(|seconds| !(1..=86_400).contains(&seconds)) {
        causes.push(timeout.invalid("must be greater than 0 and less than 86400"));
    }
    causes.extend((!SERVICE_TYPES.contains(&kind.text())).then(|| kind.not_supported(&SERVICE_TYPES)));
    if !matches!(kind.text(), "NodePort" | "LoadBalancer") {
        causes.extend(ports_field.items().filter_map(|port| check_no_node_port(&port.get("nodePort"), kind.text())));
    }
    causes.extend(check_duplicate_ports(&items(Some(ports_field.value)).collect::<Vec<_>>()));
    causes.extend(spec.get("externalTrafficPolicy").check_one_of(&["Cluster", "Local"]));
    causes.extend(spec.get("internalTrafficPolicy").check_one_of(&["Cluster", "Local"]));
    causes
}

fn check_no_node_port(port: &Field<'_>, kind: &str) -> Option<StatusCause> {
    let has_node_port = port.number().is_some_and(|number| number != 0) && SERVICE_TYPES.contains(&kind);
    has_node_port.then(|| port.forbidden(&format!("may not be used when `type` is '{kind}'")))
}

/// Validates the numbers and names of ports. Names must be unique and are required if there is more than one port.
fn check_ports(ports: &Field<'_>) -> Vec<StatusCause> {
    let mut names = BTreeSet::new();
    let mut causes = Vec::new();
    let requires_names = ports.items().count() > 1;
    for port in ports.items() {
        let [name, number, target, protocol] = ["name", "port", "targetPort", "protocol"].map(|field| port.get(field));
        if name.is_empty() {
            causes.extend(requires_names.then(|| name.required()));
        } else {
            let is_label = name.text().len() <= 63 && is_label(name.text());
            causes.extend((!is_label).then(|| name.invalid(LABEL_MESSAGE)));
            causes.extend((!names.insert(name.text())).then(|| name.duplicate()));
        }
        causes.extend(probe::check_port_range(&number, number.number().unwrap_or(0)));
        causes.extend(protocol.check_one_of(&PROTOCOLS));
        causes.extend(probe::check_port(&target));
    }
    causes
}

/// Rejects a change to the cluster IP.
pub(super) fn check_cluster_ip_unchanged(current: &Value, object: &Value) -> Option<StatusCause> {
    let address = |service: &Value| object::text(service, "/spec/clusterIP").to_owned();
    let (before, after) = (address(current), address(object));
    let has_both_addresses = !before.is_empty() && !after.is_empty();
    (has_both_addresses && before != after)
        .then(|| StatusCause::invalid("spec.clusterIPs[0]", &json!([after]), "may not change once set"))
}

/// Rejects ports with the same number and protocol.
fn check_duplicate_ports(ports: &[&Value]) -> Vec<StatusCause> {
    let mut seen = BTreeSet::new();
    let mut causes = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let (number, protocol) = (port["port"].as_i64(), object::text(port, "/protocol"));
        if !seen.insert((number, protocol)) {
            let number = number.unwrap_or_default();
            let message = format!(
                r#"Duplicate value: {{"Name":"","Protocol":"{protocol}","AppProtocol":null,"Port":{number},"TargetPort":0,"NodePort":0}}"#
            );
            causes.push(StatusCause::new(format!("spec.ports[{index}]"), "FieldValueDuplicate", message));
        }
    }
    causes
}
