//! People who use and administer the cluster.

use apimachinery::object;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::user_objects::foreign_object;
use super::user_services::{USER_SERVICES, UserService};
use crate::initial_objects::{EDITED_IMAGE, RUNTIMES, runtime};
use crate::model::Model;
use crate::process::Process;
use crate::term_check::{LEASE_NAMESPACE, LEASES};
use crate::world::World;

/// Creates, edits and deletes services, their objects, objects with colliding names, and the Lease.
pub(crate) struct People;

/// What a person does.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum PersonAction {
    /// Creates a service or a runtime, or replaces its spec.
    Apply {
        resource: String,
        object: Value,
        /// For the journal.
        summary: String,
    },
    /// Creates an object of their own, in place of an object with its name.
    Replace { resource: String, object: Value },
    /// Deletes an object and creates their own with its labels and annotations, as a copy of its manifest has them.
    Copy { resource: String, name: String },
    /// Removes the labels of an object of the operator.
    RemoveLabels { resource: String, name: String },
    /// Pauses the rollouts of a service, or resumes them.
    PauseRollouts { resource: String, name: String, paused: bool },
    /// Scales a workload and sets another image.
    EditWorkload { resource: String, name: String, replicas: u8 },
    /// Deletes an object.
    Delete { resource: String, name: String },
    /// Sets a field of the Lease.
    EditLease { field: String, value: Value },
    /// Deletes the Lease.
    DeleteLease,
}

// === impl Model for People ===

impl Model for People {
    type Action = PersonAction;

    fn name(&self) -> &'static str {
        "people"
    }

    fn draw(&self, world: &World, random: &mut fastrand::Rng) -> Vec<PersonAction> {
        let service = &USER_SERVICES[random.usize(..USER_SERVICES.len())];
        let (resource, object) = service.objects[random.usize(..service.objects.len())];
        let (resource, object_name) = (resource.to_owned(), format!("{}{object}", service.name));
        match random.u8(..14) {
            0..4 => {
                let mut actions = vec![apply_service(service, random)];
                if random.bool() {
                    // At the same time as the operator's object of that name.
                    let object = foreign_object(&resource, &object_name);
                    actions.push(PersonAction::Replace { resource, object });
                }
                actions
            }
            4 => vec![PersonAction::Delete { resource: service.resource.to_owned(), name: service.name.to_owned() }],
            5 => vec![edit_runtime(random)],
            6 => {
                let (resource, suffix) = service.objects[0];
                let (resource, name) = (resource.to_owned(), format!("{}{suffix}", service.name));
                vec![PersonAction::EditWorkload { resource, name, replicas: random.u8(1..4) }]
            }
            7 => vec![PersonAction::Delete { resource, name: object_name }],
            8 => vec![edit_lease(world, random)],
            9 => vec![PersonAction::RemoveLabels { resource, name: object_name }],
            10 => vec![PersonAction::PauseRollouts {
                resource: service.resource.to_owned(),
                name: service.name.to_owned(),
                paused: random.bool(),
            }],
            11 => vec![PersonAction::Copy { resource, name: object_name }],
            _ => vec![PersonAction::Replace { object: foreign_object(&resource, &object_name), resource }],
        }
    }

    fn act(&mut self, world: &mut World, action: PersonAction) -> Option<String> {
        match action {
            PersonAction::Apply { resource, object, summary } => apply(world, &resource, object, &summary),
            PersonAction::Replace { resource, object } => replace(world, &resource, object),
            PersonAction::Copy { resource, name } => {
                let live = world.server().get(&resource, "default", &name)?;
                let mut object = foreign_object(&resource, &name);
                for field in ["labels", "annotations"] {
                    object["metadata"][field] = live["metadata"][field].clone();
                }
                replace(world, &resource, object).map(|text| format!("{text}, with the labels of the former"))
            }
            PersonAction::RemoveLabels { resource, name } => {
                let mut object = Value::clone(&*world.server().get(&resource, "default", &name)?);
                object["metadata"]["labels"] = json!({});
                let edited = world.server().update(&resource, object).ok()?;
                world.update_foreign(&resource, &edited);
                Some(format!("remove the labels of {resource}/{name}"))
            }
            PersonAction::PauseRollouts { resource, name, paused } => pause_rollouts(world, &resource, &name, paused),
            PersonAction::EditWorkload { resource, name, replicas } => edit_workload(world, &resource, &name, replicas),
            PersonAction::Delete { resource, name } => {
                world.remove_foreign(&resource, "default", &name);
                world.remove_input(&resource, "default", &name);
                world.server().delete(&resource, "default", &name, None).ok()?;
                Some(format!("delete {resource}/{name}"))
            }
            PersonAction::EditLease { field, value } => {
                let name = operator::LEASE_NAME;
                let mut lease = Value::clone(&*world.server().get(LEASES, LEASE_NAMESPACE, name)?);
                world.before_lease_edit();
                let text = format!("edit the Lease: {field} {value}");
                lease["spec"][field] = value;
                world.server().update(LEASES, lease).ok()?;
                Some(text)
            }
            PersonAction::DeleteLease => {
                world.before_lease_edit();
                world.server().delete(LEASES, LEASE_NAMESPACE, operator::LEASE_NAME, None).ok()?;
                Some("delete the Lease".to_owned())
            }
        }
    }

    fn settle(&mut self, world: &mut World) {
        for service in &USER_SERVICES {
            let live = world.server().get(service.resource, "default", service.name);
            if live.is_some_and(|live| operator::is_rollout_paused(&live)) {
                pause_rollouts(world, service.resource, service.name, false);
            }
        }
    }
}

