//! One loopback address per Pod.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use crate::ports::Random;

/// Hands out 127.x.y.z, each to one Pod at a time.
#[derive(Debug)]
pub(crate) struct Addresses {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    next: u32,
    taken: BTreeSet<Ipv4Addr>,
}

/// 127.16.0.0 up to 127.255.255.255; what lies below is where other programs listen (127.0.0.1, 127.0.0.53, 127.0.1.1).
const FIRST: u32 = 0x7f10_0000;
const LAST: u32 = 0x7fff_ffff;

impl Addresses {
    /// Starts at a random place, so that clusters on one machine rarely meet.
    pub(crate) fn new(random: &dyn Random) -> Self {
        let seed = random.uuid().bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
        let next = FIRST + (seed % (LAST - FIRST)) / 256 * 256;
        Self { state: Mutex::new(State { next, taken: BTreeSet::new() }) }
    }

    /// A free address. `None` when fifteen million Pods run.
    pub(crate) fn take(&self) -> Option<Ipv4Addr> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in FIRST..=LAST {
            let candidate = Ipv4Addr::from_bits(state.next);
            state.next = if state.next >= LAST { FIRST } else { state.next + 1 };
            let usable = !matches!(candidate.octets()[3], 0 | 255);
            if usable && state.taken.insert(candidate) {
                return Some(candidate);
            }
        }
        None
    }

    pub(crate) fn give_back(&self, address: Ipv4Addr) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).taken.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::SystemRandom;

    #[test]
    fn every_address_is_loopback_and_unique() {
        let addresses = Addresses::new(&SystemRandom);
        let taken: BTreeSet<_> = (0..1000).filter_map(|_| addresses.take()).collect();
        assert_eq!(taken.len(), 1000);
        assert!(taken.iter().all(|a| a.is_loopback() && a.octets()[1] >= 16));
    }
}
