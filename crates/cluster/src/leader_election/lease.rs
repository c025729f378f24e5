//! The Lease as a candidate observes it, and what the candidate does next.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::timings::LeaderElectionTimings;
use crate::clock::rfc3339_micros;
use crate::object::metadata_field;

/// The Lease as last observed.
#[derive(Clone, Debug, Default)]
pub(super) struct ObservedLease {
    /// Whether the Lease exists.
    exists: bool,
    /// Last observed resource version.
    resource_version: String,
    /// Labels and annotations of the observed Lease, which writes retain.
    user_metadata: Value,
    /// The last observed `spec`. That of a deleted Lease is retained, since its holder may not have noticed the deletion.
    spec: Value,
    /// When `resource_version` was first observed, by the monotonic clock of this candidate.
    observed_at: Option<Instant>,
}

/// Action after observing a Lease.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LeaseAction {
    /// Acquire or renew the Lease by writing this `spec`.
    Write(Value),
    /// Wait: another candidate holds the Lease.
    Wait,
}

// === impl ObservedLease ===

impl ObservedLease {
    /// Records the response to a read or write at `now`, the time of the response.
    pub(super) fn observe(&mut self, lease: Option<&Value>, now: Instant) {
        self.exists = lease.is_some();
        let Some(lease) = lease else { return };
        // The times in `spec` may repeat if the holder's clock is set.
        let resource_version = metadata_field(lease, "resourceVersion");
        if self.observed_at.is_none() || self.resource_version != resource_version {
            self.observed_at = Some(now);
            self.resource_version = resource_version.to_owned();
            self.spec = lease["spec"].clone();
            let metadata = |field: &str| lease["metadata"][field].clone();
            self.user_metadata = json!({"labels": metadata("labels"), "annotations": metadata("annotations"),
                "ownerReferences": metadata("ownerReferences"), "finalizers": metadata("finalizers")});
        }
    }

    /// Returns what `identity` does at `now`; `wall_clock_time` is only written into the Lease.
    pub(super) fn action(
        &self,
        identity: &str,
        timings: LeaderElectionTimings,
        now: Instant,
        wall_clock_time: Timestamp,
    ) -> LeaseAction {
        let (spec, holder) = (&self.spec, self.holder());
        if !holder.is_empty() && holder != identity && !self.has_expired(timings, now) {
            return LeaseAction::Wait;
        }
        let (is_holder, transitions) = (holder == identity, spec["leaseTransitions"].as_i64().unwrap_or(0));
        let renew_time = different_time(wall_clock_time, &spec["renewTime"]);
        LeaseAction::Write(json!({
            "holderIdentity": identity,
            "leaseDurationSeconds": timings.lease_duration_seconds(),
            "acquireTime": if is_holder { spec["acquireTime"].clone() } else { renew_time.clone().into() },
            "renewTime": renew_time,
            "leaseTransitions": if is_holder || spec.is_null() { transitions } else { transitions.saturating_add(1) },
        }))
    }

    /// Returns the `spec` that clears the holder, so that another candidate need not wait for the Lease to expire.
    pub(super) fn released_spec(&self, wall_clock_time: Timestamp) -> Value {
        let now = rfc3339_micros(wall_clock_time);
        json!({"holderIdentity": "", "leaseDurationSeconds": 1, "acquireTime": now, "renewTime": now,
            "leaseTransitions": self.spec["leaseTransitions"]})
    }

    /// Returns the identity of the holder, or an empty string.
    pub(super) fn holder(&self) -> &str {
        self.spec["holderIdentity"].as_str().unwrap_or_default()
    }

    /// Returns whether the Lease exists.
    pub(super) fn exists(&self) -> bool {
        self.exists
    }

    /// Returns the metadata of the Lease to write: of a new one, or of the observed one with the version to replace.
    pub(super) fn metadata(&self, namespace: &str, name: &str) -> Value {
        let mut metadata = if self.exists { self.user_metadata.clone() } else { json!({}) };
        metadata["namespace"] = namespace.into();
        metadata["name"] = name.into();
        if self.exists {
            metadata["resourceVersion"] = self.resource_version.as_str().into();
        }
        metadata
    }

    /// Returns whether the holder has not renewed the Lease for the `leaseDurationSeconds` that it set.
    fn has_expired(&self, timings: LeaderElectionTimings, now: Instant) -> bool {
        let duration = self.spec["leaseDurationSeconds"].as_u64().map_or(timings.lease_duration, Duration::from_secs);
        self.observed_at.is_none_or(|observed_at| now.saturating_duration_since(observed_at) >= duration)
    }
}

