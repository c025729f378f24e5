//! Receiving request bodies within the limits on their size, time and memory.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use apimachinery::Status;
use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http_body::Frame;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, sleep_until};

/// Maximum size of a request body in bytes, as in kube-apiserver.
const MAX_BODY_BYTES: usize = 3 * 1024 * 1024;

/// Time limit for receiving a body, and for each wait for memory.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// While other requests wait for memory, a body must progress by [`MIN_PROGRESS`] in this time, so that a few clients that stop
/// in the middle of their bodies do not delay the others for long. Otherwise it may pause, as in kube-apiserver.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes that count as progress: an eighth of the rate at which the largest body arrives in time.
const MIN_PROGRESS: usize = 64 * 1024;

/// Maximum size in bytes of all request bodies that are being received or handled; further requests wait.
const BODY_MEMORY: usize = 256 * 1024 * 1024;

/// Size in bytes up to which a body reserves little memory. A longer one reserves its maximum size at once: bodies that
/// wait for each other's memory hold no more than this.
const FIRST_RESERVATION: usize = 64 * 1024;

/// Memory for the bodies of requests of a network listener. Callers in the process hold their bodies in memory already.
#[derive(Debug, Clone)]
pub(crate) struct BodyMemory {
    /// One permit per byte.
    available: Arc<Semaphore>,
    /// Number of requests that wait.
    waiting: watch::Sender<usize>,
}

/// A request that waits for memory.
struct WaitingRequest<'a>(&'a BodyMemory);

/// Memory that is reserved for the body of one request, in bytes.
#[derive(Debug, Default)]
pub(super) struct BodyReservation {
    /// `None` for requests of this process.
    memory: Option<BodyMemory>,
    permit: Option<OwnedSemaphorePermit>,
}

/// Until when the next part of a body must arrive.
#[derive(Debug, Clone, Copy)]
struct Deadlines {
    /// Limit for the complete body.
    complete: Instant,
    /// Limit for [`MIN_PROGRESS`] bytes, if other requests wait for memory.
    progress: Instant,
    /// Bytes that have arrived since `progress` was extended.
    received: usize,
}

/// A part of a body, or why it cannot be read.
type FrameResult = Result<Frame<Bytes>, <Limited<Body> as http_body::Body>::Error>;

/// Reads the body of a request. The reservation grows as bytes arrive, so that a client that sends nothing holds no
/// memory, and has the size of the body in the end.
///
/// # Errors
/// 400 if reading fails, 408 on timeout or lack of progress, 413 if the body is too large, 429 if other bodies occupy the memory for too long.
pub(super) async fn read_body(body: Body, reservation: &mut BodyReservation) -> Result<Bytes, Status> {
    let declared = http_body::Body::size_hint(&body).exact().and_then(|length| usize::try_from(length).ok());
    let max_length = declared.unwrap_or(MAX_BODY_BYTES).min(MAX_BODY_BYTES);
    let mut body = Limited::new(body, MAX_BODY_BYTES);
    let mut deadlines = Deadlines::new(Instant::now());
    let (mut first, mut rest) = (Bytes::new(), BytesMut::new());
    let mut length: usize = 0;
    while let Some(frame) = next_frame(&mut body, deadlines, reservation).await? {
        let Ok(data) = frame.map_err(|error| read_error(error.as_ref()))?.into_data() else { continue };
        length = length.saturating_add(data.len());
        let needed = if length <= FIRST_RESERVATION { max_length.min(FIRST_RESERVATION) } else { max_length };
        if reservation.grow_to(needed.max(length)).await? == Waited::Yes {
            // The client is not responsible for this time.
            deadlines = Deadlines::new(Instant::now());
        } else {
            deadlines.record(data.len());
        }
        // Most bodies arrive at once and are not copied.
        if first.is_empty() {
            first = data;
        } else {
            if rest.is_empty() {
                rest.extend_from_slice(&first);
            }
            rest.extend_from_slice(&data);
        }
    }
    reservation.shrink_to(length);
    Ok(if rest.is_empty() { first } else { rest.freeze() })
}

