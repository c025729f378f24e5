//! One write seen by many: events a second over all watches of one collection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use memchr::memchr_iter;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::connection::Body;
use crate::figures::Figures;
use crate::reader::revision;
use crate::target::Target;
use crate::writes::{creation, patching, run_name, send};
use crate::{Result, Sizes};

pub(crate) async fn run(target: &Target, sizes: &Sizes) -> Result<Figures> {
    let (watches, count, writers) = (sizes.get("watches", 500), sizes.get("count", 500), sizes.get("writers", 16));
    let namespace = target.namespaces("fanout", 1).await?.remove(0);
    let run = run_name();
    let from = revision(&target.connect().await?.done(&creation(&namespace, &run)).await?)?;

    let ready = Arc::new(Barrier::new(watches + 1));
    let mut tasks: JoinSet<Result<Instant>> = JoinSet::new();
    for _ in 0..watches {
        let (target, ready) = (target.clone(), Arc::clone(&ready));
        let path = format!("/api/v1/namespaces/{namespace}/configmaps?watch=true&resourceVersion={from}");
        tasks.spawn(async move {
            let opened = target.connect().await?.open(&path).await;
            ready.wait().await;
            follow(opened?, count).await
        });
    }
    let connections = target.connections(writers).await?;
    ready.wait().await;
    let began = Instant::now();
    send(connections, count, move |n| patching(&namespace, &run, &n.to_string())).await?;
    let mut whole = Duration::ZERO;
    while let Some(ended) = tasks.join_next().await {
        whole = whole.max(ended??.duration_since(began));
    }
    let mut figures = Figures::default();
    figures.add("fanout_events_per_s", (watches * count) as f64 / whole.as_secs_f64());
    Ok(figures)
}

/// When the last of `count` events came; each is a line.
async fn follow(mut body: Body, count: usize) -> Result<Instant> {
    let mut seen = 0;
    while seen < count {
        match body.piece().await? {
            Some(piece) => seen += memchr_iter(b'\n', &piece).count(),
            None => return Err(format!("a watch ended after {seen} of {count} events").into()),
        }
    }
    Ok(Instant::now())
}
