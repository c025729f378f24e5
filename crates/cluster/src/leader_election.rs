//! Leader election by a Lease, with the rules of client-go's `leaderelection`.
//!
//! A candidate acquires a Lease that has no holder, or whose holder has not renewed it for its `leaseDurationSeconds`. The
//! candidate measures this duration with its own monotonic clock from when it first observed the current version, so that
//! clocks need not be synchronized and may be set.
//!
//! A leader writes only during its term, which ends before another candidate may acquire the Lease: the renew deadline is
//! shorter than the lease duration, and it is measured from before the last successful renewal was sent, whereas the
//! others measure from after they observed this renewal.

mod lease;
mod term;
#[cfg(test)]
mod tests;
mod timings;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use kube::api::PostParams;
use kube::core::DynamicObject;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::clock::Clock;
use crate::{Error, Kind};
use lease::{LeaseAction, ObservedLease};
use term::Term;
pub use timings::LeaderElectionTimings;

const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases");
/// Timeout of releasing the Lease: shutdown must not wait for an API server that does not respond.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// A candidate for the leadership of one Lease.
#[derive(Clone)]
pub struct LeaderElector {
    /// Client for the Lease.
    pub client: Client,
    /// Source of the times that are written into the Lease.
    pub clock: Arc<dyn Clock>,
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Identity of this candidate; unique among the candidates.
    pub identity: String,
    /// Durations and periods.
    pub timings: LeaderElectionTimings,
    /// Called whenever the API server has returned the Lease, or that it does not exist.
    pub on_lease_read: Arc<dyn Fn() + Send + Sync>,
}

// === impl LeaderElector ===

impl LeaderElector {
    /// Runs `work` while this candidate leads, and starts it again after each re-election, until `shutdown`.
    ///
    /// `work` receives a client whose writes are sent only during the term. When the term ends, the future of `work` is
    /// dropped. After `shutdown`, `work` must complete soon; the Lease is renewed until then and released afterwards, unless
    /// the API server has not answered a write.
    pub async fn run<T, F: Future<Output = T>>(
        &self,
        shutdown: CancellationToken,
        work: impl Fn(Client) -> F,
    ) -> Option<T> {
        let mut observed = ObservedLease::default();
        while let Some(term) = self.acquire(&mut observed, &shutdown).await {
            tracing::info!(lease = %self.lease_name(), identity = %self.identity, "became leader");
            let _end = term.end_on_drop();
            let renewal = AbortOnDropHandle::new(tokio::spawn(self.clone().renew(observed, term.clone())));
            let outcome = tokio::select! {
                biased;
                () = term.ended() => None,
                outcome = work(term.client(&self.client)) => Some(outcome),
            };
            term.end();
            observed = renewal.await.unwrap_or_default();
            if outcome.is_some() {
                self.release_after(&term).await;
                return outcome;
            }
            tracing::warn!(lease = %self.lease_name(), identity = %self.identity, "lost leadership, standing by");
        }
        None
    }

    /// Retries until this candidate holds the Lease. Returns `None` after `shutdown`.
    async fn acquire(&self, observed: &mut ObservedLease, shutdown: &CancellationToken) -> Option<Term> {
        let mut last_reported = String::new();
        while !shutdown.is_cancelled() {
            match timeout(self.timings.attempt_timeout(), self.try_acquire_or_renew(observed)).await {
                Ok(Ok(Some(sent_at))) => return Some(Term::new(self.deadline(sent_at))),
                Ok(Ok(None)) => self.report_leader(observed, &mut last_reported),
                // Another candidate wrote the Lease first.
                Ok(Err(error)) if error.is_conflict() => {}
                Ok(Err(error)) => self.report_failure(error.to_string(), &mut last_reported),
                Err(_) => self.report_failure("the API server does not respond".to_owned(), &mut last_reported),
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(self.timings.retry_period) => {}
            }
        }
        None
    }

    /// Logs the current leader unless it was logged before.
    fn report_leader(&self, observed: &ObservedLease, last_reported: &mut String) {
        let leader = observed.holder();
        if *last_reported != leader {
            tracing::info!(lease = %self.lease_name(), leader, "another replica leads, standing by");
            *last_reported = leader.to_owned();
        }
    }

    /// Logs why the Lease could not be acquired unless it was logged before.
    fn report_failure(&self, error: String, last_reported: &mut String) {
        if *last_reported != error {
            tracing::warn!(lease = %self.lease_name(), error, "failed to acquire the lease, retrying");
            *last_reported = error;
        }
    }

