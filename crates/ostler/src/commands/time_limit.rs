//! Time limits of waits.

use std::fmt::{Display, Formatter};
use std::str::FromStr;
use std::time::Duration;

use tokio::time::Instant;

/// A time limit, written `90`, `90s`, `15m` or `2h`; `None` for 0, which means no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeLimit(Option<Duration>);

impl FromStr for TimeLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let duration = parse_duration(text)?;
        Ok(Self((!duration.is_zero()).then_some(duration)))
    }
}

/// Parses a duration, written `90`, `90s`, `15m` or `2h`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    const UNITS: [(char, u64); 3] = [('s', 1), ('m', 60), ('h', 3600)];
    let unit = UNITS.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(*unit)?, *seconds)));
    let (number, seconds) = unit.unwrap_or((text, 1));
    let number = number.parse::<u64>().ok().and_then(|number| number.checked_mul(seconds));
    number.map(Duration::from_secs).ok_or_else(|| "expected a duration such as 90s or 15m".to_owned())
}

impl Display for TimeLimit {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self.0.map_or(0, |limit| limit.as_secs()) {
            seconds if seconds % 60 == 0 => write!(f, "{} min", seconds / 60),
            seconds => write!(f, "{seconds} s"),
        }
    }
}

impl TimeLimit {
    /// Returns the limit, or `None` if there is none.
    pub(super) fn duration(self) -> Option<Duration> {
        self.0
    }

    /// Awaits `future`. Returns `None` if the time limit, which begins at `start`, expires first.
    pub(super) async fn apply<F: Future>(self, start: Instant, future: F) -> Option<F::Output> {
        match self.0.and_then(|limit| start.checked_add(limit)) {
            Some(deadline) => tokio::time::timeout_at(deadline, future).await.ok(),
            None => Some(future.await),
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("0", Some(0), "0 min")]
    #[case("60", Some(60), "1 min")]
    #[case("90s", Some(90), "90 s")]
    #[case("15m", Some(900), "15 min")]
    #[case("2h", Some(7200), "120 min")]
    #[case("soon", None, "")]
    #[case("-1s", None, "")]
    #[case("99999999999999999h", None, "")]
    fn parses_time_limits(#[case] text: &str, #[case] seconds: Option<u64>, #[case] formatted: &str) {
        let limit = text.parse::<TimeLimit>().ok();
        assert_eq!(limit.map(|limit| limit.0.map_or(0, |duration| duration.as_secs())), seconds);
        assert_eq!(limit.map(|limit| limit.to_string()).unwrap_or_default(), formatted);
    }
}
