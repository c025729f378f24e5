//! Keeps the pools in step with the cluster, and tells what became of them.

use std::{sync::Arc, time::Duration};

use cluster::{Clock, Error, Kind, Stores, SystemClock, Watches, conditions, status::StatusWriter};
use serde_json::{Value, json};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::{
    index::{self, Index, Objects},
    pool::Pools,
};

/// Our field manager.
const MANAGER: &str = "ostler-picker";

const GROUP: &str = "inference.networking.x-k8s.io";
const POOLS: Kind = Kind::namespaced(GROUP, "v1alpha1", "BackendPool", "backendpools");
const SETS: Kind = Kind::namespaced(GROUP, "v1alpha1", "LLMUseCaseSet", "llmusecasesets");
const USE_CASES: Kind = Kind::namespaced(GROUP, "v1alpha1", "LLMUseCase", "llmusecases");
const PODS: Kind = Kind::namespaced("", "v1", "Pod", "pods");

/// Time until a status that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Watches pools, use cases and Pods until `stop`. Routing changes as soon as an object does; status follows, and only
/// where it says something new.
pub async fn run(client: kube::Client, pools: Arc<Pools>, stop: CancellationToken) {
    let stores = Stores::new(MANAGER);
    let (mut watches, mut changes) = Watches::new(client.clone(), stores.clone(), stop.clone());
    for kind in [POOLS, SETS, USE_CASES, PODS] {
        watches.start(kind);
    }
    let writer = StatusWriter::new(client, stores.clone(), MANAGER);
    let mut again = false;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            change = changes.recv() => if change.is_none() { return },
            () = sleep(RETRY), if again => {}
        }
        // Many changes, one index.
        while changes.try_recv().is_ok() {}
        let index = index::build(&objects(&stores), |address| pools.load(address));
        pools.replace(index.pools.clone());
        // Before the first lists are complete a status would speak of Pods and pools not yet seen.
        if [POOLS, SETS, USE_CASES, PODS].into_iter().all(|kind| stores.synced(kind)) {
            let told = tell(&writer, &stores, &index).await;
            again = told.inspect_err(|error| tracing::warn!(%error, "status not written")).is_err();
        }
    }
}

fn objects(stores: &Stores) -> Objects {
    Objects {
        pools: stores.list(POOLS),
        sets: stores.list(SETS),
        use_cases: stores.list(USE_CASES),
        pods: stores.list(PODS),
    }
}

/// Writes every status that differs; the last error is returned after all were tried.
async fn tell(writer: &StatusWriter, stores: &Stores, index: &Index) -> Result<(), Error> {
    let mut told = Ok(());
    for pool in &index.pools {
        let key = cluster::Key::new(&pool.key.namespace, &pool.key.name);
        let Some(live) = stores.get(POOLS, &key) else { continue };
        let found = index.pool_conditions.get(&pool.key).map_or(&[][..], Vec::as_slice);
        let status = json!({
            "endpoints": pool.endpoints,
            "readyEndpoints": pool.ready.len(),
            "useCases": pool.use_cases.len(),
            "conditions": rendered(&live, found),
        });
        told = writer.publish(POOLS, &live, &status).await.map(drop).and(told);
    }
    for (object, found) in &index.declarations {
        let kind = if object["kind"] == USE_CASES.kind { USE_CASES } else { SETS };
        let live = stores.get(kind, &cluster::Key::of(object)).unwrap_or_else(|| Arc::clone(object));
        let status = json!({"conditions": rendered(&live, found)});
        told = writer.publish(kind, &live, &status).await.map(drop).and(told);
    }
    told
}

fn rendered(live: &Value, found: &[cluster::Condition]) -> Value {
    let generation = live["metadata"]["generation"].as_i64().unwrap_or(1);
    conditions::render(&live["status"]["conditions"], found, generation, SystemClock.now())
}
