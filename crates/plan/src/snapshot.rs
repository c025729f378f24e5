//! Input of a plan: the services, and the runtimes, classes, models, Nodes and Pods that decisions depend on.

use std::sync::Arc;

use api::ome::{
    AcceleratorClass, BaseModel, BaseModelSpec, ClusterBaseModel, ClusterServingRuntime, ServingRuntime,
    ServingRuntimeSpec,
};
use api::{Document, ManifestError};
use api::{fusioninfer, ome};
use decide::{Inventory, Scope};
use serde_json::Value;

use crate::claims::Claim;
use crate::class::Class;
use crate::gang::PodGroupSchema;
use crate::names;
use crate::replicas::AutoscalerSupport;
use crate::runtime::Runtime;

const OME: &str = ome::API_VERSION;
const FUSION_INFER: &str = fusioninfer::API_VERSION;

/// An InferenceService of either API group.
#[derive(Debug, Clone)]
pub enum Service {
    /// Service of `ome.io`.
    Ome(Box<ome::InferenceService>),
    /// Service of `fusioninfer.io`, which consists of roles.
    RoleBased(Box<fusioninfer::InferenceService>),
}

/// All objects and settings that a plan depends on.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Services to plan, in input order.
    pub services: Vec<Service>,
    /// ServingRuntimes and ClusterServingRuntimes.
    pub runtimes: Vec<Runtime>,
    /// AcceleratorClasses.
    pub classes: Vec<Class>,
    /// BaseModels and ClusterBaseModels.
    pub models: Vec<Model>,
    /// Nodes, their Pods and the capacity of each class. Empty in offline plans, unless a cluster snapshot is given.
    pub inventory: Arc<Inventory>,
    /// Accelerators claimed by services with a decision, whether or not their Pods run yet.
    pub claims: Vec<Claim>,
    /// State of the feature gate `AcceleratorAwareScheduling`.
    pub accelerator_aware: bool,
    /// Schema of the cluster's PodGroups; Volcano 1.15 by default.
    pub pod_group_schema: PodGroupSchema,
    /// Autoscalers that the cluster supports.
    pub autoscaler_support: AutoscalerSupport,
    /// Image of ostler, for the endpoint pickers of role-based services and the requesters of dual pods.
    pub picker_image: String,
}

/// Default image of endpoint pickers and requesters: ostler at the version of this crate.
pub const DEFAULT_PICKER_IMAGE: &str = concat!("ostler:", env!("CARGO_PKG_VERSION"));

/// A BaseModel or ClusterBaseModel.
#[derive(Debug, Clone)]
pub struct Model {
    /// Name of the model.
    pub name: String,
    /// Namespace; `None` for cluster scope.
    pub namespace: Option<String>,
    /// Annotation `models.ome.io/category`.
    pub category: Option<String>,
    /// Spec of the model.
    pub spec: BaseModelSpec,
}

// === impl Snapshot ===

impl Default for Snapshot {
    fn default() -> Self {
        Self {
            services: Vec::new(),
            runtimes: Vec::new(),
            classes: Vec::new(),
            models: Vec::new(),
            inventory: Arc::default(),
            claims: Vec::new(),
            accelerator_aware: true,
            pod_group_schema: PodGroupSchema::default(),
            autoscaler_support: AutoscalerSupport::default(),
            picker_image: DEFAULT_PICKER_IMAGE.to_owned(),
        }
    }
}

impl Snapshot {
    /// Builds a snapshot with the services of `documents` and the supply of both lists. Later objects replace earlier ones of
    /// the same kind and name, and those of `documents` replace those of `supply`. Other kinds are ignored.
    ///
    /// # Errors
    /// The first field of a wrong type.
    pub fn from_documents(documents: &[Document], supply: &[Document]) -> Result<Self, ManifestError> {
        let mut snapshot = Self::default();
        for document in supply {
            snapshot.add_supply(document)?;
        }
        documents.iter().try_for_each(|document| snapshot.add(document))?;
        Ok(snapshot)
    }

