//! Resource types: group, version, kind, plural and the label selector of their watch.

use kube::core::ApiResource;

/// A resource type at one API version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version, such as `v1beta1`.
    pub version: &'static str,
    /// Kind, such as `InferenceService`.
    pub kind: &'static str,
    /// Plural resource name, such as `inferenceservices`.
    pub plural: &'static str,
    /// Whether objects have a namespace; false for cluster-scoped kinds.
    pub namespaced: bool,
    /// Label selector of the watch, for kinds of which a cluster has many objects that ostler does not manage. Empty: all
    /// objects.
    pub label_selector: &'static str,
}

impl Kind {
    /// Returns a namespaced kind.
    #[must_use]
    pub const fn namespaced(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Kind {
        Kind { group, version, kind, plural, namespaced: true, label_selector: "" }
    }

    /// Returns a cluster-scoped kind.
    #[must_use]
    pub const fn cluster_scoped(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Kind {
        Kind { group, version, kind, plural, namespaced: false, label_selector: "" }
    }

    /// Returns this kind restricted to objects that match `label_selector` (`key=value`). The restricted kind has its own
    /// watch and cache: an object that is not cached may still exist in the cluster.
    #[must_use]
    pub const fn with_label_selector(self, label_selector: &'static str) -> Kind {
        Kind { label_selector, ..self }
    }

    /// Returns `group/version`, or the version alone for the core group.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns `plural.group`, or the plural alone for the core group. A CustomResourceDefinition has the same name.
    #[must_use]
    pub fn group_resource(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Returns the kube-rs description of this kind.
    #[must_use]
    pub fn api_resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            api_version: self.api_version(),
            kind: self.kind.to_owned(),
            plural: self.plural.to_owned(),
        }
    }

    /// Returns a client for objects of this kind, in `namespace` for namespaced kinds.
    #[must_use]
    pub fn api(&self, client: kube::Client, namespace: &str) -> kube::Api<kube::core::DynamicObject> {
        let resource = self.api_resource();
        if self.namespaced {
            kube::Api::namespaced_with(client, namespace, &resource)
        } else {
            kube::Api::all_with(client, &resource)
        }
    }
}
