//! The objects are those of the plan of the final inputs.

use std::collections::BTreeSet;

use apimachinery::object;
use cluster::{Kind, is_spec_applied};
use operator::FIELD_MANAGER;
use operator::kinds::{CONTROLLER_REVISION, OWNED};
use plan::ServicePlan;
use plan::labels::{ROLE_NAME, SURGE_REPLICA};
use serde_json::Value;

use super::plans::{is_foreign, plans, resource};
use crate::invariant::Invariant;
use crate::world::World;

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
        plans(world)?.iter().filter(|plan| plan.feasible).try_for_each(|plan| {
            let blocked = blocked_roles(world, plan);
            // Nothing that follows the PodGroup of a gang is applied without it.
            let is_blocking = |planned: &&Value| planned["kind"] == "PodGroup" && is_foreign(world, planned);
            let mut objects = plan.objects.iter().take_while(|planned| !is_blocking(planned));
            objects.try_for_each(|planned| check_object(world, planned, &blocked))?;
            let is_blocked = !blocked.is_empty() || plan.objects.iter().any(|planned| is_blocking(&planned));
            check_no_other(world, plan, is_blocked)
        })
    }
}

/// Returns the roles whose rollout waits for a replica in whose place an object of a person is.
fn blocked_roles<'a>(world: &World, plan: &'a ServicePlan) -> BTreeSet<&'a str> {
    let foreign_sets = plan.objects.iter().filter(|planned| is_replica(planned) && is_foreign(world, planned));
    foreign_sets.filter_map(|set| object::label(set, ROLE_NAME)).collect()
}

/// Returns whether an object is a replica of a role.
fn is_replica(object: &Value) -> bool {
    object["kind"] == "LeaderWorkerSet"
}

/// Checks that a planned object exists as planned. A replica of a blocked role may be outdated.
fn check_object(world: &World, planned: &Value, blocked_roles: &BTreeSet<&str>) -> Result<(), String> {
    if is_foreign(world, planned) {
        return Ok(());
    }
    let name = cluster::kind_and_name(planned);
    let live = world.server().get(&resource(world, planned), "default", object::name(planned));
    let live = live.ok_or_else(|| format!("{name} does not exist"))?;
    let is_blocked = object::label(planned, ROLE_NAME).is_some_and(|role| blocked_roles.contains(role));
    if is_blocked && is_replica(planned) {
        return Ok(());
    }
    if planned["spec"].is_null() {
        return check_fields(&live, planned);
    }
    let mut planned = planned.clone();
    for field in ROLLOUT_FIELDS {
        if let Some(strategy) = planned["spec"].get_mut(field) {
            *strategy = live["spec"][field].clone();
        }
    }
    if is_spec_applied(&live, &planned, FIELD_MANAGER) {
        return Ok(());
    }
    Err(format!("{name} has the spec {}, planned is {}", live["spec"], planned["spec"]))
}

/// Checks an object without a spec, such as a ConfigMap.
fn check_fields(live: &Value, planned: &Value) -> Result<(), String> {
    let fields = planned.as_object().into_iter().flatten();
    let mut differing = fields.filter(|(field, value)| *field != "metadata" && live[field.as_str()] != **value);
    match differing.next() {
        None => Ok(()),
        Some((field, value)) => {
            let name = cluster::kind_and_name(planned);
            Err(format!("{name} has the {field} {}, planned is {value}", live[field.as_str()]))
        }
    }
}

/// Checks that a service has no object that is not planned. A service whose update an object of a person blocks may need the PodGroup of
/// outdated replicas, and additional replicas, which serve until the planned ones are ready.
fn check_no_other(world: &World, plan: &ServicePlan, is_blocked: bool) -> Result<(), String> {
    let resource = world.server().group_resource(&plan.api_version, &plan.kind).unwrap_or_default();
    let service = world.server().get(&resource, "default", &plan.name);
    let uid = service.as_deref().map(|service| cluster::metadata_field(service, "uid").to_owned());
    let is_compared = |kind: &&Kind| **kind != CONTROLLER_REVISION && !(is_blocked && kind.kind == "PodGroup");
    for kind in OWNED.iter().filter(is_compared) {
        let objects = world.server().list(&kind.group_resource());
        let mut owned = objects.iter().filter(|object| cluster::controller_uid(object) == uid.as_deref());
        let is_planned = |object: &Value| {
            plan.objects.iter().any(|planned| {
                planned["kind"] == kind.kind && planned["metadata"]["name"] == object["metadata"]["name"]
            })
        };
        // A replica of the former plan may have the name of an additional one.
        let is_surge_name =
            |object: &Value| plan.surge_replicas.values().any(|surge| object::name(surge) == object::name(object));
        let is_permitted = |object: &Value| {
            is_blocked && (object["metadata"]["annotations"][SURGE_REPLICA].is_string() || is_surge_name(object))
        };
        if let Some(other) = owned.find(|object| !is_planned(object) && !is_permitted(object)) {
            return Err(format!("{} is not planned", cluster::kind_and_name(other)));
        }
    }
    Ok(())
}
