//! Allocation of one loopback address per Pod.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use apiserver::ports::Random;

/// Allocates addresses of 127.0.0.0/8, each to one Pod at a time.
#[derive(Debug)]
pub(crate) struct PodIpAllocator {
    state: Mutex<AllocatorState>,
}

#[derive(Debug)]
struct AllocatorState {
    next: u32,
    allocated: BTreeSet<Ipv4Addr>,
}

/// The range is 127.16.0.0 to 127.255.255.255, because other programs listen on lower addresses (127.0.0.1, 127.0.0.53,
/// 127.0.1.1).
const FIRST_ADDRESS: u32 = 0x7f10_0000;
const LAST_ADDRESS: u32 = 0x7fff_ffff;

// === impl PodIpAllocator ===

impl PodIpAllocator {
    /// Returns an allocator that starts at a random address, so that clusters on one host rarely use the same
    /// addresses.
    pub(crate) fn new(random: &dyn Random) -> Self {
        let seed = random.uuid().bytes().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
        let next = FIRST_ADDRESS + (seed % (LAST_ADDRESS - FIRST_ADDRESS)) / 256 * 256;
        Self { state: Mutex::new(AllocatorState { next, allocated: BTreeSet::new() }) }
    }

    /// Allocates a free address, `None` when all of the about fifteen million addresses are in use.
    pub(crate) fn allocate(&self) -> Option<Ipv4Addr> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in FIRST_ADDRESS..=LAST_ADDRESS {
            let address = Ipv4Addr::from_bits(state.next);
            state.next = if state.next >= LAST_ADDRESS { FIRST_ADDRESS } else { state.next + 1 };
            let is_usable = !matches!(address.octets()[3], 0 | 255);
            if is_usable && state.allocated.insert(address) {
                return Some(address);
            }
        }
        None
    }

    /// Releases an address.
    pub(crate) fn release(&self, address: Ipv4Addr) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).allocated.remove(&address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use apiserver::ports::SystemRandom;

    #[test]
    fn allocates_unique_loopback_addresses() {
        let addresses = PodIpAllocator::new(&SystemRandom);
        let allocated: BTreeSet<_> = (0..1000).filter_map(|_| addresses.allocate()).collect();
        assert_eq!(allocated.len(), 1000);
        assert!(allocated.iter().all(|address| address.is_loopback() && address.octets()[1] >= 16));
    }
}
