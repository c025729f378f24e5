//! Arithmetic with times and durations that come from objects and requests.
//!
//! A result that cannot be represented is replaced by the nearest one that can, so no number causes a panic. All
//! times and durations of users have to pass through these functions: `Timestamp + SignedDuration` and
//! `Instant + Duration` panic on overflow.

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects, reason = "numbers of users enter every computation"))]

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Longest duration that [`duration_from_seconds`] returns, about 100 years. Adding it to an `Instant` cannot overflow.
pub const MAX_DURATION: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Returns a number of seconds as a duration between zero and [`MAX_DURATION`].
#[must_use]
pub fn duration_from_seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0)).min(MAX_DURATION)
}

/// Returns the time `seconds` after `time`, or before it if `seconds` is negative.
#[must_use]
pub fn add_seconds(time: Timestamp, seconds: i64) -> Timestamp {
    let limit = if seconds < 0 { Timestamp::MIN } else { Timestamp::MAX };
    time.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(limit)
}

/// Returns the duration from `now` until `time`: zero if `time` has passed, at most [`MAX_DURATION`].
#[must_use]
pub fn duration_until(time: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(time.duration_since(now)).unwrap_or_default().min(MAX_DURATION)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::usual(30, Duration::from_secs(30))]
    #[case::negative(-1, Duration::ZERO)]
    #[case::lowest(i64::MIN, Duration::ZERO)]
    #[case::large(999_999_999_999, MAX_DURATION)]
    #[case::highest(i64::MAX, MAX_DURATION)]
    fn durations_are_limited(#[case] seconds: i64, #[case] expect: Duration) {
        assert_eq!(duration_from_seconds(seconds), expect);
        assert!(std::time::Instant::now().checked_add(expect).is_some());
    }

    #[rstest]
    #[case::later(40, "2026-01-01T00:00:40Z".parse().unwrap())]
    #[case::earlier(-40, "2025-12-31T23:59:20Z".parse().unwrap())]
    #[case::after_the_last_time(999_999_999_999, Timestamp::MAX)]
    #[case::highest(i64::MAX, Timestamp::MAX)]
    #[case::before_the_first_time(-999_999_999_999, Timestamp::MIN)]
    #[case::lowest(i64::MIN, Timestamp::MIN)]
    fn times_are_limited(#[case] seconds: i64, #[case] expect: Timestamp) {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        assert_eq!(add_seconds(now, seconds), expect);
    }

    /// The last time can be stored, for example as a deletion timestamp.
    #[test]
    fn last_time_survives_formatting() {
        let last = add_seconds(Timestamp::UNIX_EPOCH, i64::MAX);
        let parsed: Timestamp = crate::object::format_time(last).parse().unwrap();
        assert_eq!(parsed.as_second(), last.as_second());
    }

    #[rstest]
    #[case::future("2026-01-01T00:01:00Z", Duration::from_secs(60))]
    #[case::past("2025-01-01T00:00:00Z", Duration::ZERO)]
    #[case::distant_future("9999-12-30T00:00:00Z", MAX_DURATION)]
    fn waits_until_a_time(#[case] time: Timestamp, #[case] expect: Duration) {
        assert_eq!(duration_until(time, "2026-01-01T00:00:00Z".parse().unwrap()), expect);
    }

    #[test]
    fn waits_between_the_limits() {
        assert_eq!(duration_until(Timestamp::MAX, Timestamp::MIN), MAX_DURATION);
        assert_eq!(duration_until(Timestamp::MIN, Timestamp::MAX), Duration::ZERO);
    }
}
