//! Gateways that the native gateway serves, and their listeners.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use apimachinery::LabelSelector;
use cluster::NamespacedName;
use gateway_api::gateways::{
    Gateway, GatewayListeners, GatewayListenersAllowedRoutesNamespaces, GatewayListenersAllowedRoutesNamespacesFrom,
};
use serde::Deserialize as _;
use serde_json::Value;

use super::hostname::Hostname;
use crate::kinds::HTTP_ROUTE;

/// Default controller name of the GatewayClasses whose Gateways the native gateway serves.
pub const CONTROLLER_NAME: &str = "ostler.io/gateway";

/// Which Gateways the native gateway serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServedGateways {
    /// Those of GatewayClasses with the controller name of the gateway.
    #[default]
    OfController,
    /// All. For clusters without another implementation of the Gateway API.
    All,
}

/// A Gateway that the native gateway serves.
#[derive(Debug)]
pub(super) struct ServedGateway {
    pub(super) key: NamespacedName,
    pub(super) listeners: Vec<Listener>,
}

/// A listener of a Gateway. All listeners share the address of the gateway process.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) name: String,
    pub(super) port: i32,
    pub(super) protocol: String,
    pub(super) hostname: Hostname,
    /// Whether the gateway serves the protocol.
    pub(super) is_supported: bool,
    /// Whether `allowedRoutes.kinds` contains HTTPRoute.
    pub(super) allows_http_routes: bool,
    /// Kinds of `allowedRoutes.kinds` that the gateway does not serve.
    pub(super) unsupported_kinds: BTreeSet<String>,
    allowed_namespaces: AllowedNamespaces,
}

/// Namespaces whose routes may attach to a listener.
#[derive(Debug)]
enum AllowedNamespaces {
    Same,
    All,
    None,
    Selected(LabelSelector),
}

/// Labels of the namespaces.
#[derive(Debug, Default)]
pub(super) struct NamespaceLabels(BTreeMap<String, BTreeMap<String, String>>);

// === impl ServedGateway ===

impl ServedGateway {
    /// Returns a Gateway; `protocol` is the one that the gateway process serves. One with a value that this version does not know has
    /// no listeners.
    pub(super) fn new(object: &Value, protocol: &str) -> Self {
        let key = NamespacedName::from_object(object);
        let listeners = match Gateway::deserialize(object) {
            Ok(gateway) => gateway.spec.listeners.iter().map(|listener| Listener::new(listener, protocol)).collect(),
            Err(error) => {
                tracing::warn!(gateway = %key, %error, "failed to parse a Gateway");
                Vec::new()
            }
        };
        Self { key, listeners }
    }
}

// === impl Listener ===

impl Listener {
    fn new(listener: &GatewayListeners, protocol: &str) -> Self {
        let allowed = listener.allowed_routes.as_ref();
        let kinds = allowed.and_then(|allowed| allowed.kinds.as_deref()).unwrap_or_default();
        let is_http_route = |group: Option<&str>, kind: &str| {
            group.unwrap_or(HTTP_ROUTE.group) == HTTP_ROUTE.group && kind == HTTP_ROUTE.kind
        };
        let unsupported = kinds.iter().filter(|kind| !is_http_route(kind.group.as_deref(), &kind.kind));
        Self {
            name: listener.name.clone(),
            port: listener.port,
            protocol: listener.protocol.clone(),
            hostname: Hostname::parse(listener.hostname.as_deref().unwrap_or_default()),
            is_supported: listener.protocol == protocol,
            allows_http_routes: kinds.is_empty()
                || kinds.iter().any(|kind| is_http_route(kind.group.as_deref(), &kind.kind)),
            unsupported_kinds: unsupported.map(|kind| kind.kind.clone()).collect(),
            allowed_namespaces: AllowedNamespaces::new(allowed.and_then(|allowed| allowed.namespaces.as_ref())),
        }
    }

    /// Returns whether routes of `namespace` may attach to this listener of a Gateway of `gateway_namespace`.
    pub(super) fn allows_namespace(&self, namespace: &str, gateway_namespace: &str, labels: &NamespaceLabels) -> bool {
        match &self.allowed_namespaces {
            AllowedNamespaces::Same => namespace == gateway_namespace,
            AllowedNamespaces::All => true,
            AllowedNamespaces::None => false,
            AllowedNamespaces::Selected(selector) => {
                labels.0.get(namespace).is_some_and(|labels| selector.matches(labels))
            }
        }
    }
}

// === impl AllowedNamespaces ===

impl AllowedNamespaces {
    fn new(namespaces: Option<&GatewayListenersAllowedRoutesNamespaces>) -> Self {
        let from = namespaces.and_then(|namespaces| namespaces.from.as_ref());
        match from {
            None | Some(GatewayListenersAllowedRoutesNamespacesFrom::Same) => Self::Same,
            Some(GatewayListenersAllowedRoutesNamespacesFrom::All) => Self::All,
            Some(GatewayListenersAllowedRoutesNamespacesFrom::Selector) => {
                // Nothing is selected without a selector, or with one that cannot be parsed.
                let Some(selector) = namespaces.and_then(|namespaces| namespaces.selector.as_ref()) else {
                    return Self::None;
                };
                let selector = serde_json::to_value(selector).unwrap_or_default();
                LabelSelector::from_json(&selector).map_or(Self::None, Self::Selected)
            }
        }
    }
}

// === impl NamespaceLabels ===

impl NamespaceLabels {
    /// Returns the labels of these Namespaces.
    pub(super) fn new(namespaces: &[Arc<Value>]) -> Self {
        let labels = |namespace: &Arc<Value>| {
            let labels = BTreeMap::deserialize(&namespace["metadata"]["labels"]).unwrap_or_default();
            Some((namespace["metadata"]["name"].as_str()?.to_owned(), labels))
        };
        Self(namespaces.iter().filter_map(labels).collect())
    }
}
