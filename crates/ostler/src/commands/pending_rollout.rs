//! Rollouts that the status of a service does not report yet: a change of a runtime, a model or a class does not change the
//! generation of the service, so its status may be older than the change.

use cluster::{Kind, NamespacedName};
use operator::{Options, ServicePreview, kinds, preview_services};

use super::target_service::Target;
use crate::cluster_listing;

/// Kinds without which a plan may differ from that of the operator.
const SUPPLY_KINDS: [Kind; 6] = [
    kinds::SERVING_RUNTIME,
    kinds::CLUSTER_SERVING_RUNTIME,
    kinds::BASE_MODEL,
    kinds::CLUSTER_BASE_MODEL,
    kinds::ACCELERATOR_CLASS,
    kinds::NODE,
];

/// Plans the service with the objects of the cluster and returns why its rollout is not complete. Returns `None` if it is, or if
/// the user may not read what the plan depends on.
pub(super) async fn pending_rollout(target: &Target) -> Option<String> {
    let (listing, _) = cluster_listing::read(&target.client, &target.namespace).await.ok()?;
    if SUPPLY_KINDS.iter().any(|kind| listing.unreadable.contains_key(kind)) {
        return None;
    }
    let mut options = Options::default();
    if let Some(image) = listing.picker_image() {
        options.picker_image = image;
    }
    let is_target = |kind: Kind, key: &NamespacedName| {
        kind.group == target.kind.group && key.namespace == target.namespace && key.name == target.name
    };
    preview_services(target.client.clone(), &listing, &options, is_target)
        .await
        .ok()?
        .iter()
        .find_map(ServicePreview::pending_rollout)
}
