//! Registry of the served resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::{CaughtPanic, catch_panic, object};
use serde_json::Value;

use super::builtin;
use super::custom::custom_resources;
use super::definition;
use super::resource::Resource;
use super::version_priority::version_priority;
use crate::store::StoredObject;

/// Set of the served resources. Readers share an immutable snapshot, which every change replaces.
#[derive(Clone, Default)]
pub(crate) struct Registry {
    /// Resources, sorted by group, version and plural name. A map would need owned strings for each lookup.
    resources: Vec<Arc<Resource>>,
    /// The definitions of the custom resources, by name.
    definitions: BTreeMap<String, ServedDefinition>,
}

/// A definition whose custom resources are served.
#[derive(Clone)]
struct ServedDefinition {
    /// The version of the definition that declares the resources.
    stored: Arc<StoredObject>,
    /// Whether the definition is being deleted.
    is_terminating: bool,
}

/// The resources of an established definition. Compiling schemas and rules takes up to a second.
pub(crate) struct CompiledDefinition {
    stored: Arc<StoredObject>,
    resources: Vec<Resource>,
    /// The panic that prevents serving the resources.
    pub(crate) failure: Option<CaughtPanic>,
}

// === impl CompiledDefinition ===

impl CompiledDefinition {
    /// Compiles a definition. Returns `None` if it is not established.
    pub(crate) fn new(stored: &Arc<StoredObject>) -> Option<Self> {
        Self::compile(stored, |definition| custom_resources(definition).collect())
    }

    /// A definition that causes a panic has no resources, so that it does not stop the others.
    fn compile(stored: &Arc<StoredObject>, compile: impl FnOnce(&Value) -> Vec<Resource>) -> Option<Self> {
        let definition = stored.value();
        if !definition::is_established(&definition) {
            return None;
        }
        let (resources, failure) = match catch_panic(|| compile(&definition)) {
            Ok(resources) => (resources, None),
            Err(panic) => (Vec::new(), Some(panic)),
        };
        Some(Self { stored: Arc::clone(stored), resources, failure })
    }
}

// === impl Registry ===

impl Registry {
    /// Returns a registry of the built-in resources.
    #[must_use]
    pub(crate) fn builtin() -> Self {
        let mut registry = Self::default();
        for resource in builtin::all() {
            registry.insert(resource);
        }
        registry
    }

    /// Returns the resource with this group, version and plural name.
    #[must_use]
    pub(crate) fn get(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        let index = self.position((group, version, plural)).ok()?;
        self.resources.get(index).cloned()
    }

    /// Returns the storage version of a resource named like `pods` or `deployments.apps`.
    #[must_use]
    pub(crate) fn by_name(&self, name: &str) -> Option<Arc<Resource>> {
        let (plural, group) = name.split_once('.').unwrap_or((name, ""));
        self.resources
            .iter()
            .find(|resource| {
                resource.plural == plural
                    && resource.group == group
                    && resource.storage_api_version == resource.api_version()
            })
            .cloned()
    }

    /// Returns the resource of a kind such as `apps/v1`, `Deployment`.
    #[must_use]
    pub(crate) fn by_kind(&self, api_version: &str, kind: &str) -> Option<Arc<Resource>> {
        self.resources.iter().find(|resource| resource.kind == kind && resource.api_version() == api_version).cloned()
    }

    /// Iterates over all resources, ordered by group, version and plural name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.iter()
    }

    /// Reports whether the group version has resources.
    #[must_use]
    pub(crate) fn serves(&self, group: &str, version: &str) -> bool {
        self.iter().any(|resource| resource.group == group && resource.version == version)
    }

    /// Reports whether the group contains custom resources.
    #[must_use]
    pub(crate) fn is_custom(&self, group: &str) -> bool {
        self.iter().any(|resource| resource.group == group && resource.custom)
    }

    /// Returns the groups with their versions, the preferred version first.
    #[must_use]
    pub(crate) fn groups(&self) -> BTreeMap<String, Vec<String>> {
        let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for resource in self.iter() {
            let versions = groups.entry(resource.group.clone()).or_default();
            if !versions.contains(&resource.version) {
                versions.push(resource.version.clone());
            }
        }
        for versions in groups.values_mut() {
            versions.sort_by(|a, b| version_priority(b).cmp(&version_priority(a)).then_with(|| a.cmp(b)));
        }
        groups
    }

    /// Reports whether the resources of the definition `name` are those that `stored` declares: none if it is `None`.
    pub(crate) fn is_current(&self, name: &str, stored: Option<&Arc<StoredObject>>) -> bool {
        match (self.definitions.get(name), stored) {
            (Some(served), Some(stored)) => Arc::ptr_eq(&served.stored, stored),
            (None, None) => true,
            _ => false,
        }
    }

    /// Reports whether the definition `name` is being deleted.
    pub(crate) fn is_terminating(&self, name: &str) -> bool {
        self.definitions.get(name).is_some_and(|served| served.is_terminating)
    }

    /// Adds the resources of a definition.
    pub(crate) fn insert_definition(&mut self, definition: CompiledDefinition) {
        let CompiledDefinition { stored, resources, .. } = definition;
        resources.into_iter().for_each(|resource| self.insert(resource));
        let value = stored.value();
        let is_terminating = object::is_deleting(&value);
        self.definitions.insert(object::name(&value).to_owned(), ServedDefinition { stored, is_terminating });
    }

    /// Removes all versions of a resource named like `deployments.apps`, and its definition.
    pub(crate) fn remove_definition(&mut self, name: &str) {
        self.resources.retain(|resource| resource.group_resource() != name);
        self.definitions.remove(name);
    }

    /// Adds a resource.
    fn insert(&mut self, resource: Resource) {
        match self.position(key(&resource)) {
            Ok(index) => self.resources[index] = Arc::new(resource),
            Err(index) => self.resources.insert(index, Arc::new(resource)),
        }
    }

    /// Returns the index of a resource, or as an error the index at which to insert it.
    fn position(&self, searched: (&str, &str, &str)) -> Result<usize, usize> {
        self.resources.binary_search_by(|resource| key(resource).cmp(&searched))
    }
}

fn key(resource: &Resource) -> (&str, &str, &str) {
    (&resource.group, &resource.version, &resource.plural)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_name_returns_storage_version() {
        let registry = Registry::builtin();
        assert_eq!(registry.by_name("deployments.apps").map(|resource| resource.api_version()), Some("apps/v1".into()));
        assert_eq!(registry.by_name("events").map(|resource| resource.api_version()), Some("v1".into()));
        assert!(registry.by_name("events.events.k8s.io").is_none());
    }

    #[test]
    fn definition_that_panics_has_no_resources() {
        let conditions = serde_json::json!([{"type": "Established", "status": "True"}]);
        let definition = serde_json::json!({"metadata": {"name": "a.b"}, "status": {"conditions": conditions}});
        let stored = Arc::new(StoredObject::new(&Arc::new(definition)));
        let compiled = CompiledDefinition::compile(&stored, |_| panic!("broken schema")).unwrap();
        assert_eq!(compiled.failure.as_ref().unwrap().to_string(), "panicked: broken schema");
        let mut registry = Registry::builtin();
        registry.insert_definition(compiled);
        assert!(registry.is_current("a.b", Some(&stored)), "the definition is not compiled again for each request");
        assert!(registry.by_name("a.b").is_none());
    }
}
