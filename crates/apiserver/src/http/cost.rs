//! Estimates the CPU time of a request before it is handled.

use apimachinery::object;
use http::Method;
use memchr::memmem;

use super::path::RequestTarget;
use super::representation;
use super::request::ApiRequest;
use super::response_format::ResponseFormat;
use super::verbs;
use crate::protobuf;
use crate::resources::{Resource, definition};
use crate::server::Server;

/// Size in bytes of the request body and the stored object from which a write is expensive: parsing, validating and
/// encoding them takes about a millisecond.
pub(super) const LARGE_OBJECT: usize = 32 * 1024;

/// Patching a byte takes about this fraction of the time to parse, validate and encode it.
const PATCH_COST_DIVISOR: usize = 32;

/// Number of objects from which parsing all of them is expensive.
const MANY_OBJECTS: usize = 100;

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Reads an object, or opens a watch, which is encoded while it is sent.
    Read { bytes: usize },
    /// Sends stored objects.
    List,
    /// Parses these objects.
    ParseObjects { count: usize, bytes: usize },
    /// Writes an object.
    Write(Write),
    /// Deletes objects, with their dependents and contents. An eviction is a deletion that reads all Pods of a budget.
    Delete,
}

/// Properties of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Write {
    /// Size of the request body and the stored object, and of what a JSON patch processes.
    bytes: usize,
    /// Whether validation evaluates CEL rules.
    has_rules: bool,
    /// Whether the write changes a custom resource definition: its schema and rules are compiled.
    is_definition: bool,
    /// Whether the write can delete others: it may remove a terminating object, or an owner without existing owners.
    may_delete: bool,
}

/// Reports whether a request can take more than about a millisecond of CPU time.
pub(super) fn is_expensive(server: &Server, target: &RequestTarget, request: &ApiRequest) -> bool {
    work(server, target, request).is_expensive()
}

fn work(server: &Server, target: &RequestTarget, request: &ApiRequest) -> Work {
    let resource = &target.resource;
    let stored = target.name.as_deref().and_then(|name| {
        let key = resource.object_key(target.namespace(), name);
        server.store().get_stored(&key)
    });
    let stored_text = stored.as_ref().map_or(&b""[..], |stored| stored.json());
    let written_bytes = request.body.len() + stored_text.len();
    match request.method {
        Method::GET if target.is_watch || request.query.flag("watch") => Work::Read { bytes: 0 },
        Method::GET if target.name.is_some() => Work::Read { bytes: stored_text.len() },
        Method::GET => {
            let selects =
                ["labelSelector", "fieldSelector"].iter().any(|selector| request.query.get(selector).is_some());
            let is_text =
                request.format == ResponseFormat::Object && representation::is_stored_representation(resource);
            if selects || !is_text { parse_objects(server, resource) } else { Work::List }
        }
        Method::DELETE => Work::Delete,
        Method::POST if target.subresource.as_deref() == Some("eviction") => Work::Delete,
        // Only small objects are searched here, on an async worker.
        _ if written_bytes >= LARGE_OBJECT => Work::Write(Write { bytes: written_bytes, ..Write::default() }),
        _ => {
            let is_terminating = memmem::find(stored_text, b"\"deletionTimestamp\"").is_some();
            let has_dependents =
                || stored.as_ref().is_some_and(|stored| server.store().has_dependents(object::uid(&stored.value())));
            let patched_bytes = match request.content_type.as_str() {
                verbs::JSON_PATCH_TYPE => patched_bytes(&request.body, stored_text.len()),
                _ => 0,
            };
            Work::Write(Write {
                bytes: written_bytes.saturating_add(patched_bytes / PATCH_COST_DIVISOR),
                has_rules: resource.has_rules,
                is_definition: resource.storage == definition::STORAGE,
                may_delete: is_terminating || may_change_owners(request) && has_dependents(),
            })
        }
    }
}

/// Returns the work of parsing all objects of a resource. The size of many objects does not matter.
fn parse_objects(server: &Server, resource: &Resource) -> Work {
    let objects = server.store().snapshot(&resource.storage).objects;
    let bytes = objects.values().take(MANY_OBJECTS).map(|object| object.json().len()).sum();
    Work::ParseObjects { count: objects.len(), bytes }
}