/// Returns the next frame, `None` at the end. Most bodies arrive together with the request headers and need no timer.
async fn next_frame(
    body: &mut Limited<Body>,
    deadlines: Deadlines,
    reservation: &BodyReservation,
) -> Result<Option<FrameResult>, Status> {
    let mut frame = pin!(body.frame());
    if let Poll::Ready(frame) = futures::poll!(&mut frame) {
        return Ok(frame);
    }
    let stalled = async {
        sleep_until(deadlines.progress).await;
        reservation.wait_until_needed().await;
    };
    tokio::select! {
        biased;
        frame = frame => Ok(frame),
        () = sleep_until(deadlines.complete) => Err(timeout_error()),
        () = stalled => Err(stall_error()),
    }
}

fn timeout_error() -> Status {
    Status::request_timeout(format!("the request body did not arrive within {} seconds", BODY_TIMEOUT.as_secs()))
}

fn stall_error() -> Status {
    let (kib, seconds) = (MIN_PROGRESS / 1024, STALL_TIMEOUT.as_secs());
    Status::request_timeout(format!(
        "less than {kib} KiB of the request body arrived within {seconds} seconds while other requests waited for memory; try again"
    ))
}

/// Bodies that wait for each other's memory end with this error, which releases what they hold.
fn memory_error() -> Status {
    let message = format!("other request bodies occupied the memory for {} seconds; try again", BODY_TIMEOUT.as_secs());
    Status::too_many_requests(message)
}

fn read_error(error: &(dyn std::error::Error + Send + Sync + 'static)) -> Status {
    if error.downcast_ref::<LengthLimitError>().is_some() {
        Status::request_entity_too_large(format!("limit is {MAX_BODY_BYTES} bytes"))
    } else {
        Status::bad_request(format!("failed to read the request body: {error}"))
    }
}

/// Whether a reservation had to wait for other requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waited {
    No,
    Yes,
}

// === impl BodyMemory ===

impl Default for BodyMemory {
    fn default() -> Self {
        Self::new(BODY_MEMORY)
    }
}

impl BodyMemory {
    fn new(bytes: usize) -> Self {
        Self { available: Arc::new(Semaphore::new(bytes)), waiting: watch::Sender::new(0) }
    }
}

// === impl WaitingRequest ===

impl<'a> WaitingRequest<'a> {
    fn new(memory: &'a BodyMemory) -> Self {
        memory.waiting.send_modify(|count| *count = count.saturating_add(1));
        Self(memory)
    }
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        self.0.waiting.send_modify(|count| *count = count.saturating_sub(1));
    }
}

// === impl Deadlines ===

impl Deadlines {
    fn new(start: Instant) -> Self {
        let after = |limit| start.checked_add(limit).unwrap_or(start);
        Self { complete: after(BODY_TIMEOUT), progress: after(STALL_TIMEOUT), received: 0 }
    }

    /// Records the arrival of `length` bytes.
    fn record(&mut self, length: usize) {
        self.received = self.received.saturating_add(length);
        if self.received >= MIN_PROGRESS {
            let complete = self.complete;
            *self = Self { complete, ..Self::new(Instant::now()) };
        }
    }
}

// === impl BodyReservation ===

impl BodyReservation {
    /// Returns an empty reservation.
    pub(super) fn new(memory: Option<BodyMemory>) -> Self {
        Self { memory, permit: None }
    }

