//! The addresses of a Pod.

use serde_json::{Value, json};

use super::default::set;
use crate::object;

/// A Pod's address is also the first of its addresses.
pub(in crate::write) fn addresses(pod: &mut Value) {
    let address = object::text(pod, "/status/podIP").to_owned();
    if let Some(status) = pod.get_mut("status").filter(|_| !address.is_empty()) {
        set(object::members(status), "podIPs", json!([{"ip": address}]));
    }
}
