//! People who use and administer the cluster.

use serde_json::{Value, json};

use super::user_objects::{foreign_object, ome_spec, role_based_spec};
use crate::initial_objects::{RUNTIMES, runtime};
use crate::model::Model;
use crate::term_check::{LEASE_NAMESPACE, LEASES};
use crate::world::World;

/// Resources of the services.
pub(crate) const SERVICES: [&str; 2] = ["inferenceservices.ome.io", "inferenceservices.fusioninfer.io"];

/// A service that people create, edit and delete.
pub(super) struct UserService {
    /// One of [`SERVICES`].
    resource: &'static str,
    name: &'static str,
    /// Returns a random specification, and its description.
    spec: fn(&mut fastrand::Rng) -> (Value, String),
    /// Resources of which people create objects with the names of the operator's, and the suffixes of these names. They
    /// edit those of the first resource.
    pub(super) objects: &'static [(&'static str, &'static str)],
}

const OME_OBJECTS: &[(&str, &str)] = &[
    ("deployments.apps", "-engine"),
    ("services", "-engine"),
    ("backendpools.inference.networking.x-k8s.io", ""),
    ("llmusecasesets.inference.networking.x-k8s.io", ""),
];
pub(super) const USER_SERVICES: [UserService; 3] = [
    UserService { resource: SERVICES[0], name: "chat", spec: ome_spec, objects: OME_OBJECTS },
    UserService { resource: SERVICES[0], name: "code", spec: ome_spec, objects: OME_OBJECTS },
    UserService {
        resource: SERVICES[1],
        name: "split",
        spec: role_based_spec,
        objects: &[
            ("leaderworkersets.leaderworkerset.x-k8s.io", "-decode-0"),
            ("podgroups.scheduling.volcano.sh", ""),
            ("backendpools.inference.networking.x-k8s.io", ""),
        ],
    },
];

/// Creates, edits and deletes services, their objects, objects with colliding names, and the Lease.
pub(crate) struct People;

// === impl Model for People ===

impl Model for People {
    fn name(&self) -> &'static str {
        "people"
    }

    fn act(&mut self, world: &mut World, random: &mut fastrand::Rng) -> Option<String> {
        let service = &USER_SERVICES[random.usize(..USER_SERVICES.len())];
        match random.u8(..11) {
            0..4 => {
                let text = service.create_or_edit(world, random);
                // At the same time as the operator's object of that name.
                let collision = random.bool().then(|| service.create_foreign(world, random)).flatten();
                let texts: Vec<String> = [text, collision].into_iter().flatten().collect();
                (!texts.is_empty()).then(|| texts.join("; "))
            }
            4 => {
                world.server().delete(service.resource, "default", service.name, None).ok()?;
                Some(format!("delete service {}", service.name))
            }
            5 => edit_runtime(world, random),
            6 => service.edit_object(world, random),
            7 => service.delete_object(world, random),
            8 => edit_lease(world, random),
            _ => service.create_foreign(world, random),
        }
    }
}

fn edit_runtime(world: &World, random: &mut fastrand::Rng) -> Option<String> {
    let port = random.u16(8080..8083);
    let mut edited = Value::clone(&*world.server().get(RUNTIMES, "", "any")?);
    edited["spec"] = runtime(port)["spec"].clone();
    world.server().update(RUNTIMES, edited).ok()?;
    Some(format!("edit runtime any: port {port}"))
}

fn edit_lease(world: &mut World, random: &mut fastrand::Rng) -> Option<String> {
    let name = operator::LEASE_NAME;
    let mut lease = Value::clone(&*world.server().get(LEASES, LEASE_NAMESPACE, name)?);
    world.before_lease_edit();
    let (field, value) = match random.u8(..5) {
        0 => {
            world.server().delete(LEASES, LEASE_NAMESPACE, name, None).ok()?;
            return Some("delete the Lease".to_owned());
        }
        1 => ("leaseDurationSeconds", json!(random.u8(1..60))),
        2 => ("holderIdentity", json!("")),
        3 => ("holderIdentity", json!("another-candidate")),
        _ => ("holderIdentity", json!(world.processes().first()?.name())),
    };
    let text = format!("edit the Lease: {field} {value}");
    lease["spec"][field] = value;
    world.server().update(LEASES, lease).ok()?;
    Some(text)
}

// === impl UserService ===

impl UserService {
    fn create_or_edit(&self, world: &World, random: &mut fastrand::Rng) -> Option<String> {
        let (spec, text) = (self.spec)(random);
        if let Some(live) = world.server().get(self.resource, "default", self.name) {
            let mut service = Value::clone(&live);
            service["spec"] = spec;
            world.server().update(self.resource, service).ok()?;
            return Some(format!("edit service {}: {text}", self.name));
        }
        let service = json!({"metadata": {"name": self.name, "namespace": "default"}, "spec": spec});
        world.server().create(self.resource, service).ok()?;
        Some(format!("create service {}: {text}", self.name))
    }

    fn object(&self, index: usize) -> Option<(&'static str, String)> {
        let (resource, suffix) = self.objects.get(index)?;
        Some((resource, format!("{}{suffix}", self.name)))
    }

    fn edit_object(&self, world: &mut World, random: &mut fastrand::Rng) -> Option<String> {
        let (resource, name) = self.object(0)?;
        let mut object = Value::clone(&*world.server().get(resource, "default", &name)?);
        let replicas = random.u8(1..4);
        for template in ["/spec/template", "/spec/leaderWorkerTemplate/workerTemplate"] {
            if let Some(image) = object.pointer_mut(&format!("{template}/spec/containers/0/image")) {
                *image = json!(format!("example.com/edited:{replicas}"));
            }
        }
        object["spec"]["replicas"] = json!(replicas);
        let edited = world.server().update(resource, object).ok()?;
        world.update_foreign(resource, &edited);
        Some(format!("edit {resource}/{name}: {replicas} replicas, another image"))
    }

    fn delete_object(&self, world: &mut World, random: &mut fastrand::Rng) -> Option<String> {
        let (resource, name) = self.object(random.usize(..self.objects.len()))?;
        world.remove_foreign(resource, "default", &name);
        world.server().delete(resource, "default", &name, None).ok()?;
        Some(format!("delete {resource}/{name}"))
    }

    /// Creates an object with the name of one of the operator's, in place of that if it exists.
    fn create_foreign(&self, world: &mut World, random: &mut fastrand::Rng) -> Option<String> {
        let (resource, name) = self.object(random.usize(..self.objects.len()))?;
        world.remove_foreign(resource, "default", &name);
        let is_replaced = world.server().delete(resource, "default", &name, None).is_ok();
        let created = world.server().create(resource, foreign_object(resource, &name)).ok()?;
        world.add_foreign(resource, &created);
        let action = if is_replaced { "replace" } else { "create" };
        Some(format!("{action} {resource}/{name} with an object of their own"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::initial_objects::initial_server;
    use crate::seed::Seed;

    /// A rejected object would silently exempt its kind from the invariant about foreign objects.
    #[tokio::test(start_paused = true)]
    async fn foreign_objects_and_services_are_accepted() {
        let world = World::start(initial_server().unwrap(), Seed(0), None);
        for service in &USER_SERVICES {
            service.create_or_edit(&world, &mut fastrand::Rng::with_seed(0)).unwrap();
            for (resource, suffix) in service.objects {
                let name = format!("{}{suffix}", service.name);
                world.server().create(resource, foreign_object(resource, &name)).unwrap();
            }
        }
    }
}
