//! Predicts what reconciles of services would change, for `ostler plan --diff`. It reads a list of the cluster's objects
//! instead of watches, runs the same steps as a reconcile, and sends no writes.

use std::collections::BTreeMap;

use cluster::{
    ApplyOutcome, CUSTOM_RESOURCE_DEFINITION, DesiredObject, Error, Kind, NamespacedName, ObjectPreview,
    PreviewOutcome, Stores,
};
use kube::Client;
use plan::ServicePlan;
use serde_json::{Value, json};

use crate::FIELD_MANAGER;
use crate::context::Context;
use crate::kinds::{
    BACKEND_POOL, BUILTIN, CONTROLLER_REVISION, CUSTOM_RESOURCES, DEPLOYMENT, LABEL_FILTERED, LEADER_WORKER_SET, OWNED,
    POD, POD_GROUP, SELECTION_KINDS, SERVICE, cache_policy,
};
use crate::options::Options;
use crate::own_image;
use crate::readiness::{is_rollout_complete, workload_problem};
use crate::replacement::{Replacement, ReplacementStep};
use crate::rollout::is_rollout_paused;
use crate::service_reconciler::{
    DesiredObjects, desired_objects, plan_in_force, planned_workloads, replacement_once_created,
};
use crate::status_inputs::ObjectVersions;
use crate::work_item::WorkItem;
use crate::workloads::{LiveWorkload, is_surge_replica};

/// Objects of a cluster, as far as the user may list them.
#[derive(Clone, Debug, Default)]
pub struct ClusterListing {
    /// All objects of each kind that the user may list, and that the cluster serves.
    pub objects: BTreeMap<Kind, Vec<Value>>,
    /// Why the objects of other kinds could not be listed.
    pub unreadable: BTreeMap<Kind, String>,
}

/// What a reconcile of one service would change.
#[derive(Clone, Debug)]
pub struct ServicePreview {
    /// Kind of the service.
    pub kind: Kind,
    /// Namespace and name of the service.
    pub key: NamespacedName,
    /// The plan in force, or why there is none. Without a feasible plan, existing objects are retained.
    pub plan: Result<ServicePlan, String>,
    /// One prediction per object, without the revision history.
    pub objects: Vec<ObjectPreview>,
    /// The workloads whose Pods would restart.
    pub restarts: Vec<WorkloadRestart>,
    /// Whether all workloads are Deployments that have completed the rollout of the plan, even if Pods became unready since then.
    pub is_rolled_out: bool,
}

/// A workload whose Pods would be replaced because their template or the kind of their workload changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadRestart {
    /// Kind of the workload.
    pub kind: String,
    /// Namespace and name.
    pub key: NamespacedName,
    /// Number of Pods.
    pub pods: u64,
    /// Whether all Pods stop before new ones start.
    pub recreates: bool,
    /// Whether a workload of another kind or name replaces the workload, which is deleted.
    pub replaced: bool,
}

// === impl ServicePreview ===

impl ServicePreview {
    /// Returns whether the service could be deployed: its plan is feasible, and no other owner or missing API prevents that an
    /// object is applied.
    #[must_use]
    pub fn is_deployable(&self) -> bool {
        let is_prevented = |preview: &ObjectPreview| matches!(&preview.outcome, PreviewOutcome::NotApplied(outcome) if *outcome != ApplyOutcome::Deferred);
        self.plan.as_ref().is_ok_and(|plan| plan.feasible) && !self.objects.iter().any(is_prevented)
    }

    /// Returns why the rollout of the current plan is not complete, although the status of the service may still be that of an
    /// earlier plan: a workload differs from the plan, or is not ready in its current generation. Scaling is not considered, nor are
    /// workloads to delete.
    #[must_use]
    pub fn pending_rollout(&self) -> Option<String> {
        let workloads = || self.objects.iter().filter(|preview| is_workload(preview));
        let missing = workloads().find(|preview| preview.outcome == PreviewOutcome::Created);
        let differing = self
            .restarts
            .iter()
            .find(|restart| !restart.replaced)
            .map(|restart| format!("{} {}", restart.kind, restart.key));
        let differing = differing.or_else(|| missing.map(|preview| format!("{} {}", preview.kind, preview.key)));
        if let Some(workload) = differing {
            return Some(format!("Waiting for the operator to update {workload}"));
        }
        let remaining = workloads().filter(|preview| preview.outcome != PreviewOutcome::Deleted);
        let problem = remaining.filter_map(|preview| workload_problem(preview.live.as_ref()?, [])).min()?;
        Some(format!("{}: {}", problem.object, problem.message))
    }
}

