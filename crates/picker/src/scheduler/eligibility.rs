//! Which endpoints of a pool a request may be sent to at one point in time.

use std::net::SocketAddr;

use tokio::time::Instant;

use super::model_route::ModelRoute;
use crate::{endpoint::Endpoint, endpoint_facts::EndpointFacts, endpoint_subset::EndpointSubset};

/// Which endpoints may be selected.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Eligibility<'a> {
    /// Endpoints that failed before.
    pub(super) failed: &'a [SocketAddr],
    /// Endpoints that the proxy allows; `None` allows all.
    pub(super) subset: Option<&'a EndpointSubset>,
    /// Whether the request may wait in an engine.
    pub(super) allows_saturated: bool,
}

/// Which impaired endpoints are considered. If no endpoint of a tier is left, those of the next one are: the response of one of them
/// decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tier {
    /// Healthy endpoints that may serve the model.
    Healthy,
    /// Also ejected endpoints.
    Ejected,
    /// Also endpoints that do not serve the model.
    NotServing,
}

/// Why a request is not sent to an endpoint now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exclusion {
    /// The engine sleeps.
    Asleep,
    /// Requests to the endpoint failed.
    Ejected,
    /// The engine does not list the model, or responded that it does not serve it.
    ModelNotServed,
    /// The request would wait in the engine.
    Busy,
}

/// Decides which endpoints are eligible for a request.
#[derive(Debug, Clone, Copy)]
pub(super) struct EligibilityCheck<'a> {
    /// Where the request is sent.
    pub(super) route: &'a ModelRoute,
    /// Up to which part of the requests that an engine runs at the same time the request is admitted.
    pub(super) share: f64,
    /// Whether the request may wait in an engine.
    pub(super) allows_saturated: bool,
    /// Time of the decision.
    pub(super) now: Instant,
}

// === impl Tier ===

impl Tier {
    /// All tiers, in the order in which they are considered.
    pub(super) const ALL: [Self; 3] = [Self::Healthy, Self::Ejected, Self::NotServing];
}

// === impl EligibilityCheck ===

impl EligibilityCheck<'_> {
    /// Returns why `endpoint` is not considered in `tier`.
    pub(super) fn exclusion(&self, tier: Tier, endpoint: &Endpoint) -> Option<Exclusion> {
        let (health, now) = (&endpoint.state.health, self.now);
        if health.is_asleep(now) {
            return Some(Exclusion::Asleep);
        }
        if tier < Tier::Ejected && !health.is_available(now) {
            return Some(Exclusion::Ejected);
        }
        if tier < Tier::NotServing && !self.route.may_be_served_by(endpoint, now) {
            return Some(Exclusion::ModelNotServed);
        }
        None
    }

    /// Returns whether a considered endpoint can run the request now. The prompts wait in busy prefillers, otherwise the decoders
    /// would compute them.
    pub(super) fn is_free(&self, endpoint: &Endpoint, facts: &EndpointFacts) -> bool {
        let is_busy = || match self.share < 1.0 {
            true => endpoint.state.exceeds_share(self.share),
            false => endpoint.state.is_saturated(),
        };
        self.allows_saturated || !facts.serves_requests || !is_busy()
    }
}
