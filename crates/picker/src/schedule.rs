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
}

/// A use case with its drawn target; endpoints are picked from it, once or again after a failure.
#[derive(Debug, Clone)]
pub struct Route<'a> {
    pub pool: &'a Pool,
    /// The model as the engines know it.
    pub target: String,
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
    Ok(Route { pool, target: use_case.draw(rng).to_owned() })
}

impl Route<'_> {
    /// Picks an endpoint that is not among `tried`.
    ///
    /// # Errors
    /// [`Refusal::NoEndpoint`].
    pub fn pick(&self, tried: &[SocketAddr], rng: &mut Rng) -> Result<Pick, Refusal> {
        let ready = &self.pool.ready;
        let candidates: Vec<&Endpoint> = ready.iter().filter(|endpoint| !tried.contains(&endpoint.address)).collect();
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