    /// Renews the Lease until `term` ends; ends it when another candidate holds the Lease. Returns the Lease as last
    /// observed.
    async fn renew(self, mut observed: ObservedLease, term: Term) -> ObservedLease {
        let period = self.timings.retry_period;
        let mut retries = interval_at(Instant::now().checked_add(period).unwrap_or_else(Instant::now), period);
        // An attempt that timed out is followed by the next one immediately.
        retries.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let attempt = async {
                retries.tick().await;
                timeout(self.timings.attempt_timeout(), self.try_acquire_or_renew(&mut observed)).await
            };
            let result = tokio::select! {
                biased;
                () = term.ended() => return observed,
                result = attempt => result,
            };
            match result {
                Ok(Ok(Some(sent_at))) => term.extend(self.deadline(sent_at)),
                // Another candidate observed that the Lease expired, and acquired it.
                Ok(Ok(None)) => term.end(),
                Ok(Err(error)) => {
                    tracing::warn!(lease = %self.lease_name(), %error, "failed to renew the lease, retrying");
                }
                Err(_) => {
                    tracing::warn!(lease = %self.lease_name(), "the API server does not respond, retrying to renew the lease");
                }
            }
        }
    }

    /// Acquires or renews the Lease unless another candidate holds it. Returns when the successful write was sent: the term
    /// begins then, because others may have observed the write long before the response arrived.
    async fn try_acquire_or_renew(&self, observed: &mut ObservedLease) -> Result<Option<Instant>, Error> {
        self.read(observed).await?;
        let action = observed.action(&self.identity, self.timings, Instant::now(), self.clock.now());
        let LeaseAction::Write(spec) = action else { return Ok(None) };
        let sent_at = Instant::now();
        self.write(observed, &spec).await.map(|()| Some(sent_at))
    }

    /// Reads the Lease.
    async fn read(&self, observed: &mut ObservedLease) -> Result<(), Error> {
        let live = self.api().get_opt(&self.name).await.map_err(|source| self.request_error("read", source))?;
        observed.observe(live.and_then(|live| serde_json::to_value(live).ok()).as_ref(), Instant::now());
        (self.on_lease_read)();
        Ok(())
    }

    /// Writes `spec` over the observed version of the Lease.
    async fn write(&self, observed: &mut ObservedLease, spec: &Value) -> Result<(), Error> {
        let params = PostParams::default();
        let object = json!({"apiVersion": LEASE.api_version(), "kind": LEASE.kind, "spec": spec,
            "metadata": observed.metadata(&self.namespace, &self.name)});
        let typed: DynamicObject = serde_json::from_value(object)
            .map_err(|error| self.request_error("write", kube::Error::SerdeError(error)))?;
        let response = match observed.exists() {
            true => self.api().replace(&self.name, &params, &typed).await,
            false => self.api().create(&params, &typed).await,
        };
        let written = response.map_err(|source| self.request_error("write", source))?;
        observed.observe(serde_json::to_value(written).ok().as_ref(), Instant::now());
        Ok(())
    }

    /// Releases the Lease after the work of `term` has completed. If the API server has not answered a recent write, it may
    /// still process it, so the next leader must wait until the Lease expires.
    async fn release_after(&self, term: &Term) {
        let lease = self.lease_name();
        if term.time_since_unanswered_write().is_some_and(|time| time < self.timings.lease_duration) {
            tracing::warn!(%lease, "not releasing the lease because a write was not answered; it expires");
            return;
        }
        match timeout(RELEASE_TIMEOUT, self.release()).await {
            Ok(Ok(())) => tracing::info!(%lease, "released the lease"),
            Ok(Err(error)) => tracing::warn!(%lease, %error, "failed to release the lease; it expires"),
            Err(_) => {
                tracing::warn!(%lease, "failed to release the lease: the API server does not respond; it expires");
            }
        }
    }

    /// Clears the holder of the Lease if this candidate holds it. A renewal that was in flight may have changed the Lease.
    async fn release(&self) -> Result<(), Error> {
        loop {
            let mut observed = ObservedLease::default();
            self.read(&mut observed).await?;
            if observed.holder() != self.identity {
                return Ok(());
            }
            let spec = observed.released_spec(self.clock.now());
            match self.write(&mut observed, &spec).await {
                Err(error) if error.is_conflict() => {}
                result => return result,
            }
        }
    }

    /// Returns when the term ends that began with a write sent at `sent_at`.
    fn deadline(&self, sent_at: Instant) -> Instant {
        sent_at.checked_add(self.timings.term_duration()).unwrap_or(sent_at)
    }

    fn api(&self) -> Api<DynamicObject> {
        LEASE.api(self.client.clone(), &self.namespace)
    }

    fn request_error(&self, action: &'static str, source: kube::Error) -> Error {
        Error::Request { action, object: format!("Lease {}", self.lease_name()), source: Box::new(source) }
    }

    fn lease_name(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}
