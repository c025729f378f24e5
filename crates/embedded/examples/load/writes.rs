//! How many writes a second, and how long one takes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::connection::{Connection, Request};
use crate::figures::Figures;
use crate::reader::revision;
use crate::target::Target;
use crate::{Result, Sizes};

/// Bytes of data in one object.
const DATA: usize = 256;

/// A write that was acknowledged.
pub(crate) struct Acknowledged {
    pub(crate) number: usize,
    pub(crate) revision: u64,
    pub(crate) took: Duration,
}

/// A name of this run, so that phases may be repeated on one server.
pub(crate) fn run_name() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{:x}", now.as_millis())
}

pub(crate) fn creation(namespace: &str, name: &str) -> Request {
    let data = "x".repeat(DATA);
    let body = format!(r#"{{"metadata":{{"name":"{name}","labels":{{"app":"load"}}}},"data":{{"value":"{data}"}}}}"#);
    Request::post(format!("/api/v1/namespaces/{namespace}/configmaps"), body.into())
}

pub(crate) fn patching(namespace: &str, name: &str, value: &str) -> Request {
    let body = format!(r#"{{"data":{{"state":"{value}"}}}}"#);
    Request::merge_patch(format!("/api/v1/namespaces/{namespace}/configmaps/{name}"), body.into())
}

/// Sends writes `0..count` over the connections, each the next one that nobody has taken.
pub(crate) async fn send(
    connections: Vec<Connection>,
    count: usize,
    write: impl Fn(usize) -> Request + Send + Sync + 'static,
) -> Result<Vec<Acknowledged>> {
    let (write, next) = (Arc::new(write), Arc::new(AtomicUsize::new(0)));
    let mut tasks: JoinSet<Result<Vec<Acknowledged>>> = JoinSet::new();
    for mut connection in connections {
        let (write, next) = (Arc::clone(&write), Arc::clone(&next));
        tasks.spawn(async move {
            let mut done = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok(done);
                }
                let request = write(number);
                let began = Instant::now();
                let answer = connection.done(&request).await?;
                done.push(Acknowledged { number, revision: revision(&answer)?, took: began.elapsed() });
            }
        });
    }
    let mut all = Vec::with_capacity(count);
    while let Some(done) = tasks.join_next().await {
        all.extend(done??);
    }
    Ok(all)
}

pub(crate) async fn create(target: &Target, sizes: &Sizes) -> Result<Figures> {
    let (count, writers) = (sizes.get("count", 5000), sizes.get("writers", 16));
    let namespace = target.namespaces("bench", 1).await?.remove(0);
    let (run, connections) = (run_name(), target.connections(writers).await?);
    timed("create", send(connections, count, move |n| creation(&namespace, &format!("c{run}-{n}")))).await
}

/// Patches a tenth as many objects, each ten times.
pub(crate) async fn patch(target: &Target, sizes: &Sizes) -> Result<Figures> {
    let (count, writers) = (sizes.get("count", 5000), sizes.get("writers", 16));
    let namespace = target.namespaces("bench", 1).await?.remove(0);
    let (run, objects) = (run_name(), (count / 10).max(1));
    let (home, prefix) = (namespace.clone(), run.clone());
    let made = target.connections(writers).await?;
    send(made, objects, move |n| creation(&home, &format!("p{prefix}-{n}"))).await?;
    let write = move |n: usize| patching(&namespace, &format!("p{run}-{}", n % objects), &n.to_string());
    let connections = target.connections(writers).await?;
    timed("patch", send(connections, count, write)).await
}

async fn timed(name: &str, sending: impl Future<Output = Result<Vec<Acknowledged>>>) -> Result<Figures> {
    let began = Instant::now();
    let done = sending.await?;
    let whole = began.elapsed();
    let mut figures = Figures::default();
    figures.add_timed(name, done.into_iter().map(|one| one.took).collect(), whole);
    Ok(figures)
}
