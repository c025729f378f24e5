//! The objects are those of the plan of the final inputs.

use std::collections::BTreeSet;
use std::sync::Arc;

use apimachinery::{condition, object};
use cluster::{Kind, is_spec_applied};
use operator::FIELD_MANAGER;
use operator::kinds::{CONTROLLER_REVISION, OWNED};
use plan::ServicePlan;
use plan::labels::{ROLE_NAME, SURGE_REPLICA};
use serde_json::Value;

use super::plans::{is_foreign, plans, resource};
use crate::initial_objects::GANG_RESOURCE;
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
        let plans = plans(world)?;
        let lacks_nodes = lacks_nodes(world, &plans);
        plans.iter().try_for_each(|plan| {
            if !plan.feasible {
                return Err(format!("service {} has no feasible plan", plan.name));
            }
            let lacks_nodes = lacks_nodes && plan.objects.iter().any(|planned| gang_pods(planned) > 0);
            let blocked = if lacks_nodes { roles(plan.objects.iter()) } else { blocked_roles(world, plan) };
            // Nothing that follows the PodGroup of a gang is applied without it.
            let is_blocking = |planned: &&Value| is_pod_group(planned) && is_foreign(world, planned);
            let objects = plan.objects.iter().take_while(|planned| !is_blocking(planned));
            // The PodGroup of roles that are not updated yet is that of the outdated replicas.
            let mut compared = objects.filter(|planned| !(lacks_nodes && is_pod_group(planned)));
            compared.try_for_each(|planned| check_object(world, planned, &blocked))?;
            let is_blocked = !blocked.is_empty() || plan.objects.iter().any(|planned| is_blocking(&planned));
            check_no_other(world, plan, is_blocked)
        })
    }
}

/// Returns whether the planned Pods need more nodes than there are. Replicas then serve as they are until there are more.
fn lacks_nodes(world: &World, plans: &[ServicePlan]) -> bool {
    let required: u64 = plans.iter().flat_map(|plan| &plan.objects).map(gang_pods).sum();
    let nodes = world.server().list("nodes");
    let available = nodes.iter().filter(|node| condition::is_true(node, "Ready"));
    let available = available.filter(|node| node["spec"]["unschedulable"] != true);
    let count = |node: &Arc<Value>| node["status"]["allocatable"][GANG_RESOURCE].as_str()?.parse::<u64>().ok();
    required > available.filter_map(count).sum()
}

/// Returns the number of Pods of a replica that compete for the nodes of gangs.
fn gang_pods(replica: &Value) -> u64 {
    let group = &replica["spec"]["leaderWorkerTemplate"];
    let container = &group["workerTemplate"]["spec"]["containers"][0];
    let is_in_gang = container["resources"]["limits"][GANG_RESOURCE].is_string();
    if is_in_gang { group["size"].as_u64().unwrap_or(1) } else { 0 }
}

/// Returns the roles whose rollout waits for a replica in whose place an object of a person is, and those of the gang that starts
/// with this replica.
fn blocked_roles<'a>(world: &World, plan: &'a ServicePlan) -> BTreeSet<&'a str> {
    let blocked = roles(plan.objects.iter().filter(|planned| is_foreign(world, planned)));
    let is_gang = plan.objects.iter().any(is_pod_group);
    if is_gang && !blocked.is_empty() { roles(plan.objects.iter()) } else { blocked }
}

/// Returns the roles of the replicas among objects.
fn roles<'a>(objects: impl Iterator<Item = &'a Value>) -> BTreeSet<&'a str> {
    objects.filter(|object| is_replica(object)).filter_map(|set| object::label(set, ROLE_NAME)).collect()
}

fn is_pod_group(object: &Value) -> bool {
    object["kind"] == "PodGroup"
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
    let is_blocked = object::label(planned, ROLE_NAME).is_some_and(|role| blocked_roles.contains(role));
    let is_member = gang_pods(planned) > 0;
    let Some(live) = live else {
        // A gang whose update waits gets no further replicas.
        return if is_blocked && is_member { Ok(()) } else { Err(format!("{name} does not exist")) };
    };
    if is_blocked && is_replica(planned) {
        return Ok(());
    }
    check_metadata(&live, planned)?;
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

/// Checks that an object has the planned labels and annotations, among others.
fn check_metadata(live: &Value, planned: &Value) -> Result<(), String> {
    for field in ["labels", "annotations"] {
        let mut entries = planned["metadata"][field].as_object().into_iter().flatten();
        if let Some((key, value)) = entries.find(|(key, value)| live["metadata"][field][key.as_str()] != **value) {
            let name = cluster::kind_and_name(planned);
            let live = &live["metadata"][field][key.as_str()];
            return Err(format!("{name} has {key} {live} among its {field}, planned is {value}"));
        }
    }
    Ok(())
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

/// Checks that a service has no object that is not planned. A service whose update an object of a person or a lack of nodes blocks may need the PodGroup of
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
        // It retains the replicas that the service has no longer.
        let is_retained = |object: &Value| gang_pods(object) > 0;
        let is_permitted = |object: &Value| {
            let is_surge = object["metadata"]["annotations"][SURGE_REPLICA].is_string() || is_surge_name(object);
            is_blocked && (is_surge || is_retained(object))
        };
        if let Some(other) = owned.find(|object| !is_planned(object) && !is_permitted(object)) {
            return Err(format!("{} is not planned", cluster::kind_and_name(other)));
        }
    }
    Ok(())
}
