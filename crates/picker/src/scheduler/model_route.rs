//! Which pool serves a request, and by which model of its engines.

use std::sync::Arc;

use fastrand::Rng;
use smallvec::SmallVec;
use tokio::time::Instant;
use xxhash_rust::xxh64::xxh64;

use super::admission_request::{AdmissionRequest, RequestedModel};
use crate::{
    endpoint::Endpoint,
    flow_headers::FlowHeaders,
    objective::ObjectiveWindow,
    request_path::TOKENIZER_PATHS,
    routing_error::RoutingError,
    scheduling_request::SchedulingRequest,
    served_models::ModelHashes,
    snapshot::{Pool, Snapshot},
    use_case::{NONCRITICAL, UseCase},
};

/// Pool and target model of a request, and what selecting an endpoint needs of the request.
#[derive(Debug)]
pub(crate) struct ModelRoute {
    /// Pool that serves the model.
    pub(crate) pool: Arc<Pool>,
    /// Model name for the engines.
    pub(crate) target_model: String,
    /// Priority in the queue of the pool.
    pub(super) priority: i32,
    /// Requests with the same name share their part of the engines: the model name of the use case.
    pub(super) flow: String,
    /// Whether a use case states priority and flow. The names of other flows may equal model names.
    is_declared: bool,
    prompt_bytes: usize,
    estimated_tokens: u64,
    output_tokens: u64,
    /// Block hashes of the prompt, one list per prefix index of the policy.
    pub(super) prefix_hashes: Vec<Vec<u64>>,
    /// Hash of target model and path: an engine may serve a model on some paths only.
    pub(super) served_key: u64,
    model_hashes: ModelHashes,
}

/// Where a request is sent, and how it waits.
struct Target<'a> {
    pool: &'a Arc<Pool>,
    model: String,
    priority: i32,
    flow: String,
    is_declared: bool,
}

// === impl ModelRoute ===

impl ModelRoute {
    /// Finds the use case of a request and draws its target model.
    ///
    /// # Errors
    /// [`RoutingError::ModelNotFound`] or [`RoutingError::PoolNotFound`].
    pub(super) fn resolve(
        request: &AdmissionRequest<'_>,
        snapshot: &Snapshot,
        rng: &mut Rng,
    ) -> Result<Self, RoutingError> {
        if let Some(key) = request.pool.filter(|key| !snapshot.pools.contains_key(*key)) {
            return Err(RoutingError::PoolNotFound(key.clone()));
        }
        let Target { pool, model: target_model, priority, flow, is_declared } = find_target(request, snapshot, rng)
            .ok_or_else(|| RoutingError::ModelNotFound(request.model.name().to_owned()))?;
        // An engine caches a prompt only if it computes it.
        let cached_body = if TOKENIZER_PATHS.contains(&request.path) { &[] } else { request.body };
        Ok(Self {
            pool: Arc::clone(pool),
            prompt_bytes: request.info.prompt_bytes(),
            estimated_tokens: request.info.estimated_tokens(),
            output_tokens: request.info.counted_output_tokens(),
            prefix_hashes: pool.scheduling.policy().prefix_hashes(&target_model, cached_body, request.info),
            served_key: served_key(&target_model, request.path),
            model_hashes: ModelHashes::new(&target_model),
            target_model,
            priority,
            flow,
            is_declared,
        })
    }

    /// Returns the latencies of the use case, if there is one with an objective.
    pub(super) fn objective_window(&self) -> Option<&Arc<ObjectiveWindow>> {
        self.pool.objectives.window(&self.flow).filter(|_| self.is_declared)
    }

    /// Returns the use case of the request, if one states priority and flow.
    pub(super) fn use_case(&self) -> Option<&UseCase> {
        self.pool.use_cases.get(&self.flow).filter(|_| self.is_declared)
    }

    /// Returns what the policy of the pool reads of the request.
    pub(super) fn scheduling_request(&self) -> SchedulingRequest<'_> {
        SchedulingRequest {
            model: &self.target_model,
            prompt_bytes: self.prompt_bytes,
            max_tokens: self.estimated_tokens,
            output_tokens: self.output_tokens,
            prefix_hashes: &self.prefix_hashes,
        }
    }

    /// Returns the estimated number of tokens that an engine computes.
    pub(super) fn computed_tokens(&self) -> u64 {
        self.scheduling_request().prompt_tokens().saturating_add(self.output_tokens)
    }

    /// Returns whether the endpoint is healthy and may serve the model.
    pub(super) fn may_be_sent_to(&self, endpoint: &Endpoint, now: Instant) -> bool {
        let health = &endpoint.state.health;
        !health.is_asleep(now) && health.is_available(now) && self.may_be_served_by(endpoint, now)
    }

    /// Returns whether the endpoint may serve the model: it has not rejected it lately, and lists it or what it serves is unknown.
    pub(super) fn may_be_served_by(&self, endpoint: &Endpoint, now: Instant) -> bool {
        let is_listed = || self.target_model.is_empty() || endpoint.state.served_models.may_contain(self.model_hashes);
        endpoint.state.health.may_serve(self.served_key, now) && is_listed()
    }
}

