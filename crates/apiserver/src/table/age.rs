//! Ages as kubectl prints them.

/// Formats an age like kubectl (`k8s.io/apimachinery/pkg/util/duration.HumanDuration`).
pub(crate) fn human_age(at: &str, now: jiff::Timestamp) -> String {
    let Ok(at) = at.parse::<jiff::Timestamp>() else { return "<unknown>".to_owned() };
    let seconds = now.as_second().saturating_sub(at.as_second());
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let format_units = |major: i64, major_unit: char, minor: i64, minor_unit: char| {
        if minor == 0 { format!("{major}{major_unit}") } else { format!("{major}{major_unit}{minor}{minor_unit}") }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => format_units(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => format_units(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => format_units(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => format_units(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(5, "5s")]
    #[case(119, "119s")]
    #[case(120, "2m")]
    #[case(125, "2m5s")]
    #[case(601, "10m")]
    #[case(3 * 3600 + 60, "3h1m")]
    #[case(9 * 3600, "9h")]
    #[case(3 * 86400, "3d")]
    fn formats_ages(#[case] seconds: i64, #[case] expected: &str) {
        let now: jiff::Timestamp = "2026-01-10T00:00:00Z".parse().unwrap();
        let at = now - jiff::SignedDuration::from_secs(seconds);
        assert_eq!(human_age(&at.to_string(), now), expected);
    }
}
