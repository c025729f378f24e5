//! The decision: which model on which endpoint answers a request.

use std::net::SocketAddr;

use fastrand::Rng;

use crate::{
    pool::{Endpoint, Pool, PoolKey, Routing},
    score,
};

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The model name the client sent.
    pub model: &'a str,
    /// The pool its path names, if any.
    pub pool: Option<&'a PoolKey>,
    /// Tokens of its prompt, as estimated.
    pub prompt_tokens: u64,
}

/// A use case with its drawn target; endpoints are picked from it, once or again after a failure.
#[derive(Debug, Clone)]
pub struct Route<'a> {
    pub pool: &'a Pool,
    /// The model as the engines know it.
    pub target: String,
    prompt_tokens: u64,
}

/// The endpoint chosen, and why in a few words.
#[derive(Debug, Clone)]
pub struct Pick {
    pub endpoint: Endpoint,
    /// Such as `0 in flight, of 2 endpoints`.
    pub decision: String,
}

/// Why nothing was chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("The model `{0}` does not exist.")]
    UnknownModel(String),
    #[error("The pool {0} does not exist.")]
    UnknownPool(PoolKey),
    #[error("No endpoint of pool {0} can answer now.")]
    NoEndpoint(PoolKey),
}

/// Finds the use case and draws its target.
///
/// # Errors
/// [`Refusal::UnknownModel`] or [`Refusal::UnknownPool`].
pub fn route<'a>(question: Question<'_>, routing: &'a Routing, rng: &mut Rng) -> Result<Route<'a>, Refusal> {
    if let Some(key) = question.pool.filter(|key| !routing.pools.contains_key(key)) {
        return Err(Refusal::UnknownPool(key.clone()));
    }
    let (pool, use_case) =
        routing.find(question.pool, question.model).ok_or_else(|| Refusal::UnknownModel(question.model.to_owned()))?;
    Ok(Route { pool, target: use_case.draw(rng).to_owned(), prompt_tokens: question.prompt_tokens })
}

impl Route<'_> {
    /// Picks an endpoint that is not among `tried`: the least loaded of those whose Pods are for prompts of this size,
    /// or of all if there are none.
    ///
    /// # Errors
    /// [`Refusal::NoEndpoint`].
    pub fn pick(&self, tried: &[SocketAddr], rng: &mut Rng) -> Result<Pick, Refusal> {
        let ready = &self.pool.ready;
        let mut candidates: Vec<&Endpoint> = ready.iter().filter(|one| !tried.contains(&one.address)).collect();
        let meant = |endpoint: &&Endpoint| endpoint.prompts.hold(self.prompt_tokens);
        if candidates.iter().any(meant) {
            candidates.retain(meant);
        }
        let endpoint =
            score::load::least(&candidates, rng).ok_or_else(|| Refusal::NoEndpoint(self.pool.key.clone()))?;
        let plural = if ready.len() == 1 { "" } else { "s" };
        let again = if tried.is_empty() { String::new() } else { format!(", after {} failed", tried.len()) };
        let decision = format!("{} in flight, of {} endpoint{plural}{again}", endpoint.load.requests(), ready.len());
        Ok(Pick { endpoint: endpoint.clone(), decision })
    }
}

/// Route and first pick together: the whole decision for one request.
///
/// # Errors
/// Any [`Refusal`].
pub fn schedule(question: Question<'_>, routing: &Routing, rng: &mut Rng) -> Result<(String, Pick), Refusal> {
    let route = route(question, routing, rng)?;
    let pick = route.pick(&[], rng)?;
    Ok((route.target, pick))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::pool::{Pools, Prompts};

    /// One endpoint for prompts up to 2047 tokens, one from 4097 on.
    fn pool(pools: &Pools) -> Pool {
        let endpoint = |name: &str, port: u16, min, max| {
            let address = ([127, 0, 0, 1], port).into();
            Endpoint { address, pod: name.to_owned(), prompts: Prompts { min, max }, load: pools.load(address) }
        };
        Pool {
            key: PoolKey { namespace: "ns".to_owned(), name: "p".to_owned() },
            ready: vec![endpoint("short", 1, None, Some(2047)), endpoint("long", 2, Some(4097), None)],
            endpoints: 2,
            use_cases: [].into(),
            implicit: true,
            created: String::new(),
        }
    }

    #[rstest]
    #[case::short(10, "short", &[], "short")]
    #[case::last_of_the_short(2047, "short", &[], "short")]
    #[case::between_load_decides(2048, "short", &[], "long")]
    #[case::between_load_decides_again(4096, "long", &[], "short")]
    #[case::first_of_the_long(4097, "long", &[], "long")]
    #[case::long(100_000, "long", &[], "long")]
    #[case::nobody_else_is_left(10, "long", &[1], "long")]
    fn prompts_go_to_the_pods_that_are_for_them(
        #[case] tokens: u64,
        #[case] busy: &str,
        #[case] tried: &[u16],
        #[case] expect: &str,
    ) {
        let pools = Pools::new(1);
        let pool = pool(&pools);
        let _busy = pool.ready.iter().find(|one| one.pod == busy).map(|one| one.load.begin(1_000_000));
        let tried: Vec<SocketAddr> = tried.iter().map(|port| ([127, 0, 0, 1], *port).into()).collect();
        let route = Route { pool: &pool, target: "m".to_owned(), prompt_tokens: tokens };
        assert_eq!(route.pick(&tried, &mut pools.rng()).unwrap().endpoint.pod, expect);
    }
}
