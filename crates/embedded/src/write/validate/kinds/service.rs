//! Services: their ports, type and affinity, and the address that stays.

use std::collections::BTreeSet;

use apimachinery::status::Cause;
use serde_json::{Value, json};

use super::items;
use crate::object;
use crate::write::validate::metadata;

const AFFINITIES: [&str; 2] = ["ClientIP", "None"];
const SERVICE_TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];

pub(super) fn causes(service: &Value) -> Vec<Cause> {
    let spec = service.get("spec").unwrap_or(&Value::Null);
    let kind = object::text(spec, "/type");
    let listed: Vec<&Value> = items(spec.get("ports")).collect();
    let mut causes = Vec::new();
    if listed.is_empty() && spec["clusterIP"] != "None" && kind != "ExternalName" {
        causes.push(Cause::required("spec.ports", ""));
    }
    causes.extend(ports(&listed));
    causes.extend(metadata::labels("spec.selector", spec.get("selector").and_then(Value::as_object)));
    let affinity = object::text(spec, "/sessionAffinity");
    if !AFFINITIES.contains(&affinity) {
        causes.push(Cause::not_supported("spec.sessionAffinity", &json!(affinity), &AFFINITIES.map(Value::from)));
    }
    if !SERVICE_TYPES.contains(&kind) {
        causes.push(Cause::not_supported("spec.type", &json!(kind), &SERVICE_TYPES.map(Value::from)));
    }
    causes.extend(doubled_ports(&listed));
    causes
}

/// Ports by themselves: named where there are several, each by its own name, and numbers that are some.
fn ports(ports: &[&Value]) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let field = format!("spec.ports[{index}]");
        if ports.len() > 1 && object::text(port, "/name").is_empty() {
            causes.push(Cause::required(format!("{field}.name"), ""));
        }
        let name = object::text(port, "/name");
        let is_taken = ports[..index].iter().any(|before| object::text(before, "/name") == name);
        if !name.is_empty() && is_taken {
            causes.push(Cause::duplicate(format!("{field}.name"), &json!(name)));
        }
        for name in ["port", "targetPort"] {
            let outside = port[name].as_i64().filter(|number| !(1..=65535).contains(number));
            if outside.is_some() {
                let hint = "must be between 1 and 65535, inclusive";
                causes.push(Cause::invalid(format!("{field}.{name}"), &port[name], hint));
            }
        }
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
