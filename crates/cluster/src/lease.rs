//! Leader election by a Lease, with the rules of Kubernetes' own controllers (client-go's `leaderelection`).
//!
//! A lease is taken when nobody holds it, or when its holder has not renewed it for as long as it says; "how long" is
//! measured by our own clock from when we first saw it, so that clocks need not agree. A holder that cannot renew in
//! time stops before another may start.

use std::future::Future;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::api::PostParams;
use kube::core::DynamicObject;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, micros};
use crate::object::meta;
use crate::{Error, Kind};

const LEASE: Kind = Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases");

/// How long things take. The holder gives up (`renew`) before others may take over (`duration`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// A lease that was not renewed for this long may be taken.
    pub duration: SignedDuration,
    /// A holder that could not renew for this long stops.
    pub renew: SignedDuration,
    /// Time between two tries.
    pub retry: SignedDuration,
}

/// One candidate for one lease.
#[derive(Clone)]
pub struct Election {
    /// Where the lease is kept.
    pub client: Client,
    /// Where "now" comes from.
    pub clock: Arc<dyn Clock>,
    /// Namespace of the lease.
    pub namespace: String,
    /// Name of the lease.
    pub name: String,
    /// Who we are; unique among candidates.
    pub identity: String,
    /// How long things take.
    pub terms: Terms,
}

/// A lease as we know it.
#[derive(Clone, Debug, Default)]
struct Known {
    lease: Option<Value>,
    /// When we first saw it as it is.
    since: Option<Timestamp>,
}

/// What to do with a lease.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// Write this `spec`: it is, or becomes, ours.
    Write(Value),
    /// Somebody holds it.
    Wait,
}

impl Default for Terms {
    /// Kubernetes' defaults: 15, 10 and 2 seconds.
    fn default() -> Terms {
        let seconds = SignedDuration::from_secs;
        Terms { duration: seconds(15), renew: seconds(10), retry: seconds(2) }
    }
}

// === impl Known ===

impl Known {
    fn see(&mut self, lease: Option<Value>, now: Timestamp) {
        let spec = |lease: &Option<Value>| lease.as_ref().map(|lease| lease["spec"].clone());
        if self.since.is_none() || spec(&self.lease) != spec(&lease) {
            self.since = Some(now);
        }
        self.lease = lease;
    }

    fn step(&self, identity: &str, terms: Terms, now: Timestamp) -> Step {
        let spec = self.lease.as_ref().map_or(&Value::Null, |lease| &lease["spec"]);
        let holder = spec["holderIdentity"].as_str().unwrap_or_default();
        if !holder.is_empty() && holder != identity && now < self.expiry(terms) {
            return Step::Wait;
        }
        let (ours, transitions) = (holder == identity, spec["leaseTransitions"].as_i64());
        Step::Write(json!({
            "holderIdentity": identity,
            "leaseDurationSeconds": whole_seconds(terms.duration),
            "acquireTime": if ours { spec["acquireTime"].clone() } else { micros(now).into() },
            "renewTime": micros(now),
            "leaseTransitions": if ours || self.lease.is_none() { transitions.unwrap_or(0) } else { transitions.unwrap_or(0) + 1 },
        }))
    }

    /// The holder's own word counts for how long its lease is good.
    fn expiry(&self, terms: Terms) -> Timestamp {
        let spec = self.lease.as_ref().map_or(&Value::Null, |lease| &lease["spec"]);
        let duration = spec["leaseDurationSeconds"].as_i64().map_or(terms.duration, SignedDuration::from_secs);
        let since = self.since.unwrap_or(Timestamp::MIN);
        since.checked_add(duration).unwrap_or(Timestamp::MAX)
    }
}

/// The API takes whole seconds and none below one.
fn whole_seconds(duration: SignedDuration) -> i64 {
    duration.as_secs().max(1)
}

// === impl Election ===

impl Election {
    /// Runs `work` while the lease is ours, again each time it is won back, until `stop`. `work` is dropped where it
    /// stands when the lease is lost: nothing more is written. The lease is given back at the end.
    pub async fn lead<T, F: Future<Output = T>>(
        &self,
        stop: CancellationToken,
        work: impl Fn(CancellationToken) -> F,
    ) -> Option<T> {
        let mut known = Known::default();
        while self.acquire(&mut known, &stop).await {
            tracing::info!(lease = %self.described(), identity = %self.identity, "leading");
            let term = stop.child_token();
            let renewing = tokio::spawn(self.clone().hold(known.clone(), term.clone()));
            let outcome = tokio::select! {
                biased;
                () = term.cancelled() => None,
                outcome = work(term.clone()) => Some(outcome),
            };
            term.cancel();
            known = renewing.await.unwrap_or_default();
            if outcome.is_some() || stop.is_cancelled() {
                self.release(&known).await;
                return outcome;
            }
            tracing::warn!(lease = %self.described(), "the lease is lost; another replica may lead now, standing by");
        }
        None
    }

    /// Tries until the lease is ours; false after `stop`.
    async fn acquire(&self, known: &mut Known, stop: &CancellationToken) -> bool {
        let mut told = String::new();
        while !stop.is_cancelled() {
            match self.try_write(known).await {
                Ok(true) => return true,
                Ok(false) => self.standing_by(known, &mut told),
                // Another candidate was faster: look again.
                Err(error) if error.is_conflict() => {}
                Err(error) => {
                    let text = format!("the lease cannot be taken: {error}");
                    if told != text {
                        tracing::warn!(lease = %self.described(), "{text}");
                        told = text;
                    }
                }
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(self.terms.retry.unsigned_abs()) => {}
            }
        }
        false
    }

