//! Which Pods are those of the controller: annotations and finalizers can be copied, and other controllers of dual pods use the same
//! names, so that the field managers decide.

use api::dual_pods as names;
use apimachinery::object;
use cluster::Stores;
use serde_json::Value;

/// Returns whether the controller of `stores` created the Pod as a provider. A copy that a user made of a provider is none.
pub(crate) fn is_own_provider(pod: &Value, stores: &Stores) -> bool {
    names::is_provider(pod) && stores.is_own_annotation(pod, names::NOMINAL)
}

/// Returns whether the controller of `stores` has added its finalizer to the requester. It remains to be removed if a user removes
/// the annotations by which the Pod is a requester.
pub(crate) fn is_claimed_requester(pod: &Value, stores: &Stores) -> bool {
    object::finalizers(pod).contains(&names::REQUESTER_FINALIZER) && stores.is_own_annotation(pod, names::ACCELERATORS)
}
