//! The hash that Kubernetes uses for names.

/// Returns the 32-bit FNV-1a hash of `bytes`, as Go's `fnv.New32a`. It is implemented here because the crate `fnv` only
/// provides the 64-bit variant.
#[must_use]
pub fn fnv1a_32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equals_published_test_vectors() {
        assert_eq!([fnv1a_32(b""), fnv1a_32(b"a"), fnv1a_32(b"foobar")], [0x811c_9dc5, 0xe40c_292c, 0xbf9c_f968]);
    }
}
