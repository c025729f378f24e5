//! Models of several namespaces behind one gateway, whose default namespace is `ns`.

use std::fs;

use cluster::NamespacedName;
use picker::{ApiKeys, GatewayOptions};
use rstest::rstest;
use serde_json::{Value, json};

use crate::gateway_fixture::{GatewayFixture, engine_config, get, pool, post, send_with_header, start_with_options};

/// Starts a gateway with the model `chat` in `ns` and in `team-b`, and the model `draft` in `team-b`.
async fn start(options: GatewayOptions) -> GatewayFixture {
    let fixture = start_with_options(vec![engine_config(&["chat", "draft"])], options).await;
    let mut other = pool(&fixture.scheduler, &fixture.engines, &[]);
    let mut draft = other.use_cases["chat"].clone();
    draft.model_name = "draft".to_owned();
    other.use_cases.insert("draft".to_owned(), draft);
    other.key = NamespacedName::new("team-b", "pool");
    other.creation_timestamp = "2020-01-01T00:00:00Z".to_owned();
    fixture.scheduler.replace(vec![pool(&fixture.scheduler, &fixture.engines, &[]), other]);
    fixture
}

fn body(model: &str) -> String {
    json!({"model": model, "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}).to_string()
}

#[rstest]
#[case::default_namespace("chat", Ok("ns/pool"))]
#[case::qualified("ns/chat", Ok("ns/pool"))]
#[case::other_namespace("team-b/chat", Ok("team-b/pool"))]
#[case::only_in_another_namespace(
    "draft",
    Err("The model `draft` does not exist. Models with this name in other namespaces: `team-b/draft`.")
)]
#[case::unknown("nope", Err("The model `nope` does not exist."))]
#[case::unknown_in_a_namespace("team-b/nope", Err("The model `team-b/nope` does not exist."))]
#[tokio::test]
async fn models_of_namespaces_are_separate(#[case] model: &str, #[case] expected: Result<&str, &str>) {
    let fixture = start(GatewayOptions::default()).await;
    let response = post(fixture.gateway, "/v1/chat/completions", &body(model)).await;
    let listed = get(fixture.gateway, &format!("/v1/models/{model}")).await;
    match expected {
        Ok(owner) => {
            assert_eq!(response.json()["model"], model, "the client's name is in the response");
            assert_eq!(listed.json()["owned_by"], owner);
        }
        Err(message) => {
            assert_eq!((response.status(), listed.status()), (404, 404));
            assert_eq!(response.json()["error"]["message"], message);
            assert_eq!(listed.json()["error"]["message"], message);
        }
    }
}

#[tokio::test]
async fn each_model_is_listed_by_its_shortest_name() {
    let fixture = start(GatewayOptions::default()).await;
    let models = get(fixture.gateway, "/v1/models").await.json();
    let ids: Vec<&Value> = models["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, ["chat", "team-b/chat", "team-b/draft"]);
    let models = get(fixture.gateway, "/team-b/pool/v1/models").await.json();
    let ids: Vec<&Value> = models["data"].as_array().unwrap().iter().map(|model| &model["id"]).collect();
    assert_eq!(ids, ["chat", "draft"]);
}

/// A key for a model of one namespace gives no access to one of another namespace, on any path.
#[rstest]
#[case("/v1/chat/completions", "chat", 200)]
#[case("/v1/chat/completions", "ns/chat", 200)]
#[case("/ns/pool/v1/chat/completions", "chat", 200)]
#[case("/v1/chat/completions", "team-b/chat", 404)]
#[case("/team-b/pool/v1/chat/completions", "chat", 404)]
#[case("/v1/chat/completions", "team-b/draft", 200)]
#[case("/team-b/pool/v1/chat/completions", "draft", 200)]
#[case("/v1/chat/completions", "draft", 404)]
#[tokio::test]
async fn key_is_for_models_of_a_namespace(#[case] path: &str, #[case] model: &str, #[case] status: u16) {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("key"), "secret\nchat\nteam-b/draft\n").unwrap();
    let api_keys = Some(ApiKeys::from_directory(directory.path()).unwrap().into());
    let fixture = start(GatewayOptions { api_keys, ..GatewayOptions::default() }).await;
    let response = send_with_header(fixture.gateway, path, "authorization: Bearer secret", &body(model)).await;
    assert_eq!(response.status(), status, "{}", response.body);
}
