//! The PodGroup of a role-based service grows before its replicas are created, and shrinks before they are deleted.

use std::collections::BTreeMap;
use std::sync::Arc;

use apimachinery::object;
use embedded::Change;
use plan::labels::{GROUP_NAME, REPLICA_INDEX, ROLE_NAME, TASK_SPEC};
use serde_json::Value;

use super::plans::plans;
use crate::initial_objects::SERVICES;
use crate::invariant::Invariant;
use crate::world::World;

const POD_GROUPS: &str = "podgroups.scheduling.volcano.sh";
const SETS: &str = "leaderworkersets.leaderworkerset.x-k8s.io";

/// A replica of a gang is created once the PodGroup of its service counts it, and a surplus one is deleted once the PodGroup no
/// longer requires it.
#[derive(Default)]
pub(crate) struct GroupOrder {
    /// The last PodGroup of each service, by the UID of the service. A person may have deleted it since.
    groups: BTreeMap<String, Arc<Value>>,
    /// The role-based services, by UID.
    services: BTreeMap<String, Arc<Value>>,
}

// === impl Invariant for GroupOrder ===

impl Invariant for GroupOrder {
    fn name(&self) -> &'static str {
        "the PodGroup changes before its replicas"
    }

    fn after_change(&mut self, world: &World, change: &Change) -> Result<(), String> {
        match (change.resource.as_str(), &change.old, &change.new) {
            (POD_GROUPS, _, Some(group)) => {
                if let Some(service) = cluster::controller_uid(group) {
                    self.groups.insert(service.to_owned(), Arc::clone(group));
                }
                Ok(())
            }
            (SETS, None, Some(set)) => self.check_creation(set),
            (SETS, Some(set), new) if !object::is_deleting(set) && new.as_deref().is_none_or(object::is_deleting) => {
                self.check_deletion(world, set)
            }
            (resource, old, new) if resource == SERVICES[1] => {
                for service in old.iter().chain(new) {
                    self.services.remove(object::uid(service));
                }
                if let Some(service) = new.as_ref().filter(|service| !object::is_deleting(service)) {
                    self.services.insert(object::uid(service).to_owned(), Arc::clone(service));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl GroupOrder {
    /// Checks that the PodGroup counts a new replica.
    fn check_creation(&self, set: &Value) -> Result<(), String> {
        let Some((service, task, role)) = membership(set) else { return Ok(()) };
        let group = self.groups.get(service).map_or(&Value::Null, |group| &group["spec"]);
        let mut subgroups = group["subGroupPolicy"].as_array().into_iter().flatten();
        if group["minTaskMember"].get(task).is_some() || subgroups.any(|subgroup| subgroup["name"] == role) {
            return Ok(());
        }
        Err(format!("LeaderWorkerSet {} is created, its PodGroup is {group}", object::name(set)))
    }

    /// Checks that the PodGroup, if there is one, does not require a replica that the operator deletes because the service has fewer.
    /// The operator does not change a PodGroup of a person.
    fn check_deletion(&self, world: &World, set: &Value) -> Result<(), String> {
        let Some((uid, task, role)) = membership(set) else { return Ok(()) };
        let Some(service) = self.services.get(uid).filter(|service| is_surplus(service, role, set)) else {
            return Ok(());
        };
        let current = world.server().get(POD_GROUPS, "default", object::name(service));
        if current.is_none_or(|group| cluster::controller_uid(&group) != Some(uid)) {
            return Ok(());
        }
        let group = self.groups.get(uid).map_or(&Value::Null, |group| &group["spec"]);
        if group["minTaskMember"].get(task).is_none() || !has_gang(world, object::name(service))? {
            return Ok(());
        }
        Err(format!("LeaderWorkerSet {} is deleted, its PodGroup is {group}", object::name(set)))
    }
}

/// Returns UID of the service, task and role of a replica of a gang.
fn membership(set: &Value) -> Option<(&str, &str, &str)> {
    let annotations = &set["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["annotations"];
    annotations[GROUP_NAME].as_str()?;
    Some((cluster::controller_uid(set)?, annotations[TASK_SPEC].as_str()?, object::label(set, ROLE_NAME)?))
}

/// Returns whether a service has fewer replicas than the index of a replica requires. Others are deleted by people.
fn is_surplus(service: &Value, role: &str, set: &Value) -> bool {
    let index = object::label(set, REPLICA_INDEX).and_then(|index| index.parse::<u64>().ok());
    let mut roles = service["spec"]["roles"].as_array().into_iter().flatten();
    let replicas = roles.find(|other| other["name"] == role).map_or(0, |role| role["replicas"].as_u64().unwrap_or(1));
    index.is_some_and(|index| index >= replicas)
}

/// Returns whether the service still has a gang. The PodGroup of a former gang remains until no replica belongs to it.
fn has_gang(world: &World, service: &str) -> Result<bool, String> {
    let plans = plans(world)?;
    let mut objects = plans.iter().filter(|plan| plan.name == service).flat_map(|plan| &plan.objects);
    Ok(objects.any(|planned| planned["kind"] == "PodGroup"))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::initial_objects::initial_server;
    use crate::seed::Seed;

    fn change(resource: &str, old: Option<&Value>, new: Option<&Value>) -> Change {
        let name = new.or(old).map(|object| object::name(object).to_owned()).unwrap_or_default();
        let [old, new] = [old, new].map(|object| object.cloned().map(Arc::new));
        Change { resource: resource.to_owned(), namespace: "default".to_owned(), name, old, new }
    }

    /// The service has one replica of the role, and the second one is deleted.
    #[rstest]
    #[case::no_longer_required(json!({"decode-0": 1}), "decode-1", false, true)]
    #[case::required(json!({"decode-0": 1, "decode-1": 1}), "decode-1", false, false)]
    #[case::replaced_by_a_person(json!({"decode-0": 1, "decode-1": 1}), "decode-1", true, true)]
    #[case::deleted_by_a_person(json!({"decode-0": 1}), "decode-0", false, true)]
    #[tokio::test(start_paused = true)]
    async fn surplus_replica_is_deleted_after_the_group_shrinks(
        #[case] members: Value,
        #[case] deleted: &str,
        #[case] is_group_replaced: bool,
        #[case] is_accepted: bool,
    ) {
        let world = World::start(initial_server().unwrap(), Seed(0), None);
        let role = |name: &str, component_type: &str| {
            json!({"name": name, "componentType": component_type, "replicas": 1,
                "template": {"spec": {"containers": [{"name": "e", "image": "i", "command": ["vllm", "serve", "m"]}]}}})
        };
        let service = json!({"metadata": {"name": "split", "namespace": "default"},
            "spec": {"roles": [role("prefill", "prefiller"), role("decode", "decoder")]}});
        let service = Value::clone(&world.server().create(SERVICES[1], service).unwrap());
        let owner = json!([{"uid": object::uid(&service), "controller": true}]);
        let index = deleted.rsplit_once('-').unwrap().1;
        let set = json!({"metadata": {"name": format!("split-{deleted}"), "ownerReferences": owner,
                "labels": {ROLE_NAME: "decode", REPLICA_INDEX: index}},
            "spec": {"leaderWorkerTemplate": {"workerTemplate":
                {"metadata": {"annotations": {GROUP_NAME: "split", TASK_SPEC: deleted}}}}}});
        let group =
            json!({"metadata": {"name": "split", "ownerReferences": owner}, "spec": {"minTaskMember": members}});
        let mut metadata = json!({"name": "split", "namespace": "default"});
        if !is_group_replaced {
            metadata["ownerReferences"] = json!([{"apiVersion": "fusioninfer.io/v1alpha1", "kind": "InferenceService",
                "name": "split", "uid": object::uid(&service), "controller": true}]);
        }
        world.server().create(POD_GROUPS, json!({"metadata": metadata, "spec": {"minMember": 1}})).unwrap();
        let mut order = GroupOrder::default();
        order.after_change(&world, &change(SERVICES[1], None, Some(&service))).unwrap();
        order.after_change(&world, &change(POD_GROUPS, None, Some(&group))).unwrap();
        let result = order.after_change(&world, &change(SETS, Some(&set), None));
        let error = format!("LeaderWorkerSet split-{deleted} is deleted, its PodGroup is {}", group["spec"]);
        assert_eq!(result, if is_accepted { Ok(()) } else { Err(error) });
    }
}
