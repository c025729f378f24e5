//! Names of dual pods (seed 004): annotations, labels and finalizers of requester Pods and provider Pods.
//!
//! Users write annotations with the prefix of the specification or with that of the deployed controller; [`annotation`] reads
//! both. ostler writes the deployed one.

use serde_json::Value;

/// Prefix of the deployed controller.
const PREFIX: &str = "dual-pods.llm-d.ai/";
/// Prefix of the specification.
const SPECIFICATION_PREFIX: &str = "dual-pod.llm-d.ai/";

/// Name of the container that runs the requester in one Pod and the engine in the other.
pub const CONTAINER: &str = "inference-server";
/// Name of the ConfigMap with the index of each GPU, by node and GPU UUID.
pub const GPU_MAP: &str = "gpu-map";
/// Port of the requester's service provider interface (SPI) without annotation `admin-port`.
pub const DEFAULT_ADMIN_PORT: u16 = 8081;

/// Annotation of an `ome.io` service: [`DUAL_PODS`] runs its engines in dual pods. Label of their Pods: [`REQUESTER_ROLE`] or
/// [`PROVIDER_ROLE`].
pub const OME_ACTUATION: &str = "ome.io/actuation";
/// The same key for services of `fusioninfer.io`.
pub const FUSIONINFER_ACTUATION: &str = "fusioninfer.io/actuation";
/// Value of the annotations [`OME_ACTUATION`] and [`FUSIONINFER_ACTUATION`].
pub const DUAL_PODS: &str = "dual-pods";
/// Value of the labels [`OME_ACTUATION`] and [`FUSIONINFER_ACTUATION`] of requesters, by which sets of Pods select them.
pub const REQUESTER_ROLE: &str = "requester";
/// Value of the labels [`OME_ACTUATION`] and [`FUSIONINFER_ACTUATION`] of providers, by which Services and pools select them.
pub const PROVIDER_ROLE: &str = "provider";

/// Annotation of a requester that a user writes, without its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserAnnotation {
    /// Strategic merge patch in YAML that turns the requester into the provider.
    ServerPatch,
    /// Port of the SPI.
    AdminPort,
    /// `launcher` or `direct`.
    Mode,
    /// Name of an InferenceServerConfig, which is not supported.
    InferenceServerConfig,
    /// Owner of the provider: a JSON object with `apiVersion`, `kind`, `name` and `uid`. Kubernetes deletes the provider with it.
    ProviderOwner,
}

/// Annotation of both Pods: comma-separated UUIDs of the accelerators.
pub const ACCELERATORS: &str = "dual-pods.llm-d.ai/accelerators";
/// Annotation of a requester: ID of the container that reported [`ACCELERATORS`].
pub const ACCELERATORS_CONTAINER: &str = "dual-pods.llm-d.ai/accelerators-container";
/// Annotation of a requester: JSON object with the list `Errors`, which is null without errors.
pub const STATUS: &str = "dual-pods.llm-d.ai/status";
/// Annotation of a bound provider: UID and name of its requester, separated by a space.
pub const REQUESTER: &str = "dual-pods.llm-d.ai/requester";
/// Annotation of a provider: hash of what makes an engine suitable for a requester; of a launcher, hash of what makes it suitable for
/// an engine.
pub const NOMINAL: &str = "dual-pods.llm-d.ai/nominal";
/// Annotation of a provider: port of its engine.
pub const SERVER_PORT: &str = "dual-pods.llm-d.ai/server-port";
/// Annotation of a provider: RFC 3339 time at which its engine was last awake. Absent until the engine was ready once.
pub const LAST_AWAKE: &str = "dual-pods.llm-d.ai/last-awake";
/// Annotation of a provider: JSON object with the labels by which pools select it, which it has only while awake.
pub const POOL_LABELS: &str = "dual-pods.llm-d.ai/pool-labels";
/// Annotation of a provider: completion that its engine returned when it was first ready.
pub const FINGERPRINT: &str = "dual-pods.llm-d.ai/fingerprint";
/// Annotation of a provider that is a launcher: JSON object of its engines by instance id, which it has whether or not they run.
pub const INSTANCES: &str = "dual-pods.llm-d.ai/instances";
/// Annotation of a bound launcher: id of the instance that serves the requester.
pub const INSTANCE_ID: &str = "dual-pods.llm-d.ai/instance-id";
/// Annotation of a launcher: how many instances it can have.
pub const MAX_INSTANCES: &str = "dual-pods.llm-d.ai/max-instances";
/// Label of both Pods while they are bound: name of the other Pod.
pub const DUAL: &str = "dual-pods.llm-d.ai/dual";
/// Label of a provider: `true` or `false`.
pub const SLEEPING: &str = "dual-pods.llm-d.ai/sleeping";
/// Annotation of a provider: name of its Node, which the Pod has before it is scheduled.
pub const NODE_NAME: &str = "dual-pods.llm-d.ai/node-name";
/// Finalizer of a requester, present while its engine may be awake.
pub const REQUESTER_FINALIZER: &str = "dual-pods.llm-d.ai/requester";
/// Finalizer of a provider, present while it is bound.
pub const PROVIDER_FINALIZER: &str = "dual-pods.llm-d.ai/provider";

