//! Names of rendered objects, composed from the service's name and truncated to the limits of Kubernetes.

use std::hash::Hasher as _;

use fnv::FnvHasher;

use crate::owner::Owner;
use crate::role::{Role, Workload};

/// Maximum length of Service names and label values.
pub(crate) const LABEL_LENGTH: usize = 63;
/// Maximum length of LeaderWorkerSet names. Shorter than a label value, because StatefulSet labels append indices and a
/// revision hash to the name.
pub(crate) const LEADER_WORKER_SET_LENGTH: usize = 50;

/// Returns `{service}-{component}` with at most 63 characters.
pub(crate) fn component(service: &str, component: &str) -> String {
    truncate(&format!("{service}-{component}"), LABEL_LENGTH)
}

/// Returns `{service}-{role}`, the name of the workload with all replicas of `role`.
pub(crate) fn workload(owner: &Owner, role: &Role) -> String {
    match role.workload {
        // The selector of a Deployment is immutable, and differs between engines and requesters.
        Workload::Deployment if role.requesters.is_some() => component(&owner.name, &format!("{}-dual", role.name)),
        Workload::Deployment => component(&owner.name, &role.name),
        Workload::LeaderWorkerSet | Workload::LeaderWorkerSetPerReplica => {
            truncate(&format!("{}-{}", owner.name, role.name), LEADER_WORKER_SET_LENGTH)
        }
    }
}

/// Returns `{service}-{role}-{index}`, the name of the LeaderWorkerSet of one replica. It is never truncated, to avoid
/// collisions.
pub(crate) fn replica(service: &str, role: &str, index: u32) -> String {
    format!("{service}-{role}-{index}")
}

/// Names of the LeaderWorkerSets for one role of a role-based service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaderWorkerSetNames {
    /// Name without the index.
    prefix: String,
    replicas: u32,
    /// Whether a replica has workers in addition to its leader.
    has_workers: bool,
}

impl LeaderWorkerSetNames {
    /// Returns the names for `role` of the service named `service`.
    pub fn new(service: &str, role: &api::fusioninfer::Role) -> Self {
        Self {
            prefix: format!("{service}-{}", role.name),
            replicas: role.replica_count().max(0).unsigned_abs(),
            has_workers: role.node_count() > 1,
        }
    }

    /// Returns the object that both roles would create, or `None`. Also reports roles whose object names would collide
    /// only after scaling.
    ///
    /// LeaderWorkerSet creates a StatefulSet of its own name for the leaders, and one per group for the workers, which is
    /// named after the leader: the set's name with `-0`.
    pub fn conflict(&self, other: &Self) -> Option<String> {
        if self.prefix == other.prefix {
            return Some(format!("LeaderWorkerSet {}-0", self.prefix));
        }
        let worker_conflict = |longer: &Self, shorter: &Self| {
            let index: u32 = longer.prefix.strip_prefix(&format!("{}-", shorter.prefix))?.parse().ok()?;
            (shorter.has_workers && index < shorter.replicas.max(1)).then(|| format!("StatefulSet {}-0", longer.prefix))
        };
        worker_conflict(other, self).or_else(|| worker_conflict(self, other))
    }
}

/// Truncates `name` to `length`. Truncated names end with a hash of the full name in eight hex digits, to stay unique.
pub(crate) fn truncate(name: &str, length: usize) -> String {
    if name.len() <= length {
        return name.to_owned();
    }
    let start: String = name.chars().take(length - 9).collect();
    format!("{}-{:08x}", start.trim_end_matches(['-', '.', '_']), apimachinery::fnv1a_32(name.as_bytes()))
}

/// Converts any text into a label value: replaces other characters with `-`, trims the ends to alphanumeric characters, and
/// truncates to 63 characters.
pub fn label_value(text: &str) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&c);
    let replaced: String = text.chars().map(|c| if is_allowed(c) { c } else { '-' }).collect();
    truncate(replaced.trim_matches(|c: char| !c.is_ascii_alphanumeric()), LABEL_LENGTH)
}

/// Returns whether `name` is a DNS-1035 label, which is required for Services and LeaderWorkerSets.
pub(crate) fn is_dns_1035(name: &str) -> bool {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.len() <= LABEL_LENGTH
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(is_allowed)
}

/// Returns the 64-bit FNV-1a hash of `text`, which is stable across processes and versions.
pub fn fingerprint(text: &str) -> u64 {
    let mut hasher = FnvHasher::default();
    hasher.write(text.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn truncates_long_names_to_unique_ones() {
        let (first, second) = ("a".repeat(70), format!("{}b", "a".repeat(69)));
        assert_eq!(component("chat", "engine"), "chat-engine");
        assert_eq!(component(&first, "engine").len(), 63);
        assert_ne!(component(&first, "engine"), component(&second, "engine"));
    }

    // spec: TOP-40
    #[test]
    fn single_replica_has_an_index() {
        assert_eq!(replica("qwen-inference", "inference", 0), "qwen-inference-inference-0");
    }

    fn names(service: &str, role: &str, replicas: i32, nodes: i32) -> LeaderWorkerSetNames {
        let role = serde_json::json!({"name": role, "componentType": "worker", "replicas": replicas,
            "multinode": {"nodeCount": nodes}});
        LeaderWorkerSetNames::new(service, &serde_json::from_value(role).unwrap())
    }

    #[rstest]
    #[case::same_name(names("a", "b-c", 1, 1), names("a-b", "c", 1, 1), Some("LeaderWorkerSet a-b-c-0"))]
    #[case::zero_replicas(names("a", "b-c", 0, 1), names("a-b", "c", 0, 1), Some("LeaderWorkerSet a-b-c-0"))]
    #[case::workers(names("s", "x", 2, 2), names("s", "x-1", 1, 1), Some("StatefulSet s-x-1-0"))]
    #[case::index_out_of_range(names("s", "x", 1, 2), names("s", "x-1", 1, 1), None)]
    #[case::no_workers(names("s", "x", 2, 1), names("s", "x-1", 1, 1), None)]
    #[case::distinct(names("s", "x", 2, 2), names("s", "y", 2, 2), None)]
    fn detects_conflicting_names(
        #[case] a: LeaderWorkerSetNames,
        #[case] b: LeaderWorkerSetNames,
        #[case] expect: Option<&str>,
    ) {
        assert_eq!((a.conflict(&b).as_deref(), b.conflict(&a).as_deref()), (expect, expect));
    }

    #[rstest]
    #[case("meta llama/3", "meta-llama-3")]
    #[case("-x-", "x")]
    #[case("", "")]
    fn converts_text_to_label_values(#[case] text: &str, #[case] expect: &str) {
        assert_eq!(label_value(text), expect);
    }

    #[rstest]
    #[case("chat", true)]
    #[case("7b-chat", false)]
    #[case("chat-", false)]
    #[case("Chat", false)]
    #[case("a.b", false)]
    fn validates_dns_1035_labels(#[case] name: &str, #[case] expect: bool) {
        assert_eq!(is_dns_1035(name), expect);
    }
}