/// Returns the maximum size in bytes of what a JSON patch reads, compares or moves: each operation may process the whole
/// object, and copies can double it repeatedly.
fn patched_bytes(patch: &[u8], stored: usize) -> usize {
    if may_contain(patch, "copy") {
        return usize::MAX;
    }
    let operations = memchr::memchr_iter(b'{', patch).count();
    operations.saturating_mul(stored)
}

/// Reports whether a write may set owner references. Protobuf bodies contain no field names.
fn may_change_owners(request: &ApiRequest) -> bool {
    request.content_type == protobuf::CONTENT_TYPE || may_contain(&request.body, "ownerReferences")
}

/// Reports whether a document may contain a word, which may be written with escape sequences.
fn may_contain(document: &[u8], word: &str) -> bool {
    memmem::find(document, word.as_bytes()).is_some() || memchr::memchr(b'\\', document).is_some()
}

// === impl Work ===

impl Work {
    fn is_expensive(self) -> bool {
        match self {
            Self::List => false,
            Self::Read { bytes } => bytes >= LARGE_OBJECT,
            Self::ParseObjects { count, bytes } => count >= MANY_OBJECTS || bytes >= LARGE_OBJECT,
            Self::Write(Write { bytes, has_rules, is_definition, may_delete }) => {
                bytes >= LARGE_OBJECT || has_rules || is_definition || may_delete
            }
            Self::Delete => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::thread::{self, ThreadId};

    use axum::body::Body;
    use bytes::Bytes;
    use rstest::rstest;
    use serde_json::{Value, json};
    use tower::ServiceExt as _;

    use super::*;
    use crate::http::path::RequestPath;
    use crate::ports::{Admission, AdmissionRequest, AdmissionResponse, ServerPorts};

    #[rstest]
    #[case::small_object(Work::Read { bytes: 100 }, false)]
    #[case::large_object(Work::Read { bytes: LARGE_OBJECT }, true)]
    #[case::list(Work::List, false)]
    #[case::few_objects(Work::ParseObjects { count: MANY_OBJECTS - 1, bytes: LARGE_OBJECT - 1 }, false)]
    #[case::large_objects(Work::ParseObjects { count: 1, bytes: LARGE_OBJECT }, true)]
    #[case::many_objects(Work::ParseObjects { count: MANY_OBJECTS, bytes: 0 }, true)]
    #[case::small_write(Work::Write(Write { bytes: 100, ..Write::default() }), false)]
    #[case::large_write(Work::Write(Write { bytes: LARGE_OBJECT, ..Write::default() }), true)]
    #[case::rules(Work::Write(Write { has_rules: true, ..Write::default() }), true)]
    #[case::definition(Work::Write(Write { is_definition: true, ..Write::default() }), true)]
    #[case::deletes_others(Work::Write(Write { may_delete: true, ..Write::default() }), true)]
    #[case::deletion(Work::Delete, true)]
    fn expensive_work(#[case] work: Work, #[case] expected: bool) {
        assert_eq!(work.is_expensive(), expected);
    }

    #[rstest]
    #[case::test_and_add(
        r#"[{"op":"test","path":"/a","value":null},{"op":"add","path":"/a","value":1}]"#,
        20_000,
        false
    )]
    #[case::copies(r#"[{"op":"copy","from":"/a","path":"/b"}]"#, 10, true)]
    #[case::escaped_copies(r#"[{"op":"cop\u0079","from":"/a","path":"/b"}]"#, 10, true)]
    #[case::many_operations_on_a_large_list(&format!("[{}]", vec![r#"{"op":"remove","path":"/a/0"}"#; 800].join(",")), 8_000, true)]
    #[case::many_operations_on_a_small_object(&format!("[{}]", vec![r#"{"op":"remove","path":"/a/0"}"#; 800].join(",")), 100, false)]
    fn expensive_patches(#[case] patch: &str, #[case] stored: usize, #[case] expected: bool) {
        let bytes = (patch.len() + stored).saturating_add(patched_bytes(patch.as_bytes(), stored) / PATCH_COST_DIVISOR);
        let work = Work::Write(Write { bytes, ..Write::default() });
        assert_eq!(work.is_expensive(), expected);
    }

