//! The nesting limit of objects. Objects are stored as JSON text. Every store, in memory or on disk, rejects an object
//! that is nested too deeply for its text to be parsed again.

use apimachinery::Status;
use serde_json::Value;

/// Maximum depth of nested objects and arrays, including the outermost; `serde_json` parses 127.
const MAX_DEPTH: usize = 120;

/// Checks the depth of an object that is not written (dry run).
///
/// # Errors
/// 400 when the object is nested too deeply.
pub(crate) fn check(name: &str, object: &Value) -> Result<(), Status> {
    if is_too_deep(object) { Err(too_deep_error(name)) } else { Ok(()) }
}

/// Whether the object is nested too deeply.
pub(super) fn is_too_deep(object: &Value) -> bool {
    exceeds_depth(object, MAX_DEPTH)
}

/// Returns the error for an object that is nested too deeply.
pub(super) fn too_deep_error(name: &str) -> Status {
    Status::bad_request(format!("{name} is nested deeper than {MAX_DEPTH} levels"))
}

/// Whether a value is nested more than `levels` deep.
fn exceeds_depth(value: &Value, levels: usize) -> bool {
    let nested = |value: &Value| levels == 0 || exceeds_depth(value, levels - 1);
    match value {
        Value::Object(members) => members.values().any(nested),
        Value::Array(items) => items.iter().any(nested),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use http::Request;
    use rstest::rstest;
    use serde_json::json;
    use tower::ServiceExt;

    use super::*;
    use crate::Server;
    use crate::ports::ServerPorts;
    use crate::resources::definition;
    use crate::store::crash_tests::open;
    use crate::store::faults::FaultyDisk;
    use crate::store::{DEFAULT_HISTORY_SIZE, Store};

    fn definition() -> Value {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
        let names = json!({"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"});
        json!({"metadata": {"name": "things.example.org"},
            "spec": {"group": "example.org", "scope": "Namespaced", "names": names, "versions": [version]}})
    }

    /// Returns an object with nested arrays. The object itself counts as one more level.
    fn thing(name: &str, lists: usize) -> Value {
        let data = (0..lists).fold(json!(1), |inner, _| json!([inner]));
        json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": name}, "data": data})
    }

    async fn send(server: &Server, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let uri = format!("/apis/example.org/v1/namespaces/default/things{path}");
        let content_type = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(uri).header("content-type", content_type);
        let response =
            crate::router(server).oneshot(request.body(Body::from(body.to_string())).unwrap()).await.unwrap();
        let code = response.status().as_u16();
        (code, serde_json::from_slice(&to_bytes(response.into_body(), usize::MAX).await.unwrap()).unwrap())
    }

    #[rstest]
    #[case::in_memory(Store::new(DEFAULT_HISTORY_SIZE))]
    #[case::on_disk(open(&FaultyDisk::default()).unwrap())]
    #[tokio::test]
    async fn every_store_rejects_deep_objects(#[case] store: Store) {
        let server = Server::with_store(&ServerPorts::default(), store);
        server.create(definition::STORAGE, definition()).unwrap();
        server.flush().await.unwrap();
        assert_eq!(send(&server, "POST", "", &thing("b", 1)).await.0, 201);
        for (method, path, name, success) in [("POST", "", "a", 201), ("PATCH", "/b", "b", 200)] {
            for query in ["?dryRun=All", ""] {
                let path = format!("{path}{query}");
                let (code, rejection) = send(&server, method, &path, &thing(name, MAX_DEPTH)).await;
                assert_eq!((code, &rejection["reason"]), (400, &json!("BadRequest")), "{method} {path}: {rejection}");
                assert_eq!(rejection["message"], format!("{name} is nested deeper than 120 levels"));
                let (code, written) = send(&server, method, &path, &thing(name, MAX_DEPTH - 1)).await;
                assert_eq!(code, success, "{method} {path}: {written}");
            }
            let (_, stored) = send(&server, "GET", &format!("/{name}"), &Value::Null).await;
            assert_eq!(stored["data"], thing(name, MAX_DEPTH - 1)["data"]);
        }
    }
}
