//! How deep an object may be nested: objects are kept as text, and one whose text would not read back is not stored,
//! in memory no more than on disk.

use apimachinery::status::Status;
use serde_json::Value;

/// Objects and lists within one another, the outermost one included; `serde_json` reads 127.
const DEEPEST: usize = 120;

/// For who asks without writing.
///
/// # Errors
/// 400 when the object is nested too deep to be stored.
pub(crate) fn check(name: &str, object: &Value) -> Result<(), Status> {
    if is_too_deep(object) { Err(refusal(name)) } else { Ok(()) }
}

pub(super) fn is_too_deep(object: &Value) -> bool {
    is_deeper(object, DEEPEST)
}

/// As a client is told.
pub(super) fn refusal(name: &str) -> Status {
    Status::bad_request(format!("{name} is nested deeper than {DEEPEST} levels"))
}

/// Whether a value has more than `levels` levels.
fn is_deeper(value: &Value, levels: usize) -> bool {
    let inside = |value: &Value| levels == 0 || is_deeper(value, levels - 1);
    match value {
        Value::Object(members) => members.values().any(inside),
        Value::Array(items) => items.iter().any(inside),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::{Body, to_bytes};
    use http::Request;
    use rstest::rstest;
    use serde_json::json;
    use tower::ServiceExt;

    use super::*;
    use crate::node::process::ProcessRunner;
    use crate::ports::{AdmitAll, Loopback, Ports, SystemClock, SystemRandom};
    use crate::store::crash_tests::open;
    use crate::store::faults::Disk;
    use crate::store::{HISTORY, Store};
    use crate::{Server, crd};

    fn served(store: Store) -> Server {
        let ports = Ports {
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
            admission: Arc::new(AdmitAll),
            runner: Arc::new(ProcessRunner::default()),
            network: Arc::new(Loopback),
        };
        Server::on(&ports, store)
    }

    fn definition() -> Value {
        let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": open}});
        let names = json!({"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"});
        json!({"metadata": {"name": "things.example.org"},
            "spec": {"group": "example.org", "scope": "Namespaced", "names": names, "versions": [version]}})
    }

    /// Lists in one another; the object around them is one level more.
    fn thing(name: &str, lists: usize) -> Value {
        let data = (0..lists).fold(json!(1), |inner, _| json!([inner]));
        json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": name}, "data": data})
    }

    async fn ask(server: &Server, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let uri = format!("/apis/example.org/v1/namespaces/default/things{path}");
        let form = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(uri).header("content-type", form);
        let answer = server.router().oneshot(request.body(Body::from(body.to_string())).unwrap()).await.unwrap();
        let code = answer.status().as_u16();
        (code, serde_json::from_slice(&to_bytes(answer.into_body(), usize::MAX).await.unwrap()).unwrap())
    }

    #[rstest]
    #[case::in_memory(Store::new(HISTORY))]
    #[case::on_disk(open(&Disk::default()).unwrap())]
    #[tokio::test]
    async fn every_store_refuses_the_same_depth_in_the_same_words(#[case] store: Store) {
        let server = served(store);
        server.create(crd::STORAGE, definition()).unwrap();
        server.flush().await.unwrap();
        assert_eq!(ask(&server, "POST", "", &thing("b", 1)).await.0, 201);
        for (method, path, name, fits) in [("POST", "", "a", 201), ("PATCH", "/b", "b", 200)] {
            for query in ["?dryRun=All", ""] {
                let path = format!("{path}{query}");
                let (code, refused) = ask(&server, method, &path, &thing(name, DEEPEST)).await;
                assert_eq!((code, &refused["reason"]), (400, &json!("BadRequest")), "{method} {path}: {refused}");
                assert_eq!(refused["message"], format!("{name} is nested deeper than 120 levels"));
                let (code, written) = ask(&server, method, &path, &thing(name, DEEPEST - 1)).await;
                assert_eq!(code, fits, "{method} {path}: {written}");
            }
            let (_, stored) = ask(&server, "GET", &format!("/{name}"), &Value::Null).await;
            assert_eq!(stored["data"], thing(name, DEEPEST - 1)["data"]);
        }
    }
}
