//! Table of the built-in resources.

use std::sync::Arc;

use apimachinery::builtin_merge_schema;

use super::resource::{Resource, ScalePaths, SchemaSource};

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
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ResourceTrait {
    /// Objects belong to a namespace.
    Namespaced,
    /// Has the subresource `status`.
    Status,
    /// Has the subresource `scale`.
    Scale,
    /// `metadata.generation` counts changes of the spec.
    Generation,
    /// Belongs to the category `all`, which `kubectl get all` lists.
    All,
    /// Objects are evaluated on creation and not stored.
    CreateOnly,
}

use ResourceTrait::{All, CreateOnly, Generation, Namespaced, Scale, Status};

const NONE: &[&str] = &[];

#[rustfmt::skip]
const BUILTIN_RESOURCES: &[BuiltinResource] = &[
    row("", "v1", "namespaces", "Namespace", &["ns"], &[Status], &["status.phase"]),
    row("", "v1", "nodes", "Node", &["no"], &[Status], &["spec.unschedulable"]),
    row("", "v1", "pods", "Pod", &["po"], &[Namespaced, Status, Generation, All], &["spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName"]),
    row("", "v1", "services", "Service", &["svc"], &[Namespaced, Status, All], &["spec.clusterIP", "spec.type"]),
    row("", "v1", "endpoints", "Endpoints", &["ep"], &[Namespaced], NONE),
    row("", "v1", "configmaps", "ConfigMap", &["cm"], &[Namespaced], NONE),
    row("", "v1", "secrets", "Secret", NONE, &[Namespaced], &["type"]),
    row("", "v1", "serviceaccounts", "ServiceAccount", &["sa"], &[Namespaced], NONE),
    row("", "v1", "events", "Event", &["ev"], &[Namespaced], &["involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid", "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "source", "type"]),
    row("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", &["pvc"], &[Namespaced, Status], NONE),
    row("", "v1", "persistentvolumes", "PersistentVolume", &["pv"], &[Status], NONE),
    row("apps", "v1", "deployments", "Deployment", &["deploy"], &[Namespaced, Status, Scale, Generation, All], NONE),
    row("apps", "v1", "replicasets", "ReplicaSet", &["rs"], &[Namespaced, Status, Scale, Generation, All], &["status.replicas"]),
    row("apps", "v1", "statefulsets", "StatefulSet", &["sts"], &[Namespaced, Status, Scale, Generation, All], NONE),
    row("apps", "v1", "controllerrevisions", "ControllerRevision", NONE, &[Namespaced], NONE),
    row("batch", "v1", "jobs", "Job", NONE, &[Namespaced, Status, Generation, All], &["status.successful"]),
    row("coordination.k8s.io", "v1", "leases", "Lease", NONE, &[Namespaced], NONE),
    row("rbac.authorization.k8s.io", "v1", "roles", "Role", NONE, &[Namespaced], NONE),
    row("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding", NONE, &[Namespaced], NONE),
    row("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", NONE, &[], NONE),
    row("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", NONE, &[], NONE),
    row("networking.k8s.io", "v1", "ingresses", "Ingress", &["ing"], &[Namespaced, Status, Generation], NONE),
    row("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", NONE, &[Namespaced, Generation], NONE),
    row("autoscaling", "v1", "horizontalpodautoscalers", "HorizontalPodAutoscaler", &["hpa"], &[Namespaced, Status, Generation, All], NONE),
    row("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler", &["hpa"], &[Namespaced, Status, Generation, All], NONE),
    row("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", &["pdb"], &[Namespaced, Status, Generation], NONE),
    row("events.k8s.io", "v1", "events", "Event", &["ev"], &[Namespaced], &["regarding.kind", "regarding.namespace", "regarding.name", "regarding.uid", "regarding.apiVersion", "reason", "reportingController", "type"]),
    row("storage.k8s.io", "v1", "storageclasses", "StorageClass", &["sc"], &[], NONE),
    row("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", &["pc"], &[], NONE),
    row("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", &["crd", "crds"], &[Status, Generation], NONE),
    row("authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", NONE, &[CreateOnly], NONE),
    row("authorization.k8s.io", "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", NONE, &[CreateOnly], NONE),
    row("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", NONE, &[CreateOnly], NONE),
];

#[rustfmt::skip]
#[allow(clippy::too_many_arguments)] // Constructor of a table row.
const fn row(
    group: &'static str, version: &'static str, plural: &'static str, kind: &'static str,
    short_names: &'static [&'static str], traits: &'static [ResourceTrait], selectable: &'static [&'static str],
) -> BuiltinResource {
    BuiltinResource { group, version, plural, kind, short_names, traits, selectable }
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
    resource.schema = SchemaSource::Builtin(Arc::default());
    resource
}

fn scale_paths() -> ScalePaths {
    ScalePaths {
        spec_replicas: "/spec/replicas".to_owned(),
        status_replicas: "/status/replicas".to_owned(),
        selector: Some("/spec/selector".to_owned()),
    }
}
