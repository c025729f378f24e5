//! What remains to be done after a write.

use std::sync::Arc;

use apimachinery::object;
use serde_json::Value;

use crate::deletion::PropagationPolicy;
use crate::resources::definition;
use crate::store::{NamespacedName, ObjectKey};

/// A step that follows from a committed write or from another step.
#[derive(Debug)]
pub(super) enum Consequence {
    /// Delete the object if it has owners and none of them remains.
    DeleteWithoutOwners {
        /// Key of the object.
        key: ObjectKey,
    },
    /// Delete the object.
    Delete {
        /// Storage name of the resource.
        resource: String,
        /// The object.
        object: Arc<Value>,
        /// What happens to its dependents.
        propagation: PropagationPolicy,
    },
    /// Carry out what has to happen before the terminating object can be removed.
    Terminate {
        /// Key of the object.
        key: ObjectKey,
        /// The object.
        object: Arc<Value>,
    },
    /// Delete the dependents of the removed object that have no other owner, and continue the deletion of its owners.
    ReleaseOwners {
        /// The removed object.
        removed: Arc<Value>,
    },
    /// Remove the reference to an owner from a dependent.
    RemoveOwnerReference {
        /// Key of the dependent.
        key: ObjectKey,
        /// UID of the owner.
        owner_uid: String,
    },
    /// Stop an object from blocking the deletion of owners that wait for it.
    UnblockOwners {
        /// Key of the object.
        key: ObjectKey,
        /// UID of the object.
        uid: String,
        /// UIDs of the owners.
        owner_uids: Vec<String>,
    },
    /// Remove a finalizer from an object.
    RemoveFinalizer {
        /// Key of the object.
        key: ObjectKey,
        /// UID of the object.
        uid: String,
        /// The finalizer.
        finalizer: &'static str,
    },
    /// Finish the foreground deletion of an owner if no dependents with `blockOwnerDeletion` remain.
    FinishForegroundDeletion {
        /// UID of the owner.
        owner_uid: String,
    },
    /// Delete the objects of a terminating namespace, one after another.
    DeleteNamespaceContents {
        /// Name of the namespace.
        namespace: String,
        /// The object that was deleted last.
        after: Option<ObjectKey>,
    },
    /// Finish the deletion of a terminating namespace if it is empty.
    FinalizeNamespace {
        /// Name of the namespace.
        name: String,
    },
    /// Delete the custom resources of a terminating definition, one after another.
    DeleteCustomResources {
        /// Name of the definition.
        definition: String,
        /// The object that was deleted last.
        after: Option<NamespacedName>,
    },
    /// Finish the deletion of a terminating custom resource definition if none of its custom resources remain.
    FinalizeDefinition {
        /// Name of the definition.
        name: String,
    },
    /// Update the status of a custom resource definition and serve its resources.
    ReconcileDefinition {
        /// Name of the definition.
        name: String,
    },
    /// Stop serving the resources of a removed custom resource definition.
    UninstallDefinition {
        /// The removed definition.
        definition: Arc<Value>,
    },
}

// === impl Consequence ===

impl Consequence {
    /// Returns the key of the object that the step changes, if it still exists and is known.
    pub(super) fn object_key(&self) -> Option<ObjectKey> {
        match self {
            Self::DeleteWithoutOwners { key }
            | Self::Terminate { key, .. }
            | Self::RemoveOwnerReference { key, .. }
            | Self::UnblockOwners { key, .. }
            | Self::RemoveFinalizer { key, .. } => Some(key.clone()),
            Self::Delete { resource, object, .. } => {
                let (namespace, name) = (object::namespace(object).to_owned(), object::name(object).to_owned());
                Some(ObjectKey { resource: resource.clone(), namespace, name })
            }
            Self::DeleteNamespaceContents { namespace: name, .. } | Self::FinalizeNamespace { name } => {
                Some(ObjectKey { resource: "namespaces".to_owned(), namespace: String::new(), name: name.clone() })
            }
            Self::DeleteCustomResources { definition: name, .. }
            | Self::FinalizeDefinition { name }
            | Self::ReconcileDefinition { name } => Some(definition::key(name)),
            Self::ReleaseOwners { .. } | Self::FinishForegroundDeletion { .. } | Self::UninstallDefinition { .. } => {
                None
            }
        }
    }
}
