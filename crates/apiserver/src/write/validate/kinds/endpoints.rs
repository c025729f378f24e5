//! Validation of EndpointSlices and Endpoints. Unlike kube-apiserver, it accepts loopback addresses, because Pod IPs
//! are loopback addresses here.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use apimachinery::StatusCause;
use serde_json::Value;

use super::super::names::{LABEL_MESSAGE, label_hints};
use super::field::Field;
use super::probe;
use crate::resources::Resource;

const INVALID_IP_MESSAGE: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// Validates an EndpointSlice.
pub(super) fn endpoint_slice_causes(slice: &Value) -> Vec<StatusCause> {
    let slice = Field::root(slice);
    let kind = slice.get("addressType");
    let mut causes = Vec::new();
    if kind.is_empty() {
        causes.push(kind.required());
    } else {
        causes.extend(kind.check_one_of(&["FQDN", "IPv4", "IPv6"]));
    }
    causes.extend(check_ports(&slice.get("ports")));
    for endpoint in slice.get("endpoints").items() {
        let addresses = endpoint.get("addresses");
        if addresses.is_empty() {
            causes.push(addresses.required());
        }
        for address in addresses.items() {
            causes.extend(check_address(&address, &addresses, kind.text()));
        }
    }
    causes
}

/// Rejects a change to the address type. As in kube-apiserver, the error omits the value and is the only one reported.
pub(super) fn check_address_type_unchanged(resource: &Resource, current: &Value, slice: &Value) -> Option<StatusCause> {
    let is_slice = resource.storage == "endpointslices.discovery.k8s.io";
    (is_slice && current.get("addressType") != slice.get("addressType"))
        .then(|| StatusCause::invalid("addressType", &Value::Null, "field is immutable"))
}

/// Validates Endpoints.
pub(super) fn endpoints_causes(endpoints: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    for subset in Field::root(endpoints).get("subsets").items() {
        for list in ["addresses", "notReadyAddresses"] {
            let addresses = subset.get(list);
            let invalid =
                addresses.items().map(|address| address.get("ip")).filter(|ip| ip.text().parse::<IpAddr>().is_err());
            causes.extend(invalid.map(|ip| ip.invalid(INVALID_IP_MESSAGE)));
        }
        let ports = subset.get("ports");
        causes.extend(check_ports(&ports));
        let numbers = ports.items().map(|port| port.get("port"));
        causes.extend(numbers.filter_map(|port| probe::check_port_range(&port, port.number().unwrap_or(0))));
    }
    causes
}

fn check_address(address: &Field<'_>, addresses: &Field<'_>, kind: &str) -> Option<StatusCause> {
    let text = address.text();
    match kind {
        "IPv4" if text.parse::<Ipv4Addr>().is_ok() => None,
        "IPv4" if text.parse::<IpAddr>().is_ok() => {
            Some(StatusCause::invalid(&addresses.path, address.value, "must be an IPv4 address"))
        }
        "IPv6" if text.parse::<Ipv6Addr>().is_ok() => None,
        "IPv6" if text.parse::<IpAddr>().is_ok() => {
            Some(StatusCause::invalid(&addresses.path, address.value, "must be an IPv6 address"))
        }
        "IPv4" | "IPv6" => Some(address.invalid(INVALID_IP_MESSAGE)),
        _ => None,
    }
}

fn check_ports(ports: &Field<'_>) -> Vec<StatusCause> {
    let mut names = BTreeSet::new();
    let mut causes = Vec::new();
    for port in ports.items() {
        let (name, protocol) = (port.get("name"), port.get("protocol"));
        if !name.is_empty() {
            let has_other_hints = label_hints(name.text()).iter().any(|hint| hint != LABEL_MESSAGE);
            let hints = if has_other_hints { vec![LABEL_MESSAGE.to_owned()] } else { label_hints(name.text()) };
            causes.extend(hints.iter().map(|hint| name.invalid(hint)));
        }
        if !names.insert(name.text()) {
            causes.push(StatusCause::duplicate(&name.path, &name.text().into()));
        }
        causes.extend(protocol.check_one_of(&PROTOCOLS));
    }
    causes
}
