//! Deletions of many objects, and requests that need much CPU time.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::body::{Body, Bytes, to_bytes};
use axum::response::Response;
use embedded::{Server, router};
use futures::future::{BoxFuture, join_all};
use futures::{FutureExt, StreamExt};
use http::Request;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::result::{Result, print};

/// Objects in the deleted namespace, of the deleted owner and of the deleted definition.
const OBJECTS: usize = 20_000;
/// Length of the chain of owners.
const CHAIN_LENGTH: usize = 100_000;
/// Patches of a large object.
const PATCHES: usize = 3_000;
/// Expensive requests of each of the concurrent clients.
const EXPENSIVE_REQUESTS: usize = 50;
/// Clients that send expensive requests concurrently.
const CLIENTS: usize = 8;
/// Lists with a selector.
const LISTS: usize = 5;
/// Milliseconds without load.
const IDLE: usize = 5_000;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WIDGETS: &str = "/apis/example.org/v1/namespaces/default/widgets";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.org";

/// Requests whose duration and effect on other tasks are measured.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// Number of objects or requests, divided by ten with `--small`.
    pub(crate) size: usize,
    /// Creates the objects.
    pub(crate) prepare: fn(&Server, usize) -> Result,
    pub(crate) run: fn(Server, usize) -> BoxFuture<'static, Result>,
}

pub(crate) const WORKLOADS: &[Workload] = &[
    Workload { name: "idle", size: IDLE, prepare: |_, _| Ok(()), run: |_, size| idle(size).boxed() },
    Workload { name: "busy thread", size: IDLE, prepare: |_, _| Ok(()), run: |_, size| busy_thread(size).boxed() },
    Workload {
        name: "busy thread, disk",
        size: IDLE,
        prepare: |_, _| Ok(()),
        run: |_, size| busy_thread_and_disk(size).boxed(),
    },
    Workload {
        name: "namespace",
        size: OBJECTS,
        prepare: create_namespace,
        run: |server, _| delete(server, "/api/v1/namespaces/full".to_owned(), "Background").boxed(),
    },
    Workload {
        name: "owner, Background",
        size: OBJECTS,
        prepare: create_dependents,
        run: |server, _| delete(server, format!("{CONFIG_MAPS}/owner"), "Background").boxed(),
    },
    Workload {
        name: "owner, Foreground",
        size: OBJECTS,
        prepare: create_dependents,
        run: |server, _| delete(server, format!("{CONFIG_MAPS}/owner"), "Foreground").boxed(),
    },
    Workload {
        name: "owner, Orphan",
        size: OBJECTS,
        prepare: create_dependents,
        run: |server, _| delete(server, format!("{CONFIG_MAPS}/owner"), "Orphan").boxed(),
    },
    Workload {
        name: "chain",
        size: CHAIN_LENGTH,
        prepare: create_chain,
        run: |server, _| delete(server, format!("{CONFIG_MAPS}/0"), "Background").boxed(),
    },
    Workload {
        name: "definition",
        size: OBJECTS,
        prepare: create_widgets,
        run: |server, _| delete(server, DEFINITION.to_owned(), "Background").boxed(),
    },
    Workload {
        name: "CEL rules",
        size: EXPENSIVE_REQUESTS,
        prepare: |server, _| create_widgets(server, CLIENTS),
        run: |server, size| expensive_rules(server, size).boxed(),
    },
    Workload {
        name: "large applies",
        size: EXPENSIVE_REQUESTS,
        prepare: |_, _| Ok(()),
        run: |server, size| expensive_apply(server, size).boxed(),
    },
    Workload {
        name: "selector",
        size: OBJECTS,
        prepare: create_dependents,
        run: |server, _| list_with_selector(server).boxed(),
    },
    Workload {
        name: "history",
        size: PATCHES,
        prepare: create_large_object,
        run: |server, size| patch_large_object(server, size).boxed(),
    },
];

