//! Allocates node ports, separately for each protocol.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use apimachinery::{Status, StatusCause, object};
use serde_json::{Value, json};

use super::service_type;
use crate::transaction::Transaction;

/// Default of kube-apiserver's `--service-node-port-range`.
const NODE_PORT_RANGE: RangeInclusive<i64> = 30000..=32767;

/// Protocol and number of each allocated node port.
type AllocatedPorts = BTreeSet<(String, i64)>;

/// Sets the node port of each port of a Service: the requested one, the existing one, or else a newly allocated one.
pub(super) fn allocate_node_ports(
    transaction: &Transaction<'_>,
    current: Option<&Value>,
    service: &mut Value,
) -> Result<(), Status> {
    if !service_type::has_node_ports(service) {
        return Ok(());
    }
    let current_ports = current.map(service_type::ports).unwrap_or_default();
    let mut allocated = allocated_by_others(transaction, service);
    let mut causes = Vec::new();
    let mut ports = service_type::ports(service);
    for (index, port) in ports.iter_mut().enumerate() {
        let protocol = object::text(port, "/protocol").to_owned();
        let requested = requested_node_port(port).or_else(|| {
            current_ports.iter().find(|current_port| is_same_port(current_port, port)).and_then(requested_node_port)
        });
        let node_port = match requested {
            Some(requested) => {
                let field = format!("spec.ports[{index}].nodePort");
                causes.extend(
                    allocation_error(&allocated, &protocol, requested)
                        .map(|hint| StatusCause::invalid(field, &json!(requested), hint)),
                );
                requested
            }
            None => next_free_port(&allocated, &protocol)?,
        };
        allocated.insert((protocol, node_port));
        object::members(port).insert("nodePort".to_owned(), json!(node_port));
    }
    if !causes.is_empty() {
        return Err(Status::invalid("Service", object::name(service), causes));
    }
    if !ports.is_empty() {
        object::members(&mut service["spec"]).insert("ports".to_owned(), Value::Array(ports));
    }
    Ok(())
}

fn requested_node_port(port: &Value) -> Option<i64> {
    port["nodePort"].as_i64().filter(|number| *number != 0)
}

fn is_same_port(current_port: &Value, port: &Value) -> bool {
    ["port", "protocol"].iter().all(|field| current_port[field] == port[field])
}

fn allocation_error(allocated: &AllocatedPorts, protocol: &str, requested: i64) -> Option<&'static str> {
    if !NODE_PORT_RANGE.contains(&requested) {
        return Some("provided port is not in the valid range. The range of valid ports is 30000-32767");
    }
    allocated.contains(&(protocol.to_owned(), requested)).then_some("provided port is already allocated")
}

fn next_free_port(allocated: &AllocatedPorts, protocol: &str) -> Result<i64, Status> {
    let is_free = |number: &i64| !allocated.contains(&(protocol.to_owned(), *number));
    NODE_PORT_RANGE
        .into_iter()
        .find(is_free)
        .ok_or_else(|| Status::internal_error("failed to allocate a nodePort: range is full"))
}

fn allocated_by_others(transaction: &Transaction<'_>, service: &Value) -> AllocatedPorts {
    let is_same_service = |other: &Value| {
        object::name(other) == object::name(service) && object::namespace(other) == object::namespace(service)
    };
    let others = transaction.list("services");
    let ports = others.iter().filter(|other| !is_same_service(other)).flat_map(|other| service_type::ports(other));
    ports.filter_map(|port| Some((object::text(&port, "/protocol").to_owned(), requested_node_port(&port)?))).collect()
}
