//! Stable host names of Pods, which nothing here resolves.

use serde_json::Value;

use super::{EnvironmentError, Sources};
use crate::object;

/// There is no DNS: a value that is the stable host name of a Pod, `{hostname}.{subdomain}.{namespace}` with or without
/// `.svc…`, becomes that Pod's address, as its name would resolve on a real cluster.
pub(super) fn host_address(value: String, pod: &Value, sources: &dyn Sources) -> Result<String, EnvironmentError> {
    let mut parts = value.splitn(4, '.');
    let (Some(host), Some(subdomain), Some(namespace)) = (parts.next(), parts.next(), parts.next()) else {
        return Ok(value);
    };
    let service = parts.next().is_none_or(|rest| rest == "svc" || rest.starts_with("svc."));
    if !service || namespace != object::namespace(pod) {
        return Ok(value);
    }
    let is_host =
        |p: &Value| object::text(p, "/spec/hostname") == host && object::text(p, "/spec/subdomain") == subdomain;
    if is_host(pod) {
        return Ok(object::text(pod, "/status/podIP").to_owned());
    }
    let Some(peer) = sources.pod(host).filter(|peer| is_host(peer)) else { return Ok(value) };
    match object::text(&peer, "/status/podIP") {
        "" => Err(EnvironmentError::Unresolved(value)),
        address => Ok(address.to_owned()),
    }
}
