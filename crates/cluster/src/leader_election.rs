//! Leader election by a Lease, with the rules of client-go's `leaderelection`.
//!
//! A candidate acquires a Lease that has no holder, or whose holder has not renewed it for its `leaseDurationSeconds`. The
//! candidate measures this duration with its own clock from when it first observed the current version, so that clocks need
//! not be synchronized. A leader that fails to renew stops before another candidate may acquire the Lease.

use std::future::Future;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::api::PostParams;
use kube::core::DynamicObject;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, rfc3339_micros};
use crate::object::metadata_field;
use crate::{Error, Kind};

const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases");

/// Timings of leader election. The renew deadline must be shorter than the lease duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderElectionTimings {
    /// Time without a renewal after which other candidates may acquire the Lease.
    pub lease_duration: SignedDuration,
    /// Time without a successful renewal after which the leader stops.
    pub renew_deadline: SignedDuration,
    /// Time between two attempts to acquire or renew the Lease.
    pub retry_period: SignedDuration,
}

/// A candidate for the leadership of one Lease.
#[derive(Clone)]
pub struct LeaderElector {
    /// Client for the Lease.
    pub client: Client,
    /// Source of the current time.
    pub clock: Arc<dyn Clock>,
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Identity of this candidate; unique among the candidates.
    pub identity: String,
    /// Durations and periods.
    pub timings: LeaderElectionTimings,
}

/// The Lease as last observed.
#[derive(Clone, Debug, Default)]
struct ObservedLease {
    lease: Option<Value>,
    /// When the current `spec` was first observed.
    observed_at: Option<Timestamp>,
}

/// Action after observing a Lease.
#[derive(Clone, Debug, PartialEq)]
enum LeaseAction {
    /// Acquire or renew the Lease by writing this `spec`.
    Write(Value),
    /// Wait: another candidate holds the Lease.
    Wait,
}

// === impl LeaderElectionTimings ===

impl Default for LeaderElectionTimings {
    /// Returns the defaults of Kubernetes: 15, 10 and 2 seconds.
    fn default() -> LeaderElectionTimings {
        let seconds = SignedDuration::from_secs;
        LeaderElectionTimings { lease_duration: seconds(15), renew_deadline: seconds(10), retry_period: seconds(2) }
    }
}

// === impl ObservedLease ===

impl ObservedLease {
    fn observe(&mut self, lease: Option<Value>, now: Timestamp) {
        let spec = |lease: &Option<Value>| lease.as_ref().map(|lease| lease["spec"].clone());
        if self.observed_at.is_none() || spec(&self.lease) != spec(&lease) {
            self.observed_at = Some(now);
        }
        self.lease = lease;
    }

    fn action(&self, identity: &str, timings: LeaderElectionTimings, now: Timestamp) -> LeaseAction {
        let spec = self.lease.as_ref().map_or(&Value::Null, |lease| &lease["spec"]);
        let holder = spec["holderIdentity"].as_str().unwrap_or_default();
        if !holder.is_empty() && holder != identity && now < self.expires_at(timings) {
            return LeaseAction::Wait;
        }
        let (is_holder, transitions) = (holder == identity, spec["leaseTransitions"].as_i64().unwrap_or(0));
        LeaseAction::Write(json!({
            "holderIdentity": identity,
            "leaseDurationSeconds": lease_duration_seconds(timings.lease_duration),
            "acquireTime": if is_holder { spec["acquireTime"].clone() } else { rfc3339_micros(now).into() },
            "renewTime": rfc3339_micros(now),
            "leaseTransitions": if is_holder || self.lease.is_none() { transitions } else { transitions + 1 },
        }))
    }

    /// Returns when the Lease expires, according to the `leaseDurationSeconds` that its holder set.
    fn expires_at(&self, timings: LeaderElectionTimings) -> Timestamp {
        let spec = self.lease.as_ref().map_or(&Value::Null, |lease| &lease["spec"]);
        let duration = spec["leaseDurationSeconds"].as_i64().map_or(timings.lease_duration, SignedDuration::from_secs);
        let observed_at = self.observed_at.unwrap_or(Timestamp::MIN);
        observed_at.checked_add(duration).unwrap_or(Timestamp::MAX)
    }
}

