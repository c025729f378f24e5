//! Routes of request paths.

use std::{sync::Arc, time::Duration};

use cluster::NamespacedName;
use fastrand::Rng;

use crate::{
    http_routes::{MatchedRule, RouteRule},
    request_path::{TOKENIZER_PATHS, decode, normalize},
    routing_error::RoutingError,
};

/// Inference APIs below `/v1/`, whose JSON bodies contain a model name. With [`TOKENIZER_PATHS`], they are all that is reachable through
/// the gateway: administrative and development APIs of engines respond without a key.
const INFERENCE_PATHS: &[&str] = &[
    "chat/completions",
    "completions",
    "embeddings",
    "responses",
    "messages",
    "rerank",
    "score",
    "pooling",
    "classify",
];

/// Route of a request path.
#[derive(Debug, PartialEq)]
pub(crate) enum Route {
    /// Liveness probe.
    Liveness,
    /// Health check.
    Health,
    /// Readiness probe.
    Readiness,
    /// List of models.
    Models(Destination),
    /// One model.
    Model(Destination, String),
    /// A proxied inference request.
    Inference {
        /// Which pools may serve it.
        destination: Destination,
        /// Path for the engine: one of the known paths, whatever form the client used.
        path: String,
    },
    /// Unknown path.
    NotFound,
}

/// The pools that a request addresses.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Destination {
    /// All pools.
    AnyPool,
    /// The pool in the path.
    Pool(NamespacedName),
    /// The backends of an HTTPRoute rule.
    Rule(Arc<RouteRule>),
}

/// Returns the route of a path. A rule that `find_rule` returns for the normalized path decides which pools may serve the request.
/// Without one, `/v1/…` and [`TOKENIZER_PATHS`] search all pools, and `/NAMESPACE/POOL` before them addresses one pool. Probes match no
/// rule.
pub(crate) fn match_path(path: &str, find_rule: impl FnOnce(&str) -> Option<MatchedRule>) -> Route {
    let Some(path) = normalize(path) else { return Route::NotFound };
    match &*path {
        "/livez" => return Route::Liveness,
        "/health" => return Route::Health,
        "/readyz" => return Route::Readiness,
        _ => {}
    }
    if let Some(MatchedRule { rule, path }) = find_rule(&path) {
        return normalize(&path).map_or(Route::NotFound, |path| match_api(Destination::Rule(rule), &path));
    }
    match pool_prefix(&path) {
        Some((pool, path)) => match_api(Destination::Pool(pool), path),
        None => match_api(Destination::AnyPool, &path),
    }
}

/// Returns the route of a path without the prefix that addresses a pool.
fn match_api(destination: Destination, path: &str) -> Route {
    if TOKENIZER_PATHS.contains(&path) {
        return Route::Inference { destination, path: path.to_owned() };
    }
    let Some(api) = path.strip_prefix("/v1/") else { return Route::NotFound };
    match api.strip_prefix("models") {
        Some("") => Route::Models(destination),
        // A name of a model may contain slashes, which some clients encode.
        Some(model) if model.len() > 1 && model.starts_with('/') => match decode(&model[1..], |_| true) {
            Some(model) => Route::Model(destination, model),
            None => Route::NotFound,
        },
        _ if INFERENCE_PATHS.contains(&api) => Route::Inference { destination, path: path.to_owned() },
        _ => Route::NotFound,
    }
}

// === impl Destination ===

impl Destination {
    /// Selects the pool of one request; `None` searches all pools.
    ///
    /// # Errors
    /// [`RoutingError::UnresolvedBackend`].
    pub(crate) fn draw_pool(&self, rng: impl FnOnce() -> Rng) -> Result<Option<NamespacedName>, RoutingError> {
        match self {
            Self::AnyPool => Ok(None),
            Self::Pool(pool) => Ok(Some(pool.clone())),
            Self::Rule(rule) => match rule.draw_pool(&mut rng()) {
                Some(pool) => Ok(Some(pool.clone())),
                None => Err(RoutingError::UnresolvedBackend(rule.route.clone())),
            },
        }
    }

    /// Returns the pools whose models are listed: one entry for each pool, or `None` for all of them.
    pub(crate) fn pools(&self) -> Vec<Option<&NamespacedName>> {
        match self {
            Self::AnyPool => vec![None],
            Self::Pool(pool) => vec![Some(pool)],
            Self::Rule(rule) => rule.pools().map(Some).collect(),
        }
    }

    /// Returns how long a request may take.
    pub(crate) fn timeout(&self) -> Option<Duration> {
        match self {
            Self::Rule(rule) => rule.timeout(),
            Self::AnyPool | Self::Pool(_) => None,
        }
    }
}

