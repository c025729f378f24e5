//! Builds the table of routes, and the statuses, from the watched objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cluster::{NamespacedName, metadata_field};
use gateway_api::httproutes::{HttpRoute, HttpRouteParentRefs, HttpRouteRules};
use serde::Deserialize as _;
use serde_json::Value;

use super::{
    RouteEntry, RouteOrigin, RouteTable,
    attachment::{Attachment, Rejection, attach, parent_gateway},
    backends::{BackendResolver, UnresolvedReference, weight},
    gateways::{CONTROLLER_NAME, NamespaceLabels, ServedGateway, ServedGateways},
    hostname::Hostname,
    matches::RequestMatch,
    rule::{Backend, RequestChanges, RouteRule},
    status::{GatewayStatus, ListenerStatus, ParentStatus, RouteStatuses},
    unsupported::Unsupported,
};
use crate::code;

/// The watched objects of the Gateway API.
#[derive(Debug, Clone, Default)]
pub(crate) struct GatewayObjects {
    /// Which Gateways are served.
    pub(crate) served: ServedGateways,
    /// Whether the gateway serves HTTPS instead of HTTP.
    pub(crate) serves_tls: bool,
    pub(crate) classes: Vec<Arc<Value>>,
    pub(crate) gateways: Vec<Arc<Value>>,
    pub(crate) routes: Vec<Arc<Value>>,
    pub(crate) grants: Vec<Arc<Value>>,
    pub(crate) namespaces: Vec<Arc<Value>>,
}

/// What routes are built with.
struct RouteBuilder<'a> {
    gateways: BTreeMap<NamespacedName, ServedGateway>,
    labels: NamespaceLabels,
    resolver: BackendResolver<'a>,
    entries: Vec<RouteEntry>,
    /// Number of routes by Gateway and listener.
    attached_routes: BTreeMap<(NamespacedName, String), usize>,
}

/// A rule with its matches.
struct ParsedRule {
    rule: Arc<RouteRule>,
    matches: Vec<RequestMatch>,
}

/// Builds the routes to `pools`: BackendPools and InferencePools.
pub(crate) fn build_routes(objects: &GatewayObjects, pools: &BTreeSet<NamespacedName>) -> (RouteTable, RouteStatuses) {
    let protocol = if objects.serves_tls { "HTTPS" } else { "HTTP" };
    let classes = own_classes(&objects.classes);
    let mut builder = RouteBuilder {
        gateways: served_gateways(objects, &classes, protocol),
        labels: NamespaceLabels::new(&objects.namespaces),
        resolver: BackendResolver::new(pools, &objects.grants),
        entries: Vec::new(),
        attached_routes: BTreeMap::new(),
    };
    let routes = objects.routes.iter().filter_map(|object| {
        let parents = builder.add_route(object).inspect_err(|error| log_invalid(object, error)).ok()?;
        Some((NamespacedName::from_object(object), parents))
    });
    let routes = routes.collect();
    let status = |gateway: &ServedGateway| {
        let listeners = gateway.listeners.iter().map(|listener| {
            let attached = builder.attached_routes.get(&(gateway.key.clone(), listener.name.clone()));
            ListenerStatus::new(listener, protocol, attached.copied().unwrap_or_default())
        });
        (gateway.key.clone(), GatewayStatus { listeners: listeners.collect() })
    };
    let gateways = builder.gateways.values().map(status).collect();
    (RouteTable::new(builder.entries), RouteStatuses { classes, gateways, routes })
}

/// Returns the names of the GatewayClasses with the controller name of the gateway.
fn own_classes(classes: &[Arc<Value>]) -> BTreeSet<String> {
    let own = classes.iter().filter(|class| class["spec"]["controllerName"] == CONTROLLER_NAME);
    own.map(|class| metadata_field(class, "name").to_owned()).collect()
}

fn served_gateways(
    objects: &GatewayObjects,
    classes: &BTreeSet<String>,
    protocol: &str,
) -> BTreeMap<NamespacedName, ServedGateway> {
    let is_served = |gateway: &&Arc<Value>| match objects.served {
        ServedGateways::All => true,
        ServedGateways::OfController => {
            gateway["spec"]["gatewayClassName"].as_str().is_some_and(|class| classes.contains(class))
        }
    };
    let parse = |gateway: &Arc<Value>| {
        let served = ServedGateway::parse(gateway, protocol).inspect_err(|error| log_invalid(gateway, error)).ok()?;
        Some((served.key.clone(), served))
    };
    objects.gateways.iter().filter(is_served).filter_map(parse).collect()
}

/// Logs an object that does not match its schema, which is possible if the API server accepted it without one.
fn log_invalid(object: &Value, error: &serde_json::Error) {
    let (namespace, name) = (metadata_field(object, "namespace"), metadata_field(object, "name"));
    tracing::warn!(kind = object["kind"].as_str(), namespace, name, %error, "ignoring invalid object");
}