/// Returns `leaseDurationSeconds`, which must be a positive integer.
fn lease_duration_seconds(duration: SignedDuration) -> i64 {
    duration.as_secs().max(1)
}

// === impl LeaderElector ===

impl LeaderElector {
    /// Runs `work` while this candidate leads, and starts it again after each re-election, until `shutdown`. When
    /// leadership is lost, the future of `work` is dropped so that it writes nothing more. Releases the Lease, if held,
    /// before it returns.
    pub async fn run<T, F: Future<Output = T>>(
        &self,
        shutdown: CancellationToken,
        work: impl Fn(CancellationToken) -> F,
    ) -> Option<T> {
        let mut observed = ObservedLease::default();
        while self.acquire(&mut observed, &shutdown).await {
            tracing::info!(lease = %self.lease_name(), identity = %self.identity, "became leader");
            let leadership = shutdown.child_token();
            let renewal = tokio::spawn(self.clone().renew(observed.clone(), leadership.clone()));
            let outcome = tokio::select! {
                biased;
                () = leadership.cancelled() => None,
                outcome = work(leadership.clone()) => Some(outcome),
            };
            leadership.cancel();
            observed = renewal.await.unwrap_or_default();
            if outcome.is_some() || shutdown.is_cancelled() {
                self.release(&observed).await;
                return outcome;
            }
            tracing::warn!(lease = %self.lease_name(), identity = %self.identity, "lost leadership, standing by");
        }
        None
    }

