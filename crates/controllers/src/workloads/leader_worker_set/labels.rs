//! Labels and annotations of the Pods of a LeaderWorkerSet.

/// Label with the name of the set.
pub(crate) const NAME: &str = "leaderworkerset.sigs.k8s.io/name";
/// Label with the index of the group.
pub(super) const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
/// Label with the index of the Pod in its group; the leader has 0.
pub(super) const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
/// Label with a hash that identifies the group.
pub(super) const GROUP_KEY: &str = "leaderworkerset.sigs.k8s.io/group-key";
/// Label with the revision of the template.
pub(super) const REVISION: &str = "leaderworkerset.sigs.k8s.io/template-revision-hash";
/// Annotation with the number of Pods of the group.
pub(super) const SIZE: &str = "leaderworkerset.sigs.k8s.io/size";
/// Annotation with the name of the leader.
pub(super) const LEADER_NAME: &str = "leaderworkerset.sigs.k8s.io/leader-name";
