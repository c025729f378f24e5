//! Replaces the stable host names of Pods with IP addresses, because there is no cluster DNS.

use apimachinery::object;
use serde_json::Value;

use super::error::EnvironmentError;
use super::object_source::ObjectSource;

/// Replaces a value that is the stable host name of a Pod, `{hostname}.{subdomain}.{namespace}` with or without
/// `.svc…`, with the IP of that Pod, to which cluster DNS would resolve the name.
pub(super) fn replace_hostname(
    value: String,
    pod: &Value,
    sources: &dyn ObjectSource,
) -> Result<String, EnvironmentError> {
    let mut parts = value.splitn(4, '.');
    let (Some(host), Some(subdomain), Some(namespace)) = (parts.next(), parts.next(), parts.next()) else {
        return Ok(value);
    };
    let is_service_name = parts.next().is_none_or(|rest| rest == "svc" || rest.starts_with("svc."));
    if !is_service_name || namespace != object::namespace(pod) {
        return Ok(value);
    }
    let has_hostname = |candidate: &Value| {
        object::text(candidate, "/spec/hostname") == host && object::text(candidate, "/spec/subdomain") == subdomain
    };
    if has_hostname(pod) {
        return Ok(object::text(pod, "/status/podIP").to_owned());
    }
    let Some(peer) = sources.pod(host).filter(|peer| has_hostname(peer)) else { return Ok(value) };
    match object::text(&peer, "/status/podIP") {
        "" => Err(EnvironmentError::Unresolved(value)),
        address => Ok(address.to_owned()),
    }
}