// === impl RouteBuilder ===

impl RouteBuilder<'_> {
    /// Adds the rules of an HTTPRoute, and returns its statuses for the Gateways that are served.
    fn add_route(&mut self, object: &Value) -> Result<Vec<ParentStatus>, serde_json::Error> {
        let key = NamespacedName::from_object(object);
        let is_served = |parent: &HttpRouteParentRefs| {
            parent_gateway(&key.namespace, parent).is_some_and(|gateway| self.gateways.contains_key(&gateway))
        };
        let route = HttpRoute::deserialize(object)?;
        let parents: Vec<&HttpRouteParentRefs> =
            route.spec.parent_refs.iter().flatten().filter(|parent| is_served(parent)).collect();
        if parents.is_empty() {
            return Ok(Vec::new());
        }
        let mut unresolved = Vec::new();
        let rules = self.parse_rules(&key, route.spec.rules.as_deref().unwrap_or_default(), &mut unresolved);
        let hostnames: Vec<Hostname> =
            route.spec.hostnames.iter().flatten().map(|name| Hostname::parse(name)).collect();
        let mut statuses = Vec::new();
        let mut attached_hostnames: BTreeSet<Hostname> = BTreeSet::new();
        for parent in parents {
            let result = match &rules {
                Ok(_) => self.attach(&key.namespace, &hostnames, parent),
                Err(unsupported) => {
                    let message = format!("{unsupported}.");
                    Err(Rejection { reason: code::UNSUPPORTED_VALUE, message })
                }
            };
            let rejection = result.map(|hostnames| attached_hostnames.extend(hostnames)).err();
            statuses.push(ParentStatus::new(parent, rejection.as_ref(), unresolved.first()));
        }
        let creation_timestamp = metadata_field(object, "creationTimestamp");
        for hostname in attached_hostnames {
            for parsed in rules.iter().flatten() {
                self.add_entries(&key, creation_timestamp, &hostname, parsed);
            }
        }
        Ok(statuses)
    }

    fn parse_rules(
        &self,
        route: &NamespacedName,
        rules: &[HttpRouteRules],
        unresolved: &mut Vec<UnresolvedReference>,
    ) -> Result<Vec<ParsedRule>, Unsupported> {
        let parse = |(position, rule): (usize, &HttpRouteRules)| {
            let field = format!("spec.rules[{position}]");
            let changes = RequestChanges::parse(rule, &field)?;
            let matches = rule.matches.iter().flatten().enumerate();
            let matches =
                matches.map(|(index, parsed)| RequestMatch::parse(parsed, &format!("{field}.matches[{index}]")));
            let mut matches = matches.collect::<Result<Vec<_>, _>>()?;
            if matches.is_empty() {
                matches.push(RequestMatch::any());
            }
            let mut backends = Vec::new();
            for (index, reference) in rule.backend_refs.iter().flatten().enumerate() {
                let field = format!("{field}.backendRefs[{index}]");
                if reference.filters.as_ref().is_some_and(|filters| !filters.is_empty()) {
                    return Err(Unsupported::new(
                        format!("{field}.filters"),
                        "is not supported; use the filters of the rule",
                    ));
                }
                backends.push(self.resolver.resolve(&route.namespace, reference, &field).unwrap_or_else(|error| {
                    unresolved.push(error);
                    Backend { pool: None, weight: weight(reference) }
                }));
            }
            let rule = Arc::new(RouteRule::new(route.clone(), position, backends, changes));
            Ok(ParsedRule { rule, matches })
        };
        rules.iter().enumerate().map(parse).collect()
    }

    /// Attaches a route to the Gateway of `parent`, counts it, and returns the host names of its requests.
    fn attach(
        &mut self,
        namespace: &str,
        hostnames: &[Hostname],
        parent: &HttpRouteParentRefs,
    ) -> Result<Vec<Hostname>, Rejection> {
        let gateway = parent_gateway(namespace, parent).and_then(|key| self.gateways.get(&key));
        let Some(gateway) = gateway else { return Ok(Vec::new()) };
        let Attachment { listeners, hostnames } = attach(namespace, hostnames, parent, gateway, &self.labels)?;
        for listener in listeners {
            *self.attached_routes.entry((gateway.key.clone(), listener.to_owned())).or_default() += 1;
        }
        Ok(hostnames)
    }

    fn add_entries(&mut self, route: &NamespacedName, created: &str, hostname: &Hostname, parsed: &ParsedRule) {
        let entry = |(index, request_match): (usize, &RequestMatch)| RouteEntry {
            hostname: hostname.clone(),
            request_match: request_match.clone(),
            origin: RouteOrigin {
                creation_timestamp: created.to_owned(),
                route: route.clone(),
                position: (parsed.rule.position, index),
            },
            rule: Arc::clone(&parsed.rule),
        };
        self.entries.extend(parsed.matches.iter().enumerate().map(entry));
    }
}