// === impl UserAnnotation ===

impl UserAnnotation {
    /// Returns the annotation's name without prefix.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            UserAnnotation::ServerPatch => "server-patch",
            UserAnnotation::AdminPort => "admin-port",
            UserAnnotation::Mode => "mode",
            UserAnnotation::InferenceServerConfig => "inference-server-config",
            UserAnnotation::ProviderOwner => "provider-owner",
        }
    }

    /// Returns the keys with both prefixes.
    #[must_use]
    pub fn keys(self) -> Vec<String> {
        [PREFIX, SPECIFICATION_PREFIX].map(|prefix| format!("{prefix}{}", self.name())).to_vec()
    }

    /// Returns the key with the prefix of the deployed controller.
    #[must_use]
    pub fn key(self) -> String {
        format!("{PREFIX}{}", self.name())
    }
}

/// Returns an annotation that users write; the deployed prefix takes precedence over that of the specification.
#[must_use]
pub fn annotation(pod: &Value, annotation: UserAnnotation) -> Option<&str> {
    let annotations = &pod["metadata"]["annotations"];
    let get = |prefix: &str| annotations.get(format!("{prefix}{}", annotation.name()))?.as_str();
    get(PREFIX).or_else(|| get(SPECIFICATION_PREFIX))
}

/// Returns the problems in the status annotation of a requester.
#[must_use]
pub fn status_errors(requester: &Value) -> Vec<String> {
    let text = requester["metadata"]["annotations"].get(STATUS).and_then(Value::as_str).unwrap_or_default();
    let status: Value = serde_json::from_str(text).unwrap_or_default();
    let errors = status["Errors"].as_array().into_iter().flatten();
    errors.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Whether a Pod is a requester: it has a server patch, or refers to an InferenceServerConfig.
#[must_use]
pub fn is_requester(pod: &Value) -> bool {
    let user_annotations = [UserAnnotation::ServerPatch, UserAnnotation::InferenceServerConfig];
    user_annotations.into_iter().any(|name| annotation(pod, name).is_some())
}

/// Whether a Pod looks like a provider. A copy that a user made of a provider does, too: only the field managers of
/// the annotation [`NOMINAL`] show that a controller created the Pod.
#[must_use]
pub fn is_provider(pod: &Value) -> bool {
    pod["metadata"]["annotations"].get(NOMINAL).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    // spec: DP-15
    #[rstest]
    #[case::specification(json!({"dual-pod.llm-d.ai/server-patch": "a"}), Some("a"))]
    #[case::deployed(json!({"dual-pods.llm-d.ai/server-patch": "b"}), Some("b"))]
    #[case::equal(json!({"dual-pod.llm-d.ai/server-patch": "a", "dual-pods.llm-d.ai/server-patch": "a"}), Some("a"))]
    #[case::different(json!({"dual-pod.llm-d.ai/server-patch": "a", "dual-pods.llm-d.ai/server-patch": "b"}), Some("b"))]
    #[case::other_pod(json!({"dual-pod.llm-d.ai/admin-port": "1"}), None)]
    fn annotations_are_read_under_both_prefixes(#[case] annotations: Value, #[case] expected: Option<&str>) {
        let pod = json!({"metadata": {"annotations": annotations}});
        assert_eq!(annotation(&pod, UserAnnotation::ServerPatch), expected);
        assert_eq!(is_requester(&pod), expected.is_some());
    }
}