// === impl ClusterListing ===

impl ClusterListing {
    /// Returns the kinds that a preview reads.
    #[must_use]
    pub fn kinds() -> Vec<Kind> {
        let kinds = [CUSTOM_RESOURCE_DEFINITION].into_iter().chain(BUILTIN.iter().copied());
        let kinds = kinds.chain(CUSTOM_RESOURCES.iter().copied()).chain(LABEL_FILTERED.iter().copied());
        kinds.filter(|kind| *kind != CONTROLLER_REVISION).collect()
    }

    /// Returns the image that the operator of the cluster uses for the endpoint pickers of routers, if it runs in a Pod.
    #[must_use]
    pub fn picker_image(&self) -> Option<String> {
        own_image::picker_image(self.objects.get(&POD)?)
    }

    /// Replaces the object of the same name, or adds it.
    pub fn insert(&mut self, kind: Kind, object: Value) {
        let key = NamespacedName::from_object(&object);
        let objects = self.objects.entry(kind).or_default();
        match objects.iter_mut().find(|existing| NamespacedName::from_object(existing) == key) {
            Some(existing) => *existing = object,
            None => objects.push(object),
        }
    }

    /// Returns whether the status of an `ome.io` service is older than a change of a runtime, a model or a class that it depends
    /// on. Returns false if the user may not list these, or if an earlier release of the operator wrote the status.
    #[must_use]
    pub fn is_status_outdated(&self, service: &Value) -> bool {
        let mut versions = ObjectVersions::default();
        for kind in SELECTION_KINDS {
            if self.unreadable.contains_key(&kind) {
                return false;
            }
            self.objects.get(&kind).into_iter().flatten().for_each(|object| versions.insert(kind, object));
        }
        versions.is_outdated(service)
    }

    /// Returns an object.
    #[must_use]
    pub fn get(&self, kind: Kind, key: &NamespacedName) -> Option<&Value> {
        self.objects.get(&kind)?.iter().find(|object| NamespacedName::from_object(object) == *key)
    }

    /// Returns the CustomResourceDefinition of a kind. If the user may not list them, it is the one that this version of
    /// ostler ships, for a kind whose objects could be listed.
    #[must_use]
    pub fn definition(&self, kind: Kind) -> Option<Value> {
        let name = kind.group_resource();
        let has_name = |definition: &&Value| definition["metadata"]["name"] == *name;
        match self.objects.get(&CUSTOM_RESOURCE_DEFINITION) {
            Some(definitions) => definitions.iter().find(has_name).cloned(),
            None if !self.objects.contains_key(&kind) => None,
            None => {
                let definitions = [api::crds(), api::integrations::crds()].concat();
                let mut definition = definitions.iter().find(has_name).cloned()?;
                definition["status"]["conditions"] = json!([{"type": "Established", "status": "True"}]);
                Some(definition)
            }
        }
    }
}

/// Predicts the changes of all services for which `is_selected` returns true, in the order in which the operator
/// reconciles them. The options apply as for an operator, except that nothing is started.
///
/// # Errors
/// An object that the listing does not contain could not be read.
pub async fn preview_services(
    client: Client,
    listing: &ClusterListing,
    options: &Options,
    is_selected: impl Fn(Kind, &NamespacedName) -> bool,
) -> Result<Vec<ServicePreview>, Error> {
    let context = context_of(client, listing, options);
    let services = context.state.service_index().all();
    let mut previews = Vec::new();
    for item in services {
        let WorkItem::Service(kind, key) = item else { continue };
        let preview = preview_service(&context, kind, &key).await?;
        previews.extend(preview.filter(|preview| is_selected(preview.kind, &preview.key)));
    }
    Ok(previews)
}

