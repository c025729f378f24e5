//! EndpointSlices and Endpoints: addresses that are some. Those of Pods here are loopback addresses, so that these are
//! allowed, as they are not there.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use apimachinery::status::Cause;
use serde_json::Value;

use super::super::names::{LABEL, label_hints};
use super::field::Field;
use crate::resources::Resource;

const NO_ADDRESS: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// What is wrong with an EndpointSlice.
pub(super) fn slice(slice: &Value) -> Vec<Cause> {
    let slice = Field::of(slice);
    let kind = slice.get("addressType");
    let mut causes = Vec::new();
    if kind.is_empty() {
        causes.push(kind.required());
    } else {
        causes.extend(kind.one_of(&["FQDN", "IPv4", "IPv6"]));
    }
    causes.extend(ports(&slice.get("ports")));
    for endpoint in slice.get("endpoints").each() {
        let addresses = endpoint.get("addresses");
        if addresses.is_empty() {
            causes.push(addresses.required());
        }
        for address in addresses.each() {
            causes.extend(address_of_kind(&address, &addresses, kind.text()));
        }
    }
    causes
}

/// The type of a slice never changes; it is told without the value, and nothing else is looked at.
pub(super) fn slice_changed(resource: &Resource, current: &Value, slice: &Value) -> Option<Cause> {
    let is_slice = resource.storage == "endpointslices.discovery.k8s.io";
    (is_slice && current.get("addressType") != slice.get("addressType"))
        .then(|| Cause::invalid("addressType", &Value::Null, "field is immutable"))
}

/// What is wrong with Endpoints.
pub(super) fn endpoints(endpoints: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for subset in Field::of(endpoints).get("subsets").each() {
        for list in ["addresses", "notReadyAddresses"] {
            let all = subset.get(list);
            let bad = all.each().map(|address| address.get("ip")).filter(|ip| ip.text().parse::<IpAddr>().is_err());
            causes.extend(bad.map(|ip| ip.invalid(NO_ADDRESS)));
        }
        causes.extend(ports(&subset.get("ports")));
    }
    causes
}

fn address_of_kind(address: &Field<'_>, all: &Field<'_>, kind: &str) -> Option<Cause> {
    let text = address.text();
    match kind {
        "IPv4" if text.parse::<Ipv4Addr>().is_ok() => None,
        "IPv4" if text.parse::<IpAddr>().is_ok() => {
            Some(Cause::invalid(&all.path, address.value, "must be an IPv4 address"))
        }
        "IPv6" if text.parse::<Ipv6Addr>().is_ok() => None,
        "IPv6" if text.parse::<IpAddr>().is_ok() => {
            Some(Cause::invalid(&all.path, address.value, "must be an IPv6 address"))
        }
        "IPv4" | "IPv6" => Some(address.invalid(NO_ADDRESS)),
        _ => None,
    }
}

fn ports(ports: &Field<'_>) -> Vec<Cause> {
    let mut names = BTreeSet::new();
    let mut causes = Vec::new();
    for port in ports.each() {
        let (name, protocol) = (port.get("name"), port.get("protocol"));
        if !name.is_empty() {
            let is_dotted = label_hints(name.text()).iter().any(|hint| hint != LABEL);
            let hints = if is_dotted { vec![LABEL.to_owned()] } else { label_hints(name.text()) };
            causes.extend(hints.iter().map(|hint| name.invalid(hint)));
        }
        if !names.insert(name.text()) {
            causes.push(Cause::duplicate(&name.path, &name.text().into()));
        }
        causes.extend(protocol.one_of(&PROTOCOLS));
    }
    causes
}
