//! Explains where a request would be sent. Nothing changes: no request is counted, no prompt is recorded and no number is drawn from the
//! generator of the process.

use std::{cmp::Ordering, sync::Arc};

use fastrand::Rng;
use tokio::time::Instant;

use super::{
    AdmissionRequest, Scheduler,
    eligibility::{EligibilityCheck, Exclusion, Tier},
    model_route::ModelRoute,
};
use crate::{
    endpoint::Endpoint,
    endpoint_facts::EndpointFacts,
    pool_scheduling::SchedulingPreview,
    profile::{Disadvantage, Rating},
    request_trace::{RequestTrace, TraceCost, TraceEndpoint, TraceExclusion, TraceOutcome, TraceTarget},
    routing_error::RoutingError,
    score::cost::Cost,
    snapshot::Pool,
    use_case::UseCase,
};

/// Maximum number of endpoints of a trace.
const MAX_ENDPOINTS: usize = 1_000;

impl Scheduler {
    /// Explains where `request` would be sent now. With the generator of the next request ([`Self::next_rngs`]), the endpoint is the one
    /// that this request gets, unless the state of the endpoints changes before.
    ///
    /// # Errors
    /// No pool serves the model.
    pub(crate) fn trace(&self, request: &AdmissionRequest<'_>, rng: &mut Rng) -> Result<RequestTrace, RoutingError> {
        let (now, snapshot) = (Instant::now(), self.snapshot());
        let route = ModelRoute::resolve(request, &snapshot, rng)?;
        let waiting_requests = self.queues.waiting_requests(&route.pool.key);
        let decision = Decision::new(&route, waiting_requests, now, rng);
        let pool = &route.pool;
        let mut endpoints: Vec<TraceEndpoint> =
            pool.endpoints_with_facts().map(|(endpoint, facts)| decision.endpoint(endpoint, facts)).collect();
        endpoints.sort_by(compare);
        let omitted_endpoints = endpoints.len().saturating_sub(MAX_ENDPOINTS);
        endpoints.truncate(MAX_ENDPOINTS);
        let use_case = route.use_case();
        let declaring = snapshot.declaring_pools(request.pool, request.model.name());
        Ok(RequestTrace {
            model: request.model.name().to_owned(),
            pool: pool.key.to_string(),
            pools: declaring.map(|(pool, _)| pool.key.to_string()).collect(),
            use_case: use_case.map(|use_case| use_case.declared_by.clone()),
            priority: route.priority,
            flow: route.flow.clone(),
            targets: use_case.map(|use_case| targets(use_case, pool)).unwrap_or_default(),
            prompt_tokens: route.scheduling_request().prompt_tokens(),
            waiting_requests,
            admitted_share: decision.check.share,
            outcome: decision.outcome,
            selected: decision.preview.selected.filter(|_| decision.outcome == TraceOutcome::Selected),
            prefill: decision.preview.prefiller.filter(|_| decision.outcome == TraceOutcome::Selected),
            unready_endpoints: pool.unready_endpoints(),
            endpoints,
            omitted_endpoints,
            target_model: route.target_model,
        })
    }
}

/// The decision about a request, as [`super::Selection`] makes it.
struct Decision<'a> {
    check: EligibilityCheck<'a>,
    tier: Tier,
    outcome: TraceOutcome,
    preview: SchedulingPreview,
}

// === impl Decision ===