/// Returns a context that has observed the objects of the listing.
fn context_of(client: Client, listing: &ClusterListing, options: &Options) -> Context {
    let stores = Stores::with_complete_objects(FIELD_MANAGER, cache_policy);
    let context = Context::new(client, stores.clone(), options);
    for kind in ClusterListing::kinds() {
        let is_owned = OWNED.contains(&kind);
        let changes = match (listing.objects.get(&kind), listing.unreadable.get(&kind)) {
            _ if kind == CUSTOM_RESOURCE_DEFINITION => {
                let definitions = CUSTOM_RESOURCES.iter().filter_map(|kind| listing.definition(*kind));
                stores.replace_all(kind, definitions.collect())
            }
            (Some(objects), _) => stores.replace_all(kind, objects.clone()),
            (None, Some(message)) if is_owned => {
                stores.mark_unreadable(kind, message.clone());
                continue;
            }
            // A decision from what is readable is better than none.
            (None, Some(_)) => stores.replace_all(kind, Vec::new()),
            (None, None) => continue,
        };
        for change in changes {
            context.state.apply(&change, &stores, context.now());
        }
    }
    context
}

/// Predicts the changes of one service; `None` if it is being deleted.
async fn preview_service(context: &Context, kind: Kind, key: &NamespacedName) -> Result<Option<ServicePreview>, Error> {
    let Some(service) = context.stores.get(kind, key).filter(|service| !cluster::is_terminating(service)) else {
        return Ok(None);
    };
    let mut preview = ServicePreview {
        kind,
        key: key.clone(),
        plan: Err(String::new()),
        objects: Vec::new(),
        restarts: Vec::new(),
        is_rolled_out: false,
    };
    let plan = match plan_in_force(context, kind, &service) {
        Ok(selection) => selection.plan.clone(),
        Err(obstacle) => return Ok(Some(ServicePreview { plan: Err(obstacle.message()), ..preview })),
    };
    if plan.feasible {
        let DesiredObjects { objects, replacement, .. } = desired_objects(context, &service, &plan);
        let desired = completed_rollout(&service, &plan, objects);
        preview.objects = context.applier.preview(&service, &desired).await?;
        let replacement = replacement_once_created(context, &service, &plan, replacement);
        let restart =
            |object: &ObjectPreview| workload_restart(object).or_else(|| replaced_workload(object, &replacement));
        preview.restarts = preview.objects.iter().filter_map(restart).collect();
        preview.is_rolled_out = preview.restarts.is_empty() && has_completed_rollout(context, &service, &plan);
    }
    Ok(Some(ServicePreview { plan: Ok(plan), ..preview }))
}

/// Returns whether all planned workloads are Deployments that have completed a rollout.
fn has_completed_rollout(context: &Context, service: &Value, plan: &ServicePlan) -> bool {
    let is_complete =
        |workload: &LiveWorkload| workload.object["kind"] == DEPLOYMENT.kind && is_rollout_complete(workload);
    planned_workloads(context, service, plan).iter().all(|workload| workload.live.as_ref().is_some_and(is_complete))
}

/// Returns the objects after the rollout, which applies deferred objects one at a time, routes requests to the planned
/// workloads, and then deletes obsolete workloads and an unused PodGroup. A paused rollout defers them indefinitely.
fn completed_rollout(service: &Value, plan: &ServicePlan, desired: Vec<DesiredObject>) -> Vec<DesiredObject> {
    if is_rollout_paused(service) {
        return desired;
    }
    let apply_deferred = |desired: DesiredObject| match desired {
        // It exists only during the rollout.
        desired if is_surge_replica(desired.object()) => Some(DesiredObject::Obsolete(desired.object().clone())),
        DesiredObject::Defer(object) if plan.objects.contains(&object) => Some(DesiredObject::Apply(object)),
        DesiredObject::Defer(object) if object["kind"] == POD_GROUP.kind => None,
        DesiredObject::Defer(object) => Some(DesiredObject::Obsolete(object)),
        DesiredObject::Apply(object) => Some(DesiredObject::Apply(completed_object(plan, object))),
        desired @ (DesiredObject::ApplyFirst(_) | DesiredObject::Obsolete(_)) => Some(desired),
    };
    desired.into_iter().filter_map(apply_deferred).collect()
}

