//! Builds the table of routes, and the statuses, from the watched objects.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cluster::{NamespacedName, metadata_field};
use gateway_api::httproutes::{HttpRouteParentRefs, HttpRouteRules, HttpRouteSpec};
use serde::Deserialize;
use serde_json::Value;

use super::{
    RouteEntry, RouteOrigin, RouteTable,
    attachment::{Attachment, Rejection, attach, parent_gateway},
    backends::{BackendResolver, UnresolvedReference, weight},
    gateways::{NamespaceLabels, ServedGateway, ServedGateways},
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
    /// Controller name of the gateway.
    pub(crate) controller_name: String,
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
    let classes = own_classes(objects);
    let mut builder = RouteBuilder {
        gateways: served_gateways(objects, &classes, protocol),
        labels: NamespaceLabels::new(&objects.namespaces),
        resolver: BackendResolver::new(pools, &objects.grants),
        entries: Vec::new(),
        attached_routes: BTreeMap::new(),
    };
    let routes = objects.routes.iter();
    let routes = routes.map(|object| (NamespacedName::from_object(object), builder.add_route(object))).collect();
    let status = |gateway: &ServedGateway| {
        let listeners = gateway.listeners.iter().map(|listener| {
            let attached = builder.attached_routes.get(&(gateway.key.clone(), listener.name.clone()));
            ListenerStatus::new(listener, protocol, attached.copied().unwrap_or_default())
        });
        (gateway.key.clone(), GatewayStatus { listeners: listeners.collect() })
    };
    let gateways = builder.gateways.values().map(status).collect();
    (
        RouteTable::new(builder.entries),
        RouteStatuses { controller_name: objects.controller_name.clone(), classes, gateways, routes },
    )
}

/// Returns the names of the GatewayClasses with the controller name of the gateway.
fn own_classes(objects: &GatewayObjects) -> BTreeSet<String> {
    let is_own = |class: &&Arc<Value>| class["spec"]["controllerName"] == objects.controller_name.as_str();
    let own = objects.classes.iter().filter(is_own);
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
    let served = objects.gateways.iter().filter(is_served).map(|gateway| ServedGateway::new(gateway, protocol));
    served.map(|gateway| (gateway.key.clone(), gateway)).collect()
}

/// Parses the spec of an HTTPRoute. If this version does not know a value in it, only parents and host names are returned, with the
/// problem.
fn parse_spec(object: &Value) -> (HttpRouteSpec, Option<Unsupported>) {
    match HttpRouteSpec::deserialize(&object["spec"]) {
        Ok(spec) => (spec, None),
        Err(error) => {
            let spec = HttpRouteSpec {
                parent_refs: Deserialize::deserialize(&object["spec"]["parentRefs"]).unwrap_or_default(),
                hostnames: Deserialize::deserialize(&object["spec"]["hostnames"]).unwrap_or_default(),
                rules: None,
            };
            (spec, Some(Unsupported::new("spec", format!("contains a value that is not supported: {error}"))))
        }
    }
}

/// Returns all matches of rules of which one is not supported; those of which one cannot be parsed match all requests.
fn matches_of(rules: &[HttpRouteRules]) -> Vec<RequestMatch> {
    let parsed = rules.iter().flat_map(|rule| match rule.matches.as_deref().unwrap_or_default() {
        [] => vec![Ok(RequestMatch::any())],
        matches => matches.iter().map(|parsed| RequestMatch::parse(parsed, "")).collect(),
    });
    parsed
        .collect::<Result<Vec<_>, _>>()
        .ok()
        .filter(|all| !all.is_empty())
        .unwrap_or_else(|| vec![RequestMatch::any()])
}

// === impl RouteBuilder ===

impl RouteBuilder<'_> {
    /// Adds the rules of an HTTPRoute, and returns its statuses for the Gateways that are served. All requests of a route that is not
    /// supported fail: another route, or none, must not serve them without its restrictions.
    fn add_route(&mut self, object: &Value) -> Vec<ParentStatus> {
        let key = NamespacedName::from_object(object);
        let is_served = |parent: &HttpRouteParentRefs| {
            parent_gateway(&key.namespace, parent).is_some_and(|gateway| self.gateways.contains_key(&gateway))
        };
        let (spec, unknown_value) = parse_spec(object);
        let parents: Vec<&HttpRouteParentRefs> =
            spec.parent_refs.iter().flatten().filter(|parent| is_served(parent)).collect();
        if parents.is_empty() {
            return Vec::new();
        }
        let mut unresolved = Vec::new();
        let rules = match unknown_value {
            Some(problem) => Err(problem),
            None => self.parse_rules(&key, spec.rules.as_deref().unwrap_or_default(), &mut unresolved),
        };
        let hostnames: Vec<Hostname> = spec.hostnames.iter().flatten().map(|name| Hostname::parse(name)).collect();
        let mut statuses = Vec::new();
        let mut attached_hostnames: BTreeSet<Hostname> = BTreeSet::new();
        for parent in parents {
            let result = self.attach(&key.namespace, &hostnames, parent, rules.is_ok());
            let rejection = result.map(|hostnames| attached_hostnames.extend(hostnames)).err();
            let unsupported = rules.as_ref().err().map(|unsupported| Rejection {
                reason: code::UNSUPPORTED_VALUE,
                message: format!("{unsupported}. All requests of the route fail with status 500."),
            });
            statuses.push(ParentStatus::new(parent, unsupported.or(rejection).as_ref(), unresolved.first()));
        }
        let rules = rules.unwrap_or_else(|_| {
            let rule = Arc::new(RouteRule::new(key.clone(), 0, Vec::new(), RequestChanges::default()));
            vec![ParsedRule { rule, matches: matches_of(spec.rules.as_deref().unwrap_or_default()) }]
        });
        let creation_timestamp = metadata_field(object, "creationTimestamp");
        for hostname in attached_hostnames {
            for parsed in &rules {
                self.add_entries(&key, creation_timestamp, &hostname, parsed);
            }
        }
        statuses
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

    /// Attaches a route to the Gateway of `parent`, counts it if it `is_accepted`, and returns the host names of its requests.
    fn attach(
        &mut self,
        namespace: &str,
        hostnames: &[Hostname],
        parent: &HttpRouteParentRefs,
        is_accepted: bool,
    ) -> Result<Vec<Hostname>, Rejection> {
        let gateway = parent_gateway(namespace, parent).and_then(|key| self.gateways.get(&key));
        let Some(gateway) = gateway else { return Ok(Vec::new()) };
        let Attachment { listeners, hostnames } = attach(namespace, hostnames, parent, gateway, &self.labels)?;
        for listener in listeners.into_iter().filter(|_| is_accepted) {
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
