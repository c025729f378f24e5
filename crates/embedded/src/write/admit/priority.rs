//! Priority: what admission makes of a Pod's `priorityClassName`, and that one class at most is the default.

use apimachinery::status::Status;
use serde_json::{Value, json};

use crate::object;
use crate::resources::Resource;
use crate::server::Server;

const CLASSES: &str = "priorityclasses.scheduling.k8s.io";
pub(in crate::write) const PREEMPT: &str = "PreemptLowerPriority";
/// Values above this one are the system's.
pub(in crate::write) const HIGHEST: i64 = 1_000_000_000;

/// The two classes of every cluster.
pub(crate) fn system_classes() -> [Value; 2] {
    let class = |name: &str, value: i64, description: &str| json!({"metadata": {"name": name}, "value": value, "description": description, "preemptionPolicy": PREEMPT});
    let critical = "Used for system critical pods that must";
    [
        class(
            "system-cluster-critical",
            2 * HIGHEST,
            &format!("{critical} run in the cluster, but can be moved to another node if necessary."),
        ),
        class("system-node-critical", 2 * HIGHEST + 1000, &format!("{critical} not be moved from their current node.")),
    ]
}

/// Resolves the priority of a new Pod, and checks a new PriorityClass.
///
/// # Errors
/// 403 as the admission plugin says it.
pub(super) fn admit(server: &Server, resource: &Resource, object: &mut Value) -> Result<(), Status> {
    match resource.storage.as_str() {
        "pods" => pod(server, object),
        CLASSES => single_default(server, object),
        _ => Ok(()),
    }
}

