//! Property tests: the server responds to any request without internal errors.

use std::sync::OnceLock;

use embedded::Server;
use http_body_util::BodyExt;
use kube::client::Body;
use proptest::prelude::*;
use serde_json::{Value, json};

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/web";

/// Server with a Deployment; all cases can share it because their requests are dry runs.
fn shared_server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| {
        let server = crate::server();
        let containers = json!([{"name": "main", "image": "i"}]);
        let template = json!({"metadata": {"labels": {"app": "x"}}, "spec": {"containers": containers}});
        let spec = json!({"selector": {"matchLabels": {"app": "x"}}, "template": template});
        let deployment = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": spec});
        server.create("deployments.apps", deployment).unwrap();
        server
    })
}

fn send(server: &Server, method: &str, uri: &str, kind: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
    let separator = if uri.contains('?') { '&' } else { '?' };
    let uri = format!("{uri}{separator}dryRun=All");
    let request = http::Request::builder().method(method).uri(uri).header("Content-Type", kind);
    let request = request.body(Body::from(body.to_vec())).ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let response = crate::client(server).send(request).await.unwrap();
        let code = response.status().as_u16();
        Some((code, response.into_body().collect().await.unwrap().to_bytes().to_vec()))
    })
}

/// Arbitrarily nested JSON with the field names of Deployments.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z/$\\-]{0,8}".prop_map(Value::from),
    ];
    let name = prop_oneof![
        prop::sample::select(vec![
            "metadata",
            "name",
            "labels",
            "spec",
            "template",
            "containers",
            "replicas",
            "selector",
            "matchLabels",
            "finalizers",
            "ownerReferences",
            "managedFields",
            "$patch",
            "$retainKeys",
            "$setElementOrder/containers",
            "$deleteFromPrimitiveList/finalizers",
            "env",
            "ports",
            "apiVersion",
            "kind",
            "status",
            "conditions",
        ])
        .prop_map(str::to_owned),
        "[a-z]{1,3}",
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name.clone(), inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn operations() -> impl Strategy<Value = Value> {
    let path = prop::sample::select(vec![
        "",
        "/",
        "/spec",
        "/spec/replicas",
        "/spec/template/spec/containers/0",
        "/spec/template/spec/containers/-",
        "/spec/template/spec/containers/9",
        "/metadata/labels/a~1b",
        "/metadata/~2",
        "spec",
        "/status",
        "/kind",
    ]);
    let op = prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test", "other"]);
    let operation = (op, path.clone(), path, value())
        .prop_map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}));
    prop::collection::vec(operation, 0..4).prop_map(Value::from)
}

/// Checks that a response is not an internal error and that errors are Statuses. kube-apiserver rejects some values of
/// the wrong type with code 500 and no reason.
fn check_response(response: Option<(u16, Vec<u8>)>) -> Result<(), TestCaseError> {
    let Some((code, body)) = response else { return Ok(()) };
    let text = String::from_utf8_lossy(&body).into_owned();
    let body: Value = serde_json::from_str(&text).unwrap_or_else(|_| json!(text));
    prop_assert!(code < 500 || body["reason"].is_null() || body["reason"] == "NotImplemented", "{code} {text}");
    if code >= 400 && body.is_object() {
        prop_assert_eq!(body["code"].as_u64(), Some(u64::from(code)));
        prop_assert!(!body["message"].as_str().unwrap_or_default().is_empty(), "{}", text);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn accepts_arbitrary_patches(patch in value(), strategic in any::<bool>()) {
        let kind = if strategic { "application/strategic-merge-patch+json" } else { "application/merge-patch+json" };
        check_response(send(shared_server(), "PATCH", DEPLOYMENT, kind, patch.to_string().as_bytes()))?;
    }

    #[test]
    fn accepts_arbitrary_json_patches(patch in operations()) {
        check_response(send(shared_server(), "PATCH", DEPLOYMENT, "application/json-patch+json", patch.to_string().as_bytes()))?;
    }

    #[test]
    fn accepts_arbitrary_applied_objects(object in value(), is_forced in any::<bool>()) {
        let uri = format!("{DEPLOYMENT}?fieldManager=m&force={is_forced}");
        check_response(send(shared_server(), "PATCH", &uri, "application/apply-patch+yaml", object.to_string().as_bytes()))?;
    }

    #[test]
    fn accepts_arbitrary_bodies(bytes in prop::collection::vec(any::<u8>(), 0..60), object in value(), is_object in any::<bool>()) {
        let body = if is_object { object.to_string().into_bytes() } else { bytes };
        for kind in ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"] {
            check_response(send(shared_server(), "POST", "/apis/apps/v1/namespaces/default/deployments", kind, &body))?;
            check_response(send(shared_server(), "PUT", DEPLOYMENT, kind, &body))?;
        }
    }

    #[test]
    fn accepts_arbitrary_selectors(text in "[a-z=!,()<>\\\\ ./%-]{0,24}") {
        let encoded: String = text.bytes().map(|byte| format!("%{byte:02X}")).collect();
        for parameter in ["labelSelector", "fieldSelector", "continue", "limit", "resourceVersion"] {
            let uri = format!("/apis/apps/v1/deployments?{parameter}={encoded}");
            check_response(send(shared_server(), "GET", &uri, "application/json", b""))?;
        }
    }

    #[test]
    fn accepts_arbitrary_paths(path in "(/(api|apis|v1|apps|openapi|v3|namespaces|default|pods|deployments|web|log|scale|status|exec|%2F|%zz|[a-z.%]{0,5})){0,8}/?") {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            check_response(send(shared_server(), method, &path, "application/json", b"{}"))?;
        }
    }
}
