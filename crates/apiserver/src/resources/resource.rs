//! One served version of a kind.

use std::sync::{Arc, OnceLock};

use apimachinery::{MergeSchema, Schema, builtin_merge_schema};
use serde_json::{Map, Value, json};

use super::{builtin_schemas, definition};
use crate::store::ObjectKey;

/// One served version of a kind.
#[derive(Clone, Debug)]
pub(crate) struct Resource {
    /// API group, empty for the core group.
    pub(crate) group: String,
    /// API version without the group: `v1`.
    pub(crate) version: String,
    /// Plural name: `deployments`.
    pub(crate) plural: String,
    /// Singular name: `deployment`.
    pub(crate) singular: String,
    /// Kind: `Deployment`.
    pub(crate) kind: String,
    /// Kind of lists: `DeploymentList`.
    pub(crate) list_kind: String,
    /// Short names for kubectl: `deploy`.
    pub(crate) short_names: Vec<String>,
    /// Categories for kubectl, such as `all`.
    pub(crate) categories: Vec<String>,
    /// Whether objects belong to a namespace.
    pub(crate) namespaced: bool,
    /// Resource name in the store: `pods`, `deployments.apps`. All versions of a kind share this name.
    pub(crate) storage: String,
    /// API version of stored objects: `apps/v1`.
    pub(crate) storage_api_version: String,
    /// Whether the resource has the `status` subresource.
    pub(crate) has_status: bool,
    /// Replica fields of the `scale` subresource.
    pub(crate) scale: Option<ScalePaths>,
    /// Whether `metadata.generation` counts changes of the spec.
    pub(crate) has_generation: bool,
    /// Whether a custom resource definition declares the resource.
    pub(crate) custom: bool,
    /// Whether the schema has defaults, which are applied on both reads and writes.
    pub(crate) has_defaults: bool,
    /// Whether the schema has CEL rules.
    pub(crate) has_rules: bool,
    /// Whether the only verb is create and the object is not stored ([`crate::reviews`]).
    pub(crate) create_only: bool,
    /// Merge behavior of lists and maps, for patches and server-side apply.
    pub(crate) merge_schema: Arc<MergeSchema>,
    /// `additionalPrinterColumns`; the columns of built-in kinds are in [`crate::table`].
    pub(crate) printer_columns: Vec<PrinterColumn>,
    /// Fields supported by field selectors in addition to `metadata.name` and `metadata.namespace`.
    pub(crate) selectable_fields: Vec<String>,
    /// Warning for clients that use a deprecated version.
    pub(crate) deprecation_warning: Option<String>,
    /// Source of the OpenAPI schema.
    pub(super) schema: SchemaSource,
}

/// JSON pointers to the fields of the `scale` subresource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    /// Desired number of replicas.
    pub(crate) spec_replicas: String,
    /// Observed number of replicas.
    pub(crate) status_replicas: String,
    /// Label selector: a string in custom resources, an object in built-in kinds.
    pub(crate) selector: Option<String>,
}

/// Printer column of a custom resource definition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct PrinterColumn {
    /// Heading.
    pub(crate) name: String,
    /// Type: `string`, `integer`, `number`, `boolean` or `date`.
    pub(crate) kind: String,
    /// OpenAPI format.
    pub(crate) format: String,
    /// Description.
    pub(crate) description: String,
    /// Columns with a priority above 0 are shown only with `-o wide`.
    pub(crate) priority: i64,
    /// JSONPath of the value, without braces.
    pub(crate) path: String,
}

/// Source of the OpenAPI schema.
#[derive(Clone, Debug)]
pub(super) enum SchemaSource {
    /// No schema: every field is preserved.
    Open,
    /// Schema of a custom resource definition.
    Custom { schema: Arc<Schema>, raw: Arc<Value> },
    /// Schema in [`builtin_schemas`], parsed at first use, because most kinds are never written.
    Builtin(Arc<OnceLock<Option<Arc<Schema>>>>),
}

// === impl Resource ===

impl Resource {
    /// Returns the API version: `v1`, `apps/v1`.
    #[must_use]
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns the group resource, as in messages: `pods`, `deployments.apps`.
    #[must_use]
    pub(crate) fn group_resource(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Returns the group kind, as in validation errors: `Pod`, `Deployment.apps`.
    #[must_use]
    pub(crate) fn group_kind(&self) -> String {
        if self.group.is_empty() { self.kind.clone() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// Returns the store key of an object.
    pub(crate) fn object_key(&self, namespace: &str, name: &str) -> ObjectKey {
        let namespace = if self.namespaced { namespace } else { "" };
        ObjectKey { resource: self.storage.clone(), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Reports whether PUT creates objects that do not exist (`AllowCreateOnUpdate`).
    pub(crate) fn allows_create_on_update(&self) -> bool {
        !self.custom
            && (self.group == "rbac.authorization.k8s.io"
                || matches!(self.storage.as_str(), "services" | "endpoints" | "events" | "leases.coordination.k8s.io"))
    }

    /// Reports whether PUT requires a resource version (no `AllowUnconditionalUpdate`).
    pub(crate) fn requires_resource_version(&self) -> bool {
        let conditional = ["leases.coordination.k8s.io", "poddisruptionbudgets.policy", definition::STORAGE];
        self.custom || conditional.contains(&self.storage.as_str())
    }

    /// Returns the schema of the objects; `None` if there is no schema or the type is recursive.
    #[must_use]
    pub(crate) fn schema(&self) -> Option<Arc<Schema>> {
        match &self.schema {
            SchemaSource::Open => None,
            SchemaSource::Custom { schema, .. } => Some(Arc::clone(schema)),
            SchemaSource::Builtin(parsed) => parsed.get_or_init(|| self.parse_builtin_schema()).clone(),
        }
    }

    fn parse_builtin_schema(&self) -> Option<Arc<Schema>> {
        let schema = builtin_schemas::structural_schema(&self.api_version(), &self.kind)?;
        match Schema::from_json(&schema) {
            Ok(schema) => Some(Arc::new(schema)),
            Err(error) => {
                tracing::error!(kind = self.kind, error, "failed to parse the schema of a built-in kind");
                None
            }
        }
    }

    /// Sets the schema of a custom resource.
    pub(crate) fn set_custom_schema(&mut self, schema: Schema, raw: Value) {
        self.schema = SchemaSource::Custom { schema: Arc::new(schema), raw: Arc::new(raw) };
    }

    /// Returns a custom resource without subresources, columns and schema.
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
            has_status: false,
            scale: None,
            has_generation: true,
            custom: true,
            has_defaults: false,
            has_rules: false,
            create_only: false,
            merge_schema: Arc::new(builtin_merge_schema("", "")),
            printer_columns: Vec::new(),
            selectable_fields: Vec::new(),
            deprecation_warning: None,
            schema: SchemaSource::Open,
        }
    }
}

/// Returns the schema name of a resource and all named schemas for its OpenAPI document.
pub(crate) fn openapi_definitions(resource: &Resource) -> (String, Map<String, Value>) {
    let reversed_group: Vec<&str> = resource.group.split('.').rev().collect();
    let name = format!("{}.{}.{}", reversed_group.join("."), resource.version, resource.kind);
    match &resource.schema {
        SchemaSource::Builtin(_) => builtin_schemas::definitions(&resource.api_version(), &resource.kind)
            .unwrap_or_else(|| open_definition(name)),
        SchemaSource::Open => open_definition(name),
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

/// Returns the definition of a kind without a schema.
fn open_definition(name: String) -> (String, Map<String, Value>) {
    (name.clone(), Map::from_iter([(name, json!({"type": "object"}))]))
}