/// Formats `time`, or the next microsecond if `previous` is equal. The API server does not write an object that does not
/// change, so other candidates would not observe the renewal.
fn different_time(time: Timestamp, previous: &Value) -> String {
    let text = rfc3339_micros(time);
    if *previous != *text {
        return text;
    }
    rfc3339_micros(time.saturating_add(jiff::SignedDuration::from_micros(1)).unwrap_or(Timestamp::MIN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn writes_retain_the_metadata_of_users() {
        let mut observed = ObservedLease::default();
        assert_eq!(observed.metadata("ns", "l"), json!({"namespace": "ns", "name": "l"}));
        let mut live = lease("other", 1);
        live["metadata"]["labels"] = json!({"team": "a"});
        live["metadata"]["uid"] = "1".into();
        observed.observe(Some(&live), Instant::now());
        let metadata = observed.metadata("ns", "l");
        assert_eq!((&metadata["labels"], &metadata["resourceVersion"]), (&json!({"team": "a"}), &json!("1")));
        observed.observe(None, Instant::now());
        assert_eq!(observed.metadata("ns", "l"), json!({"namespace": "ns", "name": "l"}));
    }

    fn timestamp(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn lease(holder: &str, renewed: i64) -> Value {
        json!({"metadata": {"resourceVersion": renewed.to_string()}, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15,
            "acquireTime": "then", "renewTime": rfc3339_micros(timestamp(renewed)), "leaseTransitions": 3}})
    }

    fn version(mut lease: Value, resource_version: &str) -> Value {
        lease["metadata"]["resourceVersion"] = json!(resource_version);
        lease
    }

    /// Returns the action of `me` at `now`, with `initial` observed at 0 and later versions of the Lease at their times.
    fn action(initial: Option<&Value>, later: &[(u64, Option<Value>)], now: u64) -> LeaseAction {
        let mut observed = ObservedLease::default();
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        observed.observe(initial, at(0));
        for (second, lease) in later {
            observed.observe(lease.as_ref(), at(*second));
        }
        // The wall clock has no influence.
        observed.action("me", LeaderElectionTimings::default(), at(now), timestamp(-1_000_000))
    }

    fn renewed_by_other(second: u64) -> (u64, Option<Value>) {
        (second, Some(lease("other", i64::try_from(second).unwrap())))
    }

    #[rstest]
    #[case::missing_lease(None, &[], 0, Some(0))]
    #[case::released(Some(lease("", 0)), &[], 1, Some(4))]
    #[case::own_lease(Some(lease("me", 0)), &[], 1, Some(3))]
    #[case::held_by_other(Some(lease("other", 0)), &[], 14, None)]
    #[case::expired_by_own_clock(Some(lease("other", 999)), &[], 15, Some(4))]
    #[case::renewed(Some(lease("other", 0)), &[renewed_by_other(10)], 24, None)]
    #[case::expired_after_renewal(Some(lease("other", 0)), &[renewed_by_other(10)], 25, Some(4))]
    #[case::renewed_by_a_stopped_clock(Some(lease("other", 0)), &[(10, Some(version(lease("other", 0), "9")))], 24, None)]
    #[case::unchanged(Some(lease("other", 0)), &[(10, Some(lease("other", 0)))], 15, Some(4))]
    #[case::deleted(Some(lease("other", 0)), &[(10, None)], 14, None)]
    #[case::expired_after_deletion(Some(lease("other", 0)), &[(10, None)], 15, Some(4))]
    fn acquires_free_own_and_expired_leases(
        #[case] initial: Option<Value>,
        #[case] later: &[(u64, Option<Value>)],
        #[case] now: u64,
        #[case] expect: Option<i64>,
    ) {
        let transitions = match action(initial.as_ref(), later, now) {
            LeaseAction::Write(spec) => spec["leaseTransitions"].as_i64(),
            LeaseAction::Wait => None,
        };
        assert_eq!(transitions, expect);
    }

    fn renewal(renewed: i64, wall_clock_time: Timestamp) -> Value {
        let mut observed = ObservedLease::default();
        observed.observe(Some(&lease("me", renewed)), Instant::now());
        match observed.action("me", LeaderElectionTimings::default(), Instant::now(), wall_clock_time) {
            LeaseAction::Write(spec) => spec,
            LeaseAction::Wait => panic!("not renewed"),
        }
    }

    #[test]
    fn renewal_retains_acquire_time() {
        let spec = renewal(0, timestamp(5));
        assert_eq!((&spec["acquireTime"], &spec["renewTime"]), (&json!("then"), &json!("1970-01-01T00:00:05.000000Z")));
    }

    #[rstest]
    #[case::stopped_clock(5, "1970-01-01T00:00:05.000001Z")]
    #[case::clock_set_back(3, "1970-01-01T00:00:03.000000Z")]
    fn renewal_always_changes_the_lease(#[case] wall_clock_second: i64, #[case] expect: &str) {
        assert_eq!(renewal(5, timestamp(wall_clock_second))["renewTime"], expect);
    }
}
