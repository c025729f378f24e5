//! Measured latencies of use cases with an objective, for their statuses.

use std::{collections::BTreeMap, time::Duration};

use api::{Duration as ApiDuration, inference::ObjectiveStatus};
use tokio::time::Instant;

use crate::{
    objective::{Attainment, ObjectiveWindow},
    snapshot::Snapshot,
};

/// Minimum time between two updates of the latencies in the status of one object.
const UPDATE_INTERVAL: Duration = Duration::from_secs(30);

/// Measured latencies of each object, as reported in its status.
#[derive(Debug, Default)]
pub(crate) struct ReportedObjectives(BTreeMap<String, (Instant, Vec<ObjectiveStatus>)>);

/// Returns the measured latencies by the object that declares the use cases, sorted by pool and model name.
pub(crate) fn objective_statuses(snapshot: &Snapshot, now: Instant) -> BTreeMap<String, Vec<ObjectiveStatus>> {
    let mut statuses: BTreeMap<String, Vec<ObjectiveStatus>> = BTreeMap::new();
    for pool in snapshot.pools.values() {
        for (model, window) in pool.objectives.windows() {
            let Some(use_case) = pool.use_cases.get(model) else { continue };
            let status = objective_status(model, &pool.key.name, window, now);
            statuses.entry(use_case.declared_by.clone()).or_default().push(status);
        }
    }
    statuses
}

fn objective_status(model: &str, pool: &str, window: &ObjectiveWindow, now: Instant) -> ObjectiveStatus {
    let attainment = window.attainment(now);
    ObjectiveStatus {
        model_name: model.to_owned(),
        pool: pool.to_owned(),
        desired: ApiDuration(window.objective),
        measured: attainment.map(|attainment| ApiDuration(round_up(attainment.p95))),
        attained: attainment.map(Attainment::is_met),
    }
}

/// Rounds up to two significant digits: small differences cause no updates of a status.
fn round_up(duration: Duration) -> Duration {
    let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let unit = 10_u64.pow(nanos.checked_ilog10().unwrap_or(0).saturating_sub(1));
    Duration::from_nanos(nanos.div_ceil(unit).saturating_mul(unit))
}

// === impl ReportedObjectives ===

impl ReportedObjectives {
    /// Returns the measured latencies that the status of an object reports.
    pub(crate) fn of(&self, object: &str) -> &[ObjectiveStatus] {
        self.0.get(object).map_or(&[], |(_, statuses)| statuses)
    }

    /// Replaces the latencies of objects whose last update is long enough ago. Returns the objects that changed.
    pub(crate) fn update(&mut self, current: BTreeMap<String, Vec<ObjectiveStatus>>, now: Instant) -> Vec<String> {
        let mut changed: Vec<String> = self.0.keys().filter(|object| !current.contains_key(*object)).cloned().collect();
        self.0.retain(|object, _| current.contains_key(object));
        for (object, statuses) in current {
            let reported = self.0.get(&object);
            let is_due = |(updated, _): &(Instant, _)| now.duration_since(*updated) >= UPDATE_INTERVAL;
            if reported.is_none_or(|reported| reported.1 != statuses && is_due(reported)) {
                changed.push(object.clone());
                self.0.insert(object, (now, statuses));
            }
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(47_123_456, 48_000_000)]
    #[case(60_000_000, 60_000_000)]
    #[case(60_000_001, 61_000_000)]
    #[case(99_500_000, 100_000_000)]
    #[case(7, 7)]
    #[case(0, 0)]
    fn latencies_are_rounded_up(#[case] nanos: u64, #[case] expect: u64) {
        assert_eq!(round_up(Duration::from_nanos(nanos)), Duration::from_nanos(expect));
    }

    fn statuses(objects: &[(&str, u64)]) -> BTreeMap<String, Vec<ObjectiveStatus>> {
        let status = |millis: u64| ObjectiveStatus {
            measured: Some(ApiDuration(Duration::from_millis(millis))),
            ..ObjectiveStatus::default()
        };
        objects.iter().map(|(object, millis)| ((*object).to_owned(), vec![status(*millis)])).collect()
    }

    #[test]
    fn statuses_are_updated_at_intervals() {
        let (mut reported, start) = (ReportedObjectives::default(), Instant::now());
        let mut update =
            |seconds, objects: &[(&str, u64)]| reported.update(statuses(objects), start + Duration::from_secs(seconds));
        assert_eq!(update(0, &[("a", 50), ("b", 50)]), ["a", "b"]);
        assert_eq!(update(5, &[("a", 60), ("b", 50)]), [""; 0], "too early");
        assert_eq!(update(30, &[("a", 60), ("b", 50)]), ["a"]);
        assert_eq!(update(35, &[("a", 60), ("b", 70)]), ["b"]);
        assert_eq!(update(40, &[("a", 60)]), ["b"], "it has no objective any more");
        assert_eq!((reported.of("a").len(), reported.of("b").len()), (1, 0));
    }
}
