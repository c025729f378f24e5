//! Two teams with the same service name: the newer service states the path of its model.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use serde_json::json;

use crate::session::{Session, ostler, outcome, wait_until};

#[tokio::test]
async fn newer_service_states_the_path_of_its_model() {
    let session = Session::start(&["--nodes", "2×L40S-48G"]);
    let client = session.client().await;
    let services = ApiResource::from_gvk(&GroupVersionKind::gvk("ome.io", "v1beta1", "InferenceService"));
    let explain = |namespace: &str| {
        let args = ["explain", "inferenceservice.ome.io/chat", "-n", namespace, "--kubeconfig", &session.kubeconfig];
        outcome(&ostler(&args).output().unwrap()).0
    };
    for namespace in ["team-a", "team-b"] {
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}})).unwrap();
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await.unwrap();
        let service = json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
            "metadata": {"name": "chat", "namespace": namespace}, "spec": {"model": {"name": "llama-3-2-3b-instruct"}}});
        let services = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &services);
        services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
        wait_until("a ready service", || {
            explain(namespace).starts_with(&format!("{namespace}/chat is ready")).then_some(())
        });
    }
    let expected = "ModelNameShared=True  OlderUseCase: `/v1` routes model chat to pool team-a/chat, whose use case is older; \
        send requests for this one to `/team-b/chat/v1`.";
    wait_until(expected, || explain("team-b").contains(expected).then_some(()));
    assert!(!explain("team-a").contains("ModelNameShared"));
    let services = Api::<DynamicObject>::namespaced_with(client, "team-a", &services);
    services.delete("chat", &Default::default()).await.unwrap();
    wait_until("the end of the condition", || (!explain("team-b").contains("ModelNameShared")).then_some(()));
}
