//! Rules: to which pools a request is sent, and what is changed before.

use std::{str::FromStr as _, time::Duration};

use cluster::NamespacedName;
use fastrand::Rng;
use gateway_api::httproutes::{
    HttpRouteRules, HttpRouteRulesFilters, HttpRouteRulesFiltersRequestHeaderModifier, HttpRouteRulesFiltersType,
    HttpRouteRulesFiltersUrlRewrite,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{matches::PathMatch, unsupported::Unsupported};

/// What an HTTPRoute rule does with a request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RouteRule {
    /// Namespace and name of the HTTPRoute.
    pub(crate) route: NamespacedName,
    /// Position of the rule in the route.
    pub(super) position: usize,
    pub(super) backends: Vec<Backend>,
    changes: RequestChanges,
}

/// A weighted backend of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Backend {
    /// The pool; `None` for a reference that cannot be resolved.
    pub(super) pool: Option<NamespacedName>,
    /// Share of the requests, relative to the sum of the weights.
    pub(super) weight: u32,
}

/// What a rule changes of a request, and how long it may take.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct RequestChanges {
    path_rewrite: Option<PathRewrite>,
    set_headers: Vec<(HeaderName, HeaderValue)>,
    added_headers: Vec<(HeaderName, HeaderValue)>,
    removed_headers: Vec<HeaderName>,
    timeout: Option<Duration>,
}

/// A rewrite of the path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PathRewrite {
    /// Another path.
    Full(String),
    /// Another prefix instead of the one that matched, without a final slash.
    Prefix(String),
}

// === impl RouteRule ===

impl RouteRule {
    /// Returns the rule at `position` of `route`.
    pub(super) fn new(route: NamespacedName, position: usize, backends: Vec<Backend>, changes: RequestChanges) -> Self {
        Self { route, position, backends, changes }
    }

    /// Selects the backend of one request at random, with probabilities proportional to the weights. Returns `None` if its reference
    /// cannot be resolved, or if the rule has no backend with a weight.
    pub(crate) fn draw_pool(&self, rng: &mut Rng) -> Option<&NamespacedName> {
        if let [Backend { pool, weight: 1.. }] = self.backends.as_slice() {
            return pool.as_ref();
        }
        let total: u64 = self.backends.iter().map(|backend| u64::from(backend.weight)).sum();
        let mut remaining = if total == 0 { return None } else { rng.u64(..total) };
        let drawn = self.backends.iter().find(|backend| match remaining.checked_sub(u64::from(backend.weight)) {
            Some(rest) => {
                remaining = rest;
                false
            }
            None => true,
        });
        drawn?.pool.as_ref()
    }

    /// Returns the pools that receive requests.
    pub(crate) fn pools(&self) -> impl Iterator<Item = &NamespacedName> {
        self.backends.iter().filter(|backend| backend.weight > 0).filter_map(|backend| backend.pool.as_ref())
    }

    /// Applies the changes of the rule to the headers of a request.
    pub(crate) fn change_headers(&self, headers: &mut HeaderMap) {
        for name in &self.changes.removed_headers {
            headers.remove(name);
        }
        for (name, value) in &self.changes.set_headers {
            headers.insert(name, value.clone());
        }
        for (name, value) in &self.changes.added_headers {
            headers.append(name, value.clone());
        }
    }

    /// Returns how long a request may take, from its head to the end of its response; `None` if the rule sets no limit.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        self.changes.timeout
    }

    /// Returns the path that replaces `path`, which `matched` has matched.
    pub(super) fn rewrite_path(&self, matched: &PathMatch, path: &str) -> String {
        match (&self.changes.path_rewrite, matched) {
            (None, _) => path.to_owned(),
            (Some(PathRewrite::Full(new)), _) => new.clone(),
            (Some(PathRewrite::Prefix(new)), PathMatch::Prefix(prefix)) => {
                let rest = path.get(prefix.len()..).unwrap_or_default();
                let new = [new, rest].concat();
                if new.is_empty() { "/".to_owned() } else { new }
            }
            // Rejected by the definition of HTTPRoute.
            (Some(PathRewrite::Prefix(_)), PathMatch::Exact(_)) => path.to_owned(),
        }
    }
}

// === impl RequestChanges ===

