//! The seed of a run, and the generators derived from it.

use std::fmt::{self, Display, Formatter};
use std::hash::Hasher;
use std::sync::{Mutex, PoisonError};

use embedded::ports::Random;
use fnv::FnvHasher;

/// Determines everything that happens in one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seed(pub u64);

/// Random bits of an API server, derived from a seed.
pub(crate) struct SeededRandom(Mutex<fastrand::Rng>);

// === impl Seed ===

impl Seed {
    /// Returns a generator for `purpose`. Generators of different purposes are independent, so that a draw more for one
    /// purpose does not change the others.
    #[must_use]
    pub fn generator(self, purpose: &str) -> fastrand::Rng {
        // Unlike the hashes of the standard library, FNV-1a never changes.
        let mut hasher = FnvHasher::default();
        hasher.write(purpose.as_bytes());
        fastrand::Rng::with_seed(self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ hasher.finish())
    }
}

impl Display for Seed {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

// === impl SeededRandom ===

impl SeededRandom {
    /// Returns the random bits of the API server.
    pub(crate) fn new(seed: Seed) -> Self {
        Self(Mutex::new(seed.generator("API server")))
    }
}

impl Random for SeededRandom {
    fn bits(&self) -> u128 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).u128(..)
    }
}
