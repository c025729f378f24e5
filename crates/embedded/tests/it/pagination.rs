//! Pagination after a compaction, with the responses of kube-apiserver v1.37.0.

use embedded::Server;
use embedded::ports::ServerPorts;
use serde_json::{Value, json};

/// Lists the Leases in `default` and returns status code and body.
async fn leases(client: &kube::Client, parameters: &str) -> (u16, Value) {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/default/leases?{parameters}");
    let request = http::Request::get(path).body(kube::client::Body::empty()).unwrap();
    let response = client.send(request).await.unwrap();
    let code = response.status().as_u16();
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    (code, serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn expired_token_response_contains_new_token() {
    let server = Server::with_history(&ServerPorts::default(), 8);
    let client = crate::client(&server);
    let kind = "leases.coordination.k8s.io";
    let create = |name: &str| server.create(kind, json!({"metadata": {"name": name, "namespace": "default"}})).unwrap();
    ["a", "b", "c", "d"].into_iter().for_each(|name| drop(create(name)));
    let (_, first) = leases(&client, "limit=2").await;
    let (token, version) = (&first["metadata"]["continue"], &first["metadata"]["resourceVersion"]);
    let (token, version) = (token.as_str().unwrap().to_owned(), version.as_str().unwrap().to_owned());
    server.delete(kind, "default", "c", None).unwrap();
    create("e");
    for number in 0..10 {
        create(&format!("f{number}"));
    }

    let (code, expired) = leases(&client, &format!("limit=2&continue={token}")).await;
    assert_eq!((code, &expired["reason"]), (410, &json!("Expired")));
    let message = expired["message"].as_str().unwrap();
    assert!(
        message.starts_with("The provided continue parameter is too old to display a consistent list"),
        "{message}"
    );
    let new_token = expired["metadata"]["continue"].as_str().unwrap();
    let (code, next) = leases(&client, &format!("limit=1&continue={new_token}")).await;
    assert_eq!((code, &next["items"][0]["metadata"]["name"]), (200, &json!("d")), "the latest state");
    assert_eq!(next["metadata"]["remainingItemCount"], json!(11));
    let next = next["metadata"]["continue"].as_str().unwrap();
    assert_eq!(
        leases(&client, &format!("limit=1&continue={next}")).await.1["items"][0]["metadata"]["name"],
        json!("e")
    );

    let (code, compacted) = leases(&client, &format!("resourceVersion={version}&resourceVersionMatch=Exact")).await;
    assert_eq!(code, 410);
    assert_eq!(compacted["message"], json!("The resourceVersion for the provided list is too old."));
}