    /// The classification of real requests.
    #[rstest]
    #[case::eviction("POST", "/api/v1/namespaces/default/pods/p/eviction", "", true)]
    #[case::binding("POST", "/api/v1/namespaces/default/pods/p/binding", "", false)]
    #[case::owner_gets_owners(
        "PUT",
        "/api/v1/namespaces/default/configmaps/owner",
        r#"{"metadata":{"ownerReferences":[]}}"#,
        true
    )]
    #[case::owner("PUT", "/api/v1/namespaces/default/configmaps/owner", r#"{"metadata":{}}"#, false)]
    #[case::dependent(
        "PUT",
        "/api/v1/namespaces/default/configmaps/dependent",
        r#"{"metadata":{"ownerReferences":[]}}"#,
        false
    )]
    #[case::last_finalizer("PUT", "/api/v1/namespaces/default/configmaps/terminating", r#"{"metadata":{}}"#, true)]
    fn expensive_requests(
        #[case] method: &str,
        #[case] path: &str,
        #[case] body: &'static str,
        #[case] expected: bool,
    ) {
        let server = Server::new(&ServerPorts::default());
        let create = |metadata: Value| server.create("configmaps", json!({"metadata": metadata})).unwrap();
        let owner = create(json!({"namespace": "default", "name": "owner"}));
        let reference =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]});
        create(json!({"namespace": "default", "name": "dependent", "ownerReferences": [reference]}));
        create(json!({"namespace": "default", "name": "terminating", "finalizers": ["example.com/f"]}));
        server.delete("configmaps", "default", "terminating", None).unwrap();
        let RequestPath::Resource(path) = RequestPath::parse(path) else { panic!("{path}") };
        let target = path.resolve(&server.registry()).unwrap();
        let request = http::Request::builder().method(method).header("Content-Type", "application/json");
        let request = ApiRequest::read(&request.body(()).unwrap(), Bytes::from_static(body.as_bytes()), "").unwrap();
        assert_eq!(is_expensive(&server, &target, &request), expected);
    }

    /// Records the threads that handle writes.
    #[derive(Default)]
    struct WritingThreads(Mutex<Vec<ThreadId>>);

    impl Admission for WritingThreads {
        fn review(&self, _: &AdmissionRequest<'_>) -> AdmissionResponse {
            self.0.lock().unwrap().push(thread::current().id());
            AdmissionResponse { allowed: true, ..AdmissionResponse::default() }
        }
    }

    #[rstest]
    #[case::small("POST", "configmaps", json!({"metadata": {"name": "new"}}), true)]
    #[case::large("POST", "configmaps", json!({"metadata": {"name": "new"}, "data": {"a": "x".repeat(LARGE_OBJECT)}}), false)]
    #[case::deletion("DELETE", "configmaps/existing", json!({}), false)]
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn expensive_requests_leave_the_async_worker(
        #[case] method: &str,
        #[case] path: &str,
        #[case] body: Value,
        #[case] on_worker: bool,
    ) {
        let threads = Arc::<WritingThreads>::default();
        let ports = ServerPorts { admission: Arc::<WritingThreads>::clone(&threads), ..ServerPorts::default() };
        let server = Server::new(&ports);
        let existing = json!({"metadata": {"namespace": "default", "name": "existing"}});
        server.create("configmaps", existing).unwrap();
        threads.0.lock().unwrap().clear();
        let request = http::Request::builder().method(method).uri(format!("/api/v1/namespaces/default/{path}"));
        let request = request.header("Content-Type", "application/json").body(Body::from(body.to_string())).unwrap();
        let handled = tokio::spawn(async move {
            let response = crate::router(&server).oneshot(request).await.unwrap();
            (response.status().is_success(), thread::current().id())
        });
        let (is_success, worker) = handled.await.unwrap();
        let threads = threads.0.lock().unwrap();
        assert!(is_success && !threads.is_empty());
        assert_eq!(threads.contains(&worker), on_worker);
    }
}