/// Sends a request. The response is neither collected nor parsed: that would take CPU time from the server.
async fn send(server: &Server, method: &str, path: &str, content_type: &str, body: impl Into<Body>) -> Result {
    let request = Request::builder().method(method).uri(path).header("content-type", content_type).body(body.into())?;
    // In a task of its own, as over HTTP: `block_on` does not run on an async worker.
    let response: Response = tokio::spawn(router(server).oneshot(request)).await??;
    let status = response.status();
    if status.is_success() {
        let mut frames = response.into_body().into_data_stream();
        while let Some(frame) = frames.next().await {
            frame?;
        }
        Ok(())
    } else {
        let bytes = to_bytes(response.into_body(), usize::MAX).await?;
        Err(format!("{method} {path}: {status} {}", String::from_utf8_lossy(&bytes)).into())
    }
}

async fn delete(server: Server, path: String, policy: &str) -> Result {
    let options = json!({"propagationPolicy": policy});
    send(&server, "DELETE", &path, "application/json", options.to_string()).await
}

async fn idle(milliseconds: usize) -> Result {
    tokio::time::sleep(Duration::from_millis(milliseconds as u64)).await;
    Ok(())
}

/// Computes in a thread of its own, which shows what the operating system costs the gateway while any process uses one CPU.
async fn busy_thread(milliseconds: usize) -> Result {
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(milliseconds as u64) {
            std::hint::black_box((0..1_000_u64).fold(0, u64::wrapping_add));
        }
        ended.send(()).ok();
    });
    Ok(end.await?)
}

/// Computes in one thread and writes as much to the disk in another one as a journal that contains [large
/// applies](expensive_apply), which shows what the operating system costs the gateway beside any such process.
async fn busy_thread_and_disk(milliseconds: usize) -> Result {
    let ended = Arc::new(AtomicBool::new(false));
    let writer = std::thread::spawn({
        let ended = Arc::clone(&ended);
        move || write_and_sync_until(&ended)
    });
    busy_thread(milliseconds).await?;
    ended.store(true, Ordering::Relaxed);
    Ok(writer.join().map_err(|_| "the writer panicked")??)
}

/// Appends 640 KiB to a file and syncs it, every 12 milliseconds.
fn write_and_sync_until(ended: &AtomicBool) -> std::io::Result<()> {
    let path = std::env::current_exe()?.with_extension(format!("disk.{}", std::process::id()));
    let mut file = std::fs::File::create(&path)?;
    std::fs::remove_file(&path)?;
    let part = vec![b'x'; 128 * 1024];
    while !ended.load(Ordering::Relaxed) {
        for _ in 0..5 {
            file.write_all(&part)?;
        }
        file.sync_data()?;
        std::thread::sleep(Duration::from_millis(12));
    }
    Ok(())
}

fn config_map(namespace: &str, name: &str, owner: Option<&Value>) -> Value {
    let owners: Vec<&Value> = owner.into_iter().collect();
    let metadata = json!({"namespace": namespace, "name": name, "ownerReferences": owners});
    json!({"metadata": metadata, "data": {"value": "x".repeat(256)}})
}

/// Creates a ConfigMap and returns its reference for `ownerReferences`.
fn create(server: &Server, name: &str, owner: Option<&Value>) -> Result<Value> {
    let created = server.create("configmaps", config_map("default", name, owner))?;
    let uid = &created["metadata"]["uid"];
    Ok(json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid, "blockOwnerDeletion": true}))
}

fn create_namespace(server: &Server, count: usize) -> Result {
    server.create("namespaces", json!({"metadata": {"name": "full"}}))?;
    for number in 0..count {
        server.create("configmaps", config_map("full", &format!("c{number}"), None))?;
    }
    Ok(())
}

fn create_dependents(server: &Server, count: usize) -> Result {
    let owner = create(server, "owner", None)?;
    for number in 0..count {
        create(server, &format!("c{number}"), Some(&owner))?;
    }
    Ok(())
}

fn create_chain(server: &Server, length: usize) -> Result {
    let mut owner = create(server, "0", None)?;
    for number in 1..length {
        owner = create(server, &number.to_string(), Some(&owner))?;
    }
    Ok(())
}

