//! Names of what we make: composed from the service's name, and cut to what Kubernetes takes.

use crate::topology::{Owner, Role, Workload};

/// Longest name of a Service and longest label value.
pub const LABEL_LENGTH: usize = 63;
/// Longest name of a LeaderWorkerSet: its StatefulSets append indices and a revision hash to it in labels.
pub const LEADER_WORKER_SET_LENGTH: usize = 50;

/// `{service}-{component}`, at most 63 characters.
pub fn component(service: &str, component: &str) -> String {
    fit(&format!("{service}-{component}"), LABEL_LENGTH)
}

/// `{service}-{role}`: the workload that keeps all replicas of `role`.
pub fn workload(owner: &Owner, role: &Role) -> String {
    match role.workload {
        Workload::Deployment => component(&owner.name, &role.name),
        Workload::LeaderWorkerSet | Workload::LeaderWorkerSetPerReplica => {
            fit(&format!("{}-{}", owner.name, role.name), LEADER_WORKER_SET_LENGTH)
        }
    }
}

/// `{service}-{role}-{index}`, the LeaderWorkerSet of one replica. Never cut: two cut names could be one.
pub fn replica(service: &str, role: &str, index: u32) -> String {
    format!("{service}-{role}-{index}")
}

/// The LeaderWorkerSets that one role of a role-based service makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaSets {
    /// Their name without the index.
    stem: String,
    replicas: u32,
    /// A replica is more than its leader.
    several: bool,
}

impl ReplicaSets {
    pub fn of(service: &str, role: &api::fusioninfer::Role) -> Self {
        Self {
            stem: format!("{service}-{}", role.name),
            replicas: role.replica_count().max(0).unsigned_abs(),
            several: role.node_count() > 1,
        }
    }

    /// An object that would be made for both. Roles that can scale into each other's names clash already.
    ///
    /// LeaderWorkerSet makes a StatefulSet of the set's name for the leaders, and one for each group's workers that has
    /// the leader's name, which is the set's with `-0`.
    pub fn clash(&self, other: &Self) -> Option<String> {
        if self.stem == other.stem {
            return Some(format!("LeaderWorkerSet {}-0", self.stem));
        }
        let workers = |many: &Self, one: &Self| {
            let index: u32 = one.stem.strip_prefix(&format!("{}-", many.stem))?.parse().ok()?;
            (many.several && index < many.replicas.max(1)).then(|| format!("StatefulSet {}-0", one.stem))
        };
        workers(self, other).or_else(|| workers(other, self))
    }
}

/// `name` itself where it fits, else its beginning and eight hex digits of the whole, so that two long names stay two.
pub fn fit(name: &str, length: usize) -> String {
    if name.len() <= length {
        return name.to_owned();
    }
    let kept: String = name.chars().take(length - 9).collect();
    format!("{}-{:08x}", kept.trim_end_matches(['-', '.', '_']), fnv1a(name))
}

/// Any text as a label value: other characters become `-`, ends are alphanumeric, at most 63 characters.
pub fn label_value(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&c);
    let clean: String = text.chars().map(|c| if allowed(c) { c } else { '-' }).collect();
    fit(clean.trim_matches(|c: char| !c.is_ascii_alphanumeric()), LABEL_LENGTH)
}

/// Whether `name` is a DNS-1035 label: what a Service and a LeaderWorkerSet must be called.
pub fn is_dns_1035(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.len() <= LABEL_LENGTH
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(inner)
}

fn fnv1a(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// FNV-1a of 64 bits: the same in every process, and another one for another text.
pub fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let (one, two) = ("a".repeat(70), format!("{}b", "a".repeat(69)));
        assert_eq!(component("chat", "engine"), "chat-engine");
        assert_eq!(component(&one, "engine").len(), 63);
        assert_ne!(component(&one, "engine"), component(&two, "engine"));
    }

    // spec: TOP-40
    #[test]
    fn the_index_is_there_even_with_one_replica() {
        assert_eq!(replica("qwen-inference", "inference", 0), "qwen-inference-inference-0");
    }

    fn sets(service: &str, role: &str, replicas: i32, nodes: i32) -> ReplicaSets {
        let role = serde_json::json!({"name": role, "componentType": "worker", "replicas": replicas,
            "multinode": {"nodeCount": nodes}});
        ReplicaSets::of(service, &serde_json::from_value(role).unwrap())
    }

    #[rstest]
    #[case::one_name(sets("a", "b-c", 1, 1), sets("a-b", "c", 1, 1), Some("LeaderWorkerSet a-b-c-0"))]
    #[case::asleep(sets("a", "b-c", 0, 1), sets("a-b", "c", 0, 1), Some("LeaderWorkerSet a-b-c-0"))]
    #[case::workers(sets("s", "x", 2, 2), sets("s", "x-1", 1, 1), Some("StatefulSet s-x-1-0"))]
    #[case::no_such_replica(sets("s", "x", 1, 2), sets("s", "x-1", 1, 1), None)]
    #[case::no_workers(sets("s", "x", 2, 1), sets("s", "x-1", 1, 1), None)]
    #[case::apart(sets("s", "x", 2, 2), sets("s", "y", 2, 2), None)]
    fn names_that_compose_alike(#[case] one: ReplicaSets, #[case] other: ReplicaSets, #[case] expect: Option<&str>) {
        assert_eq!((one.clash(&other).as_deref(), other.clash(&one).as_deref()), (expect, expect));
    }

    #[rstest]
    #[case("meta llama/3", "meta-llama-3")]
    #[case("-x-", "x")]
    #[case("", "")]
    fn label_values(#[case] text: &str, #[case] expect: &str) {
        assert_eq!(label_value(text), expect);
    }

    #[rstest]
    #[case("chat", true)]
    #[case("7b-chat", false)]
    #[case("chat-", false)]
    #[case("Chat", false)]
    #[case("a.b", false)]
    fn dns_1035(#[case] name: &str, #[case] expect: bool) {
        assert_eq!(is_dns_1035(name), expect);
    }
}
