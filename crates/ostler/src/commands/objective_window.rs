//! Argument for the time over which latencies are compared with objectives.

use std::time::Duration;

use super::time_limit::parse_duration;

/// Shortest window: its parts have a second each.
const MIN_WINDOW: Duration = Duration::from_secs(10);

/// Longest window.
const MAX_WINDOW: Duration = Duration::from_hours(24);

#[derive(clap::Args)]
pub(super) struct ObjectiveWindowArgs {
    /// Compare latencies with the objectives of use cases over this time
    ///
    /// With fewer than 50 requests in this time, a use case neither meets nor misses its objective.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = parse_window)]
    pub(super) objective_window: Duration,
}

fn parse_window(text: &str) -> Result<Duration, String> {
    let window = parse_duration(text)?;
    match (MIN_WINDOW..=MAX_WINDOW).contains(&window) {
        true => Ok(window),
        false => Err("expected a duration from 10s to 24h".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("5m", Some(300))]
    #[case("10", Some(10))]
    #[case("24h", Some(86_400))]
    #[case("9s", None)]
    #[case("25h", None)]
    #[case("0", None)]
    #[case("soon", None)]
    fn windows_are_bounded(#[case] text: &str, #[case] seconds: Option<u64>) {
        assert_eq!(parse_window(text).ok(), seconds.map(Duration::from_secs));
    }
}
