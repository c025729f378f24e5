//! Which service a Pod belongs to, by its labels.

use cluster::Kind;
use operator::kinds;
use plan::labels;
use serde_json::Value;

use super::fields::text;
use crate::cluster_objects::ClusterObjects;

/// Labels of the Pods of services, and the kinds of these services.
const SERVICE_LABELS: [(&str, Kind); 2] =
    [(labels::OME_SERVICE, kinds::OME_SERVICE), (labels::SERVICE, kinds::FUSIONINFER_SERVICE)];

/// Returns kind and label value of the service that the Pod belongs to.
pub(super) fn service_of(pod: &Value) -> Option<(Kind, &str)> {
    let labels = &pod["metadata"]["labels"];
    SERVICE_LABELS.iter().find_map(|(label, kind)| Some((*kind, labels[label].as_str()?)))
}

/// Returns the Pods of a service.
pub(crate) fn service_pods<'a>(service: &Value, objects: &'a ClusterObjects) -> Vec<&'a Value> {
    objects.pods.iter().filter(|pod| is_pod_of(pod, service)).collect()
}

fn is_pod_of(pod: &Value, service: &Value) -> bool {
    let name = plan::label_value(text(service, "/metadata/name"));
    let group = text(service, "/apiVersion").split('/').next().unwrap_or_default();
    let label = SERVICE_LABELS.iter().find(|(_, kind)| kind.group == group).map(|(label, _)| *label);
    pod["metadata"]["namespace"] == service["metadata"]["namespace"]
        && label.is_some_and(|label| pod["metadata"]["labels"][label] == name)
}
