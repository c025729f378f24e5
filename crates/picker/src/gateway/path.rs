//! What a path addresses.

use crate::pool::PoolKey;

/// The calls that name a model in a JSON body. Engines' administrative calls are not reachable through the gateway.
const CALLS: &[&str] = &[
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

/// A path, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place<'a> {
    Health,
    Models(Option<PoolKey>),
    Model(Option<PoolKey>, &'a str),
    /// A call that is proxied; `path` is the engine's.
    Call {
        pool: Option<PoolKey>,
        path: &'a str,
    },
    Unknown,
}

/// `/v1/…` searches all pools, `/NAMESPACE/POOL/v1/…` addresses one.
pub(super) fn place(path: &str) -> Place<'_> {
    if path == "/health" {
        return Place::Health;
    }
    let (pool, path) = match path.starts_with("/v1/") {
        true => (None, path),
        false => match addressed(path) {
            Some((pool, path)) => (Some(pool), path),
            None => return Place::Unknown,
        },
    };
    let call = path.trim_start_matches("/v1/");
    match call.strip_prefix("models") {
        Some("") => Place::Models(pool),
        Some(model) if model.len() > 1 && model.starts_with('/') => Place::Model(pool, &model[1..]),
        _ if CALLS.contains(&call) => Place::Call { pool, path },
        _ => Place::Unknown,
    }
}

fn addressed(path: &str) -> Option<(PoolKey, &str)> {
    let (namespace, rest) = path.strip_prefix('/')?.split_once('/')?;
    let (name, _) = rest.split_once('/')?;
    let path = &rest[name.len()..];
    let named = !namespace.is_empty() && !name.is_empty() && path.starts_with("/v1/");
    named.then(|| (PoolKey { namespace: namespace.to_owned(), name: name.to_owned() }, path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn pool() -> Option<PoolKey> {
        Some(PoolKey { namespace: "ns".to_owned(), name: "pool".to_owned() })
    }

    #[rstest]
    #[case("/health", Place::Health)]
    #[case("/v1/models", Place::Models(None))]
    #[case("/v1/models/org/m", Place::Model(None, "org/m"))]
    #[case("/ns/pool/v1/models", Place::Models(pool()))]
    #[case("/v1/chat/completions", Place::Call { pool: None, path: "/v1/chat/completions" })]
    #[case("/ns/pool/v1/completions", Place::Call { pool: pool(), path: "/v1/completions" })]
    #[case("/v1/load_lora_adapter", Place::Unknown)]
    #[case("/sleep", Place::Unknown)]
    #[case("/ns/v1/completions", Place::Unknown)]
    #[case("/", Place::Unknown)]
    fn paths_are_taken_apart(#[case] path: &str, #[case] expect: Place<'_>) {
        assert_eq!(place(path), expect);
    }
}
