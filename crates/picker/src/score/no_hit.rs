//! New prompts are spread: each goes where the last new one is longest ago, so that no endpoint's cache grows alone.

use std::{collections::BTreeMap, net::SocketAddr};

use crate::member::Member;

/// For all, where some endpoint knows the prompt's beginning: others decide.
pub const NEUTRAL: f64 = 0.5;

/// When each endpoint was last given a prompt that none had seen.
#[derive(Debug, Default)]
pub struct Cold {
    given: BTreeMap<SocketAddr, u64>,
    now: u64,
}

impl Cold {
    /// `endpoint` is given a new prompt now.
    pub fn give(&mut self, endpoint: SocketAddr) {
        self.now += 1;
        self.given.insert(endpoint, self.now);
    }

    /// Forgets endpoints that are gone.
    pub fn retain(&mut self, stays: impl Fn(SocketAddr) -> bool) {
        self.given.retain(|address, _| stays(*address));
    }

    /// 1 for the one that waits longest, 0 for the last that was given one; those that never were are alike.
    pub fn scores(&self, members: &[&Member]) -> Vec<f64> {
        let given = |member: &&Member| self.given.get(&member.endpoint.address).copied().unwrap_or(0);
        let before = |at: u64| members.iter().filter(|other| given(other) < at).count() as f64;
        let others = members.len().saturating_sub(1).max(1) as f64;
        members.iter().map(|member| 1.0 - before(given(member)) / others).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::tests::member;

    #[test]
    fn the_longest_ago_is_first() {
        let members = [member(1, None), member(2, None), member(3, None)];
        let all: Vec<&Member> = members.iter().collect();
        let mut cold = Cold::default();
        assert_eq!(cold.scores(&all), [1.0, 1.0, 1.0]);
        cold.give(members[1].endpoint.address);
        assert_eq!(cold.scores(&all), [1.0, 0.0, 1.0]);
        cold.give(members[0].endpoint.address);
        cold.give(members[2].endpoint.address);
        assert_eq!(cold.scores(&all), [0.5, 1.0, 0.0]);
        cold.retain(|address| address != members[2].endpoint.address);
        assert_eq!(cold.scores(&all)[2], 1.0);
    }
}
