//! The objects are those of the plan of the final inputs.

use api::Document;
use cluster::is_spec_applied;
use operator::FIELD_MANAGER;
use operator::kinds::{CONTROLLER_REVISION, OWNED};
use plan::{AutoscalerSupport, Snapshot};
use serde_json::Value;

use crate::invariant::Invariant;
use crate::models::{MODELS, SERVICES};
use crate::world::World;

/// Resources of what services select from.
const SUPPLY: [&str; 4] = ["clusterservingruntimes.ome.io", MODELS, "acceleratorclasses.ome.io", "nodes"];

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
        let snapshot = Snapshot::from_documents(&documents(&[SERVICES]), &documents(&SUPPLY));
        let mut snapshot = snapshot.map_err(|error| error.to_string())?;
        snapshot.autoscaler_support = AutoscalerSupport::HpaAndKeda;
        plan::plan(&snapshot).services.iter().filter(|plan| plan.feasible).try_for_each(|plan| {
            plan.objects.iter().try_for_each(|planned| check_object(world, planned))?;
            check_no_other(world, &plan.name, &plan.objects)
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
    let name = cluster::metadata_field(planned, "name");
    let kind = OWNED.iter().find(|kind| planned["kind"] == kind.kind && planned["apiVersion"] == kind.api_version());
    let kind = kind.ok_or_else(|| format!("kind {} is not known", planned["kind"]))?;
    let resource = kind.group_resource();
    if world.foreign().contains_key(&(resource.clone(), "default".to_owned(), name.to_owned())) {
        return Ok(());
    }
    let live = world.server().get(&resource, "default", name);
    let live = live.ok_or_else(|| format!("{} {name} does not exist", kind.kind))?;
    if planned["spec"].is_null() || is_spec_applied(&live, planned, FIELD_MANAGER) {
        return Ok(());
    }
    Err(format!("{} {name} has the spec {}, planned is {}", kind.kind, live["spec"], planned["spec"]))
}

/// Checks that a service has no object that is not planned.
fn check_no_other(world: &World, service: &str, planned: &[Value]) -> Result<(), String> {
    let service = world.server().get(SERVICES, "default", service);
    let uid = service.as_deref().map(|service| cluster::metadata_field(service, "uid").to_owned());
    for kind in OWNED.iter().filter(|kind| **kind != CONTROLLER_REVISION) {
        let objects = world.server().list(&kind.group_resource());
        let mut owned = objects.iter().filter(|object| cluster::controller_uid(object) == uid.as_deref());
        let is_planned = |object: &Value| {
            planned.iter().any(|planned| {
                planned["kind"] == kind.kind && planned["metadata"]["name"] == object["metadata"]["name"]
            })
        };
        if let Some(other) = owned.find(|object| !is_planned(object)) {
            return Err(format!("{} is not planned", cluster::kind_and_name(other)));
        }
    }
    Ok(())
}
