//! Random UIDs and generated names.

/// The alphabet of Kubernetes omits vowels and similar-looking characters (`k8s.io/apimachinery/pkg/util/rand`).
const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// Source of random UIDs and name suffixes.
pub trait Random: Send + Sync {
    /// Returns random bits.
    fn bits(&self) -> u128;

    /// Returns a version 4 UUID in lower case.
    fn uuid(&self) -> String {
        let bits = self.bits() & !(0xf << 76) & !(0b11 << 62) | (0x4 << 76) | (0b10 << 62);
        let hex = format!("{bits:032x}");
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// Returns `len` characters of `bcdfghjklmnpqrstvwxz2456789`, the alphabet of generated names in Kubernetes.
    fn suffix(&self, len: usize) -> String {
        let character = |_| char::from(SUFFIX_ALPHABET[(self.bits() % SUFFIX_ALPHABET.len() as u128) as usize]);
        (0..len).map(character).collect()
    }
}

/// The system's random number generator.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRandom;

// === impl SystemRandom ===

impl Random for SystemRandom {
    fn bits(&self) -> u128 {
        fastrand::u128(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuid_is_version_4() {
        let uuid = SystemRandom.uuid();
        let lengths: Vec<usize> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(&uuid[14..15], "4");
        assert!("89ab".contains(&uuid[19..20]), "{uuid}");
    }
}
