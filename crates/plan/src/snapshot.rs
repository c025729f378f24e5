//! Everything a plan depends on, read once: services to plan, and runtimes, classes, models, nodes and pods to plan with.

use std::sync::Arc;

use api::manifest::{Document, ManifestError};
use api::ome::{
    AcceleratorClass, BaseModel, BaseModelSpec, ClusterBaseModel, ClusterServingRuntime, ServingRuntime,
    ServingRuntimeSpec,
};
use api::{fusioninfer, ome};
use decide::inventory::Index;
use decide::supply::Scope;
use serde_json::Value;

use crate::claims::Claim;
use crate::gang::PodGroupSchema;
use crate::names;
use crate::supply::{Class, Runtime};
use crate::topology::Autoscalers;

const OME: &str = ome::API_VERSION;
const ROLES: &str = fusioninfer::API_VERSION;

/// A service of either group.
#[derive(Debug, Clone)]
pub enum Service {
    Ome(Box<ome::InferenceService>),
    Roles(Box<fusioninfer::InferenceService>),
}

/// What is given; nothing else is looked at.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// In input order.
    pub services: Vec<Service>,
    pub runtimes: Vec<Runtime>,
    pub classes: Vec<Class>,
    pub models: Vec<Model>,
    /// Nodes, the Pods on them, and what classes have there. Nothing is known offline, unless a cluster snapshot is
    /// given.
    pub inventory: Arc<Index>,
    /// What services that are decided already will take, whether their pods run yet or not.
    pub claims: Vec<Claim>,
    /// Feature gate `AcceleratorAwareScheduling`.
    pub accelerator_aware: bool,
    /// What the cluster's PodGroups can say; Volcano 1.15 where nothing is known.
    pub pod_groups: PodGroupSchema,
    /// Which autoscalers the cluster has.
    pub autoscalers: Autoscalers,
    /// Image of the endpoint pickers of routers: this program's.
    pub picker_image: String,
}

/// What this program is called as an image, unless it is told otherwise.
pub const PICKER_IMAGE: &str = concat!("ostler:", env!("CARGO_PKG_VERSION"));

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
            pod_groups: PodGroupSchema::default(),
            autoscalers: Autoscalers::default(),
            picker_image: PICKER_IMAGE.to_owned(),
        }
    }
}

/// A model of either scope.
#[derive(Debug, Clone)]
pub struct Model {
    pub name: String,
    /// None for cluster scope.
    pub namespace: Option<String>,
    /// Annotation `models.ome.io/category`.
    pub category: Option<String>,
    pub spec: BaseModelSpec,
}

impl Service {
    /// The service that `document` holds; None if it holds something else.
    ///
    /// # Errors
    /// The field that does not fit its type, or a name that nothing can be called after.
    pub fn read(document: &Document) -> Result<Option<Self>, ManifestError> {
        Ok(match (document.api_version(), document.kind()) {
            (OME, "InferenceService") => {
                named(document)?;
                Some(Self::Ome(Box::new(document.parse()?)))
            }
            (ROLES, "InferenceService") => {
                named(document)?;
                let service: fusioninfer::InferenceService = document.parse()?;
                roles_named(document, &service)?;
                Some(Self::Roles(Box::new(service)))
            }
            _ => None,
        })
    }
}

impl Snapshot {
    /// Services of `given`, to be planned with what `given` and `supply` hold. Of two objects of one kind and name the later
    /// counts, and `given` is later than `supply`; kinds that no plan depends on are left out.
    ///
    /// # Errors
    /// The first field that does not fit its type.
    pub fn from_documents(given: &[Document], supply: &[Document]) -> Result<Self, ManifestError> {
        let mut snapshot = Self::default();
        for document in supply {
            snapshot.add_supply(document)?;
        }
        given.iter().try_for_each(|document| snapshot.add(document))?;
        Ok(snapshot)
    }

    /// Adds a service to be planned, or something to plan it with.
    ///
    /// # Errors
    /// The field that does not fit its type; the snapshot is then unchanged.
    pub fn add(&mut self, document: &Document) -> Result<(), ManifestError> {
        match Service::read(document)? {
            Some(service) => self.services.push(service),
            None => self.add_supply(document)?,
        }
        Ok(())
    }

    /// Adds a runtime, class, model, node or pod, in place of one of the same name.
    ///
    /// # Errors
    /// The field that does not fit its type; the snapshot is then unchanged.
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
                let class = Class::read(&document.parse::<AcceleratorClass>()?);
                self.count_class(&class);
                put(&mut self.classes, class, |one, other| one.name == other.name);
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

