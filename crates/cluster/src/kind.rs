//! A kind of object: enough to build its URLs and to name its store.

use kube::core::ApiResource;

/// One kind at the version we speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// API group; empty for core.
    pub group: &'static str,
    /// Version, such as `v1beta1`.
    pub version: &'static str,
    /// `InferenceService`.
    pub kind: &'static str,
    /// `inferenceservices`.
    pub plural: &'static str,
    /// False for cluster-scoped kinds.
    pub namespaced: bool,
    /// Which objects of the kind are meant, as a label selector: of kinds that others keep very many of, ours. Empty: all.
    pub labels: &'static str,
}

impl Kind {
    /// A namespaced kind.
    #[must_use]
    pub const fn namespaced(
        group: &'static str,
        version: &'static str,
        kind: &'static str,
        plural: &'static str,
    ) -> Kind {
        Kind { group, version, kind, plural, namespaced: true, labels: "" }
    }

    /// A cluster-scoped kind.
    #[must_use]
    pub const fn cluster(group: &'static str, version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
        Kind { group, version, kind, plural, namespaced: false, labels: "" }
    }

    /// Of this kind only the objects with these labels (`key=value`). They have a watch and a store of their own; what is not
    /// among them may still be there.
    #[must_use]
    pub const fn labelled(self, labels: &'static str) -> Kind {
        Kind { labels, ..self }
    }

    /// `group/version`, or the version alone for core.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `plural.group`, or the plural alone for core: also the name of the kind's CRD.
    #[must_use]
    pub fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// What `kube::Api` needs to know.
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

    /// The API through which one object of this kind is reached.
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
