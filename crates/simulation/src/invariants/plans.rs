//! The plans of the final inputs.

use api::Document;
use apimachinery::object;
use plan::{AutoscalerSupport, ServicePlan, Snapshot};
use serde_json::Value;

use crate::initial_objects::SERVICES;
use crate::initial_objects::{CLASSES, MODELS, RUNTIMES};
use crate::world::World;

/// Resources of what services select from.
const SUPPLY: [&str; 4] = [RUNTIMES, MODELS, CLASSES, "nodes"];

/// Returns the plans of all services.
///
/// # Errors
/// An input is invalid.
pub(super) fn plans(world: &World) -> Result<Vec<ServicePlan>, String> {
    let documents = |resources: &[&str]| -> Vec<Document> {
        let objects = resources.iter().flat_map(|resource| world.server().list(resource));
        objects.map(|object| document(&object)).collect()
    };
    let snapshot = Snapshot::from_documents(&documents(&SERVICES), &documents(&SUPPLY));
    let mut snapshot = snapshot.map_err(|error| error.to_string())?;
    snapshot.autoscaler_support = AutoscalerSupport::HpaAndKeda;
    Ok(plan::plan(&snapshot).services)
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

/// Returns whether an object has the name of a planned one and belongs to a person, or to an object of a person: the controller
/// of LeaderWorkerSets creates a Service of the same name.
pub(super) fn is_foreign(world: &World, planned: &Value) -> bool {
    let resource = resource(world, planned);
    let live = world.server().get(&resource, "default", object::name(planned));
    let owner = live.as_deref().and_then(cluster::controller_uid);
    let is_owner = |foreign: &Value| owner.is_some_and(|owner| foreign["metadata"]["uid"] == owner);
    let target = (resource.clone(), "default".to_owned(), object::name(planned).to_owned());
    world.foreign().contains_key(&target) || world.foreign().values().any(is_owner)
}

/// Returns the resource of an object.
pub(super) fn resource(world: &World, object: &Value) -> String {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    world.server().group_resource(text("apiVersion"), text("kind")).unwrap_or_default()
}
