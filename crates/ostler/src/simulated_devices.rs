//! IDs of simulated devices.

use xxhash_rust::xxh3::xxh3_128;

use crate::gpus::GPU_RESOURCE;

/// Prefix of the resources of MIG slices.
const MIG_RESOURCE_PREFIX: &str = "nvidia.com/mig-";

/// Maximum number of devices of a resource on a node; a Node of a user may declare any number.
const MAX_DEVICES: usize = 1_000;

/// Returns the IDs of simulated devices: UUIDs in the format of the vendor that do not change between starts.
pub(crate) fn simulated_ids(node: &str, resource: &str, count: usize) -> Vec<String> {
    let prefix = match resource {
        GPU_RESOURCE => "GPU-",
        _ if resource.starts_with(MIG_RESOURCE_PREFIX) => "MIG-",
        _ => "",
    };
    let id = |number| {
        let digits = format!("{:032x}", xxh3_128(format!("{node} {resource} {number}").as_bytes()));
        let [a, b, c, d, e] = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| &digits[range]);
        format!("{prefix}{a}-{b}-{c}-{d}-{e}")
    };
    (0..count.min(MAX_DEVICES)).map(id).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn ids_are_unique_stable_and_limited() {
        let resources = ["nvidia.com/gpu", "nvidia.com/mig-1g.10gb", "amd.com/gpu"];
        let ids = |node| resources.map(|resource| simulated_ids(node, resource, usize::MAX)).concat();
        let (first, second) = (ids("a"), ids("b"));
        assert_eq!(first.iter().chain(&second).collect::<BTreeSet<_>>().len(), 6 * MAX_DEVICES);
        assert_eq!(first, ids("a"));
        assert_eq!(first[0].len(), "GPU-".len() + 36);
        assert!(first[0].starts_with("GPU-") && first[MAX_DEVICES].starts_with("MIG-"), "{}", first[0]);
    }
}
