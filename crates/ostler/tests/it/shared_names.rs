//! Two teams with the same service name: requests name the namespace.

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use serde_json::json;

use crate::session::{Session, ostler, outcome, post_chat, wait_until};

#[tokio::test]
async fn models_of_two_teams_have_separate_names() {
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
    for namespace in ["team-a", "team-b"] {
        let model = format!("{namespace}/chat");
        let response =
            wait_until("a response", || Some(complete(&session.gateway, &model)).filter(|body| body.contains("usage")));
        assert!(response.contains(&format!("\"model\":\"{model}\"")), "{response}");
    }
    let response = complete(&session.gateway, "chat");
    assert!(
        response.contains("Models with this name in other namespaces: `team-a/chat`, `team-b/chat`."),
        "{response}"
    );
    assert!(!explain("team-b").contains("ModelNameShared"));
    let services = Api::<DynamicObject>::namespaced_with(client, "team-a", &services);
    services.delete("chat", &Default::default()).await.unwrap();
    wait_until("the end of team-a/chat", || {
        complete(&session.gateway, "team-a/chat").contains("does not exist").then_some(())
    });
    assert!(complete(&session.gateway, "chat").contains("in other namespaces: `team-b/chat`."));
}

/// Returns the response to a request for a completion by `model`.
fn complete(gateway: &str, model: &str) -> String {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}).to_string();
    post_chat(gateway, &body)
}
