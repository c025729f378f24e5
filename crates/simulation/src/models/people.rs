//! People who use and administer the cluster.

use serde_json::{Value, json};

use crate::model::Model;
use crate::world::World;

/// Resource of the services.
pub(crate) const SERVICES: &str = "inferenceservices.ome.io";
/// Resource of the models.
pub(crate) const MODELS: &str = "clusterbasemodels.ome.io";
const RUNTIMES: &str = "clusterservingruntimes.ome.io";
const NAMES: [&str; 2] = ["chat", "code"];
/// Resources of which people create objects with the names of the operator's, and the suffix of these names.
const COLLIDING: [(&str, &str); 4] = [
    ("deployments.apps", "-engine"),
    ("services", "-engine"),
    ("backendpools.inference.networking.x-k8s.io", ""),
    ("llmusecasesets.inference.networking.x-k8s.io", ""),
];
/// Resources of the operator's objects that people edit and delete.
const OWNED: [(&str, &str); 4] = [
    ("deployments.apps", "-engine"),
    ("services", "-engine"),
    ("backendpools.inference.networking.x-k8s.io", ""),
    ("llmusecasesets.inference.networking.x-k8s.io", ""),
];

/// Creates, edits and deletes services, their objects, and objects with colliding names.
pub(crate) struct People;

// === impl People ===

impl Model for People {
    fn name(&self) -> &'static str {
        "people"
    }

    fn act(&mut self, world: &mut World, random: &mut fastrand::Rng) -> Option<String> {
        let service = NAMES[random.usize(..NAMES.len())];
        match random.u8(..10) {
            0..4 => {
                let text = create_or_edit_service(world, service, random);
                // At the same time as the operator's object of that name.
                let collision = random.bool().then(|| create_foreign(world, service, random)).flatten();
                Some([Some(text), collision].into_iter().flatten().collect::<Vec<_>>().join("; "))
            }
            4 => {
                world.server().delete(SERVICES, "default", service, None).ok()?;
                Some(format!("delete service {service}"))
            }
            5 => edit_runtime(world, random),
            6 => edit_owned(world, service, random),
            7 => delete_owned(world, service, random),
            _ => create_foreign(world, service, random),
        }
    }
}

fn create_or_edit_service(world: &World, name: &str, random: &mut fastrand::Rng) -> String {
    let (image, replicas) = (random.u8(1..4), random.u8(1..4));
    let engine = json!({"minReplicas": replicas, "maxReplicas": replicas,
        "runner": {"image": format!("example.com/engine:{image}")}});
    let text = format!("image {image}, {replicas} replicas");
    if let Some(live) = world.server().get(SERVICES, "default", name) {
        let mut service = Value::clone(&live);
        service["spec"]["engine"] = engine;
        world.server().update(SERVICES, service).ok();
        return format!("edit service {name}: {text}");
    }
    let service = json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"model": {"name": "small"}, "engine": engine}});
    world.server().create(SERVICES, service).ok();
    format!("create service {name}: {text}")
}

fn edit_runtime(world: &World, random: &mut fastrand::Rng) -> Option<String> {
    let port = random.u16(8080..8083);
    let mut edited = Value::clone(&*world.server().get(RUNTIMES, "", "any")?);
    edited["spec"] = runtime(port)["spec"].clone();
    world.server().update(RUNTIMES, edited).ok()?;
    Some(format!("edit runtime any: port {port}"))
}

fn edit_owned(world: &mut World, service: &str, random: &mut fastrand::Rng) -> Option<String> {
    let (resource, suffix) = OWNED[0];
    let mut object = Value::clone(&*world.server().get(resource, "default", &format!("{service}{suffix}"))?);
    let replicas = random.u8(1..9);
    object["spec"]["template"]["spec"]["containers"][0]["image"] = json!(format!("example.com/edited:{replicas}"));
    object["spec"]["replicas"] = json!(replicas);
    let edited = world.server().update(resource, object).ok()?;
    world.update_foreign(resource, &edited);
    Some(format!("edit {resource}/{service}{suffix}: {replicas} replicas, another image"))
}

fn delete_owned(world: &mut World, service: &str, random: &mut fastrand::Rng) -> Option<String> {
    let (resource, suffix) = OWNED[random.usize(..OWNED.len())];
    let name = format!("{service}{suffix}");
    world.remove_foreign(resource, "default", &name);
    world.server().delete(resource, "default", &name, None).ok()?;
    Some(format!("delete {resource}/{name}"))
}

/// Creates an object with the name of one of the operator's, in place of that if it exists.
fn create_foreign(world: &mut World, service: &str, random: &mut fastrand::Rng) -> Option<String> {
    let (resource, suffix) = COLLIDING[random.usize(..COLLIDING.len())];
    let name = format!("{service}{suffix}");
    world.remove_foreign(resource, "default", &name);
    let action = if world.server().delete(resource, "default", &name, None).is_ok() { "replace" } else { "create" };
    let created = world.server().create(resource, foreign_object(resource, &name)).ok()?;
    world.add_foreign(resource, &created);
    Some(format!("{action} {resource}/{name} with an object of their own"))
}

fn foreign_object(resource: &str, name: &str) -> Value {
    let spec = match resource {
        "deployments.apps" => json!({"replicas": 1, "selector": {"matchLabels": {"app": "mine"}}, "template": {
            "metadata": {"labels": {"app": "mine"}}, "spec": {"containers": [{"name": "main", "image": "example.com/mine"}]}}}),
        "services" => json!({"ports": [{"port": 1234}], "selector": {"app": "mine"}}),
        "backendpools.inference.networking.x-k8s.io" => json!({"selector": {"app": "mine"}, "targetPorts": [1234]}),
        _ => json!({"poolRef": [{"name": "mine"}], "useCases": [{"modelName": "mine"}]}),
    };
    json!({"metadata": {"name": name, "namespace": "default", "labels": {"app": "mine"}}, "spec": spec})
}

/// Returns the runtime of all services.
pub(crate) fn runtime(port: u16) -> Value {
    json!({"apiVersion": "ome.io/v1beta1", "kind": "ClusterServingRuntime", "metadata": {"name": "any"},
        "spec": {"supportedModelFormats": [{"modelFormat": {"name": "safetensors"}, "autoSelect": true}],
            "engineConfig": {"runner": {"name": "ome-container", "image": "example.com/any:1",
                "args": [format!("--port={port}")]}}}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    /// A rejected object would silently exempt its kind from the invariant about foreign objects.
    #[tokio::test(start_paused = true)]
    async fn foreign_objects_are_accepted() {
        let world = World::start(Seed(0), None);
        for definition in api::crds() {
            world.server().create("customresourcedefinitions.apiextensions.k8s.io", definition).unwrap();
        }
        for (resource, _) in COLLIDING {
            world.server().create(resource, foreign_object(resource, "chat")).unwrap();
        }
    }
}