    /// Adds a service, or an object that decisions depend on.
    ///
    /// # Errors
    /// A field of a wrong type; the snapshot is unchanged.
    pub fn add(&mut self, document: &Document) -> Result<(), ManifestError> {
        match Service::from_document(document)? {
            Some(service) => self.services.push(service),
            None => self.add_supply(document)?,
        }
        Ok(())
    }

    /// Adds a runtime, class, model, Node or Pod, and replaces an object of the same name.
    ///
    /// # Errors
    /// A field of a wrong type; the snapshot is unchanged.
    pub fn add_supply(&mut self, document: &Document) -> Result<(), ManifestError> {
        match (document.api_version(), document.kind()) {
            (OME, "ServingRuntime") => {
                let runtime: ServingRuntime = document.parse()?;
                self.add_runtime(document, Scope::Namespace, runtime.spec);
            }
            (OME, "ClusterServingRuntime") => {
                let runtime: ClusterServingRuntime = document.parse()?;
                self.add_runtime(document, Scope::Cluster, runtime.spec.0);
            }
            (OME, "BaseModel") => {
                let model: BaseModel = document.parse()?;
                self.add_model(document, Some(namespace(document)), model.spec);
            }
            (OME, "ClusterBaseModel") => {
                let model: ClusterBaseModel = document.parse()?;
                self.add_model(document, None, model.spec.0);
            }
            (OME, "AcceleratorClass") => {
                let class = Class::parse(&document.parse::<AcceleratorClass>()?);
                self.add_class_to_inventory(&class);
                insert_or_replace(&mut self.classes, class, |a, b| a.name == b.name);
            }
            ("v1", "Node") => {
                Arc::make_mut(&mut self.inventory).set_node(document.name(), Some(&document.value));
            }
            ("v1", "Pod") => {
                let inventory = Arc::make_mut(&mut self.inventory);
                inventory.set_pod(&namespace(document), document.name(), Some(&document.value));
            }
            _ => {}
        }
        Ok(())
    }

    /// Removes all classes but one. A partition keeps the figures that follow from its device.
    pub fn retain_class(&mut self, name: &str) {
        let classes = self.classes.iter().filter_map(|class| class.parsed.clone().ok()).collect();
        let mut supply = decide::Supply { classes, ..decide::Supply::default() };
        decide::complete_partitions(&mut supply);
        self.classes.retain(|class| class.name == name);
        for class in &mut self.classes {
            let priced = supply.classes.iter().find(|priced| priced.name == class.name);
            if let Some(priced) = priced {
                class.parsed = Ok(Arc::clone(priced));
            }
        }
    }

    /// Adds a class to the inventory unless it is already there, to avoid copying a shared inventory. Plans report invalid
    /// classes as warnings.
    fn add_class_to_inventory(&mut self, class: &Class) {
        let Ok(parsed) = &class.parsed else { return };
        let without_availability = decide::Class { availability: None, ..decide::Class::clone(parsed) };
        if !self.inventory.is_current(&without_availability) {
            Arc::make_mut(&mut self.inventory).set_class(&class.name, Some(without_availability));
        }
    }

    fn add_runtime(&mut self, document: &Document, scope: Scope, spec: ServingRuntimeSpec) {
        let namespace = if scope == Scope::Namespace { namespace(document) } else { String::new() };
        let created = string_at(&document.value, "/metadata/creationTimestamp");
        let runtime = Runtime::parse(document.name().to_owned(), scope, namespace, created, spec);
        let is_same = |a: &Runtime, b: &Runtime| (a.scope, &a.namespace, &a.name) == (b.scope, &b.namespace, &b.name);
        insert_or_replace(&mut self.runtimes, runtime, is_same);
    }

    fn add_model(&mut self, document: &Document, namespace: Option<String>, spec: BaseModelSpec) {
        let category = document.value["metadata"]["annotations"]["models.ome.io/category"].as_str();
        let model = Model { name: document.name().to_owned(), namespace, category: category.map(str::to_owned), spec };
        insert_or_replace(&mut self.models, model, |a, b| (&a.namespace, &a.name) == (&b.namespace, &b.name));
    }

