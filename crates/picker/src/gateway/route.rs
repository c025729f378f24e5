//! Routes of request paths.

use cluster::NamespacedName;

/// Inference APIs, whose JSON bodies contain a model name. Administrative APIs of engines are not reachable through the
/// gateway.
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
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Route<'a> {
    /// Liveness probe.
    Liveness,
    /// Health check.
    Health,
    /// Readiness probe.
    Readiness,
    /// List of models, of one pool or of all pools.
    Models(Option<NamespacedName>),
    /// One model.
    Model(Option<NamespacedName>, &'a str),
    /// A proxied inference request.
    Inference {
        /// Pool in the path, if any.
        pool: Option<NamespacedName>,
        /// Path without the prefix that addresses a pool.
        path: &'a str,
    },
    /// Unknown path.
    NotFound,
}

/// Returns the route of a path. `/v1/…` searches all pools, `/NAMESPACE/POOL/v1/…` addresses one pool.
pub(super) fn match_path(path: &str) -> Route<'_> {
    match path {
        "/livez" => return Route::Liveness,
        "/health" => return Route::Health,
        "/readyz" => return Route::Readiness,
        _ => {}
    }
    let (pool, path) = match path.starts_with("/v1/") {
        true => (None, path),
        false => match pool_prefix(path) {
            Some((pool, path)) => (Some(pool), path),
            None => return Route::NotFound,
        },
    };
    let api = path.trim_start_matches("/v1/");
    match api.strip_prefix("models") {
        Some("") => Route::Models(pool),
        Some(model) if model.len() > 1 && model.starts_with('/') => Route::Model(pool, &model[1..]),
        _ if INFERENCE_PATHS.contains(&api) => Route::Inference { pool, path },
        _ => Route::NotFound,
    }
}

/// Splits `/NAMESPACE/POOL/v1/…` into the pool and the path for the engine.
fn pool_prefix(path: &str) -> Option<(NamespacedName, &str)> {
    let (namespace, rest) = path.strip_prefix('/')?.split_once('/')?;
    let (name, _) = rest.split_once('/')?;
    let path = &rest[name.len()..];
    let is_valid = !namespace.is_empty() && !name.is_empty() && path.starts_with("/v1/");
    is_valid.then(|| (NamespacedName { namespace: namespace.to_owned(), name: name.to_owned() }, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn pool() -> Option<NamespacedName> {
        Some(NamespacedName { namespace: "ns".to_owned(), name: "pool".to_owned() })
    }

    #[rstest]
    #[case("/livez", Route::Liveness)]
    #[case("/health", Route::Health)]
    #[case("/readyz", Route::Readiness)]
    #[case("/v1/models", Route::Models(None))]
    #[case("/v1/models/org/m", Route::Model(None, "org/m"))]
    #[case("/ns/pool/v1/models", Route::Models(pool()))]
    #[case("/v1/chat/completions", Route::Inference { pool: None, path: "/v1/chat/completions" })]
    #[case("/ns/pool/v1/completions", Route::Inference { pool: pool(), path: "/v1/completions" })]
    #[case("/v1/load_lora_adapter", Route::NotFound)]
    #[case("/sleep", Route::NotFound)]
    #[case("/ns/v1/completions", Route::NotFound)]
    #[case("/", Route::NotFound)]
    fn matches_paths(#[case] path: &str, #[case] expect: Route<'_>) {
        assert_eq!(match_path(path), expect);
    }
}
