//! Table columns of Services.

use apimachinery::object;
use serde_json::{Value, json};

use super::cell::{age, column, format_labels, items, number, or_none};
use super::column::Column;

pub(super) fn columns() -> Vec<Column> {
    vec![
        column("Type", "string", 0, |service, _| json!(object::text(service, "/spec/type"))),
        column("Cluster-IP", "string", 0, |service, _| or_none(object::text(service, "/spec/clusterIP"))),
        column("External-IP", "string", 0, |_, _| or_none("")),
        column("Port(s)", "string", 0, |service, _| or_none(&service_ports(service))),
        age(),
        column("Selector", "string", 1, |service, _| or_none(&format_labels(service.pointer("/spec/selector")))),
    ]
}

fn service_ports(service: &Value) -> String {
    let ports: Vec<String> = items(service, "/spec/ports")
        .map(|port| format!("{}/{}", number(port, "/port"), object::text(port, "/protocol")))
        .collect();
    ports.join(",")
}
