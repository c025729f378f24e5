//! How replicas share the requests that an engine runs at the same time.

use std::collections::HashMap;

/// The part of an engine to which this process is entitled while requests wait.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct FairShare {
    /// Fraction of the engine, 0 if no request of this process waits, or only those with a lower priority than others.
    pub(crate) fraction: f64,
    /// Whether requests of this process and of peers wait.
    pub(crate) is_contended: bool,
}

/// The requests of all clients that an engine reported last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReportedRequests {
    /// Requests that the engine runs.
    pub(crate) running: usize,
    /// Requests that wait in the engine.
    pub(crate) waiting: usize,
}

/// Returns how many requests of this process may be in flight at an engine that runs `limit` requests of all replicas, while `own`
/// and those of `peers` are in flight. `reported` is `None` if the engine has not reported its requests.
///
/// An engine that reported fewer requests than its limit runs at least one request of each replica, whatever peers claim: their messages
/// may be old or wrong.
pub(crate) fn own_limit(
    limit: usize,
    own: usize,
    peers: usize,
    share: FairShare,
    reported: Option<ReportedRequests>,
) -> usize {
    let has_free_slots =
        reported.is_some_and(|ReportedRequests { running, waiting }| running.saturating_add(waiting) < limit);
    let waits_in_engine = reported.is_some_and(|reported| reported.waiting > 0);
    limit_besides_peers(limit, own, peers, share, waits_in_engine).max(usize::from(has_free_slots))
}

/// Returns [`own_limit`] by the requests that peers report.
///
/// Peers leave the rest of the limit. If requests of several replicas wait, each uses its part of the rest only, because the others
/// observe that only with their next messages. If there is no rest, a replica with less than its fair share exceeds the limit by
/// one request, so that the next request of a peer that ends is not replaced by another one of this peer. It does not if requests
/// wait in the engine already, unless it has none there.
fn limit_besides_peers(limit: usize, own: usize, peers: usize, share: FairShare, waits_in_engine: bool) -> usize {
    let rest = limit.saturating_sub(peers);
    if !share.is_contended || limit < own.saturating_add(peers) {
        return rest;
    }
    let free = rest.saturating_sub(own);
    let fair = limit as f64 * share.fraction;
    let part = free as f64 * share.fraction;
    let allowance = match free {
        0 => {
            let is_below = share.fraction > 0.0 && own < (fair.round() as usize).max(1);
            usize::from(is_below && (own == 0 || !waits_in_engine))
        }
        _ if (own as f64) < fair => part.ceil() as usize,
        _ => part as usize,
    };
    own.saturating_add(allowance)
}

/// Number of flows with waiting requests, of one replica and of all. Flows of which several replicas have requests count partly for
/// each.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct WaitingFlows {
    /// Of this process.
    pub(crate) own: f64,
    /// Of all replicas.
    pub(crate) all: f64,
    /// Whether requests of this process and of peers wait, with any priority.
    pub(crate) is_contended: bool,
}

// === impl WaitingFlows ===

