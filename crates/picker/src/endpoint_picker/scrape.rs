//! Reads the metrics page of every endpoint: often while it works, seldom while it is idle.

use std::{
    error::Error,
    io,
    net::SocketAddr,
    sync::{Arc, PoisonError, atomic::Ordering::Relaxed},
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

/// Between two attempts where nobody listens: whoever comes back is to be found soon, and costs little until then.
const GONE: Duration = Duration::from_millis(500);

/// Between two readings at least, however many requests fail.
const SOON: Duration = Duration::from_millis(20);

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
    pub(super) fn follow(&self, address: SocketAddr, load: Arc<Load>, seen: Arc<Seen>) -> DropGuard {
        let (client, stop) = (self.client.clone(), CancellationToken::new());
        let ended = stop.clone();
        tokio::spawn(async move {
            let reading = async {
                loop {
                    let answer = timeout(PATIENCE, read(&client, address)).await.unwrap_or(Answer::Nothing);
                    let pause = pause(&answer, &load);
                    seen.take(answer, address);
                    sleep(SOON).await;
                    // So that the readings of many engines spread.
                    timeout(pause.mul_f64(0.8 + 0.4 * fastrand::f64()), seen.look.notified()).await.ok();
                }
            };
            ended.run_until_cancelled(reading).await;
        });
        stop.drop_guard()
    }
}

/// What became of one reading.
enum Answer {
    Gauges(Gauges),
    /// Nobody listens.
    Refused,
    /// Too late, or no page: an engine may be too busy to say more.
    Nothing,
}

impl Seen {
    fn take(&self, answer: Answer, address: SocketAddr) {
        let refuses = matches!(answer, Answer::Refused);
        if self.refuses.swap(refuses, Relaxed) != refuses {
            let told = if refuses { "nobody listens: others are chosen" } else { "answers again" };
            tracing::info!(%address, "{told}");
        }
        if let Answer::Gauges(gauges) = answer {
            *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((gauges, Instant::now()));
        }
    }
}

fn pause(answer: &Answer, load: &Load) -> Duration {
    match answer {
        Answer::Gauges(gauges) if load.requests() > 0 || works(gauges) => BUSY,
        Answer::Gauges(_) | Answer::Nothing => IDLE,
        Answer::Refused => GONE,
    }
}

fn works(gauges: &Gauges) -> bool {
    gauges.running.unwrap_or(0.0) + gauges.waiting.unwrap_or(0.0) > 0.0
}

async fn read(client: &Client<HttpConnector, Empty<Bytes>>, address: SocketAddr) -> Answer {
    let uri = Uri::builder().scheme("http").authority(address.to_string()).path_and_query("/metrics").build();
    let Ok(request) = Request::get(uri.unwrap_or_default()).body(Empty::new()) else { return Answer::Nothing };
    let answer = match client.request(request).await {
        Ok(answer) if answer.status().is_success() => answer,
        Ok(answer) => {
            tracing::debug!(%address, status = %answer.status(), "metrics not read");
            return Answer::Nothing;
        }
        Err(error) => {
            tracing::debug!(%address, %error, "metrics not read");
            return if refused(&error) { Answer::Refused } else { Answer::Nothing };
        }
    };
    match Limited::new(answer.into_body(), LONGEST_PAGE).collect().await {
        Ok(page) => Answer::Gauges(reading::read(&String::from_utf8_lossy(&page.to_bytes()))),
        Err(_) => Answer::Nothing,
    }
}

/// Whether the machine said that nobody listens there.
fn refused(error: &(dyn Error + 'static)) -> bool {
    let told = error.downcast_ref::<io::Error>().map(io::Error::kind);
    told == Some(io::ErrorKind::ConnectionRefused) || error.source().is_some_and(refused)
}