    fn standing_by(&self, known: &Known, told: &mut String) {
        let holder = known.lease.as_ref().and_then(|lease| lease["spec"]["holderIdentity"].as_str());
        let text = format!("{} leads; standing by", holder.unwrap_or("another replica"));
        if *told != text {
            tracing::info!(lease = %self.described(), "{text}");
            *told = text;
        }
    }

    /// Renews until `term` ends, or ends `term` because it could not. Returns what is known of the lease then.
    async fn hold(self, mut known: Known, term: CancellationToken) -> Known {
        let mut renewed = self.clock.now();
        while !term.is_cancelled() {
            tokio::select! {
                biased;
                () = term.cancelled() => break,
                () = tokio::time::sleep(self.terms.retry.unsigned_abs()) => {}
            }
            let left = self.terms.renew.saturating_add(renewed.duration_since(self.clock.now()));
            let sent = tokio::time::timeout(left.max(SignedDuration::ZERO).unsigned_abs(), self.try_write(&mut known));
            match sent.await {
                Ok(Ok(true)) => renewed = self.clock.now(),
                // Somebody took it: they saw it expire.
                Ok(Ok(false)) => term.cancel(),
                Ok(Err(error)) => tracing::debug!(lease = %self.described(), %error, "not renewed, trying again"),
                Err(_) => {}
            }
            if self.clock.now().duration_since(renewed) >= self.terms.renew {
                term.cancel();
            }
        }
        known
    }

    /// Takes or renews the lease if it may be; true if it is ours now.
    async fn try_write(&self, known: &mut Known) -> Result<bool, Error> {
        let live = self.api().get_opt(&self.name).await.map_err(|source| self.failed("read", source))?;
        known.see(live.and_then(|live| serde_json::to_value(live).ok()), self.clock.now());
        let Step::Write(spec) = known.step(&self.identity, self.terms, self.clock.now()) else { return Ok(false) };
        self.write(known, &spec).await.map(|()| true)
    }

    /// Writes `spec` over the very version that is known.
    async fn write(&self, known: &mut Known, spec: &Value) -> Result<(), Error> {
        let params = PostParams::default();
        let version = known.lease.as_ref().map(|lease| meta(lease, "resourceVersion").to_owned());
        let mut object = json!({"apiVersion": LEASE.api_version(), "kind": LEASE.kind, "spec": spec,
            "metadata": {"namespace": self.namespace, "name": self.name}});
        if let Some(version) = &version {
            object["metadata"]["resourceVersion"] = version.as_str().into();
        }
        let typed: DynamicObject =
            serde_json::from_value(object).map_err(|error| self.failed("write", kube::Error::SerdeError(error)))?;
        let sent = match version {
            Some(_) => self.api().replace(&self.name, &params, &typed).await,
            None => self.api().create(&params, &typed).await,
        };
        let answer = sent.map_err(|source| self.failed("write", source))?;
        known.see(serde_json::to_value(answer).ok(), self.clock.now());
        Ok(())
    }

    /// Lets the next candidate begin at once.
    async fn release(&self, known: &Known) {
        let mut known = known.clone();
        let Some(spec) = known.lease.as_ref().map(|lease| lease["spec"].clone()) else { return };
        if spec["holderIdentity"] != *self.identity {
            return;
        }
        let now = micros(self.clock.now());
        let free = json!({"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now,
            "leaseTransitions": spec["leaseTransitions"]});
        if let Err(error) = self.write(&mut known, &free).await {
            tracing::debug!(lease = %self.described(), %error, "not given back; it will expire");
        }
    }

    fn api(&self) -> Api<DynamicObject> {
        LEASE.api(self.client.clone(), &self.namespace)
    }

    fn failed(&self, action: &'static str, source: kube::Error) -> Error {
        Error::Request { action, what: format!("Lease {}", self.described()), source: Box::new(source) }
    }

    fn described(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn held(by: &str, renewed: i64) -> Value {
        json!({"spec": {"holderIdentity": by, "leaseDurationSeconds": 15, "acquireTime": "then",
            "renewTime": micros(at(renewed)), "leaseTransitions": 3}})
    }

    /// Seen first at 0; the holder renews at `renewals`; what would `me` do at `now`?
    fn step(first: Option<Value>, renewals: &[i64], now: i64) -> Step {
        let mut known = Known::default();
        known.see(first, at(0));
        for renewed in renewals {
            known.see(Some(held("other", *renewed)), at(*renewed));
        }
        known.step("me", Terms::default(), at(now))
    }

    #[rstest]
    #[case::nobody_made_it(None, &[], 0, Some(0))]
    #[case::given_back(Some(held("", 0)), &[], 1, Some(4))]
    #[case::ours(Some(held("me", 0)), &[], 1, Some(3))]
    #[case::theirs(Some(held("other", 0)), &[], 14, None)]
    #[case::expired_by_our_clock_whatever_theirs_says(Some(held("other", 999)), &[], 15, Some(4))]
    #[case::renewed_since(Some(held("other", 0)), &[10], 24, None)]
    #[case::not_renewed_again(Some(held("other", 0)), &[10], 25, Some(4))]
    fn who_may_write(
        #[case] first: Option<Value>,
        #[case] renewals: &[i64],
        #[case] now: i64,
        #[case] expect: Option<i64>,
    ) {
        let transitions = match step(first, renewals, now) {
            Step::Write(spec) => spec["leaseTransitions"].as_i64(),
            Step::Wait => None,
        };
        assert_eq!(transitions, expect);
    }

    #[test]
    fn renewing_keeps_when_it_was_acquired() {
        let Step::Write(spec) = step(Some(held("me", 0)), &[], 5) else { panic!("ours") };
        assert_eq!((&spec["acquireTime"], &spec["renewTime"]), (&json!("then"), &json!(micros(at(5)))));
    }
}
