//! PersistentVolumeClaims of a Pod: the `VolumeBinding` plugin.

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::{node_selector_terms_match, object};
use serde_json::Value;

use super::reason::UnschedulableReason;
use super::snapshot::{StorageObjects, index_by_name};
use crate::workloads::volume_claim::{self, BindingState};

/// The PreFilter state of `VolumeBinding` for one Pod.
#[derive(Debug, Clone, Default)]
pub(super) struct VolumeBinding<'a> {
    /// The failure that makes the Pod unschedulable on every node.
    pub(super) pre_filter_failure: Option<PreFilterFailure>,
    /// Bound claims, each with its PersistentVolume.
    bound_claims: Vec<(&'a str, &'a Value)>,
    /// Unbound claims with delayed binding (`WaitForFirstConsumer`), each with the PersistentVolumes that it can bind
    /// to. Claims whose StorageClass provisions volumes dynamically are omitted.
    delayed_claims: Vec<(&'a str, Vec<&'a Value>)>,
}

/// A PreFilter failure, which makes the Pod unschedulable on every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PreFilterFailure {
    /// An object does not exist: its kind and name.
    NotFound(String),
    /// The message of any other failure.
    Unschedulable(String),
}

// === impl VolumeBinding ===

impl<'a> VolumeBinding<'a> {
    pub(super) fn pre_filter(pod: &'a Value, storage: &'a StorageObjects) -> Self {
        let mut binding = Self::default();
        let names: Vec<&str> = volume_claim::claim_names(pod).collect();
        if names.is_empty() {
            return binding;
        }
        let claims = index_by_name(&storage.claims);
        let volumes: BTreeMap<&str, &Arc<Value>> = storage.volumes.iter().map(|pv| (object::name(pv), pv)).collect();
        for name in names {
            let Some(claim) = claims.get(&(object::namespace(pod), name)) else {
                binding.pre_filter_failure =
                    Some(PreFilterFailure::NotFound(format!("persistentvolumeclaim \"{name}\"")));
                return binding;
            };
            if object::is_deleting(claim) {
                binding.pre_filter_failure =
                    Some(PreFilterFailure::Unschedulable(format!("persistentvolumeclaim \"{name}\" is being deleted")));
                return binding;
            }
            match volume_claim::binding_state(claim, &storage.classes) {
                BindingState::Bound { volume } => match volumes.get(volume) {
                    Some(volume) => binding.bound_claims.push((name, volume)),
                    None => {
                        binding.pre_filter_failure =
                            Some(PreFilterFailure::NotFound(format!("persistentvolume \"{volume}\"")));
                    }
                },
                BindingState::Immediate => {
                    let message = "pod has unbound immediate PersistentVolumeClaims".to_owned();
                    binding.pre_filter_failure = Some(PreFilterFailure::Unschedulable(message));
                }
                BindingState::WaitForFirstConsumer { has_provisioner: true } => {}
                BindingState::WaitForFirstConsumer { has_provisioner: false } => {
                    let available = storage.volumes.iter().map(Arc::as_ref);
                    binding
                        .delayed_claims
                        .push((name, available.filter(|volume| volume_claim::matches(claim, volume)).collect()));
                }
            }
        }
        binding
    }

    /// Returns why the Pod does not fit on the node, or `None`.
    pub(super) fn filter(&self, node: &Value) -> Option<UnschedulableReason> {
        let inaccessible = self.bound_claims.iter().find(|(_, volume)| !is_accessible_from(node, volume));
        if let Some((claim, _)) = inaccessible {
            return Some(UnschedulableReason::VolumeNodeAffinity { claim: (*claim).to_owned() });
        }
        let unbindable = self
            .delayed_claims
            .iter()
            .find(|(_, volumes)| !volumes.iter().any(|volume| is_accessible_from(node, volume)));
        unbindable.map(|(claim, _)| UnschedulableReason::NoMatchingVolume { claim: (*claim).to_owned() })
    }
}

/// Whether the node matches the node affinity of the PersistentVolume.
fn is_accessible_from(node: &Value, volume: &Value) -> bool {
    volume
        .pointer("/spec/nodeAffinity/required/nodeSelectorTerms")
        .is_none_or(|terms| node_selector_terms_match(terms, node))
}