/// Returns whether the object is a workload with Pods.
fn is_workload(preview: &ObjectPreview) -> bool {
    [DEPLOYMENT.kind, LEADER_WORKER_SET.kind].contains(&preview.kind.as_str())
}

/// Returns the object after the rollout: the planned Service or BackendPool, or the Deployment without the limit of a rollout
/// that changes its port.
fn completed_object(plan: &ServicePlan, mut object: Value) -> Value {
    if object["kind"] == DEPLOYMENT.kind {
        object["spec"].as_object_mut().map(|spec| spec.remove("minReadySeconds"));
        return object;
    }
    let is_route = [SERVICE, BACKEND_POOL].iter().any(|kind| object["kind"] == kind.kind);
    let is_same = |planned: &&Value| {
        planned["kind"] == object["kind"] && planned["metadata"]["name"] == object["metadata"]["name"]
    };
    plan.objects.iter().filter(|_| is_route).find(is_same).cloned().unwrap_or(object)
}

/// Returns the restart of a workload that another one replaces.
fn replaced_workload(preview: &ObjectPreview, replacement: &Replacement) -> Option<WorkloadRestart> {
    let is_same = |workload: &&LiveWorkload| {
        workload.object["kind"] == *preview.kind && NamespacedName::from_object(&workload.object) == preview.key
    };
    let live = preview.live.as_ref().filter(|_| preview.outcome == PreviewOutcome::Deleted)?;
    replacement.obsolete.iter().find(is_same)?;
    Some(WorkloadRestart {
        kind: preview.kind.clone(),
        key: preview.key.clone(),
        pods: pod_count(live),
        recreates: replacement.step == ReplacementStep::StopFirst,
        replaced: true,
    })
}

/// Returns the number of Pods of a workload.
fn pod_count(workload: &Value) -> u64 {
    let replicas = workload["spec"]["replicas"].as_u64().unwrap_or(1);
    let group_size = workload["spec"]["leaderWorkerTemplate"]["size"].as_u64().unwrap_or(1);
    replicas.saturating_mul(group_size)
}

