//! Certificate and configuration of the admission webhook.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use cluster::Health;
use operator::{Options, WebhookOptions, WebhookTarget};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::test_cluster::TestCluster;

const CONFIGURATIONS: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";
const NAME: &str = "ostler-admission";

/// Maximum time until a change is repaired, much less than the interval at which the expiration is checked.
const REPAIR_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the definition of ValidatingWebhookConfiguration, which the embedded API server lacks.
fn definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": CONFIGURATIONS, "annotations": {"api-approved.kubernetes.io": "unapproved, test"}},
        "spec": {"group": "admissionregistration.k8s.io", "scope": "Cluster",
            "names": {"plural": "validatingwebhookconfigurations", "kind": "ValidatingWebhookConfiguration"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object",
                "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

fn start(test_cluster: &TestCluster) -> Arc<Health> {
    test_cluster.server.create("namespaces", json!({"metadata": {"name": "ome-system"}})).ok();
    let target = WebhookTarget::Service { namespace: "ome-system".to_owned(), name: "ostler-webhook".to_owned() };
    start_with_target(test_cluster, TcpListener::bind("127.0.0.1:0").unwrap(), target)
}

fn start_with_target(test_cluster: &TestCluster, listener: TcpListener, target: WebhookTarget) -> Arc<Health> {
    let listener = Arc::new(listener);
    let options = Options { webhook: Some(WebhookOptions { listener, target }), ..Options::default() };
    let health = Arc::clone(&options.health);
    test_cluster.start_operator(options);
    health
}

/// Waits until Secret and configuration match, and returns both.
async fn wait_for_webhook(test_cluster: &TestCluster) -> (Arc<Value>, Arc<Value>) {
    let start = Instant::now();
    let found = test_cluster
        .wait_for("the certificate and the configuration", |server| {
            let secret = server.get("secrets", "ome-system", NAME)?;
            let configuration = server.get(CONFIGURATIONS, "", NAME)?;
            let webhook = &configuration["webhooks"][0];
            let is_trusted = webhook["clientConfig"]["caBundle"] == secret["data"]["tls.crt"];
            (is_trusted && webhook["failurePolicy"] == "Ignore" && secret["data"]["tls.key"].is_string())
                .then_some((secret, configuration))
        })
        .await;
    assert!(start.elapsed() < REPAIR_TIMEOUT, "repaired after {:?}", start.elapsed());
    found
}

#[tokio::test(start_paused = true)]
async fn webhook_is_ready_once_it_has_a_certificate() {
    let test_cluster = TestCluster::with_catalog();
    let health = start(&test_cluster);
    test_cluster.wait_until_idle().await;
    // The kind of the configuration is not served yet.
    assert_eq!(health.check_readiness(), Err("the admission webhook has no certificate".to_owned()));
    test_cluster.server.create("customresourcedefinitions.apiextensions.k8s.io", definition()).unwrap();
    wait_for_webhook(&test_cluster).await;
    test_cluster.wait_until_idle().await;
    assert_eq!(health.check_readiness(), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn deleted_and_edited_objects_of_the_webhook_are_repaired() {
    let test_cluster = TestCluster::with_catalog();
    test_cluster.server.create("customresourcedefinitions.apiextensions.k8s.io", definition()).unwrap();
    start(&test_cluster);
    let (created, _) = wait_for_webhook(&test_cluster).await;
    test_cluster.wait_until_idle().await;

    test_cluster.server.delete(CONFIGURATIONS, "", NAME, None).unwrap();
    let (secret, configuration) = wait_for_webhook(&test_cluster).await;
    assert_eq!(secret["data"], created["data"], "the certificate need not change");

    let mut edited = (*configuration).clone();
    edited["webhooks"][0]["failurePolicy"] = json!("Fail");
    edited["webhooks"][0]["clientConfig"]["caBundle"] = json!("");
    test_cluster.server.update(CONFIGURATIONS, edited).unwrap();
    wait_for_webhook(&test_cluster).await;

    test_cluster.server.delete("secrets", "ome-system", NAME, None).unwrap();
    let (recreated, _) = wait_for_webhook(&test_cluster).await;
    assert_ne!(recreated["data"], created["data"]);

    let mut edited = (*recreated).clone();
    edited["data"]["tls.key"] = created["data"]["tls.key"].clone();
    test_cluster.server.update("secrets", edited).unwrap();
    test_cluster
        .wait_for("a certificate with its key", |server| {
            let secret = server.get("secrets", "ome-system", NAME)?;
            (secret["data"]["tls.crt"] != recreated["data"]["tls.crt"]).then_some(())
        })
        .await;
    wait_for_webhook(&test_cluster).await;
    test_cluster.wait_until_idle().await;
}

/// A Secret that the operator did not create is not replaced.
#[tokio::test(start_paused = true)]
async fn secret_of_another_owner_is_not_replaced() {
    let test_cluster = TestCluster::with_catalog();
    test_cluster.server.create("customresourcedefinitions.apiextensions.k8s.io", definition()).unwrap();
    test_cluster.server.create("namespaces", json!({"metadata": {"name": "ome-system"}})).unwrap();
    let secret =
        json!({"metadata": {"name": NAME, "namespace": "ome-system"}, "type": "Opaque", "data": {"a": "Yg=="}});
    let secret = test_cluster.server.create("secrets", secret).unwrap();
    let health = start(&test_cluster);
    tokio::time::sleep(Duration::from_secs(7200)).await;
    assert_eq!(test_cluster.server.get("secrets", "ome-system", NAME).unwrap(), secret);
    assert!(health.check_readiness().is_err());
}

/// Each replica has its own certificate, so only one of them can serve the webhook.
#[tokio::test(start_paused = true)]
async fn replicas_with_urls_do_not_replace_each_others_configuration() {
    let test_cluster = TestCluster::with_catalog();
    test_cluster.server.create("customresourcedefinitions.apiextensions.k8s.io", definition()).unwrap();
    let mut urls = Vec::new();
    let registered_url = || {
        let configuration = test_cluster.server.get(CONFIGURATIONS, "", NAME)?;
        configuration["webhooks"][0]["clientConfig"]["url"].as_str().map(str::to_owned)
    };
    let wait_until_idle = async || {
        let limit = Duration::from_secs(1800);
        timeout(limit, test_cluster.wait_until_idle()).await.expect("the configuration changes continuously");
    };
    for _ in 0..2 {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        urls.push(format!("https://{address}/validate"));
        start_with_target(&test_cluster, listener, WebhookTarget::Url(address));
        wait_until_idle().await;
        assert_eq!(registered_url().as_ref(), urls.last(), "the API server calls the replica that started last");
    }
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    let configuration = test_cluster.server.get(CONFIGURATIONS, "", NAME).unwrap();
    // Longer than the interval at which the expiration of the certificates is checked.
    tokio::time::sleep(Duration::from_secs(7200)).await;
    assert_eq!(version(&test_cluster.server.get(CONFIGURATIONS, "", NAME).unwrap()), version(&configuration));

    let mut edited = (*configuration).clone();
    edited["webhooks"][0]["failurePolicy"] = json!("Fail");
    test_cluster.server.update(CONFIGURATIONS, edited).unwrap();
    wait_until_idle().await;
    let repaired = test_cluster.server.get(CONFIGURATIONS, "", NAME).unwrap();
    assert_eq!(repaired["webhooks"], configuration["webhooks"], "the registered replica repairs its configuration");

    test_cluster.server.delete(CONFIGURATIONS, "", NAME, None).unwrap();
    wait_until_idle().await;
    assert!(urls.contains(&registered_url().unwrap()));
}
