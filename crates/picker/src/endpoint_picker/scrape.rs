//! Reads the metrics page of every endpoint: often while it works, seldom while it is idle.

use std::{
    net::SocketAddr,
    sync::{Arc, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::fleet::Seen;
use crate::{
    pool::Load,
    reading::{self, Gauges},
};

/// Between two readings of an engine at work.
const BUSY: Duration = Duration::from_millis(200);

/// Between two readings of an idle engine, and of one that cannot be read.
const IDLE: Duration = Duration::from_secs(2);

/// An engine that does not answer for so long is not read this time.
const PATIENCE: Duration = Duration::from_secs(1);

/// Longest page that is read, in bytes.
const LONGEST_PAGE: usize = 4 * 1024 * 1024;

/// Reads metrics pages over kept connections.
pub(super) struct Scraper {
    client: Client<HttpConnector, Empty<Bytes>>,
}

impl Scraper {
    pub(super) fn new() -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(PATIENCE));
        let mut builder = Client::builder(TokioExecutor::new());
        // vLLM closes connections that were idle for five seconds.
        builder.pool_timer(TokioTimer::new()).pool_idle_timeout(Duration::from_secs(4)).pool_max_idle_per_host(1);
        Self { client: builder.build(connector) }
    }

    /// Keeps `seen` up to date until the result is dropped.
    pub(super) fn follow(&self, address: SocketAddr, load: Arc<Load>, seen: Seen) -> DropGuard {
        let (client, stop) = (self.client.clone(), CancellationToken::new());
        let ended = stop.clone();
        tokio::spawn(async move {
            let reading = async {
                loop {
                    let gauges = timeout(PATIENCE, read(&client, address)).await.ok().flatten();
                    let busy = gauges.as_ref().is_some_and(|gauges| load.requests() > 0 || works(gauges));
                    if let Some(gauges) = gauges {
                        *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some((gauges, Instant::now()));
                    }
                    let pause = if busy { BUSY } else { IDLE };
                    // So that the readings of many engines spread.
                    sleep(pause.mul_f64(0.8 + 0.4 * fastrand::f64())).await;
                }
            };
            ended.run_until_cancelled(reading).await;
        });
        stop.drop_guard()
    }
}

fn works(gauges: &Gauges) -> bool {
    gauges.running.unwrap_or(0.0) + gauges.waiting.unwrap_or(0.0) > 0.0
}

async fn read(client: &Client<HttpConnector, Empty<Bytes>>, address: SocketAddr) -> Option<Gauges> {
    let uri = Uri::builder().scheme("http").authority(address.to_string()).path_and_query("/metrics").build().ok()?;
    let request = Request::get(uri).body(Empty::new()).ok()?;
    let answer = client.request(request).await;
    let answer = answer.inspect_err(|error| tracing::debug!(%address, %error, "metrics not read")).ok()?;
    if !answer.status().is_success() {
        tracing::debug!(%address, status = %answer.status(), "metrics not read");
        return None;
    }
    let page = Limited::new(answer.into_body(), LONGEST_PAGE).collect().await.ok()?.to_bytes();
    Some(reading::read(&String::from_utf8_lossy(&page)))
}