/// Returns the restart of a workload whose Pod template changes. Scaling is no restart.
fn workload_restart(preview: &ObjectPreview) -> Option<WorkloadRestart> {
    let (live, planned) = (preview.live.as_ref()?, preview.planned.as_ref()?);
    let field = match () {
        () if preview.kind == DEPLOYMENT.kind => "template",
        () if preview.kind == LEADER_WORKER_SET.kind => "leaderWorkerTemplate",
        () => return None,
    };
    if live["spec"][field] == planned["spec"][field] || planned["spec"]["paused"] == true {
        return None;
    }
    let recreates = planned["spec"]["strategy"]["type"] == "Recreate";
    let (kind, key) = (preview.kind.clone(), preview.key.clone());
    Some(WorkloadRestart { kind, key, pods: pod_count(live), recreates, replaced: false })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn deployment(replicas: u64, image: &str, spec: &[(&str, Value)]) -> Value {
        let mut deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"namespace": "n", "name": "a"},
            "spec": {"replicas": replicas, "template": {"image": image}}});
        spec.iter().for_each(|(field, value)| deployment["spec"][*field] = value.clone());
        deployment
    }

    fn leader_worker_set(replicas: u64, size: u64, image: &str) -> Value {
        let template = json!({"size": size, "workerTemplate": {"image": image}});
        json!({"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"namespace": "n", "name": "a"},
            "spec": {"replicas": replicas, "leaderWorkerTemplate": template}})
    }

    /// Columns: live workload, planned workload, number of Pods that restart and whether all of them stop first.
    #[rstest]
    #[case::scaled(deployment(1, "a", &[]), deployment(3, "a", &[]), None)]
    #[case::new_image(deployment(3, "a", &[]), deployment(1, "b", &[]), Some((3, false)))]
    #[case::recreated(deployment(1, "a", &[]), deployment(1, "b", &[("strategy", json!({"type": "Recreate"}))]), Some((1, true)))]
    #[case::paused(deployment(1, "a", &[]), deployment(1, "b", &[("paused", json!(true))]), None)]
    #[case::scaled_groups(leader_worker_set(1, 4, "a"), leader_worker_set(2, 4, "a"), None)]
    #[case::new_image_of_groups(leader_worker_set(2, 4, "a"), leader_worker_set(2, 4, "b"), Some((8, false)))]
    #[case::larger_groups(leader_worker_set(1, 2, "a"), leader_worker_set(1, 4, "a"), Some((2, false)))]
    #[case::other_kind(json!({"kind": "Service", "spec": {"template": 1}}), json!({"kind": "Service", "spec": {}}), None)]
    fn changed_pod_templates_restart_pods(
        #[case] live: Value,
        #[case] planned: Value,
        #[case] expected: Option<(u64, bool)>,
    ) {
        let restart = workload_restart(&ObjectPreview::new(Some(live), Some(planned)));
        assert_eq!(restart.map(|restart| (restart.pods, restart.recreates)), expected);
    }

    fn ready_deployment(image: &str, observed_generation: u64) -> Value {
        let mut deployment = deployment(1, image, &[]);
        deployment["metadata"]["generation"] = json!(2);
        deployment["status"] = json!({"observedGeneration": observed_generation, "replicas": 1, "updatedReplicas": 1,
            "readyReplicas": 1, "availableReplicas": 1});
        deployment
    }

    /// Columns: live workload, planned workload, why the rollout is not complete.
    #[rstest]
    #[case::complete(ready_deployment("a", 2), ready_deployment("a", 2), None)]
    #[case::not_updated(
        ready_deployment("a", 2),
        ready_deployment("b", 2),
        Some("Waiting for the operator to update Deployment n/a")
    )]
    #[case::not_observed(
        ready_deployment("b", 1),
        ready_deployment("b", 1),
        Some("Deployment n/a: waiting for its controller to observe generation 2")
    )]
    #[case::other_kind(json!({"kind": "Service", "spec": {"a": 1}}), json!({"kind": "Service", "spec": {"a": 2}}), None)]
    fn rollout_is_pending_until_workloads_run_the_plan(
        #[case] live: Value,
        #[case] planned: Value,
        #[case] expected: Option<&str>,
    ) {
        let object = ObjectPreview::new(Some(live), Some(planned));
        let preview = ServicePreview {
            kind: crate::kinds::OME_SERVICE,
            key: NamespacedName::from_object(&json!({"metadata": {"namespace": "n", "name": "chat"}})),
            plan: Err(String::new()),
            restarts: workload_restart(&object).into_iter().collect(),
            objects: vec![object],
            is_rolled_out: false,
        };
        assert_eq!(preview.pending_rollout().as_deref(), expected);
        let [planned] = preview.objects.try_into().unwrap();
        let missing = ServicePreview {
            objects: vec![ObjectPreview::new(None, planned.planned)],
            restarts: Vec::new(),
            ..ServicePreview { objects: Vec::new(), ..preview }
        };
        assert_eq!(missing.pending_rollout().is_some(), missing.objects[0].kind == "Deployment");
    }

    #[test]
    fn user_without_permission_to_list_definitions_gets_the_shipped_ones() {
        let mut listing = ClusterListing::default();
        assert!(listing.definition(LEADER_WORKER_SET).is_none(), "the cluster may not serve the kind");
        listing.objects.insert(LEADER_WORKER_SET, Vec::new());
        let definition = listing.definition(LEADER_WORKER_SET).unwrap();
        assert_eq!(definition["status"]["conditions"][0]["type"], "Established");
        listing.objects.insert(CUSTOM_RESOURCE_DEFINITION, Vec::new());
        assert!(listing.definition(LEADER_WORKER_SET).is_none(), "the cluster does not serve the kind");
    }
}
