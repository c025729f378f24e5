//! The limit on open files, which includes connections. The usual soft limit of 1,024 is meant for programs that use
//! `select`; servers raise it themselves.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Enough for the connections that the servers accept, and those of the gateway to engines. Not more, because engines inherit
/// the limit, and some programs close every possible file at their start.
const SUFFICIENT: u64 = 65_536;

/// Raises the soft limit of this process, as far as its hard limit permits.
pub(crate) fn raise_limit() {
    let Some(limit) = raised(getrlimit(Resource::Nofile)) else { return };
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::debug!(%error, ?limit, "failed to raise the limit of open files");
    }
}

/// Returns the limit to set, or `None` if `limit` is sufficient or cannot be raised. `None` in a limit means unlimited.
fn raised(limit: Rlimit) -> Option<Rlimit> {
    let current = limit.current?;
    let raised = limit.maximum.map_or(SUFFICIENT, |maximum| maximum.min(SUFFICIENT));
    (current < raised).then_some(Rlimit { current: Some(raised), maximum: limit.maximum })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::hard_limit(Some(1024), Some(4096), Some(4096))]
    #[case::high_hard_limit(Some(1024), Some(1 << 20), Some(SUFFICIENT))]
    #[case::no_hard_limit(Some(1024), None, Some(SUFFICIENT))]
    #[case::at_the_hard_limit(Some(1024), Some(1024), None)]
    #[case::sufficient(Some(1 << 20), Some(1 << 20), None)]
    #[case::unlimited(None, None, None)]
    fn limit_is_raised(#[case] current: Option<u64>, #[case] maximum: Option<u64>, #[case] expect: Option<u64>) {
        let expect = expect.map(|current| Rlimit { current: Some(current), maximum });
        assert_eq!(raised(Rlimit { current, maximum }), expect);
    }
}
