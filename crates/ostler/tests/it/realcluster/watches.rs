//! The way to the API server is lost, and what happened meanwhile is too old to be told.

use serde_json::json;

use super::world::{DEPLOYMENTS, OME, PODS, World};

const NAMESPACE: &str = "watches";
/// More than there are kinds to watch.
const EXPIRED: usize = 40;

pub(super) async fn lost_and_expired(world: &World) {
    world.namespace(NAMESPACE).await;
    let service = |name: &str| {
        json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"model": {"name": "llama-3-2-3b-instruct"}}})
    };
    world.apply(&service("before")).await;
    world.condition(OME, NAMESPACE, "before", ("Ready", "True"), "").await;
    let proxy = &world.operator().proxy;

    // Cut only: the watches continue where they were.
    proxy.cut();
    world.apply(&service("cut")).await;
    world.condition(OME, NAMESPACE, "cut", ("Ready", "True"), "").await;

    // Closed: a service goes and one comes that no watch will tell of; then every watch must begin anew.
    proxy.close();
    world.delete(OME, NAMESPACE, "before").await;
    world.apply(&service("during")).await;
    let settled = proxy.writes().len();
    proxy.expire(EXPIRED);
    proxy.open();
    world.condition(OME, NAMESPACE, "during", ("Ready", "True"), "").await;
    assert!(proxy.expired() > 0, "some watch was told that its version is too old");
    let rewritten: Vec<_> =
        proxy.writes().into_iter().skip(settled).filter(|write| write.path.contains("/cut-engine")).collect();
    assert!(rewritten.is_empty(), "what was as it should be is not written again: {rewritten:?}");

    for name in ["cut", "during"] {
        world.delete(OME, NAMESPACE, name).await;
    }
    world.nothing_left(NAMESPACE, &[OME, DEPLOYMENTS, PODS]).await;
}