fn pod(server: &Server, pod: &mut Value) -> Result<(), Status> {
    let refused = |pod: &Value, why: &str| Err(Status::forbidden("pods", object::name(pod), why));
    let named = object::text(pod, "/spec/priorityClassName").to_owned();
    let class = if named.is_empty() { default_class(server) } else { server.get(CLASSES, "", &named) };
    if class.is_none() && !named.is_empty() {
        return refused(pod, &format!("no PriorityClass with name {named} was found"));
    }
    let priority = class.as_ref().and_then(|class| class.get("value")?.as_i64()).unwrap_or(0);
    let policy = class.as_ref().map_or("", |class| object::text(class, "/preemptionPolicy"));
    let policy = if policy.is_empty() { PREEMPT } else { policy }.to_owned();
    if let Some(stated) = pod.pointer("/spec/priority").and_then(Value::as_i64).filter(|stated| *stated != priority) {
        return refused(
            pod,
            &format!(
                "the integer value of priority ({stated}) must not be provided in pod spec; priority admission controller computed {priority} from the given PriorityClass name"
            ),
        );
    }
    let stated = object::text(pod, "/spec/preemptionPolicy").to_owned();
    if !stated.is_empty() && stated != policy {
        return refused(
            pod,
            &format!(
                "the string value of PreemptionPolicy ({stated}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
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

/// The class of Pods that name none: of several, the lowest.
fn default_class(server: &Server) -> Option<std::sync::Arc<Value>> {
    let defaults = server.list(CLASSES).into_iter().filter(|class| class["globalDefault"] == json!(true));
    defaults.min_by_key(|class| class["value"].as_i64())
}

fn single_default(server: &Server, class: &Value) -> Result<(), Status> {
    if class["globalDefault"] != json!(true) {
        return Ok(());
    }
    let name = object::name(class);
    match default_class(server).filter(|other| object::name(other) != name) {
        None => Ok(()),
        Some(other) => {
            let why = format!(
                "PriorityClass {} is already marked as default. Only one default can exist",
                object::name(&other)
            );
            Err(Status::forbidden(CLASSES, name, &why))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::future::BoxFuture;
    use rstest::rstest;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::ports::{AdmitAll, Container, Exit, Loopback, Ports, Runner, SystemClock, SystemRandom};

    struct Nothing;

    impl Runner for Nothing {
        fn run(&self, _container: Container, _stop: CancellationToken) -> BoxFuture<'static, Exit> {
            Box::pin(async { Exit { code: 0, message: String::new() } })
        }
    }

    fn server() -> Server {
        Server::new(&Ports {
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
            admission: Arc::new(AdmitAll),
            runner: Arc::new(Nothing),
            network: Arc::new(Loopback),
        })
    }

    /// Class, priority and preemption policy of a new Pod, or why there is none.
    fn made(server: &Server, extra: Value) -> String {
        let mut spec = json!({"containers": [{"name": "c", "image": "x"}]});
        object::members(&mut spec).extend(extra.as_object().cloned().unwrap_or_default());
        let pod = json!({"metadata": {"generateName": "p-", "namespace": "default"}, "spec": spec});
        match server.create("pods", pod) {
            Ok(pod) => {
                let spec = &pod["spec"];
                format!("{} {} {}", spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"])
            }
            Err(status) => status.message.split_once(": ").map_or(String::new(), |(_, why)| why.to_owned()),
        }
    }

    #[rstest]
    #[case::none(json!({}), r#"null 0 "PreemptLowerPriority""#)]
    #[case::a_class(json!({"priorityClassName": "gentle"}), r#""gentle" 7 "Never""#)]
    #[case::of_the_system(json!({"priorityClassName": "system-node-critical"}), r#""system-node-critical" 2000001000 "PreemptLowerPriority""#)]
    #[case::no_such_class(json!({"priorityClassName": "nope"}), "no PriorityClass with name nope was found")]
    #[case::the_same_number(json!({"priorityClassName": "gentle", "priority": 7}), r#""gentle" 7 "Never""#)]
    #[case::another_number(json!({"priority": 5}), "the integer value of priority (5) must not be provided in pod spec; priority admission controller computed 0 from the given PriorityClass name")]
    #[case::another_policy(json!({"preemptionPolicy": "Never"}), "the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission controller computed PreemptLowerPriority from the given PriorityClass name")]
    fn priorities(#[case] spec: Value, #[case] expect: &str) {
        let server = server();
        server
            .create(CLASSES, json!({"metadata": {"name": "gentle"}, "value": 7, "preemptionPolicy": "Never"}))
            .unwrap();
        assert_eq!(made(&server, spec), expect);
    }

    #[test]
    fn a_default_class_is_for_all_that_name_none_and_there_is_one() {
        let server = server();
        server.create(CLASSES, json!({"metadata": {"name": "usual"}, "value": 3, "globalDefault": true})).unwrap();
        assert_eq!(made(&server, json!({})), r#""usual" 3 "PreemptLowerPriority""#);
        let second = json!({"metadata": {"name": "second"}, "value": 4, "globalDefault": true});
        let refused = server.create(CLASSES, second).unwrap_err();
        assert_eq!(refused.code, 403);
        assert!(refused.message.ends_with("Only one default can exist"), "{}", refused.message);
    }

    #[rstest]
    #[case::too_high(json!({"metadata": {"name": "a"}, "value": 1_000_000_001}), "value")]
    #[case::reserved(json!({"metadata": {"name": "system-mine"}, "value": 1}), "metadata.name")]
    fn refused_classes(#[case] class: Value, #[case] field: &str) {
        let refused = server().create(CLASSES, class).unwrap_err();
        assert_eq!((refused.code, &refused.details.unwrap()["causes"][0]["field"]), (422, &json!(field)));
    }

    #[test]
    fn a_value_does_not_change() {
        let server = server();
        let stored = server.create(CLASSES, json!({"metadata": {"name": "a"}, "value": 1})).unwrap();
        let mut raised = stored.as_ref().clone();
        raised["value"] = json!(2);
        assert_eq!(server.update(CLASSES, raised).unwrap_err().code, 422);
    }
}