    /// Retries until this candidate holds the Lease. Returns false after `shutdown`.
    async fn acquire(&self, observed: &mut ObservedLease, shutdown: &CancellationToken) -> bool {
        let mut last_reported = String::new();
        while !shutdown.is_cancelled() {
            match self.try_acquire_or_renew(observed).await {
                Ok(true) => return true,
                Ok(false) => self.report_leader(observed, &mut last_reported),
                // Another candidate wrote the Lease first.
                Err(error) if error.is_conflict() => {}
                Err(error) => {
                    let message = error.to_string();
                    if last_reported != message {
                        tracing::warn!(lease = %self.lease_name(), %error, "failed to acquire the lease, retrying");
                        last_reported = message;
                    }
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(self.timings.retry_period.unsigned_abs()) => {}
            }
        }
        false
    }

    /// Logs the current leader unless it was logged before.
    fn report_leader(&self, observed: &ObservedLease, last_reported: &mut String) {
        let holder = observed.lease.as_ref().and_then(|lease| lease["spec"]["holderIdentity"].as_str());
        let leader = holder.unwrap_or("unknown");
        if *last_reported != leader {
            tracing::info!(lease = %self.lease_name(), leader, "another replica leads, standing by");
            *last_reported = leader.to_owned();
        }
    }

    /// Renews the Lease until `leadership` is cancelled; cancels it when the Lease is lost or the renew deadline passes.
    /// Returns the Lease as last observed.
    async fn renew(self, mut observed: ObservedLease, leadership: CancellationToken) -> ObservedLease {
        let mut renewed_at = self.clock.now();
        while !leadership.is_cancelled() {
            tokio::select! {
                biased;
                () = leadership.cancelled() => break,
                () = tokio::time::sleep(self.timings.retry_period.unsigned_abs()) => {}
            }
            let remaining = self.timings.renew_deadline.saturating_add(renewed_at.duration_since(self.clock.now()));
            let timeout = remaining.max(SignedDuration::ZERO).unsigned_abs();
            match tokio::time::timeout(timeout, self.try_acquire_or_renew(&mut observed)).await {
                Ok(Ok(true)) => renewed_at = self.clock.now(),
                // Another candidate observed that the Lease expired, and acquired it.
                Ok(Ok(false)) => leadership.cancel(),
                Ok(Err(error)) => {
                    tracing::debug!(lease = %self.lease_name(), %error, "failed to renew the lease, retrying");
                }
                Err(_) => {}
            }
            if self.clock.now().duration_since(renewed_at) >= self.timings.renew_deadline {
                leadership.cancel();
            }
        }
        observed
    }

    /// Acquires or renews the Lease unless another candidate holds it. Returns whether this candidate holds it.
    async fn try_acquire_or_renew(&self, observed: &mut ObservedLease) -> Result<bool, Error> {
        let live = self.api().get_opt(&self.name).await.map_err(|source| self.request_error("read", source))?;
        observed.observe(live.and_then(|live| serde_json::to_value(live).ok()), self.clock.now());
        let LeaseAction::Write(spec) = observed.action(&self.identity, self.timings, self.clock.now()) else {
            return Ok(false);
        };
        self.write(observed, &spec).await.map(|()| true)
    }

    /// Writes `spec` over the observed version of the Lease.
    async fn write(&self, observed: &mut ObservedLease, spec: &Value) -> Result<(), Error> {
        let params = PostParams::default();
        let version = observed.lease.as_ref().map(|lease| metadata_field(lease, "resourceVersion").to_owned());
        let mut object = json!({"apiVersion": LEASE.api_version(), "kind": LEASE.kind, "spec": spec,
            "metadata": {"namespace": self.namespace, "name": self.name}});
        if let Some(version) = &version {
            object["metadata"]["resourceVersion"] = version.as_str().into();
        }
        let typed: DynamicObject = serde_json::from_value(object)
            .map_err(|error| self.request_error("write", kube::Error::SerdeError(error)))?;
        let response = match version {
            Some(_) => self.api().replace(&self.name, &params, &typed).await,
            None => self.api().create(&params, &typed).await,
        };
        let written = response.map_err(|source| self.request_error("write", source))?;
        observed.observe(serde_json::to_value(written).ok(), self.clock.now());
        Ok(())
    }

    /// Clears the holder, so that another candidate need not wait for the Lease to expire.
    async fn release(&self, observed: &ObservedLease) {
        let mut observed = observed.clone();
        let Some(spec) = observed.lease.as_ref().map(|lease| lease["spec"].clone()) else { return };
        if spec["holderIdentity"] != *self.identity {
            return;
        }
        let now = rfc3339_micros(self.clock.now());
        let released = json!({"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now,
            "leaseTransitions": spec["leaseTransitions"]});
        if let Err(error) = self.write(&mut observed, &released).await {
            tracing::debug!(lease = %self.lease_name(), %error, "failed to release the lease, waiting for it to expire");
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn timestamp(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn lease(holder: &str, renewed: i64) -> Value {
        json!({"spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "acquireTime": "then",
            "renewTime": rfc3339_micros(timestamp(renewed)), "leaseTransitions": 3}})
    }

    /// Returns the action of `me` at `now`, with `initial` observed at 0 and renewals by `other` observed at `renewals`.
    fn action(initial: Option<Value>, renewals: &[i64], now: i64) -> LeaseAction {
        let mut observed = ObservedLease::default();
        observed.observe(initial, timestamp(0));
        for renewed in renewals {
            observed.observe(Some(lease("other", *renewed)), timestamp(*renewed));
        }
        observed.action("me", LeaderElectionTimings::default(), timestamp(now))
    }

    #[rstest]
    #[case::missing_lease(None, &[], 0, Some(0))]
    #[case::released(Some(lease("", 0)), &[], 1, Some(4))]
    #[case::own_lease(Some(lease("me", 0)), &[], 1, Some(3))]
    #[case::held_by_other(Some(lease("other", 0)), &[], 14, None)]
    #[case::expired_by_own_clock(Some(lease("other", 999)), &[], 15, Some(4))]
    #[case::renewed(Some(lease("other", 0)), &[10], 24, None)]
    #[case::expired_after_renewal(Some(lease("other", 0)), &[10], 25, Some(4))]
    fn acquires_free_own_and_expired_leases(
        #[case] initial: Option<Value>,
        #[case] renewals: &[i64],
        #[case] now: i64,
        #[case] expect: Option<i64>,
    ) {
        let transitions = match action(initial, renewals, now) {
            LeaseAction::Write(spec) => spec["leaseTransitions"].as_i64(),
            LeaseAction::Wait => None,
        };
        assert_eq!(transitions, expect);
    }

    #[test]
    fn renewal_retains_acquire_time() {
        let LeaseAction::Write(spec) = action(Some(lease("me", 0)), &[], 5) else { panic!("not renewed") };
        let renew_time = json!(rfc3339_micros(timestamp(5)));
        assert_eq!((&spec["acquireTime"], &spec["renewTime"]), (&json!("then"), &renew_time));
    }
}