impl<'a> Decision<'a> {
    fn new(route: &'a ModelRoute, waiting_requests: usize, now: Instant, rng: &mut Rng) -> Self {
        let pool = &route.pool;
        let share = pool.objectives.current_share(route.priority);
        let check = EligibilityCheck { route, share, allows_saturated: false, now };
        let considered = |tier| -> Vec<(&Arc<Endpoint>, &EndpointFacts)> {
            pool.endpoints_with_facts().filter(|(endpoint, _)| check.exclusion(tier, endpoint).is_none()).collect()
        };
        let serves = |tier: &Tier| considered(*tier).iter().any(|(_, facts)| facts.serves_requests);
        let tier = Tier::ALL.into_iter().find(serves);
        let (request, considered) = (route.scheduling_request(), considered(tier.unwrap_or(Tier::NotServing)));
        let free = considered.iter().copied().filter(|(endpoint, facts)| check.is_free(endpoint, facts));
        let preview = pool.scheduling.preview(&request, free, now, rng);
        let must_wait = waiting_requests > 0 && pool.has_awake_endpoint(now);
        let starts_engine = pool.scale_to_zero.is_some() && !pool.is_serving();
        let outcome = match (tier, preview.selected) {
            (Some(_), Some(_)) if !must_wait => TraceOutcome::Selected,
            (Some(_), _) => TraceOutcome::Queued,
            (None, _) if starts_engine => TraceOutcome::Queued,
            (None, _) => TraceOutcome::NoEndpoint,
        };
        // If all engines are busy, their costs are of interest nevertheless.
        let preview = match preview.selected {
            Some(_) => preview,
            None => SchedulingPreview {
                selected: None,
                prefiller: None,
                ..pool.scheduling.preview(&request, considered.into_iter(), now, &mut rng.clone())
            },
        };
        Self { check, tier: tier.unwrap_or(Tier::NotServing), outcome, preview }
    }

    fn endpoint(&self, endpoint: &Endpoint, facts: &EndpointFacts) -> TraceEndpoint {
        let rating = self.preview.ratings.get(&endpoint.address).copied();
        let exclusion = match rating {
            Some(Rating::Disadvantage(Disadvantage::Unreachable)) => Some(TraceExclusion::Unreachable),
            Some(Rating::Disadvantage(Disadvantage::OtherPromptSize)) => Some(TraceExclusion::OtherPromptSize),
            Some(Rating::Cost(_) | Rating::Score(_)) | None => None,
        };
        TraceEndpoint {
            address: endpoint.address,
            pod: endpoint.pod.clone(),
            requests: endpoint.state.requests(),
            request_limit: endpoint.state.total_request_limit(),
            cost: rating.and_then(|rating| if let Rating::Cost(cost) = rating { Some(cost.into()) } else { None }),
            score: rating.and_then(|rating| if let Rating::Score(score) = rating { Some(score) } else { None }),
            excluded: self.exclusion(endpoint, facts).or(exclusion),
        }
    }

    fn exclusion(&self, endpoint: &Endpoint, facts: &EndpointFacts) -> Option<TraceExclusion> {
        if !facts.serves_requests {
            return Some(TraceExclusion::PrefillOnly);
        }
        let is_busy = || (!self.check.is_free(endpoint, facts)).then_some(Exclusion::Busy);
        let exclusion = self.check.exclusion(self.tier, endpoint).or_else(is_busy)?;
        Some(match exclusion {
            Exclusion::Asleep => TraceExclusion::Asleep,
            Exclusion::Ejected => TraceExclusion::Ejected,
            Exclusion::ModelNotServed => TraceExclusion::ModelNotServed,
            Exclusion::Busy => TraceExclusion::Busy,
        })
    }
}

impl From<Cost> for TraceCost {
    fn from(cost: Cost) -> Self {
        let total = cost.total();
        let Cost { in_flight, uncached_prompt, other_waiting, other_running, kv_cache_penalty, adapter_penalty } = cost;
        Self { in_flight, other_waiting, other_running, uncached_prompt, kv_cache_penalty, adapter_penalty, total }
    }
}

/// Returns the targets of a use case on `pool`.
fn targets(use_case: &UseCase, pool: &Pool) -> Vec<TraceTarget> {
    let target = |model: &str, weight| TraceTarget { model: model.to_owned(), weight, served: pool.may_serve(model) };
    match use_case.targets.is_empty() {
        true => vec![target(&use_case.model_name, 1)],
        false => use_case.targets.iter().map(|declared| target(&declared.model, declared.weight)).collect(),
    }
}

/// Compares endpoints: candidates first, then the lowest cost or the highest score.
fn compare(left: &TraceEndpoint, right: &TraceEndpoint) -> Ordering {
    let cost = |endpoint: &TraceEndpoint| endpoint.cost.map_or(f64::INFINITY, |cost| cost.total);
    let score = |endpoint: &TraceEndpoint| endpoint.score.unwrap_or(f64::NEG_INFINITY);
    let by_exclusion = left.excluded.is_some().cmp(&right.excluded.is_some());
    let by_rating = cost(left).total_cmp(&cost(right)).then(score(right).total_cmp(&score(left)));
    by_exclusion.then(by_rating).then(left.address.cmp(&right.address))
}
