//! HTTPRoutes of the Gateway API in the native gateway: which pool a request is sent to by its host, path, method, headers and query.
//!
//! The gateway reads no body for this (GW-63). Requests that no route matches address no pool.

mod attachment;
mod backends;
mod build;
mod gateways;
mod head;
mod hostname;
mod matches;
mod rule;
mod status;
#[cfg(test)]
mod tests;
mod unsupported;

use std::{cmp::Reverse, sync::Arc};

use cluster::NamespacedName;

use hostname::Hostname;
use matches::RequestMatch;

pub(crate) use build::{GatewayObjects, build_routes};
pub use gateways::{CONTROLLER_NAME, ServedGateways};
pub(crate) use head::RequestHead;
pub(crate) use rule::RouteRule;
pub(crate) use status::{GatewayStatus, ParentStatus, RouteStatuses, class_conditions, render_parents};

/// The rules of all accepted HTTPRoutes.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct RouteTable {
    /// In the order of their precedence.
    entries: Vec<RouteEntry>,
}

/// One match of a rule for one host name.
#[derive(Debug, Clone, PartialEq)]
struct RouteEntry {
    hostname: Hostname,
    request_match: RequestMatch,
    origin: RouteOrigin,
    rule: Arc<RouteRule>,
}

/// Where a match is declared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RouteOrigin {
    /// Creation timestamp of the HTTPRoute (RFC 3339).
    creation_timestamp: String,
    /// Namespace and name of the HTTPRoute.
    route: NamespacedName,
    /// Position of the rule in the route, and of the match in the rule.
    position: (usize, usize),
}

/// The rule that a request matches.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MatchedRule {
    pub(crate) rule: Arc<RouteRule>,
    /// Path after the rewrites of the rule.
    pub(crate) path: String,
}

// === impl RouteTable ===

impl RouteTable {
    /// Returns a table of `entries`.
    fn new(mut entries: Vec<RouteEntry>) -> Self {
        entries.sort_by(|a, b| a.precedence().cmp(&b.precedence()));
        Self { entries }
    }

    /// Returns the rule with the highest precedence that a request matches.
    pub(crate) fn find(&self, head: &RequestHead<'_>) -> Option<MatchedRule> {
        if self.entries.is_empty() {
            return None;
        }
        let host = hostname::of_authority(head.authority);
        let is_match = |entry: &&RouteEntry| entry.hostname.matches(&host) && entry.request_match.matches(head);
        let entry = self.entries.iter().find(is_match)?;
        let path = entry.rule.rewrite_path(entry.request_match.path(), head.path);
        Some(MatchedRule { rule: Arc::clone(&entry.rule), path })
    }
}

// === impl RouteEntry ===

impl RouteEntry {
    /// Returns the sort key: the smallest one takes precedence (Gateway API, `HTTPRouteRule.matches`).
    fn precedence(&self) -> impl Ord {
        (Reverse(self.hostname.specificity()), Reverse(self.request_match.specificity()), &self.origin)
    }
}