/// Pauses the rollouts of a service, or resumes them.
fn pause_rollouts(world: &mut World, resource: &str, name: &str, paused: bool) -> Option<String> {
    let mut service = Value::clone(&*world.server().get(resource, "default", name)?);
    let annotation = operator::rollout_pause_annotation(service["apiVersion"].as_str().unwrap_or_default());
    service["metadata"]["annotations"][annotation] = json!(paused.to_string());
    let written = world.server().update(resource, service).ok()?;
    world.add_input(resource, &written);
    Some(format!("{} the rollouts of {resource}/{name}", if paused { "pause" } else { "resume" }))
}

fn apply_service(service: &UserService, random: &mut fastrand::Rng) -> PersonAction {
    let (spec, summary) = (service.spec)(random);
    let object = json!({"metadata": {"name": service.name, "namespace": "default"}, "spec": spec});
    PersonAction::Apply { resource: service.resource.to_owned(), object, summary }
}

fn edit_runtime(random: &mut fastrand::Rng) -> PersonAction {
    let port = random.u16(8080..8083);
    PersonAction::Apply { resource: RUNTIMES.to_owned(), object: runtime(port), summary: format!("port {port}") }
}

fn edit_lease(world: &World, random: &mut fastrand::Rng) -> PersonAction {
    let (field, value) = match random.u8(..5) {
        0 => return PersonAction::DeleteLease,
        1 => ("leaseDurationSeconds", json!(random.u8(1..60))),
        2 => ("holderIdentity", json!("")),
        3 => ("holderIdentity", json!("another-candidate")),
        _ => ("holderIdentity", json!(world.processes().first().map(Process::name))),
    };
    PersonAction::EditLease { field: field.to_owned(), value }
}

/// Creates an object, or replaces its spec.
fn apply(world: &mut World, resource: &str, object: Value, summary: &str) -> Option<String> {
    let (namespace, name) = (object::namespace(&object).to_owned(), object::name(&object).to_owned());
    if let Some(live) = world.server().get(resource, &namespace, &name) {
        let mut edited = Value::clone(&live);
        edited["spec"] = object["spec"].clone();
        let written = world.server().update(resource, edited).ok()?;
        world.add_input(resource, &written);
        return Some(format!("edit {resource}/{name}: {summary}"));
    }
    let written = world.server().create(resource, object).ok()?;
    world.add_input(resource, &written);
    Some(format!("create {resource}/{name}: {summary}"))
}

/// Creates an object of a person, in place of an object with its name.
fn replace(world: &mut World, resource: &str, object: Value) -> Option<String> {
    let name = object::name(&object).to_owned();
    world.remove_foreign(resource, "default", &name);
    let is_replaced = world.server().delete(resource, "default", &name, None).is_ok();
    let created = world.server().create(resource, object).ok()?;
    world.add_foreign(resource, &created);
    let action = if is_replaced { "replace" } else { "create" };
    Some(format!("{action} {resource}/{name} with an object of their own"))
}

fn edit_workload(world: &mut World, resource: &str, name: &str, replicas: u8) -> Option<String> {
    let mut object = Value::clone(&*world.server().get(resource, "default", name)?);
    for template in ["/spec/template", "/spec/leaderWorkerTemplate/workerTemplate"] {
        if let Some(image) = object.pointer_mut(&format!("{template}/spec/containers/0/image")) {
            *image = json!(format!("{EDITED_IMAGE}:{replicas}"));
        }
    }
    object["spec"]["replicas"] = json!(replicas);
    let edited = world.server().update(resource, object).ok()?;
    world.update_foreign(resource, &edited);
    Some(format!("edit {resource}/{name}: {replicas} replicas, another image"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::initial_objects::initial_server;
    use crate::seed::Seed;

    /// A rejected object would silently exempt its kind from the invariant about foreign objects.
    #[tokio::test(start_paused = true)]
    async fn foreign_objects_and_services_are_accepted() {
        let mut world = World::start(initial_server().unwrap(), Seed(0), None);
        for service in &USER_SERVICES {
            for seed in 0..20 {
                let action = apply_service(service, &mut fastrand::Rng::with_seed(seed));
                People.act(&mut world, action).unwrap();
            }
            for (resource, suffix) in service.objects {
                let object = foreign_object(resource, &format!("{}{suffix}", service.name));
                replace(&mut world, resource, object).unwrap();
            }
        }
    }
}
