//! The seed of a run, and the generators derived from it.

use std::fmt::{self, Display, Formatter};

/// Determines everything that happens in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seed(pub u64);

// === impl Seed ===

impl Seed {
    /// Returns a generator for `purpose`. Generators of different purposes are independent, so that a draw more for one
    /// purpose does not change the others.
    #[must_use]
    pub fn generator(self, purpose: &str) -> fastrand::Rng {
        // 64-bit FNV-1a: unlike the hashes of the standard library, it never changes.
        let hash = purpose
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        fastrand::Rng::with_seed(self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hash)
    }
}

impl Display for Seed {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}
