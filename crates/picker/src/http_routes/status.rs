//! Statuses of GatewayClasses, Gateways and HTTPRoutes, and the conditions in them.

use std::collections::{BTreeMap, BTreeSet};

use cluster::{Condition, NamespacedName, render_conditions};
use gateway_api::httproutes::HttpRouteParentRefs;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{attachment::Rejection, backends::UnresolvedReference, gateways::Listener};
use crate::{code, kinds::HTTP_ROUTE};

/// The statuses of the Gateway API objects that the native gateway serves.
#[derive(Debug, Default)]
pub(crate) struct RouteStatuses {
    /// Controller name of the gateway.
    pub(crate) controller_name: String,
    /// Names of the GatewayClasses with the controller name of the gateway.
    pub(crate) classes: BTreeSet<String>,
    pub(crate) gateways: BTreeMap<NamespacedName, GatewayStatus>,
    /// Entries of `status.parents` of all HTTPRoutes; none for routes of other implementations.
    pub(crate) routes: BTreeMap<NamespacedName, Vec<ParentStatus>>,
}

/// Status of a Gateway: that of its listeners.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GatewayStatus {
    pub(super) listeners: Vec<ListenerStatus>,
}

/// Status of a listener.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ListenerStatus {
    pub(super) name: String,
    pub(super) attached_routes: usize,
    conditions: Vec<Condition>,
    is_valid: bool,
    allows_http_routes: bool,
}

/// Status of a route for one of its parents.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ParentStatus {
    /// The reference in the spec of the route.
    pub(super) parent: Value,
    pub(super) conditions: Vec<Condition>,
}

/// Returns the conditions of a GatewayClass with the controller name of the gateway.
pub(crate) fn class_conditions(controller_name: &str) -> Vec<Condition> {
    let message = format!("Controller {controller_name} serves Gateways of this class.");
    vec![Condition::new("Accepted", true, code::ACCEPTED, message)]
}

// === impl GatewayStatus ===

impl GatewayStatus {
    /// Returns the status as JSON. `live` is the Gateway.
    pub(crate) fn render(&self, live: &Value, now: Timestamp) -> Value {
        let generation = generation(live);
        let old = &live["status"];
        let listeners = self.listeners.iter().map(|listener| {
            let old =
                old["listeners"].as_array().into_iter().flatten().find(|old| old["name"] == listener.name.as_str());
            let old = old.map_or(&Value::Null, |old| &old["conditions"]);
            let kinds =
                listener.allows_http_routes.then(|| json!({"group": HTTP_ROUTE.group, "kind": HTTP_ROUTE.kind}));
            json!({
                "name": listener.name,
                "attachedRoutes": listener.attached_routes,
                "supportedKinds": kinds.into_iter().collect::<Vec<_>>(),
                "conditions": render_conditions(old, &listener.conditions, generation, now),
            })
        });
        json!({
            "listeners": listeners.collect::<Vec<_>>(),
            "conditions": render_conditions(&old["conditions"], &self.conditions(), generation, now),
        })
    }

    fn conditions(&self) -> Vec<Condition> {
        let valid = self.listeners.iter().filter(|listener| listener.is_valid).count();
        let invalid: Vec<&str> = self
            .listeners
            .iter()
            .filter(|listener| !listener.is_valid)
            .map(|listener| listener.name.as_str())
            .collect();
        let (reason, message) = match invalid.is_empty() {
            true => (code::ACCEPTED, "All listeners are valid.".to_owned()),
            false => (
                code::LISTENERS_NOT_VALID,
                format!("Listener {} is not valid; see its conditions.", invalid.join(", ")),
            ),
        };
        let programmed = match valid {
            0 => Condition::new("Programmed", false, code::INVALID, "No listener is valid."),
            _ => Condition::new("Programmed", true, code::PROGRAMMED, "The gateway serves the valid listeners."),
        };
        vec![Condition::new("Accepted", valid > 0, reason, message), programmed]
    }
}

