//! Services: their ports, type and affinity, and the address that stays.

use std::collections::BTreeSet;

use apimachinery::status::Cause;
use serde_json::{Value, json};

use super::super::names::{LABEL, is_label, subdomain_hints};
use super::field::Field;
use super::{items, probe};
use crate::object;
use crate::write::validate::metadata;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const AFFINITIES: [&str; 2] = ["ClientIP", "None"];
const SERVICE_TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

pub(super) fn causes(service: &Value) -> Vec<Cause> {
    let spec = Field::of(service).get("spec");
    let (kind, listed, outside) = (spec.get("type"), spec.get("ports"), spec.get("externalName"));
    let mut causes = Vec::new();
    let is_outside = kind.text() == "ExternalName";
    if listed.is_empty() && spec.get("clusterIP").text() != "None" && !is_outside {
        causes.push(listed.required());
    }
    if is_outside {
        let name = Field::at(outside.value, outside.path.clone());
        // The root may be written.
        let hints = subdomain_hints(name.text().strip_suffix('.').unwrap_or(name.text()));
        if name.is_empty() {
            causes.push(name.required());
        } else {
            causes.extend(hints.iter().map(|hint| name.invalid(hint)));
        }
    }
    causes.extend(ports(&listed));
    causes.extend(metadata::labels("spec.selector", spec.get("selector").value.as_object()));
    let affinity = spec.get("sessionAffinity");
    causes.extend((!AFFINITIES.contains(&affinity.text())).then(|| affinity.not_supported(&AFFINITIES)));
    causes.extend((!SERVICE_TYPES.contains(&kind.text())).then(|| kind.not_supported(&SERVICE_TYPES)));
    if !matches!(kind.text(), "NodePort" | "LoadBalancer") {
        causes.extend(listed.each().filter_map(|port| no_node_port(&port.get("nodePort"), kind.text())));
    }
    causes.extend(doubled_ports(&items(Some(listed.value)).collect::<Vec<_>>()));
    causes.extend(spec.get("externalTrafficPolicy").one_of(&["Cluster", "Local"]));
    causes.extend(spec.get("internalTrafficPolicy").one_of(&["Cluster", "Local"]));
    causes
}

fn no_node_port(port: &Field<'_>, kind: &str) -> Option<Cause> {
    let given = port.number().is_some_and(|number| number != 0) && SERVICE_TYPES.contains(&kind);
    given.then(|| port.forbidden(&format!("may not be used when `type` is '{kind}'")))
}

/// Ports by themselves: named where there are several, each by its own name, and numbers that are some.
fn ports(ports: &Field<'_>) -> Vec<Cause> {
    let mut names = BTreeSet::new();
    let mut causes = Vec::new();
    let wants_names = ports.each().count() > 1;
    for port in ports.each() {
        let [name, number, target, protocol] = ["name", "port", "targetPort", "protocol"].map(|field| port.get(field));
        if name.is_empty() {
            causes.extend(wants_names.then(|| name.required()));
        } else {
            let is_label = name.text().len() <= 63 && is_label(name.text());
            causes.extend((!is_label).then(|| name.invalid(LABEL)));
            causes.extend((!names.insert(name.text())).then(|| name.duplicate()));
        }
        causes.extend(probe::out_of_range(&number, number.number().unwrap_or(0)));
        causes.extend(protocol.one_of(&PROTOCOLS));
        causes.extend(probe::port(&target));
    }
    causes
}

/// The address of a Service stays as it is.
pub(super) fn moved(current: &Value, object: &Value) -> Option<Cause> {
    let address = |service: &Value| object::text(service, "/spec/clusterIP").to_owned();
    let (before, after) = (address(current), address(object));
    let is_fixed = !before.is_empty() && !after.is_empty();
    (is_fixed && before != after)
        .then(|| Cause::invalid("spec.clusterIPs[0]", &json!([after]), "may not change once set"))
}

/// A port is told apart by its number and protocol.
fn doubled_ports(ports: &[&Value]) -> Vec<Cause> {
    let mut seen = BTreeSet::new();
    let mut causes = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let (number, protocol) = (port["port"].as_i64(), object::text(port, "/protocol"));
        if !seen.insert((number, protocol)) {
            let number = number.unwrap_or_default();
            let message = format!(
                r#"Duplicate value: {{"Name":"","Protocol":"{protocol}","AppProtocol":null,"Port":{number},"TargetPort":0,"NodePort":0}}"#
            );
            causes.push(Cause::new(format!("spec.ports[{index}]"), "FieldValueDuplicate", message));
        }
    }
    causes
}