// === impl Target ===

impl<'a> Target<'a> {
    /// Returns the target `model` of a request for `name` without a use case. It waits as its headers state.
    fn implicit(pool: &'a Arc<Pool>, name: &str, model: String, headers: Option<&FlowHeaders>) -> Self {
        let flow = headers.and_then(|headers| headers.fairness_id.as_deref()).unwrap_or(name);
        let priority = priority_of_objective(pool, headers).unwrap_or(pool.default_priority);
        Self { pool, model, priority, flow: flow.to_owned(), is_declared: false }
    }
}

/// Returns the priority of the InferenceObjective that a request names, if the pool has it.
fn priority_of_objective(pool: &Pool, headers: Option<&FlowHeaders>) -> Option<i32> {
    pool.objective_priorities.get(headers?.objective.as_ref()?).copied()
}

/// Selects one of `pools` at random, with probabilities proportional to the number of endpoints that may serve `target`; if there
/// are none, to the number of endpoints; without any endpoint, the first pool.
fn draw_pool<'a>(pools: impl Iterator<Item = &'a Arc<Pool>>, target: &str, rng: &mut Rng) -> Option<&'a Arc<Pool>> {
    let pools: SmallVec<[&Arc<Pool>; 4]> = pools.collect();
    if let [pool] = pools[..] {
        return Some(pool);
    }
    let weights = |weight: &dyn Fn(&Pool) -> usize| -> Option<SmallVec<[usize; 4]>> {
        let weights: SmallVec<[usize; 4]> = pools.iter().map(|pool| weight(pool)).collect();
        weights.iter().any(|weight| *weight > 0).then_some(weights)
    };
    let weights =
        weights(&|pool| pool.endpoints_serving(target)).or_else(|| weights(&|pool| pool.serving_endpoints().count()));
    let Some(weights) = weights else { return pools.first().copied() };
    let mut remaining = rng.usize(..weights.iter().sum::<usize>());
    pools.iter().zip(weights).find_map(|(pool, weight)| match remaining.checked_sub(weight) {
        Some(rest) => {
            remaining = rest;
            None
        }
        None => Some(*pool),
    })
}

/// Returns the hash of a target model and a path.
fn served_key(target_model: &str, path: &str) -> u64 {
    xxh64(target_model.as_bytes(), xxh64(path.as_bytes(), 0))
}

/// Returns where a request is sent. Only a request that names a model may search all pools.
fn find_target<'a>(request: &AdmissionRequest<'_>, snapshot: &'a Snapshot, rng: &mut Rng) -> Option<Target<'a>> {
    let implicit = |pool, name, model| Target::implicit(pool, name, model, request.flow);
    match request.model {
        RequestedModel::Name(model) => {
            let declaring_pools = || snapshot.declaring_pools(request.pool, model);
            let Some((_, use_case)) = declaring_pools().next() else {
                let (pool, model) = snapshot.implicit_pool(request.pool, model)?;
                let rewrite = pool.default_rewrite.as_ref();
                let target = rewrite.map_or(model, |rewrite| rewrite.draw_target(rng, |target| pool.may_serve(target)));
                return Some(implicit(pool, model, target.to_owned()));
            };
            let is_served = |target: &str| declaring_pools().any(|(pool, _)| pool.may_serve(target));
            let target = match request.session {
                Some(session) => use_case.draw_target(&mut use_case.session_rng(session), is_served),
                None => use_case.draw_target(rng, is_served),
            };
            let pool = draw_pool(declaring_pools().map(|(pool, _)| pool), target, rng)?;
            if use_case.is_rewrite {
                return Some(implicit(pool, model, target.to_owned()));
            }
            let (priority, flow) = (use_case.priority, use_case.model_name.clone());
            Some(Target { pool, model: target.to_owned(), priority, flow, is_declared: true })
        }
        RequestedModel::Target(model) => {
            let pool = snapshot.find_target(request.pool?, model)?;
            // The proxy has resolved the use case, whose name is unknown here.
            let priority = priority_of_objective(pool, request.flow).unwrap_or(NONCRITICAL);
            Some(Target { priority, ..implicit(pool, model, model.to_owned()) })
        }
        RequestedModel::Unknown => Some(implicit(snapshot.pools.get(request.pool?)?, "", String::new())),
    }
}
