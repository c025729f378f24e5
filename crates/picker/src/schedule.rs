//! Routing of the native gateway: selects the target model and the endpoint of a request.

use std::net::SocketAddr;

use fastrand::Rng;

use crate::{endpoint::Endpoint, pool::RoutingTable, score::least_loaded};
use cluster::NamespacedName;

/// A request to route.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouteRequest<'a> {
    /// Model name in the request.
    pub(crate) model: &'a str,
    /// Pool in the request path, if any.
    pub(crate) pool: Option<&'a NamespacedName>,
    /// Estimated tokens of the prompt.
    pub(crate) prompt_tokens: u64,
}

/// Pool and target model of a request. After a failure another endpoint of the pool is selected.
#[derive(Debug, Clone)]
pub(crate) struct ModelRoute {
    /// Pool that serves the model.
    pub(crate) pool: NamespacedName,
    /// Model name of the engines.
    pub(crate) target_model: String,
    prompt_tokens: u64,
}

/// The selected endpoint and a short explanation.
#[derive(Debug, Clone)]
pub(crate) struct EndpointSelection {
    /// The endpoint.
    pub(crate) endpoint: Endpoint,
    /// Explanation, such as `0 in flight, of 2 endpoints`.
    pub(crate) explanation: String,
}

/// A request that cannot be routed. The message is returned to the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RoutingError {
    /// No pool serves the model.
    #[error("The model `{0}` does not exist.")]
    ModelNotFound(String),
    /// The pool in the request path does not exist.
    #[error("The pool {0} does not exist.")]
    PoolNotFound(NamespacedName),
    /// No endpoint of the pool is ready, or all attempts failed.
    #[error("No endpoint of pool {0} is available.")]
    NoEndpointAvailable(NamespacedName),
}

/// Finds the use case of a request and draws its target model.
///
/// # Errors
/// [`RoutingError::ModelNotFound`] or [`RoutingError::PoolNotFound`].
pub(crate) fn resolve_route(
    request: RouteRequest<'_>,
    table: &RoutingTable,
    rng: &mut Rng,
) -> Result<ModelRoute, RoutingError> {
    if let Some(key) = request.pool.filter(|key| !table.pools.contains_key(key)) {
        return Err(RoutingError::PoolNotFound(key.clone()));
    }
    let (pool, use_case) =
        table.find(request.pool, request.model).ok_or_else(|| RoutingError::ModelNotFound(request.model.to_owned()))?;
    let target_model = use_case.draw_target(rng).to_owned();
    Ok(ModelRoute { pool: pool.key.clone(), target_model, prompt_tokens: request.prompt_tokens })
}

// === impl ModelRoute ===

impl ModelRoute {
    /// Returns the endpoints of the pool that are ready now.
    fn ready_endpoints<'a>(&self, table: &'a RoutingTable) -> &'a [Endpoint] {
        table.pools.get(&self.pool).map_or(&[], |pool| &pool.ready_endpoints)
    }

    /// Returns whether `table` contains a ready endpoint that is not in `attempts`.
    pub(crate) fn has_other_endpoint(&self, table: &RoutingTable, attempts: &[SocketAddr]) -> bool {
        self.ready_endpoints(table).iter().any(|endpoint| !attempts.contains(&endpoint.address))
    }

    /// Selects an endpoint that is not in `attempts`: the least loaded endpoint that is intended for prompts of this size,
    /// or the least loaded of all if there is none. `table` is the current table: a Pod that became ready while the
    /// request was in flight may replace the one that failed.
    ///
    /// # Errors
    /// [`RoutingError::NoEndpointAvailable`].
    pub(crate) fn select_endpoint(
        &self,
        table: &RoutingTable,
        attempts: &[SocketAddr],
        rng: &mut Rng,
    ) -> Result<EndpointSelection, RoutingError> {
        let endpoints = self.ready_endpoints(table);
        let mut candidates: Vec<&Endpoint> =
            endpoints.iter().filter(|endpoint| !attempts.contains(&endpoint.address)).collect();
        let matches_prompt = |endpoint: &&Endpoint| endpoint.prompt_tokens.contains(self.prompt_tokens);
        if candidates.iter().any(matches_prompt) {
            candidates.retain(matches_prompt);
        }
        let endpoint = least_loaded::least_loaded(&candidates, rng)
            .ok_or_else(|| RoutingError::NoEndpointAvailable(self.pool.clone()))?;
        let plural = if endpoints.len() == 1 { "" } else { "s" };
        let retries = if attempts.is_empty() { String::new() } else { format!(", after {} failed", attempts.len()) };
        let explanation =
            format!("{} in flight, of {} endpoint{plural}{retries}", endpoint.load.requests(), endpoints.len());
        Ok(EndpointSelection { endpoint: endpoint.clone(), explanation })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::{datastore::Datastore, endpoint::PromptTokenRange, pool::Pool};

    /// Returns a pool with one endpoint for prompts up to 2047 tokens, and one for prompts from 4097 tokens.
    fn pool(datastore: &Datastore) -> Pool {
        let endpoint = |name: &str, port: u16, min, max| {
            let address = ([127, 0, 0, 1], port).into();
            Endpoint {
                address,
                pod: name.to_owned(),
                prompt_tokens: PromptTokenRange { min, max },
                load: datastore.load(address),
            }
        };
        Pool {
            key: NamespacedName { namespace: "ns".to_owned(), name: "p".to_owned() },
            ready_endpoints: vec![endpoint("short", 1, None, Some(2047)), endpoint("long", 2, Some(4097), None)],
            endpoint_count: 2,
            use_cases: [].into(),
            allows_implicit_use_cases: true,
            creation_timestamp: String::new(),
        }
    }

    #[rstest]
    #[case::short(10, "short", &[], "short")]
    #[case::upper_bound(2047, "short", &[], "short")]
    #[case::no_match_uses_load(2048, "short", &[], "long")]
    #[case::no_match_uses_load_of_other_endpoint(4096, "long", &[], "short")]
    #[case::lower_bound(4097, "long", &[], "long")]
    #[case::long(100_000, "long", &[], "long")]
    #[case::only_untried_endpoint(10, "long", &[1], "long")]
    fn prompts_are_routed_by_size_then_load(
        #[case] tokens: u64,
        #[case] busy: &str,
        #[case] attempted_ports: &[u16],
        #[case] expect: &str,
    ) {
        let datastore = Datastore::new(1);
        let pool = pool(&datastore);
        let _busy = pool
            .ready_endpoints
            .iter()
            .find(|endpoint| endpoint.pod == busy)
            .map(|endpoint| endpoint.load.begin(1_000_000));
        let tried: Vec<SocketAddr> = attempted_ports.iter().map(|port| ([127, 0, 0, 1], *port).into()).collect();
        let route = ModelRoute { pool: pool.key.clone(), target_model: "m".to_owned(), prompt_tokens: tokens };
        let table = RoutingTable::new(vec![pool]);
        assert_eq!(route.select_endpoint(&table, &tried, &mut datastore.rng()).unwrap().endpoint.pod, expect);
    }
}
