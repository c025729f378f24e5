//! Matches of a rule: conditions on path, method, headers and query parameters that must all hold.

use gateway_api::httproutes::{
    HttpRouteRulesMatches, HttpRouteRulesMatchesHeadersType, HttpRouteRulesMatchesPath, HttpRouteRulesMatchesPathType,
    HttpRouteRulesMatchesQueryParamsType,
};
use http::{HeaderName, HeaderValue, Method};

use super::{head::RequestHead, unsupported::Unsupported};
use crate::request_path::normalize;

/// Conditions on a request. Without any, all requests match.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RequestMatch {
    path: PathMatch,
    method: Option<Method>,
    headers: Vec<(HeaderName, HeaderValue)>,
    query_parameters: Vec<(String, String)>,
}

/// Condition on the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathMatch {
    /// The whole path.
    Exact(String),
    /// The first segments of the path, without a final slash; empty for all paths.
    Prefix(String),
}

// === impl RequestMatch ===

impl RequestMatch {
    /// Returns the conditions of a rule without matches.
    pub(super) fn any() -> Self {
        Self { path: PathMatch::Prefix(String::new()), method: None, headers: Vec::new(), query_parameters: Vec::new() }
    }

    /// Parses an element of `matches`. `field` is its path in the HTTPRoute.
    ///
    /// # Errors
    /// A type of match that the gateway does not support, or a value that no request can have.
    pub(super) fn parse(parsed: &HttpRouteRulesMatches, field: &str) -> Result<Self, Unsupported> {
        let path = match &parsed.path {
            Some(path) => PathMatch::parse(path, field)?,
            None => PathMatch::Prefix(String::new()),
        };
        let method = parsed.method.as_ref().map(|method| {
            let name = serde_json::to_value(method).unwrap_or_default();
            Method::from_bytes(name.as_str().unwrap_or_default().as_bytes())
        });
        let method =
            method.transpose().map_err(|_| Unsupported::new(format!("{field}.method"), "is no HTTP method"))?;
        let mut headers: Vec<(HeaderName, HeaderValue)> = Vec::new();
        for (index, header) in parsed.headers.iter().flatten().enumerate() {
            let field = format!("{field}.headers[{index}]");
            if header.r#type == Some(HttpRouteRulesMatchesHeadersType::RegularExpression) {
                return Err(Unsupported::new(format!("{field}.type"), "must be Exact"));
            }
            let name = HeaderName::from_bytes(header.name.as_bytes());
            let name = name.map_err(|_| Unsupported::new(format!("{field}.name"), "is no header name"))?;
            let value = HeaderValue::from_str(&header.value);
            let value = value.map_err(|_| Unsupported::new(format!("{field}.value"), "is no header value"))?;
            // The first of several conditions on one header counts.
            if headers.iter().all(|(other, _)| *other != name) {
                headers.push((name, value));
            }
        }
        let mut query_parameters: Vec<(String, String)> = Vec::new();
        for (index, parameter) in parsed.query_params.iter().flatten().enumerate() {
            if parameter.r#type == Some(HttpRouteRulesMatchesQueryParamsType::RegularExpression) {
                return Err(Unsupported::new(format!("{field}.queryParams[{index}].type"), "must be Exact"));
            }
            if query_parameters.iter().all(|(name, _)| *name != parameter.name) {
                query_parameters.push((parameter.name.clone(), parameter.value.clone()));
            }
        }
        Ok(Self { path, method, headers, query_parameters })
    }

    /// Returns whether a request fulfills all conditions.
    pub(super) fn matches(&self, head: &RequestHead<'_>) -> bool {
        self.path.matches(head.path)
            && self.method.as_ref().is_none_or(|method| method == head.method)
            && self.headers.iter().all(|(name, value)| head.headers.get(name) == Some(value))
            && self.query_parameters.iter().all(|(name, value)| has_parameter(head.query, name, value))
    }

    /// Returns how specific the conditions are, the most significant value first.
    pub(super) fn specificity(&self) -> (u8, usize, bool, usize, usize) {
        let (kind, length) = match &self.path {
            PathMatch::Exact(path) => (1, path.len()),
            PathMatch::Prefix(path) => (0, path.len()),
        };
        (kind, length, self.method.is_some(), self.headers.len(), self.query_parameters.len())
    }

    /// Returns the condition on the path.
    pub(super) fn path(&self) -> &PathMatch {
        &self.path
    }
}

// === impl PathMatch ===

impl PathMatch {
    fn parse(path: &HttpRouteRulesMatchesPath, field: &str) -> Result<Self, Unsupported> {
        // Like the paths of requests, without a final slash.
        let value = normalize(path.value.as_deref().unwrap_or("/"))
            .ok_or_else(|| Unsupported::new(format!("{field}.path.value"), "is no path"))?;
        match path.r#type {
            Some(HttpRouteRulesMatchesPathType::RegularExpression) => {
                Err(Unsupported::new(format!("{field}.path.type"), "must be Exact or PathPrefix"))
            }
            Some(HttpRouteRulesMatchesPathType::Exact) => Ok(Self::Exact(value.into_owned())),
            Some(HttpRouteRulesMatchesPathType::PathPrefix) | None => {
                Ok(Self::Prefix(value.trim_end_matches('/').to_owned()))
            }
        }
    }

    fn matches(&self, path: &str) -> bool {
        match self {
            Self::Exact(expected) => expected == path,
            Self::Prefix(prefix) => {
                path.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
        }
    }
}

/// Returns whether the first parameter of this name in a query has this value.
fn has_parameter(query: &str, name: &str, value: &str) -> bool {
    let found = form_urlencoded::parse(query.as_bytes()).find(|(other, _)| other == name);
    found.is_some_and(|(_, found)| found == value)
}
