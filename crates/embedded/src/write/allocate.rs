//! What the server hands out from a bounded supply: the addresses of Services, and their ports on nodes.
//!
//! Addresses are loopback addresses, beside those of Pods, so that a request to one never leaves the machine.

mod node_port;
mod service_type;

use std::net::Ipv4Addr;

use apimachinery::status::{Cause, Status};
use serde_json::{Value, json};

use crate::object;
use crate::resources::Resource;
use crate::server::Server;

/// 127.12.0.0/16; Pods have what lies above 127.16.0.0.
const FIRST: u32 = 0x7f0c_0001;
const LAST: u32 = 0x7f0c_fffe;

/// Gives a Service what its type asks for, keeps what it has, and takes what it needs no more.
///
/// # Errors
/// 422 for an address or port that is taken or none, and when the supply is exhausted.
pub(super) fn to_service(
    server: &Server,
    resource: &Resource,
    current: Option<&Value>,
    service: &mut Value,
) -> Result<(), Status> {
    if resource.storage != "services" {
        return Ok(());
    }
    if let Some(current) = current {
        service_type::left(current, service);
    }
    cluster_address(server, current, service)?;
    node_port::to_service(server, current, service)
}

/// Gives a Service its address, or keeps the one it has.
fn cluster_address(server: &Server, current: Option<&Value>, service: &mut Value) -> Result<(), Status> {
    if !service_type::has_address(service) {
        return Ok(());
    }
    let spec = object::members(service).entry("spec").or_insert_with(|| json!({}));
    let spec = object::members(spec);
    // What was there before is as it was allowed to be.
    let families: Vec<String> = object::strings(spec.get("ipFamilies")).into_iter().map(str::to_owned).collect();
    if let Some(current) = current.filter(|current| service_type::has_address(current)) {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if let Some(kept) = current["spec"].get(field) {
                spec.entry(field).or_insert_with(|| kept.clone());
            }
        }
    }
    let wanted = spec.get("clusterIP").and_then(Value::as_str).unwrap_or_default().to_owned();
    let first = spec.get("clusterIPs").and_then(|all| all.get(0)?.as_str()).unwrap_or_default().to_owned();
    let wanted = if wanted.is_empty() { first } else { wanted };
    let address = match wanted.as_str() {
        "None" => wanted,
        "" => free(server)?.to_string(),
        _ if current.is_some_and(|current| object::text(current, "/spec/clusterIP") == wanted) => wanted,
        _ => claimed(server, service, wanted)?,
    };
    one_family(service, &address, &families)?;
    let spec = object::members(&mut service["spec"]);
    spec.insert("clusterIP".to_owned(), json!(address));
    spec.entry("clusterIPs").or_insert_with(|| json!([address]));
    // Where nothing is selected, whoever writes the endpoints may write those of both families.
    let (families, policy) = match (address.as_str(), spec.get("selector").and_then(Value::as_object)) {
        ("None", None) => (json!(["IPv4", "IPv6"]), "RequireDualStack"),
        _ => (json!(["IPv4"]), "SingleStack"),
    };
    spec.entry("ipFamilies").or_insert(families);
    spec.entry("ipFamilyPolicy").or_insert_with(|| json!(policy));
    Ok(())
}

/// Refuses two families where there are addresses of one; a Service without any address or selector may have them.
fn one_family(service: &Value, address: &str, families: &[String]) -> Result<(), Status> {
    let selects = service.pointer("/spec/selector").and_then(Value::as_object).is_some();
    let policy = &service["spec"]["ipFamilyPolicy"];
    if address == "None" && !selects {
        return Ok(());
    }
    let mut causes = Vec::new();
    if *policy == "RequireDualStack" {
        let hint = "this cluster is not configured for dual-stack services";
        causes.push(Cause::invalid("spec.ipFamilyPolicy", policy, hint));
    }
    for (index, family) in families.iter().enumerate().filter(|(_, family)| *family == "IPv6") {
        let field = format!("spec.ipFamilies[{index}]");
        causes.push(Cause::invalid(field, &json!(family), "not configured on this cluster"));
    }
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid("Service", object::name(service), causes)) }
}

/// An address that the client chose.
fn claimed(server: &Server, service: &Value, wanted: String) -> Result<String, Status> {
    let invalid = |why: &str| {
        let cause = Cause::invalid("spec.clusterIPs[0]", &json!(wanted), why);
        Status::invalid("Service", object::name(service), vec![cause])
    };
    if wanted.parse::<Ipv4Addr>().is_err() {
        return Err(invalid("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"));
    }
    if taken(server, &wanted) {
        let hint = format!("failed to allocate IP {wanted}: provided IP is already allocated");
        let cause = Cause::invalid("spec.clusterIPs", &json!([wanted]), &hint);
        return Err(Status::invalid("Service", object::name(service), vec![cause]));
    }
    Ok(wanted)
}

/// Counts on from the last one handed out, so that an address is not soon used again and no two writers get the same.
fn free(server: &Server) -> Result<Ipv4Addr, Status> {
    for _ in FIRST..=LAST {
        let address = Ipv4Addr::from_bits(FIRST + server.count_address() % (LAST - FIRST + 1));
        if !taken(server, &address.to_string()) {
            return Ok(address);
        }
    }
    Err(Status::internal("failed to allocate a serviceIP: range is full"))
}

fn taken(server: &Server, address: &str) -> bool {
    server.list("services").iter().any(|service| object::text(service, "/spec/clusterIP") == address)
}
