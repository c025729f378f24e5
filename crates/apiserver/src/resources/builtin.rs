//! Table of the built-in resources.

use std::sync::{Arc, OnceLock};

use apimachinery::builtin_merge_schema;
use k8s_openapi::api;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use schemars::JsonSchema;
use serde_json::Value;

use super::resource::{DefinitionsFn, Resource, ScalePaths, SchemaSource};
use crate::openapi::{definitions, generate};

/// Row of the table of built-in resources.
#[derive(Clone, Copy)]
struct BuiltinResource {
    group: &'static str,
    version: &'static str,
    plural: &'static str,
    kind: &'static str,
    short_names: &'static [&'static str],
    traits: &'static [ResourceTrait],
    selectable: &'static [&'static str],
    schema: TypeSchema,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ResourceTrait {
    Namespaced,
    Status,
    Scale,
    Generation,
    /// Belongs to the category `all`, which `kubectl get all` lists.
    All,
    CreateOnly,
}

/// Schema of a type, for validation and for OpenAPI documents.
#[derive(Clone, Copy)]
struct TypeSchema {
    /// Generates the schema with everything inlined. `None` for recursive types; [`crate::crd`] validates definitions.
    inline: Option<fn() -> Value>,
    definitions: DefinitionsFn,
}

const fn typed<T: JsonSchema>() -> TypeSchema {
    TypeSchema { inline: Some(generate::<T>), definitions: definitions::<T> }
}

const fn recursive<T: JsonSchema>() -> TypeSchema {
    TypeSchema { inline: None, definitions: definitions::<T> }
}

use ResourceTrait::{All, CreateOnly, Generation, Namespaced, Scale, Status};

const NONE: &[&str] = &[];

#[rustfmt::skip]
const BUILTIN_RESOURCES: &[BuiltinResource] = &[
    row("", "v1", "namespaces", "Namespace", &["ns"], &[Status], &["status.phase"], typed::<api::core::v1::Namespace>()),
    row("", "v1", "nodes", "Node", &["no"], &[Status], &["spec.unschedulable"], typed::<api::core::v1::Node>()),
    row("", "v1", "pods", "Pod", &["po"], &[Namespaced, Status, Generation, All], &["spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName"], typed::<api::core::v1::Pod>()),
    row("", "v1", "services", "Service", &["svc"], &[Namespaced, Status, All], &["spec.clusterIP", "spec.type"], typed::<api::core::v1::Service>()),
    row("", "v1", "endpoints", "Endpoints", &["ep"], &[Namespaced], NONE, typed::<api::core::v1::Endpoints>()),
    row("", "v1", "configmaps", "ConfigMap", &["cm"], &[Namespaced], NONE, typed::<api::core::v1::ConfigMap>()),
    row("", "v1", "secrets", "Secret", NONE, &[Namespaced], &["type"], typed::<api::core::v1::Secret>()),
    row("", "v1", "serviceaccounts", "ServiceAccount", &["sa"], &[Namespaced], NONE, typed::<api::core::v1::ServiceAccount>()),
    row("", "v1", "events", "Event", &["ev"], &[Namespaced], &["involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type"], typed::<api::core::v1::Event>()),
    row("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", &["pvc"], &[Namespaced, Status], NONE, typed::<api::core::v1::PersistentVolumeClaim>()),
    row("", "v1", "persistentvolumes", "PersistentVolume", &["pv"], &[Status], NONE, typed::<api::core::v1::PersistentVolume>()),
    row("apps", "v1", "deployments", "Deployment", &["deploy"], &[Namespaced, Status, Scale, Generation, All], NONE, typed::<api::apps::v1::Deployment>()),
    row("apps", "v1", "replicasets", "ReplicaSet", &["rs"], &[Namespaced, Status, Scale, Generation, All], &["status.replicas"], typed::<api::apps::v1::ReplicaSet>()),
    row("apps", "v1", "statefulsets", "StatefulSet", &["sts"], &[Namespaced, Status, Scale, Generation, All], NONE, typed::<api::apps::v1::StatefulSet>()),
    row("apps", "v1", "controllerrevisions", "ControllerRevision", NONE, &[Namespaced], NONE, typed::<api::apps::v1::ControllerRevision>()),
    row("batch", "v1", "jobs", "Job", NONE, &[Namespaced, Status, Generation, All], &["status.successful"], typed::<api::batch::v1::Job>()),
    row("coordination.k8s.io", "v1", "leases", "Lease", NONE, &[Namespaced], NONE, typed::<api::coordination::v1::Lease>()),
    row("rbac.authorization.k8s.io", "v1", "roles", "Role", NONE, &[Namespaced], NONE, typed::<api::rbac::v1::Role>()),
    row("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", NONE, &[Namespaced], NONE, typed::<api::rbac::v1::RoleBinding>()),
    row("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", NONE, &[], NONE, typed::<api::rbac::v1::ClusterRole>()),
    row("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", NONE, &[], NONE, typed::<api::rbac::v1::ClusterRoleBinding>()),
    row("networking.k8s.io", "v1", "ingresses", "Ingress", &["ing"], &[Namespaced, Status, Generation], NONE, typed::<api::networking::v1::Ingress>()),
    row("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", NONE, &[Namespaced, Generation], NONE, typed::<api::discovery::v1::EndpointSlice>()),
    row("autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler", &["hpa"], &[Namespaced, Status, Generation, All], NONE, typed::<api::autoscaling::v1::HorizontalPodAutoscaler>()),
    row("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", &["hpa"], &[Namespaced, Status, Generation, All], NONE, typed::<api::autoscaling::v2::HorizontalPodAutoscaler>()),
    row("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", &["pdb"], &[Namespaced, Status, Generation], NONE, typed::<api::policy::v1::PodDisruptionBudget>()),
    row("events.k8s.io", "v1", "events", "Event", &["ev"], &[Namespaced], &["regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid", "regarding.apiVersion", "reason", "reportingController", "type"], typed::<api::events::v1::Event>()),
    row("storage.k8s.io", "v1", "storageclasses", "StorageClass", &["sc"], &[], NONE, typed::<api::storage::v1::StorageClass>()),
    row("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", &["pc"], &[], NONE, typed::<api::scheduling::v1::PriorityClass>()),
    row("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", &["crd", "crds"], &[Status, Generation], NONE, recursive::<CustomResourceDefinition>()),
    row("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", NONE, &[CreateOnly], NONE, typed::<api::authentication::v1::SelfSubjectReview>()),
    row("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", NONE, &[CreateOnly], NONE, typed::<api::authorization::v1::SelfSubjectRulesReview>()),
    row("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", NONE, &[CreateOnly], NONE, typed::<api::authorization::v1::SelfSubjectAccessReview>()),
];