impl RequestChanges {
    /// Parses the filters and timeouts of a rule. `field` is the path of the rule in the HTTPRoute.
    ///
    /// # Errors
    /// A filter that the gateway does not support, or an invalid value.
    pub(super) fn parse(rule: &HttpRouteRules, field: &str) -> Result<Self, Unsupported> {
        let mut changes = Self::default();
        for (index, filter) in rule.filters.iter().flatten().enumerate() {
            changes.add_filter(filter, &format!("{field}.filters[{index}]"))?;
        }
        let timeouts = rule.timeouts.as_ref();
        let limits = [
            ("request", timeouts.and_then(|timeouts| timeouts.request.as_ref())),
            // Together with `request`, it limits one attempt. The gateway makes several only in the first seconds.
            ("backendRequest", timeouts.and_then(|timeouts| timeouts.backend_request.as_ref())),
        ];
        for (name, value) in limits {
            let Some(value) = value else { continue };
            let invalid = || Unsupported::new(format!("{field}.timeouts.{name}"), "is not a duration such as 300s");
            let limit = gateway_api::Duration::from_str(value).map_err(|_| invalid())?;
            let limit = Duration::from_millis(u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
            // Zero means no limit.
            let limits = changes.timeout.into_iter().chain(Some(limit).filter(|limit| !limit.is_zero()));
            changes.timeout = limits.min();
        }
        Ok(changes)
    }

    fn add_filter(&mut self, filter: &HttpRouteRulesFilters, field: &str) -> Result<(), Unsupported> {
        match (&filter.r#type, &filter.request_header_modifier, &filter.url_rewrite) {
            (HttpRouteRulesFiltersType::RequestHeaderModifier, Some(modifier), _) => {
                self.add_header_modifier(modifier, &format!("{field}.requestHeaderModifier"))
            }
            (HttpRouteRulesFiltersType::UrlRewrite, _, Some(rewrite)) => {
                self.add_rewrite(rewrite, &format!("{field}.urlRewrite"))
            }
            _ => {
                let problem = "must be RequestHeaderModifier or URLRewrite, with the field of the same name";
                Err(Unsupported::new(format!("{field}.type"), problem))
            }
        }
    }

    fn add_header_modifier(
        &mut self,
        modifier: &HttpRouteRulesFiltersRequestHeaderModifier,
        field: &str,
    ) -> Result<(), Unsupported> {
        for (index, header) in modifier.set.iter().flatten().enumerate() {
            self.set_headers.push(parse_header(&header.name, &header.value, &format!("{field}.set[{index}]"))?);
        }
        for (index, header) in modifier.add.iter().flatten().enumerate() {
            self.added_headers.push(parse_header(&header.name, &header.value, &format!("{field}.add[{index}]"))?);
        }
        for (index, name) in modifier.remove.iter().flatten().enumerate() {
            self.removed_headers.push(parse_header_name(name, &format!("{field}.remove[{index}]"))?);
        }
        Ok(())
    }

    fn add_rewrite(&mut self, rewrite: &HttpRouteRulesFiltersUrlRewrite, field: &str) -> Result<(), Unsupported> {
        if rewrite.hostname.is_some() {
            let problem = "is not supported: engines ignore the host name";
            return Err(Unsupported::new(format!("{field}.hostname"), problem));
        }
        let Some(path) = &rewrite.path else { return Ok(()) };
        self.path_rewrite = match (&path.replace_full_path, &path.replace_prefix_match) {
            (Some(full), _) => Some(PathRewrite::Full(full.clone())),
            (None, Some(prefix)) => Some(PathRewrite::Prefix(prefix.trim_end_matches('/').to_owned())),
            (None, None) => return Err(Unsupported::new(format!("{field}.path"), "contains no replacement")),
        };
        Ok(())
    }
}

fn parse_header(name: &str, value: &str, field: &str) -> Result<(HeaderName, HeaderValue), Unsupported> {
    let parsed = HeaderValue::from_str(value);
    let value = parsed.map_err(|_| Unsupported::new(format!("{field}.value"), "is no header value"))?;
    Ok((parse_header_name(name, &format!("{field}.name"))?, value))
}

/// Parses the name of a header that a rule may change. Others determine where a message ends or which connection it uses.
fn parse_header_name(name: &str, field: &str) -> Result<HeaderName, Unsupported> {
    let parsed = HeaderName::from_bytes(name.as_bytes());
    let name = parsed.map_err(|_| Unsupported::new(field, "is no header name"))?;
    let is_reserved =
        [http::header::HOST, http::header::CONTENT_LENGTH, http::header::TRANSFER_ENCODING].contains(&name);
    if is_reserved { Err(Unsupported::new(field, "is a header that the gateway sets itself")) } else { Ok(name) }
}
