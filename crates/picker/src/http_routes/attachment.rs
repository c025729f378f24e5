//! Attachment of HTTPRoutes to listeners of Gateways.

use cluster::NamespacedName;
use gateway_api::httproutes::HttpRouteParentRefs;

use super::{
    gateways::{Listener, NamespaceLabels, ServedGateway},
    hostname::Hostname,
};
use crate::{
    code,
    kinds::{GATEWAY, HTTP_ROUTE},
};

/// Listeners that a route is attached to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Attachment<'a> {
    /// Names of the listeners.
    pub(super) listeners: Vec<&'a str>,
    /// Host names of the requests that the listeners pass to the route.
    pub(super) hostnames: Vec<Hostname>,
}

/// Why a route is not attached to a Gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rejection {
    /// Reason of the condition `Accepted`.
    pub(super) reason: api::Code,
    pub(super) message: String,
}

/// Returns the namespace and name of the Gateway that a route of `namespace` references; `None` for another kind.
pub(super) fn parent_gateway(namespace: &str, parent: &HttpRouteParentRefs) -> Option<NamespacedName> {
    let is_gateway = parent.group.as_deref().unwrap_or(GATEWAY.group) == GATEWAY.group
        && parent.kind.as_deref().unwrap_or(GATEWAY.kind) == GATEWAY.kind;
    is_gateway.then(|| NamespacedName::new(parent.namespace.as_deref().unwrap_or(namespace), &parent.name))
}

/// Attaches a route of `namespace` with these host names to the listeners of `gateway` that `parent` selects.
///
/// # Errors
/// No listener accepts the route.
pub(super) fn attach<'a>(
    namespace: &str,
    hostnames: &[Hostname],
    parent: &HttpRouteParentRefs,
    gateway: &'a ServedGateway,
    labels: &NamespaceLabels,
) -> Result<Attachment<'a>, Rejection> {
    let key = &gateway.key;
    let reject = |reason, message: String| Err(Rejection { reason, message });
    let is_selected = |listener: &&Listener| {
        parent.section_name.as_ref().is_none_or(|name| *name == listener.name)
            && parent.port.is_none_or(|port| port == listener.port)
    };
    let selected: Vec<&Listener> = gateway.listeners.iter().filter(is_selected).collect();
    if selected.is_empty() {
        let message = format!("Gateway {key} has no listener with the sectionName and port of the parentRef.");
        return reject(code::NO_MATCHING_PARENT, message);
    }
    let supported: Vec<&Listener> = selected.into_iter().filter(|listener| listener.is_supported).collect();
    if supported.is_empty() {
        let message = format!("No selected listener of Gateway {key} has the protocol that the gateway serves.");
        return reject(code::NO_MATCHING_PARENT, message);
    }
    let is_allowed = |listener: &&Listener| {
        listener.allows_http_routes && listener.allows_namespace(namespace, &key.namespace, labels)
    };
    let allowed: Vec<&Listener> = supported.into_iter().filter(is_allowed).collect();
    if allowed.is_empty() {
        let message = format!(
            "`allowedRoutes` of the listeners of Gateway {key} permits no {} of namespace {namespace}.",
            HTTP_ROUTE.kind
        );
        return reject(code::NOT_ALLOWED_BY_LISTENERS, message);
    }
    let mut attachment = Attachment { listeners: Vec::new(), hostnames: Vec::new() };
    for listener in allowed {
        let common: Vec<Hostname> = match hostnames {
            [] => vec![listener.hostname.clone()],
            hostnames => hostnames.iter().filter_map(|name| listener.hostname.intersection(name)).collect(),
        };
        if !common.is_empty() {
            attachment.listeners.push(&listener.name);
            attachment.hostnames.extend(common);
        }
    }
    if attachment.listeners.is_empty() {
        let message = format!("No listener of Gateway {key} has a hostname that `hostnames` of the route contains.");
        return reject(code::NO_MATCHING_LISTENER_HOSTNAME, message);
    }
    Ok(attachment)
}
