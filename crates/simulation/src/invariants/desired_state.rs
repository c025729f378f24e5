//! The objects are those of the plan of the final inputs.

use api::Document;
use apimachinery::object;
use cluster::is_spec_applied;
use operator::FIELD_MANAGER;
use operator::kinds::{CONTROLLER_REVISION, OWNED};
use plan::{AutoscalerSupport, ServicePlan, Snapshot};
use serde_json::Value;

use crate::initial_objects::{CLASSES, MODELS, RUNTIMES};
use crate::invariant::Invariant;
use crate::models::SERVICES;
use crate::world::World;

/// Resources of what services select from.
const SUPPLY: [&str; 4] = [RUNTIMES, MODELS, CLASSES, "nodes"];

/// Fields of workloads that depend on the last rollout, not only on the inputs.
const ROLLOUT_FIELDS: [&str; 2] = ["strategy", "rolloutStrategy"];

/// Every planned object exists as planned, unless a person's object has its name, and no other object exists.
pub(crate) struct DesiredState;

// === impl Invariant for DesiredState ===

impl Invariant for DesiredState {
    fn name(&self) -> &'static str {
        "the objects are those of the plan"
    }

    fn after_quiet(&mut self, world: &World) -> Result<(), String> {
        let documents = |resources: &[&str]| -> Vec<Document> {
            let objects = resources.iter().flat_map(|resource| world.server().list(resource));
            objects.map(|object| document(&object)).collect()
        };
        let snapshot = Snapshot::from_documents(&documents(&SERVICES), &documents(&SUPPLY));
        let mut snapshot = snapshot.map_err(|error| error.to_string())?;
        snapshot.autoscaler_support = AutoscalerSupport::HpaAndKeda;
        plan::plan(&snapshot).services.iter().filter(|plan| plan.feasible).try_for_each(|plan| {
            // The rollout of a role waits for the replica in whose place an object of a person is.
            if plan.objects.iter().any(|planned| planned["kind"] == "LeaderWorkerSet" && is_foreign(world, planned)) {
                return Ok(());
            }
            // Nothing that follows the PodGroup of a gang is applied without it.
            let is_blocking = |planned: &&Value| planned["kind"] == "PodGroup" && is_foreign(world, planned);
            let mut objects = plan.objects.iter().take_while(|planned| !is_blocking(planned));
            objects.try_for_each(|planned| check_object(world, planned))?;
            check_no_other(world, plan)
        })
    }
}

fn document(object: &Value) -> Document {
    let mut value = object.clone();
    // A decision in the status would be retained: the plan must follow from the inputs alone.
    if value["kind"] == "InferenceService"
        && let Some(fields) = value.as_object_mut()
    {
        fields.remove("status");
    }
    Document { source: "simulation".to_owned(), index: 1, value }
}

fn check_object(world: &World, planned: &Value) -> Result<(), String> {
    if is_foreign(world, planned) {
        return Ok(());
    }
    let name = cluster::kind_and_name(planned);
    let live = world.server().get(&resource(world, planned), "default", object::name(planned));
    let live = live.ok_or_else(|| format!("{name} does not exist"))?;
    let mut planned = planned.clone();
    for field in ROLLOUT_FIELDS {
        if let Some(strategy) = planned["spec"].get_mut(field) {
            *strategy = live["spec"][field].clone();
        }
    }
    if planned["spec"].is_null() || is_spec_applied(&live, &planned, FIELD_MANAGER) {
        return Ok(());
    }
    Err(format!("{name} has the spec {}, planned is {}", live["spec"], planned["spec"]))
}

/// Returns whether an object of a person has the name of a planned one.
fn is_foreign(world: &World, planned: &Value) -> bool {
    let target = (resource(world, planned), "default".to_owned(), object::name(planned).to_owned());
    world.foreign().contains_key(&target)
}

fn resource(world: &World, object: &Value) -> String {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    world.server().group_resource(text("apiVersion"), text("kind")).unwrap_or_default()
}

/// Checks that a service has no object that is not planned.
fn check_no_other(world: &World, plan: &ServicePlan) -> Result<(), String> {
    let resource = world.server().group_resource(&plan.api_version, &plan.kind).unwrap_or_default();
    let service = world.server().get(&resource, "default", &plan.name);
    let uid = service.as_deref().map(|service| cluster::metadata_field(service, "uid").to_owned());
    for kind in OWNED.iter().filter(|kind| **kind != CONTROLLER_REVISION) {
        let objects = world.server().list(&kind.group_resource());
        let mut owned = objects.iter().filter(|object| cluster::controller_uid(object) == uid.as_deref());
        let is_planned = |object: &Value| {
            plan.objects.iter().any(|planned| {
                planned["kind"] == kind.kind && planned["metadata"]["name"] == object["metadata"]["name"]
            })
        };
        if let Some(other) = owned.find(|object| !is_planned(object)) {
            return Err(format!("{} is not planned", cluster::kind_and_name(other)));
        }
    }
    Ok(())
}
