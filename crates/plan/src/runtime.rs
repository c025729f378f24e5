//! A runtime. It is parsed once, when added to the snapshot, and shared by the plans of all services.

use std::sync::Arc;

use api::ome::ServingRuntimeSpec;
use decide::{FieldError, Scope, WarningSubject};

/// A ServingRuntime or ClusterServingRuntime: its spec for rendering, and the parsed form for decisions.
#[derive(Debug, Clone)]
pub struct Runtime {
    /// Name of the runtime.
    pub name: String,
    /// Namespace or cluster scope.
    pub scope: Scope,
    /// Namespace; empty for cluster scope.
    pub namespace: String,
    created: Option<String>,
    spec: ServingRuntimeSpec,
    parsed: Result<Arc<decide::Runtime>, FieldError>,
}

impl Runtime {
    /// Parses a runtime. `created` is its creation timestamp in RFC 3339.
    pub(crate) fn parse(
        name: String,
        scope: Scope,
        namespace: String,
        created: Option<String>,
        spec: ServingRuntimeSpec,
    ) -> Self {
        let parsed = decide::Runtime::from_api(&name, scope, &namespace, created.clone(), &spec).map(Arc::new);
        Self { name, scope, namespace, created, spec, parsed }
    }

    /// Returns the spec.
    pub fn spec(&self) -> &ServingRuntimeSpec {
        &self.spec
    }

    /// Returns whether services in `namespace` can use the runtime.
    pub(crate) fn is_visible_in(&self, namespace: &str) -> bool {
        self.scope == Scope::Cluster || self.namespace == namespace
    }

    /// Returns the runtime as the subject of a warning.
    pub(crate) fn subject(&self) -> WarningSubject {
        let kind = match self.scope {
            Scope::Namespace => "ServingRuntime",
            Scope::Cluster => "ClusterServingRuntime",
        };
        WarningSubject::Object { kind, namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// Returns the parsed runtime that decisions use.
    ///
    /// # Errors
    /// The path and the reason of an invalid version, size, condition or capability.
    pub fn parsed(&self) -> Result<&Arc<decide::Runtime>, &FieldError> {
        self.parsed.as_ref()
    }

    /// Changes the spec and parses the runtime again.
    pub fn update_spec(&mut self, change: impl FnOnce(&mut ServingRuntimeSpec)) {
        let mut spec = self.spec.clone();
        change(&mut spec);
        *self = Self::parse(self.name.clone(), self.scope, self.namespace.clone(), self.created.clone(), spec);
    }
}