// === impl ListenerStatus ===

impl ListenerStatus {
    /// Returns the status of a listener of a gateway process that serves `protocol`.
    pub(super) fn new(listener: &Listener, protocol: &str, attached_routes: usize) -> Self {
        let is_valid = listener.is_supported && listener.allows_http_routes;
        let accepted = match listener.is_supported {
            true => Condition::new("Accepted", true, code::ACCEPTED, "The gateway serves the protocol."),
            false => {
                let message = format!(
                    "The gateway serves {protocol}, not {}; `ostler gateway --cert-path` serves HTTPS.",
                    listener.protocol
                );
                Condition::new("Accepted", false, code::UNSUPPORTED_PROTOCOL, message)
            }
        };
        let resolved = match listener.unsupported_kinds.is_empty() {
            true => Condition::new("ResolvedRefs", true, code::RESOLVED_REFS, "All kinds of routes are supported."),
            false => {
                let kinds: Vec<&str> = listener.unsupported_kinds.iter().map(String::as_str).collect();
                let message = format!("The gateway serves HTTPRoutes, not {}.", kinds.join(", "));
                Condition::new("ResolvedRefs", false, code::INVALID_ROUTE_KINDS, message)
            }
        };
        let programmed = match is_valid {
            true => Condition::new("Programmed", true, code::PROGRAMMED, "The gateway serves the listener."),
            false => Condition::new("Programmed", false, code::INVALID, "The listener is not valid."),
        };
        Self {
            name: listener.name.clone(),
            attached_routes,
            conditions: vec![accepted, resolved, programmed],
            is_valid,
            allows_http_routes: listener.allows_http_routes,
        }
    }
}

// === impl ParentStatus ===

impl ParentStatus {
    /// Returns the status for `parent`; `unresolved` is the first reference of the route that cannot be resolved.
    pub(super) fn new(
        parent: &HttpRouteParentRefs,
        rejection: Option<&Rejection>,
        unresolved: Option<&UnresolvedReference>,
    ) -> Self {
        let accepted = match rejection {
            None => Condition::new("Accepted", true, code::ACCEPTED, "The gateway serves the route."),
            Some(Rejection { reason, message }) => Condition::new("Accepted", false, *reason, message.clone()),
        };
        let resolved = match unresolved {
            None => Condition::new("ResolvedRefs", true, code::RESOLVED_REFS, "All backends exist."),
            Some(UnresolvedReference { reason, message }) => {
                let message = format!("{message} Requests for this backend fail with status 500.");
                Condition::new("ResolvedRefs", false, *reason, message)
            }
        };
        Self { parent: serde_json::to_value(parent).unwrap_or_default(), conditions: vec![accepted, resolved] }
    }
}

/// Returns `status.parents` of the HTTPRoute `live` with these entries of the gateway; entries of other controllers remain. Returns
/// `None` if they equal the existing ones: an apply would only take the list over from another controller.
pub(crate) fn render_parents(
    controller_name: &str,
    parents: &[ParentStatus],
    live: &Value,
    now: Timestamp,
) -> Option<Value> {
    let old = live["status"]["parents"].as_array().map(Vec::as_slice).unwrap_or_default();
    let (own, others): (Vec<&Value>, Vec<&Value>) =
        old.iter().partition(|parent| parent["controllerName"] == controller_name);
    let new = parents.iter().map(|status| {
        let old = own.iter().find(|old| old["parentRef"] == status.parent);
        let old = old.map_or(&Value::Null, |old| &old["conditions"]);
        json!({
            "parentRef": status.parent,
            "controllerName": controller_name,
            "conditions": render_conditions(old, &status.conditions, generation(live), now),
        })
    });
    let parents: Vec<Value> = others.into_iter().cloned().chain(new).collect();
    (parents != old).then(|| json!({"parents": parents}))
}

fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or(1)
}