    fn bytes(&self) -> usize {
        self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Waits until `bytes` are reserved.
    ///
    /// # Errors
    /// 429 if the memory is not available in time.
    async fn grow_to(&mut self, bytes: usize) -> Result<Waited, Status> {
        let missing = u32::try_from(bytes.saturating_sub(self.bytes())).unwrap_or(u32::MAX);
        let Some(memory) = self.memory.as_ref().filter(|_| missing > 0) else { return Ok(Waited::No) };
        let (added, waited) = match Arc::clone(&memory.available).try_acquire_many_owned(missing) {
            Ok(permit) => (Some(permit), Waited::No),
            Err(_) => {
                let _waiting = WaitingRequest::new(memory);
                let available = Arc::clone(&memory.available);
                let acquire = tokio::time::timeout(BODY_TIMEOUT, available.acquire_many_owned(missing));
                // The semaphore is never closed.
                (acquire.await.map_err(|_| memory_error())?.ok(), Waited::Yes)
            }
        };
        match (&mut self.permit, added) {
            (Some(permit), Some(added)) => permit.merge(added),
            (permit, added) => *permit = added,
        }
        Ok(waited)
    }

    /// Waits until another request waits for memory that this one has reserved.
    async fn wait_until_needed(&self) {
        match self.memory.as_ref().filter(|_| self.bytes() > 0) {
            // The sender exists as long as `memory`.
            Some(memory) => drop(memory.waiting.subscribe().wait_for(|count| *count > 0).await),
            None => std::future::pending().await,
        }
    }

    /// Releases what exceeds `bytes`.
    fn shrink_to(&mut self, bytes: usize) {
        let surplus = self.bytes().saturating_sub(bytes);
        drop(self.permit.as_mut().and_then(|permit| permit.split(surplus)));
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::channel::mpsc;
    use futures::{FutureExt, StreamExt, stream};
    use rstest::rstest;

    use super::*;

    const KIB: usize = 1024;

    /// Returns a body of unknown length and the sender of its chunks.
    fn chunked_body() -> (mpsc::UnboundedSender<usize>, Body) {
        let (sender, chunks) = mpsc::unbounded();
        let body = chunks.map(|length| Ok::<_, Infallible>(Bytes::from(vec![b'x'; length])));
        (sender, Body::from_stream(body))
    }

    fn available(memory: &BodyMemory) -> usize {
        memory.available.available_permits()
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_reserved_as_bytes_arrive() {
        let memory = BodyMemory::new(8 * 1024 * KIB);
        let mut reservation = BodyReservation::new(Some(memory.clone()));
        let (sender, body) = chunked_body();
        let mut reading = Box::pin(read_body(body, &mut reservation));
        assert!((&mut reading).now_or_never().is_none());
        assert_eq!(available(&memory), 8 * 1024 * KIB, "a client that sends nothing holds no memory");
        for (chunk, reserved) in [(1, FIRST_RESERVATION), (63 * KIB, FIRST_RESERVATION), (KIB, MAX_BODY_BYTES)] {
            sender.unbounded_send(chunk).unwrap();
            assert!((&mut reading).now_or_never().is_none());
            assert_eq!(available(&memory), 8 * 1024 * KIB - reserved);
        }
        drop(sender);
        let length = reading.await.unwrap().len();
        assert_eq!(length, 64 * KIB + 1);
        assert_eq!(available(&memory), 8 * 1024 * KIB - length, "the surplus is released");
        drop(reservation);
        assert_eq!(available(&memory), 8 * 1024 * KIB);
    }

    #[rstest]
    #[case::empty(0)]
    #[case::small(100)]
    #[case::large(2 * 1024 * KIB)]
    #[tokio::test(start_paused = true)]
    async fn declared_length_is_reserved(#[case] length: usize) {
        let memory = BodyMemory::new(4 * 1024 * KIB);
        let mut reservation = BodyReservation::new(Some(memory.clone()));
        let body = read_body(Body::from(vec![b'x'; length]), &mut reservation).await.unwrap();
        assert_eq!((body.len(), available(&memory)), (length, 4 * 1024 * KIB - length));
    }

    #[tokio::test(start_paused = true)]
    async fn request_waits_for_memory_of_others_and_then_has_its_own_time() {
        let memory = BodyMemory::new(MAX_BODY_BYTES);
        let mut first = BodyReservation::new(Some(memory.clone()));
        read_body(Body::from(vec![b'x'; MAX_BODY_BYTES]), &mut first).await.unwrap();
        let (sender, body) = chunked_body();
        let mut second = BodyReservation::new(Some(memory.clone()));
        let mut reading = Box::pin(read_body(body, &mut second));
        sender.unbounded_send(100).unwrap();
        let waited = tokio::time::timeout(Duration::from_secs(29), &mut reading).await;
        assert!(waited.is_err(), "it waits for the first request");
        let mut in_process = BodyReservation::new(None);
        assert_eq!(read_body(Body::from("body"), &mut in_process).await.unwrap(), "body");
        drop(first);
        assert!((&mut reading).now_or_never().is_none());
        sender.unbounded_send(100).unwrap();
        drop(sender);
        assert_eq!(reading.await.unwrap().len(), 200);
    }

    /// Each body holds its first reservation and waits for the rest, which the others hold.
    #[tokio::test(start_paused = true)]
    async fn bodies_that_wait_for_each_other_end() {
        let memory = BodyMemory::new(4 * FIRST_RESERVATION);
        let bodies = (0..4).map(|_| async {
            let mut reservation = BodyReservation::new(Some(memory.clone()));
            let chunks = [FIRST_RESERVATION, 1].map(|length| Ok::<_, Infallible>(Bytes::from(vec![b'x'; length])));
            let body = Body::from_stream(stream::iter(chunks).then(|chunk| async {
                tokio::task::yield_now().await;
                chunk
            }));
            read_body(body, &mut reservation).await.map_err(|status| status.code)
        });
        let results = futures::future::join_all(bodies).await;
        assert_eq!(results.iter().filter(|result| **result == Err(429)).count(), 4, "{results:?}");
        assert_eq!(available(&memory), 4 * FIRST_RESERVATION);
    }

    /// The first body fills the memory, then sends `chunk` bytes per second. Returns the seconds after which a second request
    /// has its memory, and the result of the first one.
    async fn second_request(chunk: usize) -> (u64, Result<usize, Status>) {
        let memory = BodyMemory::new(MAX_BODY_BYTES);
        let read = async |body| {
            let mut reservation = BodyReservation::new(Some(memory.clone()));
            read_body(body, &mut reservation).await.map(|bytes| bytes.len())
        };
        let chunks = stream::iter([65 * KIB]).chain(stream::iter([chunk; 20]).then(|chunk| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            chunk
        }));
        let first = Body::from_stream(chunks.map(|length| Ok::<_, Infallible>(Bytes::from(vec![b'x'; length]))));
        let start = Instant::now();
        let second = async {
            tokio::task::yield_now().await;
            assert_eq!(available(&memory), 0);
            assert_eq!(read(Body::from("body")).await.unwrap(), 4);
            start.elapsed().as_secs()
        };
        let (first, seconds) = tokio::join!(read(first), second);
        (seconds, first)
    }

    #[rstest]
    #[case::pause(0, 5, Err(408))]
    #[case::few_bytes(KIB, 5, Err(408))]
    #[case::slow(14 * KIB, 20, Ok(345 * KIB))]
    #[tokio::test(start_paused = true)]
    async fn body_without_progress_releases_its_memory(
        #[case] chunk: usize,
        #[case] seconds: u64,
        #[case] expect: Result<usize, u16>,
    ) {
        let (waited, result) = second_request(chunk).await;
        if let Err(status) = &result {
            let expect = "less than 64 KiB of the request body arrived within 5 seconds while other requests waited for memory; try again";
            assert_eq!(status.message, expect);
        }
        assert_eq!((waited, result.map_err(|status| status.code)), (seconds, expect));
    }

    #[tokio::test(start_paused = true)]
    async fn body_may_pause_while_no_request_needs_its_memory() {
        let (sender, body) = chunked_body();
        let mut reservation = BodyReservation::new(Some(BodyMemory::new(MAX_BODY_BYTES)));
        let mut reading = Box::pin(read_body(body, &mut reservation));
        sender.unbounded_send(65 * KIB).unwrap();
        assert!(tokio::time::timeout(Duration::from_secs(29), &mut reading).await.is_err());
        drop(sender);
        assert_eq!(reading.await.unwrap().len(), 65 * KIB);
    }

    #[tokio::test(start_paused = true)]
    async fn slow_and_large_bodies_are_rejected() {
        let (_sender, body) = chunked_body();
        let error = read_body(body, &mut BodyReservation::default()).await.unwrap_err();
        assert_eq!((error.code, error.message.as_str()), (408, "the request body did not arrive within 30 seconds"));
        let memory = BodyMemory::new(MAX_BODY_BYTES);
        let mut reservation = BodyReservation::new(Some(memory));
        let chunks = stream::repeat_with(|| Ok::<_, Infallible>(Bytes::from(vec![b'x'; 1024 * KIB]))).take(4);
        let error = read_body(Body::from_stream(chunks), &mut reservation).await.unwrap_err();
        assert_eq!(error.code, 413);
    }
}
