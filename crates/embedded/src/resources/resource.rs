//! One served version of one kind.

use std::sync::{Arc, OnceLock};

use apimachinery::schema::Schema;
use apimachinery::structure::Structure;
use serde_json::{Map, Value, json};

use crate::table::PrinterColumn;

/// One served version of one kind.
#[derive(Clone, Debug)]
pub struct Resource {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    /// `pods`, `deployments.apps`: under what its objects are kept.
    pub storage: String,
    /// `apps/v1`: with which version they are kept.
    pub storage_api_version: String,
    pub status: bool,
    pub scale: Option<ScalePaths>,
    /// Whether `metadata.generation` counts changes of the specification.
    pub generation: bool,
    pub custom: bool,
    /// Whether the schema fills anything in; what is read is then filled in, too.
    pub has_defaults: bool,
    /// Whether the schema has CEL rules.
    pub has_rules: bool,
    /// Neither stored nor listed: create answers ([`crate::reviews`]) and forgets.
    pub virtual_only: bool,
    pub structure: Arc<Structure>,
    /// `additionalPrinterColumns`; built-in kinds have their own in [`crate::table`].
    pub columns: Vec<PrinterColumn>,
    /// JSON paths beyond `metadata.name` and `metadata.namespace` that field selectors may name.
    pub selectable: Vec<String>,
    /// What is said to everybody who uses a version that is no longer recommended.
    pub deprecation: Option<String>,
    pub(super) schema: SchemaSource,
}

/// Where the replica counts of a scalable kind are, as JSON pointers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScalePaths {
    pub spec_replicas: String,
    pub status_replicas: String,
    /// Where the selector is; a string for custom resources, an object for the built-in kinds.
    pub selector: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) enum SchemaSource {
    /// `x-kubernetes-preserve-unknown-fields` over everything.
    Open,
    Custom {
        schema: Arc<Schema>,
        raw: Arc<Value>,
    },
    /// Generated from the type at first use: most kinds are never written.
    Builtin {
        generate: Option<fn() -> Value>,
        document: Document,
        made: Arc<OnceLock<Option<Arc<Schema>>>>,
    },
}

/// Makes the name of a schema and every schema it refers to.
pub(super) type Document = fn() -> (String, Map<String, Value>);

// === impl Resource ===

impl Resource {
    /// `v1`, `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `pods`, `deployments.apps`: how messages name it.
    #[must_use]
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `Pod`, `Deployment.apps`: how `Invalid` names it.
    #[must_use]
    pub fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// Whether a PUT to a name that is free creates the object (`AllowCreateOnUpdate`).
    pub(crate) fn is_made_by_replacing(&self) -> bool {
        !self.custom
            && (self.group == "rbac.authorization.k8s.io"
                || matches!(self.storage.as_str(), "services" | "endpoints" | "events" | "leases.coordination.k8s.io"))
    }

    /// Whether a PUT has to say which version it replaces (no `AllowUnconditionalUpdate`).
    pub(crate) fn needs_version(&self) -> bool {
        let wary = ["leases.coordination.k8s.io", "poddisruptionbudgets.policy", crate::crd::STORAGE];
        self.custom || wary.contains(&self.storage.as_str())
    }

    /// What objects must look like; `None` where anything goes.
    #[must_use]
    pub fn schema(&self) -> Option<Arc<Schema>> {
        match &self.schema {
            SchemaSource::Open => None,
            SchemaSource::Custom { schema, .. } => Some(Arc::clone(schema)),
            SchemaSource::Builtin { generate: None, .. } => None,
            SchemaSource::Builtin { generate: Some(generate), made, .. } => made
                .get_or_init(|| match Schema::from_json(&generate()) {
                    Ok(schema) => Some(Arc::new(schema)),
                    Err(error) => {
                        tracing::error!(kind = self.kind, error, "the schema of a built-in kind does not read");
                        None
                    }
                })
                .clone(),
        }
    }

    pub(crate) fn set_custom_schema(&mut self, schema: Schema, raw: Value) {
        self.schema = SchemaSource::Custom { schema: Arc::new(schema), raw: Arc::new(raw) };
    }

    pub(crate) fn new_custom(group: &str, version: &str, plural: &str, kind: &str) -> Self {
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            kind: kind.to_owned(),
            list_kind: format!("{kind}List"),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: true,
            storage: format!("{plural}.{group}"),
            storage_api_version: format!("{group}/{version}"),
            status: false,
            scale: None,
            generation: true,
            custom: true,
            has_defaults: false,
            has_rules: false,
            virtual_only: false,
            structure: Arc::new(Structure::builtin("", "")),
            columns: Vec::new(),
            selectable: Vec::new(),
            deprecation: None,
            schema: SchemaSource::Open,
        }
    }
}

/// The schema of a resource for its document: its name, and all named schemas.
pub(crate) fn document_schema(resource: &Resource) -> (String, Map<String, Value>) {
    let reversed: Vec<&str> = resource.group.split('.').rev().collect();
    let name = format!("{}.{}.{}", reversed.join("."), resource.version, resource.kind);
    match &resource.schema {
        SchemaSource::Builtin { document, .. } => document(),
        SchemaSource::Open => (name.clone(), Map::from_iter([(name, json!({"type": "object"}))])),
        SchemaSource::Custom { raw, .. } => {
            let mut schema = Value::clone(raw);
            let properties = schema.pointer_mut("/properties").and_then(Value::as_object_mut);
            if let Some(properties) = properties {
                properties.insert(
                    "metadata".to_owned(),
                    json!({"type": "object", "description": "Standard object's metadata."}),
                );
                properties.entry("apiVersion").or_insert_with(|| json!({"type": "string"}));
                properties.entry("kind").or_insert_with(|| json!({"type": "string"}));
            }
            (name.clone(), Map::from_iter([(name, schema)]))
        }
    }
}
