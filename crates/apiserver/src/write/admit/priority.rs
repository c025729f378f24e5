//! The admission plugin `Priority`, which resolves the PriorityClass of Pods and rejects a second global default
//! PriorityClass.

use apimachinery::{Status, object};
use serde_json::{Value, json};

use crate::resources::Resource;
use crate::transaction::Transaction;
use crate::write::priority_class::PREEMPT_LOWER_PRIORITY;

const PRIORITY_CLASSES: &str = "priorityclasses.scheduling.k8s.io";

/// Resolves the priority of a new Pod or checks a new PriorityClass.
///
/// # Errors
/// 403 with the message of the plugin in kube-apiserver.
pub(super) fn admit(transaction: &Transaction<'_>, resource: &Resource, object: &mut Value) -> Result<(), Status> {
    match resource.storage.as_str() {
        "pods" => resolve_pod_priority(transaction, object),
        PRIORITY_CLASSES => check_single_default(transaction, object),
        _ => Ok(()),
    }
}

/// Checks an updated PriorityClass.
///
/// # Errors
/// 403 with the message of the plugin in kube-apiserver.
pub(super) fn admit_update(transaction: &Transaction<'_>, resource: &Resource, object: &Value) -> Result<(), Status> {
    match resource.storage.as_str() {
        PRIORITY_CLASSES => check_single_default(transaction, object),
        _ => Ok(()),
    }
}

fn resolve_pod_priority(transaction: &Transaction<'_>, pod: &mut Value) -> Result<(), Status> {
    let forbidden = |pod: &Value, message: &str| Err(Status::forbidden("pods", object::name(pod), message));
    let class_name = object::text(pod, "/spec/priorityClassName").to_owned();
    let class = if class_name.is_empty() {
        default_class(transaction)
    } else {
        transaction.get(PRIORITY_CLASSES, "", &class_name)
    };
    if class.is_none() && !class_name.is_empty() {
        return forbidden(pod, &format!("no PriorityClass with name {class_name} was found"));
    }
    let priority = class.as_ref().and_then(|class| class.get("value")?.as_i64()).unwrap_or(0);
    let class_policy = class.as_ref().map_or("", |class| object::text(class, "/preemptionPolicy"));
    let policy = if class_policy.is_empty() { PREEMPT_LOWER_PRIORITY } else { class_policy }.to_owned();
    if let Some(requested) =
        pod.pointer("/spec/priority").and_then(Value::as_i64).filter(|requested| *requested != priority)
    {
        return forbidden(
            pod,
            &format!(
                "the integer value of priority ({requested}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
            ),
        );
    }
    let requested = object::text(pod, "/spec/preemptionPolicy").to_owned();
    if !requested.is_empty() && requested != policy {
        return forbidden(
            pod,
            &format!(
                "the string value of PreemptionPolicy ({requested}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
            ),
        );
    }
    let spec = object::members(object::members(pod).entry("spec").or_insert_with(|| json!({})));
    if let Some(class) = class {
        spec.insert("priorityClassName".to_owned(), json!(object::name(&class)));
    }
    spec.insert("priority".to_owned(), json!(priority));
    spec.insert("preemptionPolicy".to_owned(), json!(policy));
    Ok(())
}

/// Returns the global default PriorityClass. If there are several, the one with the lowest value applies.
fn default_class(transaction: &Transaction<'_>) -> Option<std::sync::Arc<Value>> {
    let defaults = transaction.list(PRIORITY_CLASSES).into_iter().filter(|class| class["globalDefault"] == json!(true));
    defaults.min_by_key(|class| class["value"].as_i64())
}

fn check_single_default(transaction: &Transaction<'_>, class: &Value) -> Result<(), Status> {
    if class["globalDefault"] != json!(true) {
        return Ok(());
    }
    let name = object::name(class);
    match default_class(transaction).filter(|other| object::name(other) != name) {
        None => Ok(()),
        Some(other) => {
            let message = format!(
                "PriorityClass {} is already marked as default. Only one default can exist",
                object::name(&other)
            );
            Err(Status::forbidden(PRIORITY_CLASSES, name, &message))
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::ports::ServerPorts;
    use crate::server::Server;

    fn server() -> Server {
        Server::new(&ServerPorts::default())
    }

    /// Creates a Pod and returns its PriorityClass, priority and preemption policy, or the error message.
    fn create_pod(server: &Server, extra: Value) -> String {
        let mut spec = json!({"containers": [{"name": "c", "image": "x"}]});
        object::members(&mut spec).extend(extra.as_object().cloned().unwrap_or_default());
        let pod = json!({"metadata": {"generateName": "p-", "namespace": "default"}, "spec": spec});
        match server.create("pods", pod) {
            Ok(pod) => {
                let spec = &pod["spec"];
                format!("{} {} {}", spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"])
            }
            Err(status) => status.message.split_once(": ").map_or(String::new(), |(_, message)| message.to_owned()),
        }
    }

    #[rstest]
    #[case::no_class(json!({}), r#"null 0 "PreemptLowerPriority""#)]
    #[case::user_class(json!({"priorityClassName": "gentle"}), r#""gentle" 7 "Never""#)]
    #[case::system_class(json!({"priorityClassName": "system-node-critical"}), r#""system-node-critical" 2000001000 "PreemptLowerPriority""#)]
    #[case::unknown_class(json!({"priorityClassName": "nope"}), "no PriorityClass with name nope was found")]
    #[case::matching_value(json!({"priorityClassName": "gentle", "priority": 7}), r#""gentle" 7 "Never""#)]
    #[case::different_value(json!({"priority": 5}), "the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name")]
    #[case::different_policy(json!({"preemptionPolicy": "Never"}), "the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller computed PreemptLowerPriority from the given PriorityClass name")]
    fn resolves_pod_priority(#[case] spec: Value, #[case] expected: &str) {
        let server = server();
        server
            .create(PRIORITY_CLASSES, json!({"metadata": {"name": "gentle"}, "value": 7, "preemptionPolicy": "Never"}))
            .unwrap();
        assert_eq!(create_pod(&server, spec), expected);
    }

    #[test]
    fn applies_and_limits_global_default_class() {
        let server = server();
        server
            .create(PRIORITY_CLASSES, json!({"metadata": {"name": "usual"}, "value": 3, "globalDefault": true}))
            .unwrap();
        assert_eq!(create_pod(&server, json!({})), r#""usual" 3 "PreemptLowerPriority""#);
        let second = json!({"metadata": {"name": "second"}, "value": 4, "globalDefault": true});
        let error = server.create(PRIORITY_CLASSES, second).unwrap_err();
        assert_eq!(error.code, 403);
        assert!(error.message.ends_with("Only one default can exist"), "{}", error.message);
    }

    #[rstest]
    #[case::too_high(json!({"metadata": {"name": "a"}, "value": 1_000_000_001}), "value")]
    #[case::reserved(json!({"metadata": {"name": "system-mine"}, "value": 1}), "metadata.name")]
    fn rejects_invalid_classes(#[case] class: Value, #[case] field: &str) {
        let error = server().create(PRIORITY_CLASSES, class).unwrap_err();
        assert_eq!((error.code, &error.details.unwrap()["causes"][0]["field"]), (422, &json!(field)));
    }

    #[test]
    fn rejects_changed_value() {
        let server = server();
        let stored = server.create(PRIORITY_CLASSES, json!({"metadata": {"name": "a"}, "value": 1})).unwrap();
        let mut raised = stored.as_ref().clone();
        raised["value"] = json!(2);
        assert_eq!(server.update(PRIORITY_CLASSES, raised).unwrap_err().code, 422);
    }
}