/// Splits `/NAMESPACE/POOL/…` into the pool and the rest from its slash. `/v1/…` addresses no pool.
fn pool_prefix(path: &str) -> Option<(NamespacedName, &str)> {
    let (namespace, rest) = path.strip_prefix('/')?.split_once('/')?;
    let (name, _) = rest.split_once('/')?;
    let path = rest.strip_prefix(name)?;
    (namespace != "v1").then(|| (NamespacedName { namespace: namespace.to_owned(), name: name.to_owned() }, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn pool() -> Destination {
        Destination::Pool(NamespacedName::new("ns", "pool"))
    }

    fn inference(destination: Destination, path: &str) -> Route {
        Route::Inference { destination, path: path.to_owned() }
    }

    fn model(name: &str) -> Route {
        Route::Model(Destination::AnyPool, name.to_owned())
    }

    #[rstest]
    #[case("/livez", Route::Liveness)]
    #[case("/health", Route::Health)]
    #[case("/readyz", Route::Readiness)]
    #[case("/v1/models", Route::Models(Destination::AnyPool))]
    #[case("/v1/models/", Route::Models(Destination::AnyPool))]
    #[case("/v1/models/org/m", model("org/m"))]
    #[case("/v1/models/org%2Fm%20x", model("org/m x"))]
    #[case("/v1/models/%252e", model("%2e"))]
    #[case("/v1/models/%ff", Route::NotFound)]
    #[case("/ns/pool/v1/models", Route::Models(pool()))]
    #[case("/v1/chat/completions", inference(Destination::AnyPool, "/v1/chat/completions"))]
    #[case("/ns/pool/v1/completions", inference(pool(), "/v1/completions"))]
    #[case("//v1//chat///completions/", inference(Destination::AnyPool, "/v1/chat/completions"))]
    #[case("/./v1/./completions", inference(Destination::AnyPool, "/v1/completions"))]
    #[case("/v1/%63ompletions", inference(Destination::AnyPool, "/v1/completions"))]
    #[case("/ns/pool//v1/completions", inference(pool(), "/v1/completions"))]
    #[case("/v1/v1/completions", Route::NotFound)]
    #[case("/v1//v1/completions", Route::NotFound)]
    #[case("/ns/pool/v1/v1/completions", Route::NotFound)]
    #[case("/v1/../sleep", Route::NotFound)]
    #[case("/v1/completions/../../sleep", Route::NotFound)]
    #[case("/ns/pool/../../v1/completions", Route::NotFound)]
    #[case("/v1/%2e%2E/sleep", Route::NotFound)]
    #[case("/v1/completions%2f..%2f..%2fsleep", Route::NotFound)]
    #[case("/v1/%2563ompletions", Route::NotFound)]
    #[case("/v1\\completions", Route::NotFound)]
    #[case("/v1/completions%00", Route::NotFound)]
    #[case("/v1/completions%", Route::NotFound)]
    #[case("/v1/completions%+1", Route::NotFound)]
    #[case("/v1/completions;x=1", Route::NotFound)]
    #[case("/V1/completions", Route::NotFound)]
    #[case("/tokenize", inference(Destination::AnyPool, "/tokenize"))]
    #[case("/detokenize", inference(Destination::AnyPool, "/detokenize"))]
    #[case("/ns/pool/tokenize", inference(pool(), "/tokenize"))]
    #[case("//ns/pool//detokenize/", inference(pool(), "/detokenize"))]
    #[case("/ns/tokenize", Route::NotFound)]
    #[case("/v1/tokenize", Route::NotFound)]
    #[case("/v1/pool/tokenize", Route::NotFound)]
    #[case("/tokenize/sleep", Route::NotFound)]
    #[case("/tokenize%2f..%2fsleep", Route::NotFound)]
    #[case("/ns/pool/sleep", Route::NotFound)]
    #[case("/ns/pool/x/tokenize", Route::NotFound)]
    #[case("/tokenizer_info", Route::NotFound)]
    #[case("/load_lora_adapter", Route::NotFound)]
    #[case("/collective_rpc", Route::NotFound)]
    #[case("/reset_prefix_cache", Route::NotFound)]
    #[case("/v1/load_lora_adapter", Route::NotFound)]
    #[case("/sleep", Route::NotFound)]
    #[case("/ns/v1/completions", Route::NotFound)]
    #[case("/v1", Route::NotFound)]
    #[case("/", Route::NotFound)]
    #[case("", Route::NotFound)]
    #[case("*", Route::NotFound)]
    fn matches_paths(#[case] path: &str, #[case] expect: Route) {
        assert_eq!(match_path(path, |_| None), expect);
    }
}