/// Creates custom resources whose validation compares every pair of their items.
fn create_widgets(server: &Server, count: usize) -> Result {
    let rule = json!({"rule": "self.items.all(a, self.items.all(b, a <= b || a > b))", "message": "unordered"});
    let items = json!({"type": "array", "maxItems": 1000, "items": {"type": "integer"}});
    let spec = json!({"type": "object", "properties": {"items": items}, "x-kubernetes-validations": [rule]});
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let names = json!({"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"});
    let spec = json!({"group": "example.org", "scope": "Namespaced", "names": names, "versions": [version]});
    let definition = json!({"metadata": {"name": "widgets.example.org"}, "spec": spec});
    server.create("customresourcedefinitions.apiextensions.k8s.io", definition)?;
    for number in 0..count {
        let metadata = json!({"namespace": "default", "name": format!("w{number}")});
        let widget =
            json!({"apiVersion": "example.org/v1", "kind": "Widget", "metadata": metadata, "spec": {"items": [1]}});
        server.create("widgets.example.org", widget)?;
    }
    Ok(())
}

/// Patches custom resources with an expensive validation rule from several clients.
async fn expensive_rules(server: Server, count: usize) -> Result {
    let client = async |client: usize| -> Result {
        for round in 0..count {
            let items: Vec<usize> = (round..round + 200).collect();
            let path = format!("{WIDGETS}/w{client}");
            let patch = json!({"spec": {"items": items}});
            send(&server, "PATCH", &path, "application/merge-patch+json", patch.to_string()).await?;
        }
        Ok(())
    };
    join_all((0..CLIENTS).map(client)).await.into_iter().collect()
}

/// Applies large ConfigMaps from several clients, alternating between two contents.
async fn expensive_apply(server: Server, count: usize) -> Result {
    let client = async |client: usize| -> Result {
        let name = format!("large-{client}");
        let path = format!("{CONFIG_MAPS}/{name}?fieldManager=bench&force=true");
        let bodies = ["x", "y"].map(|character| large_config_map(&name, character));
        for body in bodies.iter().cycle().take(count) {
            send(&server, "PATCH", &path, "application/apply-patch+yaml", body.clone()).await?;
        }
        Ok(())
    };
    join_all((0..CLIENTS).map(client)).await.into_iter().collect()
}

/// Returns a ConfigMap of 600 KiB.
fn large_config_map(name: &str, character: &str) -> Bytes {
    let value = character.repeat(100);
    let data: serde_json::Map<String, Value> = (0..5_000).map(|key| (format!("key-{key}"), json!(value))).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}).to_string().into()
}

async fn list_with_selector(server: Server) -> Result {
    for _ in 0..LISTS {
        send(&server, "GET", &format!("{CONFIG_MAPS}?labelSelector=a%3Db"), "", String::new()).await?;
    }
    Ok(())
}

/// Creates a ConfigMap of 1 MiB.
fn create_large_object(server: &Server, _: usize) -> Result {
    let metadata = json!({"namespace": "default", "name": "large"});
    server.create("configmaps", json!({"metadata": metadata, "data": {"value": "x".repeat(1 << 20)}}))?;
    Ok(())
}

/// Patches a large ConfigMap and prints the memory of the process.
async fn patch_large_object(server: Server, count: usize) -> Result {
    let mut sizes = Vec::new();
    for round in 0..count {
        let patch = json!({"data": {"round": round.to_string()}});
        send(&server, "PATCH", &format!("{CONFIG_MAPS}/large"), "application/merge-patch+json", patch.to_string())
            .await?;
        if (round + 1) % (count / 10).max(1) == 0 {
            sizes.push(resident_mebibytes()?);
        }
    }
    print(&format!("RSS after each tenth of {count} patches of 1 MiB: {sizes:?} MiB"))
}

/// Returns the resident memory of the process.
fn resident_mebibytes() -> Result<usize> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    Ok(line.trim().trim_end_matches(" kB").parse::<usize>()? / 1024)
}
