//! The request header `Range` (RFC 9110, section 14) with one range of bytes.

/// A range of bytes of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ByteRange {
    /// From a position; `last` is part of the range.
    From { first: u64, last: Option<u64> },
    /// The last bytes.
    Suffix(u64),
}

// === impl ByteRange ===

impl ByteRange {
    /// Parses `bytes=FIRST-LAST`, `bytes=FIRST-` or `bytes=-LENGTH`.
    pub(super) fn parse(header: &str) -> Option<ByteRange> {
        let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
        let number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?;
        match (first, last) {
            ("", last) => number(last).filter(|length| *length > 0).map(ByteRange::Suffix),
            (first, "") => Some(ByteRange::From { first: number(first)?, last: None }),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(ByteRange::From { first, last: Some(last) })
            }
        }
    }

    /// Returns the positions to read, from the first up to but without the second, of a log whose bytes from `start` to `end` are
    /// retained; at most `limit` bytes. A range that begins before `start` begins there instead. `None` if no byte of the range is
    /// retained.
    pub(super) fn resolve(self, start: u64, end: u64, limit: u64) -> Option<(u64, u64)> {
        let (first, stop) = match self {
            ByteRange::From { first, last } => (first, last.map_or(end, |last| end.min(last.saturating_add(1)))),
            ByteRange::Suffix(length) => (end.saturating_sub(length), end),
        };
        let first = first.max(start);
        (first < stop).then(|| (first, stop.min(first.saturating_add(limit))))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::both("bytes=2-5", Some(ByteRange::From { first: 2, last: Some(5) }))]
    #[case::open("bytes=2-", Some(ByteRange::From { first: 2, last: None }))]
    #[case::suffix("bytes=-3", Some(ByteRange::Suffix(3)))]
    #[case::empty_suffix("bytes=-0", None)]
    #[case::reversed("bytes=5-2", None)]
    #[case::nothing("bytes=-", None)]
    #[case::sign("bytes=+2-5", None)]
    #[case::several("bytes=0-1,3-4", None)]
    #[case::unit("lines=1-2", None)]
    #[case::overflow("bytes=99999999999999999999-", None)]
    fn headers(#[case] header: &str, #[case] expected: Option<ByteRange>) {
        assert_eq!(ByteRange::parse(header), expected);
    }

    /// The bytes 10 to 19 are retained.
    #[rstest]
    #[case::inside("bytes=12-14", Some((12, 15)))]
    #[case::beyond_the_end("bytes=12-99", Some((12, 17)))]
    #[case::open("bytes=18-", Some((18, 20)))]
    #[case::dropped_start("bytes=0-", Some((10, 15)))]
    #[case::dropped("bytes=0-9", None)]
    #[case::not_written("bytes=20-", None)]
    #[case::suffix("bytes=-2", Some((18, 20)))]
    #[case::long_suffix("bytes=-99", Some((10, 15)))]
    #[case::last_position("bytes=19-18446744073709551615", Some((19, 20)))]
    fn positions(#[case] header: &str, #[case] expected: Option<(u64, u64)>) {
        assert_eq!(ByteRange::parse(header).unwrap().resolve(10, 20, 5), expected);
    }
}
