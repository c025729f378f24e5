//! Claims of a Pod's volumes: whether they are bound, and from where their volumes can be reached.

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::selector::node_matches;
use serde_json::Value;

use super::reason::Reason;
use super::world::{Storage, by_name};
use crate::object;
use crate::workloads::volume_claim::{self, Binding};

/// What the claims of one Pod ask of nodes.
#[derive(Debug, Clone, Default)]
pub(super) struct Claims<'a> {
    /// Why no node at all will do.
    pub(super) obstacle: Option<Obstacle>,
    /// Bound claims, each with its volume.
    bound: Vec<(&'a str, &'a Value)>,
    /// Claims that wait for their first Pod, each with the volumes that it could have; none are needed where the class
    /// makes one.
    open: Vec<(&'a str, Vec<&'a Value>)>,
}

/// What stands against every node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// An object that does not exist, by kind and name.
    Missing(String),
    /// A sentence.
    Unusable(String),
}

impl<'a> Claims<'a> {
    pub(super) fn of(pod: &'a Value, storage: &'a Storage) -> Self {
        let mut found = Self::default();
        let names: Vec<&str> = volume_claim::used_by(pod).collect();
        if names.is_empty() {
            return found;
        }
        let claims = by_name(&storage.claims);
        let volumes: BTreeMap<&str, &Arc<Value>> = storage.volumes.iter().map(|pv| (object::name(pv), pv)).collect();
        for name in names {
            let Some(claim) = claims.get(&(object::namespace(pod), name)) else {
                found.obstacle = Some(Obstacle::Missing(format!("persistentvolumeclaim \"{name}\"")));
                return found;
            };
            if object::is_deleting(claim) {
                found.obstacle = Some(Obstacle::Unusable(format!("persistentvolumeclaim \"{name}\" is being deleted")));
                return found;
            }
            match volume_claim::binding(claim, &storage.classes) {
                Binding::Bound { volume } => match volumes.get(volume) {
                    Some(volume) => found.bound.push((name, volume)),
                    None => found.obstacle = Some(Obstacle::Missing(format!("persistentvolume \"{volume}\""))),
                },
                Binding::AtOnce => {
                    let message = "pod has unbound immediate PersistentVolumeClaims".to_owned();
                    found.obstacle = Some(Obstacle::Unusable(message));
                }
                Binding::AtFirstPod { is_provisioned: true } => {}
                Binding::AtFirstPod { is_provisioned: false } => {
                    let fitting = storage.volumes.iter().map(Arc::as_ref);
                    found.open.push((name, fitting.filter(|volume| volume_claim::fits(claim, volume)).collect()));
                }
            }
        }
        found
    }

    pub(super) fn refuse(&self, node: &Value) -> Option<Reason> {
        let elsewhere = self.bound.iter().find(|(_, volume)| !reaches(node, volume));
        if let Some((claim, _)) = elsewhere {
            return Some(Reason::VolumeElsewhere { claim: (*claim).to_owned() });
        }
        let without = self.open.iter().find(|(_, volumes)| !volumes.iter().any(|volume| reaches(node, volume)));
        without.map(|(claim, _)| Reason::NoVolume { claim: (*claim).to_owned() })
    }
}

/// Whether the volume can be used on the node.
fn reaches(node: &Value, volume: &Value) -> bool {
    volume.pointer("/spec/nodeAffinity/required/nodeSelectorTerms").is_none_or(|terms| node_matches(terms, node))
}
