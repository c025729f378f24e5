//! The ports of Services on nodes, told apart by protocol.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use apimachinery::status::{Cause, Status};
use serde_json::{Value, json};

use super::service_type;
use crate::object;
use crate::server::Server;

/// What kube-apiserver hands out unless told otherwise.
const RANGE: RangeInclusive<i64> = 30000..=32767;

/// A protocol and a number.
type Taken = BTreeSet<(String, i64)>;

/// Gives each port its number on nodes, or keeps the one that it had.
pub(super) fn to_service(server: &Server, current: Option<&Value>, service: &mut Value) -> Result<(), Status> {
    if !service_type::has_node_ports(service) {
        return Ok(());
    }
    let own = current.map(service_type::ports).unwrap_or_default();
    let mut taken = taken_by_others(server, service);
    let mut causes = Vec::new();
    let mut ports = service_type::ports(service);
    for (index, port) in ports.iter_mut().enumerate() {
        let protocol = object::text(port, "/protocol").to_owned();
        let wanted = number(port).or_else(|| own.iter().find(|before| is_same(before, port)).and_then(number));
        let given = match wanted {
            Some(wanted) => {
                let field = format!("spec.ports[{index}].nodePort");
                causes
                    .extend(refused(&taken, &protocol, wanted).map(|hint| Cause::invalid(field, &json!(wanted), hint)));
                wanted
            }
            None => free(&taken, &protocol)?,
        };
        taken.insert((protocol, given));
        object::members(port).insert("nodePort".to_owned(), json!(given));
    }
    if !causes.is_empty() {
        return Err(Status::invalid("Service", object::name(service), causes));
    }
    if !ports.is_empty() {
        object::members(&mut service["spec"]).insert("ports".to_owned(), Value::Array(ports));
    }
    Ok(())
}

fn number(port: &Value) -> Option<i64> {
    port["nodePort"].as_i64().filter(|number| *number != 0)
}

fn is_same(before: &Value, port: &Value) -> bool {
    ["port", "protocol"].iter().all(|field| before[field] == port[field])
}

fn refused(taken: &Taken, protocol: &str, wanted: i64) -> Option<&'static str> {
    if !RANGE.contains(&wanted) {
        return Some("provided port is not in the valid range. The range of valid ports is 30000-32767");
    }
    taken.contains(&(protocol.to_owned(), wanted)).then_some("provided port is already allocated")
}

fn free(taken: &Taken, protocol: &str) -> Result<i64, Status> {
    let is_free = |number: &i64| !taken.contains(&(protocol.to_owned(), *number));
    RANGE.into_iter().find(is_free).ok_or_else(|| Status::internal("failed to allocate a nodePort: range is full"))
}

fn taken_by_others(server: &Server, service: &Value) -> Taken {
    let is_own = |other: &Value| {
        object::name(other) == object::name(service) && object::namespace(other) == object::namespace(service)
    };
    let others = server.list("services");
    let ports = others.iter().filter(|other| !is_own(other)).flat_map(|other| service_type::ports(other));
    ports.filter_map(|port| Some((object::text(&port, "/protocol").to_owned(), number(&port)?))).collect()
}