impl WaitingFlows {
    /// Returns the flows of one pool that wait with the highest priority of all replicas: engines run no others before them. The
    /// flows of each replica are pairs of priority and name.
    pub(crate) fn new<'a>(own: &[(i32, &'a str)], peers: &[Vec<(i32, &'a str)>]) -> Self {
        let all = || std::iter::once(own).chain(peers.iter().map(Vec::as_slice));
        let Some(highest) = all().flatten().map(|(priority, _)| *priority).max() else { return Self::default() };
        let highest_of = |flows: &[(i32, &'a str)]| -> Vec<&'a str> {
            flows.iter().filter(|(priority, _)| *priority == highest).map(|(_, name)| *name).collect()
        };
        let replicas: Vec<Vec<&str>> = all().map(highest_of).collect();
        let mut counts: HashMap<&str, usize> = HashMap::new();
        replicas.iter().flatten().for_each(|name| *counts.entry(name).or_default() += 1);
        let part = |name: &&str| 1.0 / counts.get(name).copied().unwrap_or(1) as f64;
        let parts = |names: &Vec<&str>| names.iter().map(part).sum::<f64>();
        Self {
            own: replicas.first().map_or(0.0, parts),
            all: replicas.iter().map(parts).sum(),
            is_contended: !own.is_empty() && peers.iter().any(|flows| !flows.is_empty()),
        }
    }

    /// Returns the flows of two pools with the same engine.
    pub(crate) fn with(self, other: Self) -> Self {
        let is_contended = self.is_contended || other.is_contended;
        Self { own: self.own + other.own, all: self.all + other.all, is_contended }
    }

    /// Returns the part of an engine to which this process is entitled.
    pub(crate) fn fair_share(self) -> FairShare {
        let fraction = if self.all > 0.0 { self.own / self.all } else { 0.0 };
        FairShare { fraction, is_contended: self.is_contended }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn contended(fraction: f64) -> FairShare {
        FairShare { fraction, is_contended: true }
    }

    fn reported(running: usize, waiting: usize) -> Option<ReportedRequests> {
        Some(ReportedRequests { running, waiting })
    }

    /// Columns: requests of this process and of peers at an engine that runs ten, and the limit of this process.
    #[rstest]
    #[case::alone(3, 0, 10)]
    #[case::peers_leave_the_rest(3, 4, 6)]
    #[case::peers_leave_nothing(0, 10, 0)]
    #[case::largest(usize::MAX, usize::MAX, 0)]
    fn peers_leave_the_rest(#[case] own: usize, #[case] peers: usize, #[case] expect: usize) {
        for fraction in [0.0, 1.0] {
            let share = FairShare { fraction, is_contended: false };
            for reported in [None, reported(10, 0)] {
                assert_eq!(own_limit(10, own, peers, share, reported), expect);
            }
        }
    }

    /// The same while requests of several replicas wait. Columns: also the fair share, and whether requests wait in the engine.
    #[rstest]
    #[case::part_of_the_rest(0, 4, 0.5, false, 3)]
    #[case::part_of_the_rest_above_the_fair_share(6, 1, 0.5, false, 7)]
    #[case::one_of_the_rest(2, 7, 0.5, false, 3)]
    #[case::rest_for_a_replica_below_its_fair_share(6, 3, 0.5, false, 6)]
    #[case::below_the_fair_share(2, 8, 0.5, false, 3)]
    #[case::until_a_peer_yields(3, 8, 0.5, false, 2)]
    #[case::at_the_fair_share(5, 5, 0.5, false, 5)]
    #[case::above_the_fair_share(7, 3, 0.5, false, 7)]
    #[case::yields(8, 3, 0.5, false, 7)]
    #[case::waits_in_the_engine(2, 8, 0.5, true, 2)]
    #[case::first_request(0, 10, 0.5, true, 1)]
    #[case::small_share(0, 10, 0.01, false, 1)]
    #[case::higher_priority_than_peers(2, 8, 1.0, false, 3)]
    #[case::lower_priority_than_peers(8, 1, 0.0, false, 8)]
    #[case::lower_priority_yields(8, 3, 0.0, false, 7)]
    #[case::peers_exceed_the_limit(0, 12, 0.5, false, 0)]
    #[case::largest(usize::MAX, usize::MAX, 0.5, false, 0)]
    fn waiting_replicas_have_fair_shares(
        #[case] own: usize,
        #[case] peers: usize,
        #[case] fraction: f64,
        #[case] waits_in_engine: bool,
        #[case] expect: usize,
    ) {
        let reported = if waits_in_engine { reported(10, 1) } else { None };
        assert_eq!(own_limit(10, own, peers, contended(fraction), reported), expect);
    }

    /// Peers claim as many requests as the engine runs, or more. Columns: running and waiting requests that the engine reported, and
    /// the limit of this process.
    #[rstest]
    #[case::idle(0, 0, 1)]
    #[case::one_slot_is_free(9, 0, 1)]
    #[case::all_slots_are_used(10, 0, 0)]
    #[case::requests_wait(6, 4, 0)]
    #[case::largest(usize::MAX, usize::MAX, 0)]
    fn peers_do_not_prevent_a_request_to_an_engine_with_free_slots(
        #[case] running: usize,
        #[case] waiting: usize,
        #[case] expect: usize,
    ) {
        for peers in [10, 11, usize::MAX] {
            for share in [FairShare::default(), contended(0.0)] {
                assert_eq!(own_limit(10, 0, peers, share, reported(running, waiting)), expect);
            }
        }
    }

    /// Columns: flows of this process, of one peer, and the fair share of this process.
    #[rstest]
    #[case::nothing_waits(&[], &[], 0.0)]
    #[case::only_here(&[(0, "a")], &[], 1.0)]
    #[case::only_there(&[], &[(0, "a")], 0.0)]
    #[case::same_flow(&[(0, "a")], &[(0, "a")], 0.5)]
    #[case::same_flows(&[(0, "a"), (0, "b")], &[(0, "b"), (0, "a")], 0.5)]
    #[case::one_of_two(&[(0, "a")], &[(0, "a"), (0, "b")], 0.25)]
    #[case::one_of_three(&[(0, "a")], &[(0, "b"), (0, "c")], 1.0 / 3.0)]
    #[case::higher_priority(&[(100, "a"), (0, "b")], &[(0, "c"), (0, "d")], 1.0)]
    #[case::lower_priority(&[(-10, "a")], &[(0, "a")], 0.0)]
    fn each_waiting_flow_has_the_same_share(
        #[case] own: &[(i32, &str)],
        #[case] peer: &[(i32, &str)],
        #[case] expect: f64,
    ) {
        let share = WaitingFlows::new(own, &[peer.to_vec()]).fair_share();
        assert!((share.fraction - expect).abs() < 1e-9, "{share:?}");
        assert_eq!(share.is_contended, !own.is_empty() && !peer.is_empty());
    }

    /// Replicas of which one occupies the whole engine at first. Each of their requests that ends may be replaced.
    #[rstest]
    #[case::two(&[32, 0], &[0.5, 0.5])]
    #[case::four(&[32, 0, 0, 0], &[0.25; 4])]
    #[case::unequal(&[0, 32], &[0.75, 0.25])]
    fn requests_converge_to_the_fair_shares(#[case] first: &[usize], #[case] shares: &[f64]) {
        let mut requests = first.to_vec();
        for round in 0..200 {
            let known = requests.clone();
            let ends = round % requests.len();
            requests[ends] = requests[ends].saturating_sub(1);
            for (index, own) in requests.iter_mut().enumerate() {
                let peers = known.iter().sum::<usize>() - known[index];
                *own = (*own).max(own_limit(32, *own, peers, contended(shares[index]), None));
            }
            assert!(requests.iter().sum::<usize>() < 32 + shares.len(), "{requests:?}");
        }
        for (requests, share) in requests.iter().zip(shares) {
            assert!((*requests as f64 - 32.0 * share).abs() <= 1.0, "{requests}");
        }
    }
}
