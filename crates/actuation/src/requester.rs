//! A requester Pod as the controller observes it.

use std::collections::BTreeSet;

use api::dual_pods::{self, UserAnnotation, annotation};
use apimachinery::{object, pod};
use jiff::Timestamp;
use serde_json::Value;

use crate::container::Container;
use crate::pod_ref::PodRef;
use crate::problem::Problem;

/// A requester Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requester {
    /// The Pod.
    pub pod: PodRef,
    /// When its grace period ends, if it is being deleted.
    pub deletion_deadline: Option<Timestamp>,
    /// When it was created.
    pub created: Timestamp,
    /// IP address.
    pub ip: Option<String>,
    /// Port of the SPI.
    pub admin_port: Result<u16, Problem>,
    /// Container of the requester.
    pub container: Container,
    /// Accelerators that the Pod's annotation records for the current container.
    pub accelerators: Option<BTreeSet<String>>,
    /// Whether its containers have ended and are not restarted.
    pub is_finished: bool,
    /// Name of the provider in label `dual`.
    pub dual: Option<String>,
    /// Messages in the status annotation; `None` without the annotation.
    pub errors: Option<Vec<String>>,
}

// === impl Requester ===

impl Requester {
    /// Reads a Pod for which [`dual_pods::is_requester`] holds.
    #[must_use]
    pub fn from_pod(pod: &Value) -> Requester {
        let container = Container::of_pod(pod);
        let annotation = |key: &str| pod["metadata"]["annotations"].get(key)?.as_str();
        let recorded = annotation(dual_pods::ACCELERATORS)
            .filter(|_| annotation(dual_pods::ACCELERATORS_CONTAINER) == Some(container.id.as_str()));
        let ip = object::text(pod, "/status/podIP");
        Requester {
            pod: PodRef::new(pod),
            deletion_deadline: object::text(pod, "/metadata/deletionTimestamp").parse().ok(),
            created: object::text(pod, "/metadata/creationTimestamp").parse().unwrap_or_default(),
            ip: (!ip.is_empty()).then(|| ip.to_owned()),
            admin_port: admin_port(pod),
            accelerators: recorded.map(split_list),
            is_finished: pod::is_finished(pod),
            dual: object::label(pod, dual_pods::DUAL).map(str::to_owned),
            errors: annotation(dual_pods::STATUS).map(parse_errors),
            container,
        }
    }

    /// Returns whether the Pod is being deleted or finished, so that the kubelet frees its devices. A container that the kubelet
    /// restarts retains them.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.deletion_deadline.is_some() || self.is_finished
    }

    /// Returns whether the finalizer of the controller is present.
    #[must_use]
    pub fn has_finalizer(&self) -> bool {
        self.pod.has_finalizer(dual_pods::REQUESTER_FINALIZER)
    }
}

/// Returns whether a requester Pod is not to be served, whatever its provider would be.
pub(crate) fn unsupported_feature(pod: &Value) -> Option<Problem> {
    annotation(pod, UserAnnotation::InferenceServerConfig)?;
    let feature = format!("the annotation \"{}\"", UserAnnotation::InferenceServerConfig.key());
    Some(Problem::ModeUnsupported { feature })
}

fn admin_port(pod: &Value) -> Result<u16, Problem> {
    let Some(text) = annotation(pod, UserAnnotation::AdminPort) else { return Ok(dual_pods::DEFAULT_ADMIN_PORT) };
    let port = text.parse::<u16>().ok().filter(|port| *port > 0);
    port.ok_or_else(|| Problem::InvalidAnnotation {
        annotation: UserAnnotation::AdminPort,
        message: format!("\"{text}\" is not a port number from 1 to 65535"),
    })
}

/// Splits a comma-separated list.
pub(crate) fn split_list(text: &str) -> BTreeSet<String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// Returns the messages of a status annotation; an annotation that is no such JSON has one that equals none of ours.
fn parse_errors(text: &str) -> Vec<String> {
    match serde_json::from_str::<Value>(text) {
        Ok(status) => object::strings(status.get("Errors")).into_iter().map(str::to_owned).collect(),
        Err(_) => vec![text.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use serde_json::json;

    // spec: DP-16
    #[rstest]
    #[case::absent(json!({}), Ok(8081))]
    #[case::stated(json!({"dual-pod.llm-d.ai/admin-port": "8082"}), Ok(8082))]
    #[case::no_number(json!({"dual-pods.llm-d.ai/admin-port": "x"}), Err("the annotation \"dual-pods.llm-d.ai/admin-port\" is invalid: \"x\" is not a port number from 1 to 65535"))]
    #[case::zero(json!({"dual-pods.llm-d.ai/admin-port": "0"}), Err("the annotation \"dual-pods.llm-d.ai/admin-port\" is invalid: \"0\" is not a port number from 1 to 65535"))]
    fn admin_port_is_parsed(#[case] annotations: Value, #[case] expected: Result<u16, &str>) {
        let requester = Requester::from_pod(&json!({"metadata": {"annotations": annotations}}));
        assert_eq!(requester.admin_port.map_err(|problem| problem.to_string()), expected.map_err(str::to_owned));
    }

    // spec: DP-52
    #[test]
    fn accelerators_are_those_of_the_current_container() {
        let annotations = json!({dual_pods::ACCELERATORS: "GPU-b,GPU-a", dual_pods::ACCELERATORS_CONTAINER: "c1"});
        let pod = |id: &str| json!({"metadata": {"annotations": annotations}, "status": {"containerStatuses": [{"name": "inference-server", "containerID": id}]}});
        assert_eq!(Requester::from_pod(&pod("c1")).accelerators, Some(split_list("GPU-a,GPU-b")));
        assert_eq!(Requester::from_pod(&pod("c2")).accelerators, None);
    }

    #[rstest]
    #[case::running(json!({"phase": "Running"}), false)]
    #[case::between_restarts(json!({"phase": "Running", "containerStatuses": [{"name": "inference-server", "state": {"terminated": {}}}]}), false)]
    #[case::failed(json!({"phase": "Failed"}), true)]
    fn end_is_final(#[case] status: Value, #[case] expected: bool) {
        assert_eq!(Requester::from_pod(&json!({"metadata": {}, "status": status})).has_ended(), expected);
    }

    #[rstest]
    #[case::clean(r#"{"Errors":null}"#, &[])]
    #[case::errors(r#"{"Errors":["a","b"]}"#, &["a", "b"])]
    #[case::no_json("a", &["a"])]
    fn errors_are_parsed(#[case] text: &str, #[case] expected: &[&str]) {
        assert_eq!(parse_errors(text), expected);
    }
}
