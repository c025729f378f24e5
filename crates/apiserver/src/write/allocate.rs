//! Allocates cluster IPs and node ports of Services.
//!
//! Cluster IPs and Pod IPs are loopback addresses, so that requests never leave the host.

mod node_port;
mod service_type;

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use apimachinery::{Status, StatusCause, object};
use serde_json::{Value, json};

use crate::resources::Resource;
use crate::transaction::Transaction;

/// First address of the range of cluster IPs, 127.12.0.0/16. Pod IPs start at 127.16.0.0.
const FIRST_ADDRESS: u32 = 0x7f0c_0001;
const LAST_ADDRESS: u32 = 0x7f0c_fffe;

/// Allocates the addresses and ports that a Service needs, retains those it already has and releases those it no longer
/// needs.
///
/// # Errors
/// 422 if a requested address or port is invalid or already allocated, 500 if the address or port range is full.
pub(super) fn allocate_for_service(
    transaction: &Transaction<'_>,
    resource: &Resource,
    current: Option<&Value>,
    service: &mut Value,
) -> Result<(), Status> {
    if resource.storage != "services" {
        return Ok(());
    }
    if let Some(current) = current {
        service_type::clear_unused_fields(current, service);
    }
    allocate_cluster_ip(transaction, current, service)?;
    node_port::allocate_node_ports(transaction, current, service)
}

/// Allocates the cluster IP of a Service, or retains the existing one.
fn allocate_cluster_ip(
    transaction: &Transaction<'_>,
    current: Option<&Value>,
    service: &mut Value,
) -> Result<(), Status> {
    if !service_type::has_cluster_ip(service) {
        return Ok(());
    }
    let spec = object::members(service).entry("spec").or_insert_with(|| json!({}));
    let spec = object::members(spec);
    // Read the IP families of the request before the stored fields are copied, because only the former are validated.
    let families: Vec<String> = object::strings(spec.get("ipFamilies")).into_iter().map(str::to_owned).collect();
    if let Some(current) = current.filter(|current| service_type::has_cluster_ip(current)) {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if let Some(existing) = current["spec"].get(field) {
                spec.entry(field).or_insert_with(|| existing.clone());
            }
        }
    }
    let requested = spec.get("clusterIP").and_then(Value::as_str).unwrap_or_default().to_owned();
    let first_cluster_ip = spec.get("clusterIPs").and_then(|all| all.get(0)?.as_str()).unwrap_or_default().to_owned();
    let requested = if requested.is_empty() { first_cluster_ip } else { requested };
    let address = match requested.as_str() {
        "None" => requested,
        "" => next_free_address(transaction)?.to_string(),
        _ if current.is_some_and(|current| object::text(current, "/spec/clusterIP") == requested) => requested,
        _ => check_requested_address(transaction, service, requested)?,
    };
    check_ip_families(service, &address, &families)?;
    let spec = object::members(&mut service["spec"]);
    spec.insert("clusterIP".to_owned(), json!(address));
    spec.entry("clusterIPs").or_insert_with(|| json!([address]));
    // A headless Service without a selector may have endpoints of both IP families.
    let (families, family_policy) = match (address.as_str(), spec.get("selector").and_then(Value::as_object)) {
        ("None", None) => (json!(["IPv4", "IPv6"]), "RequireDualStack"),
        _ => (json!(["IPv4"]), "SingleStack"),
    };
    spec.entry("ipFamilies").or_insert(families);
    spec.entry("ipFamilyPolicy").or_insert_with(|| json!(family_policy));
    Ok(())
}

/// Rejects dual-stack Services, except headless Services without a selector.
fn check_ip_families(service: &Value, address: &str, families: &[String]) -> Result<(), Status> {
    let has_selector = service.pointer("/spec/selector").and_then(Value::as_object).is_some();
    let family_policy = &service["spec"]["ipFamilyPolicy"];
    if address == "None" && !has_selector {
        return Ok(());
    }
    let mut causes = Vec::new();
    if *family_policy == "RequireDualStack" {
        let hint = "this cluster is not configured for dual-stack services";
        causes.push(StatusCause::invalid("spec.ipFamilyPolicy", family_policy, hint));
    }
    for (index, family) in families.iter().enumerate().filter(|(_, family)| *family == "IPv6") {
        let field = format!("spec.ipFamilies[{index}]");
        causes.push(StatusCause::invalid(field, &json!(family), "not configured on this cluster"));
    }
    if causes.is_empty() { Ok(()) } else { Err(Status::invalid("Service", object::name(service), causes)) }
}

/// Checks that the address requested by the client is valid and not allocated.
fn check_requested_address(
    transaction: &Transaction<'_>,
    service: &Value,
    requested: String,
) -> Result<String, Status> {
    let invalid = |message: &str| {
        let cause = StatusCause::invalid("spec.clusterIPs[0]", &json!(requested), message);
        Status::invalid("Service", object::name(service), vec![cause])
    };
    if requested.parse::<Ipv4Addr>().is_err() {
        return Err(invalid("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"));
    }
    if allocated_addresses(transaction).contains(&requested) {
        let hint = format!("failed to allocate IP {requested}: provided IP is already allocated");
        let cause = StatusCause::invalid("spec.clusterIPs", &json!([requested]), &hint);
        return Err(Status::invalid("Service", object::name(service), vec![cause]));
    }
    Ok(requested)
}

/// Returns the next free address after the last allocated one. This order avoids early reuse of released addresses.
fn next_free_address(transaction: &Transaction<'_>) -> Result<Ipv4Addr, Status> {
    let allocated = allocated_addresses(transaction);
    let next_address = |_| {
        let offset = transaction.core.next_address_offset();
        Ipv4Addr::from_bits(FIRST_ADDRESS + offset % (LAST_ADDRESS - FIRST_ADDRESS + 1))
    };
    (FIRST_ADDRESS..=LAST_ADDRESS)
        .map(next_address)
        .find(|address| !allocated.contains(&address.to_string()))
        .ok_or_else(|| Status::internal_error("failed to allocate a serviceIP: range is full"))
}

fn allocated_addresses(transaction: &Transaction<'_>) -> BTreeSet<String> {
    let services = transaction.list("services");
    services.iter().map(|service| object::text(service, "/spec/clusterIP").to_owned()).collect()
}