#[rustfmt::skip]
#[allow(clippy::too_many_arguments)] // Constructor of a table row.
const fn row(
    group: &'static str, version: &'static str, plural: &'static str, kind: &'static str,
    short_names: &'static [&'static str], traits: &'static [ResourceTrait], selectable: &'static [&'static str], schema: TypeSchema,
) -> BuiltinResource {
    BuiltinResource { group, version, plural, kind, short_names, traits, selectable, schema }
}

/// Returns all built-in resources.
pub(super) fn all() -> impl Iterator<Item = Resource> {
    BUILTIN_RESOURCES.iter().map(resource)
}

fn resource(row: &BuiltinResource) -> Resource {
    let has = |expected: ResourceTrait| row.traits.contains(&expected);
    let mut resource = Resource::new_custom(row.group, row.version, row.plural, row.kind);
    resource.custom = false;
    resource.short_names = row.short_names.iter().map(ToString::to_string).collect();
    resource.categories = if has(All) { vec!["all".to_owned()] } else { Vec::new() };
    resource.namespaced = has(Namespaced);
    resource.has_status = has(Status);
    resource.has_generation = has(Generation);
    resource.create_only = has(CreateOnly);
    resource.scale = has(Scale).then(scale_paths);
    resource.selectable_fields = row.selectable.iter().map(ToString::to_string).collect();
    resource.storage_api_version = resource.api_version();
    resource.storage = resource.group_resource();
    if row.group == "events.k8s.io" {
        // Both versions share one storage: clients write `events.k8s.io/v1` and kubectl reads `v1`.
        resource.storage = "events".to_owned();
        resource.storage_api_version = "v1".to_owned();
    }
    resource.merge_schema = Arc::new(builtin_merge_schema(row.group, row.kind));
    if (row.group, row.version) == ("autoscaling", "v1") {
        resource.storage_api_version = "autoscaling/v2".to_owned();
        resource.merge_schema = Arc::new(builtin_merge_schema("autoscaling/v1", row.kind));
    }
    resource.schema = SchemaSource::Builtin {
        generate: row.schema.inline,
        definitions: row.schema.definitions,
        cached: Arc::new(OnceLock::new()),
    };
    resource
}

fn scale_paths() -> ScalePaths {
    ScalePaths {
        spec_replicas: "/spec/replicas".to_owned(),
        status_replicas: "/status/replicas".to_owned(),
        selector: Some("/spec/selector".to_owned()),
    }
}
