//! Endpoints that a proxy allows for a request.

use std::net::{IpAddr, SocketAddr};

/// Endpoints that may be selected: those of a subset hint, parsed once per request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndpointSubset {
    /// Single ports, sorted.
    addresses: Vec<SocketAddr>,
    /// Hosts with all their ports, sorted.
    hosts: Vec<IpAddr>,
}

// === impl EndpointSubset ===

impl EndpointSubset {
    /// Returns the subset of entries of the form `ip` or `ip:port`. Other entries match no endpoint.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Self {
        let mut subset = Self::default();
        for entry in entries {
            if let Ok(address) = entry.parse() {
                subset.addresses.push(address);
            } else if let Ok(host) = entry.parse() {
                subset.hosts.push(host);
            }
        }
        subset.addresses.sort_unstable();
        subset.hosts.sort_unstable();
        subset
    }

    /// Returns whether the subset contains an endpoint. `next` is the position of the address after the one of the last call, 0
    /// at first: calls in the order of the addresses need no search.
    pub(crate) fn contains(&self, endpoint: SocketAddr, next: &mut usize) -> bool {
        let is_next = self.addresses.get(*next) == Some(&endpoint);
        let position = if is_next { Ok(*next) } else { self.addresses.binary_search(&endpoint) };
        *next = position.map_or(*next, |position| position + 1);
        position.is_ok() || self.hosts.binary_search(&endpoint.ip()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::empty(&[], [false, false, false])]
    #[case::address(&["10.0.0.1:8000"], [true, false, false])]
    #[case::host(&["10.0.0.1"], [true, true, false])]
    #[case::ipv6(&["[fd00::1]:8000"], [false, false, true])]
    #[case::ipv6_host(&["fd00::1"], [false, false, true])]
    #[case::ipv6_long_form(&["fd00:0:0::1"], [false, false, true])]
    #[case::unsorted(&["fd00::1", "10.0.0.2:8000", "10.0.0.1:8001"], [false, true, true])]
    #[case::invalid(&["", "pod-1", "10.0.0.1:", "10.0.0.256", "10.0.0.1:80000"], [false, false, false])]
    fn contains_addresses_and_hosts(#[case] entries: &[&str], #[case] expect: [bool; 3]) {
        let subset = EndpointSubset::parse(entries.iter().copied());
        let endpoints = ["10.0.0.1:8000", "10.0.0.1:8001", "[fd00::1]:8000"];
        for next in 0..3 {
            let mut next = next;
            let contained = endpoints.map(|endpoint| subset.contains(endpoint.parse().unwrap(), &mut next));
            assert_eq!(contained, expect);
        }
    }
}