    /// An inventory that is kept elsewhere knows its classes already, and is not copied for nothing. A class that cannot
    /// be read counts nowhere, and a plan says so.
    fn count_class(&mut self, class: &Class) {
        let Ok(facts) = &class.facts else { return };
        let unknown_nodes = decide::Class { availability: None, ..decide::Class::clone(facts) };
        if !self.inventory.knows(&unknown_nodes) {
            Arc::make_mut(&mut self.inventory).set_class(&class.name, Some(unknown_nodes));
        }
    }

    fn add_runtime(&mut self, document: &Document, scope: Scope, spec: ServingRuntimeSpec) {
        let namespace = if scope == Scope::Namespace { namespace(document) } else { String::new() };
        let created = text(&document.value, "/metadata/creationTimestamp");
        let runtime = Runtime::read(document.name().to_owned(), scope, namespace, created, spec);
        let same = |one: &Runtime, other: &Runtime| {
            (one.scope, &one.namespace, &one.name) == (other.scope, &other.namespace, &other.name)
        };
        put(&mut self.runtimes, runtime, same);
    }

    fn add_model(&mut self, document: &Document, namespace: Option<String>, spec: BaseModelSpec) {
        let category = document.value["metadata"]["annotations"]["models.ome.io/category"].as_str();
        let model = Model { name: document.name().to_owned(), namespace, category: category.map(str::to_owned), spec };
        put(&mut self.models, model, |one, other| (&one.namespace, &one.name) == (&other.namespace, &other.name));
    }

    /// The model of that name: the namespace's before the cluster's, unless `kind` says which.
    pub fn model(&self, namespace: &str, name: &str, kind: Option<&str>) -> Option<&Model> {
        let find = |wanted: Option<&str>| {
            self.models.iter().find(|model| model.name == name && model.namespace.as_deref() == wanted)
        };
        match kind {
            Some("BaseModel") => find(Some(namespace)),
            // Upstream defaults the kind to ClusterBaseModel in stored objects, so it does not exclude a namespaced one.
            _ => find(Some(namespace)).or_else(|| find(None)),
        }
    }
}

/// Services and workloads are called after it, so it must be a DNS-1035 label.
fn named(document: &Document) -> Result<(), ManifestError> {
    if names::is_dns_1035(document.name()) {
        return Ok(());
    }
    let limit = names::LABEL_LENGTH;
    let cause = format!("\"{}\" cannot name a Service", document.name());
    let hint = format!("use at most {limit} characters a-z, 0-9 and -, beginning with a letter, ending with none of -");
    Err(misnamed(document, "metadata.name".to_owned(), cause, hint))
}

/// `{service}-{role}-{index}` names a LeaderWorkerSet, which is shorter than other names. A router has none.
fn roles_named(document: &Document, service: &fusioninfer::InferenceService) -> Result<(), ManifestError> {
    let is_engine = |role: &fusioninfer::Role| role.component_type != fusioninfer::ComponentType::Router;
    for (at, role) in service.spec.roles.iter().enumerate().filter(|(_, role)| is_engine(role)) {
        let last = role.replica_count().max(1).unsigned_abs() - 1;
        let name = names::replica(document.name(), &role.name, last);
        if name.len() > names::LEADER_WORKER_SET_LENGTH || !names::is_dns_1035(&name) {
            let limit = names::LEADER_WORKER_SET_LENGTH;
            let cause = format!("LeaderWorkerSet {name} cannot have this name");
            let hint = format!(
                "service, role and index together: at most {limit} characters a-z, 0-9 and -, beginning with a letter"
            );
            return Err(misnamed(document, format!("spec.roles[{at}].name"), cause, hint));
        }
    }
    Ok(())
}

fn misnamed(document: &Document, path: String, cause: String, hint: String) -> ManifestError {
    ManifestError { path: Some(path), cause, hint: Some(hint), ..document.error() }
}

fn namespace(document: &Document) -> String {
    document.namespace().filter(|namespace| !namespace.is_empty()).unwrap_or("default").to_owned()
}

fn text(value: &Value, pointer: &str) -> Option<String> {
    value.pointer(pointer).and_then(Value::as_str).map(str::to_owned)
}

fn put<T>(items: &mut Vec<T>, item: T, same: impl Fn(&T, &T) -> bool) {
    match items.iter_mut().find(|there| same(there, &item)) {
        Some(there) => *there = item,
        None => items.push(item),
    }
}