    /// Returns the model of that name. Without a `kind`, a BaseModel takes precedence over a ClusterBaseModel.
    pub fn model(&self, namespace: &str, name: &str, kind: Option<&str>) -> Option<&Model> {
        let find = |namespace: Option<&str>| {
            self.models.iter().find(|model| model.name == name && model.namespace.as_deref() == namespace)
        };
        match kind {
            Some("BaseModel") => find(Some(namespace)),
            // The API server defaults `kind` to ClusterBaseModel, so that value does not exclude a BaseModel.
            _ => find(Some(namespace)).or_else(|| find(None)),
        }
    }
}

// === impl Service ===

impl Service {
    /// Parses an InferenceService. Returns `None` for a document of another kind.
    ///
    /// # Errors
    /// A field of a wrong type, or a name that is invalid for the objects of the service.
    pub fn from_document(document: &Document) -> Result<Option<Self>, ManifestError> {
        Ok(match (document.api_version(), document.kind()) {
            (OME, "InferenceService") => {
                validate_service_name(document)?;
                Some(Self::Ome(Box::new(document.parse()?)))
            }
            (FUSION_INFER, "InferenceService") => {
                validate_service_name(document)?;
                let service: fusioninfer::InferenceService = document.parse()?;
                validate_role_names(document, &service)?;
                Some(Self::RoleBased(Box::new(service)))
            }
            _ => None,
        })
    }
}

/// Checks that the name is a DNS-1035 label, because Services and workloads derive their names from it.
fn validate_service_name(document: &Document) -> Result<(), ManifestError> {
    if names::is_dns_1035(document.name()) {
        return Ok(());
    }
    let path = "metadata.name".to_owned();
    if document.name().is_empty() {
        let hint = "set `name`; a name from `generateName` is known only once the object exists".to_owned();
        return Err(invalid_name(document, path, "required field is missing".to_owned(), hint));
    }
    let limit = names::LABEL_LENGTH;
    let cause = format!("\"{}\" is not a valid name for a Service", document.name());
    let hint = format!(
        "use at most {limit} characters a-z, 0-9 and -, starting with a letter and ending with a letter or digit"
    );
    Err(invalid_name(document, path, cause, hint))
}

/// Checks that `{service}-{role}-{index}` is a valid name of a LeaderWorkerSet. Routers have no LeaderWorkerSet.
fn validate_role_names(document: &Document, service: &fusioninfer::InferenceService) -> Result<(), ManifestError> {
    let is_engine = |role: &fusioninfer::Role| role.component_type != fusioninfer::ComponentType::Router;
    for (index, role) in service.spec.roles.iter().enumerate().filter(|(_, role)| is_engine(role)) {
        let last_index = role.replica_count().max(1).unsigned_abs() - 1;
        let name = names::replica(document.name(), &role.name, last_index);
        if name.len() > names::LEADER_WORKER_SET_LENGTH || !names::is_dns_1035(&name) {
            let limit = names::LEADER_WORKER_SET_LENGTH;
            let cause = format!("\"{name}\" is not a valid name for a LeaderWorkerSet");
            let hint = format!(
                "shorten the name of the service or role: service, role and index together have at most {limit} characters a-z, 0-9 and -"
            );
            return Err(invalid_name(document, format!("spec.roles[{index}].name"), cause, hint));
        }
    }
    Ok(())
}

fn invalid_name(document: &Document, path: String, cause: String, hint: String) -> ManifestError {
    ManifestError { path: Some(path), cause, hint: Some(hint), ..document.manifest_error() }
}

fn namespace(document: &Document) -> String {
    document.namespace().filter(|namespace| !namespace.is_empty()).unwrap_or("default").to_owned()
}

fn string_at(value: &Value, pointer: &str) -> Option<String> {
    value.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
}

fn insert_or_replace<T>(items: &mut Vec<T>, item: T, is_same: impl Fn(&T, &T) -> bool) {
    match items.iter_mut().find(|existing| is_same(existing, &item)) {
        Some(existing) => *existing = item,
        None => items.push(item),
    }
}
