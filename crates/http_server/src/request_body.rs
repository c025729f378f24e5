//! Receiving request bodies within limits on their size, time and memory.

use std::error::Error;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::body_memory::{BodyMemory, BodyReservation};

/// While other requests wait for memory, a body must progress by [`MIN_PROGRESS`] in this time, so that a few clients that stop
/// in the middle of their bodies do not delay the others for long.
const STALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes that count as progress.
const MIN_PROGRESS: usize = 64 * 1024;

/// Size in bytes up to which a body reserves little memory. A longer one reserves its declared size at once: bodies that
/// wait for each other's memory hold no more than this.
const FIRST_RESERVATION: usize = 64 * 1024;

/// Size in bytes up to which a longer body of unknown size reserves this much; beyond, it reserves the maximum size.
const SECOND_RESERVATION: usize = 4 * 1024 * 1024;

/// Limits of each request body of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyLimits {
    /// Maximum size of a body in bytes.
    pub max_bytes: usize,
    /// Maximum time for a whole body.
    pub timeout: Duration,
    /// Maximum time between two parts of a body.
    pub pause_timeout: Duration,
    /// Maximum time of each wait for memory, which does not count towards the other limits.
    pub memory_timeout: Duration,
}

/// Why a body was not received.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The body is larger than the limit.
    #[error("the request body is larger than {max_bytes} bytes")]
    TooLarge {
        /// The limit.
        max_bytes: usize,
    },
    /// The body did not arrive within the limit.
    #[error("the request body did not arrive within {} seconds", .0.as_secs())]
    Timeout(Duration),
    /// No part of the body arrived within the limit.
    #[error("no part of the request body arrived for {} seconds", .0.as_secs())]
    Paused(Duration),
    /// Too little of the body arrived while other requests waited for its memory.
    #[error("less than {} KiB of the request body arrived within {} seconds while other requests waited for memory; try again",
        MIN_PROGRESS / 1024, STALL_TIMEOUT.as_secs())]
    Stalled,
    /// Other bodies occupied the memory for too long. Bodies that wait for each other's memory end with this error, which
    /// releases what they have reserved.
    #[error("other request bodies occupied the memory for {} seconds; try again", .0.as_secs())]
    OutOfMemory(Duration),
    /// The connection failed, or the body ended early.
    #[error("failed to read the request body: {0}")]
    Read(#[source] Box<dyn Error + Send + Sync>),
}

/// A complete body and its memory.
#[derive(Debug)]
pub struct ReservedBody {
    /// The bytes of the body.
    pub bytes: Bytes,
    /// Memory of `bytes`.
    pub reservation: BodyReservation,
}

/// Receives a body part by part. The reservation grows as bytes arrive, so that a client that sends nothing holds no memory.
#[derive(Debug)]
pub struct BodyReader<B> {
    body: B,
    limits: BodyLimits,
    /// `None` between messages, which may be far apart.
    deadlines: Option<Deadlines>,
    /// Expected number of bytes.
    declared: Option<usize>,
    /// Received bytes.
    length: usize,
    reservation: BodyReservation,
    /// Elapses at a deadline, or at an earlier one that was extended; `None` before the first wait. A large body arrives in many
    /// parts, and a timer for each of them would cost more than receiving it.
    timer: Option<Pin<Box<Sleep>>>,
}

/// Parts of a body, in one piece. A body of a single part is not copied.
#[derive(Debug, Default)]
pub struct BodyBuffer {
    first: Bytes,
    /// All parts, if there are several.
    all: BytesMut,
    /// Expected number of bytes.
    expected: usize,
}

/// Until when the next part of a body must arrive.
#[derive(Debug, Clone, Copy)]
struct Deadlines {
    /// Limit for the complete body.
    complete: Instant,
    /// Limit for the next part.
    pause: Instant,
    /// Limit for [`MIN_PROGRESS`] bytes, if other requests wait for memory.
    progress: Instant,
    /// Bytes that have arrived since `progress` was extended.
    received: usize,
}

/// Reads a whole body, whose memory is `memory` if it is limited. A body whose declared size is too large is read up to the limit,
/// because clients that are still sending may not receive a response.
///
/// # Errors
/// The body exceeds one of `limits`, cannot be read, or its memory is not available in time.
pub async fn read_body<B>(body: B, limits: BodyLimits, memory: Option<BodyMemory>) -> Result<ReservedBody, BodyError>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    let (mut reader, mut buffer) = (BodyReader::new(body, limits, memory), BodyBuffer::default());
    while let Some(chunk) = reader.next_chunk().await? {
        buffer.expect_bytes(reader.declared.unwrap_or(0).min(reader.reservation.bytes()));
        buffer.push(chunk);
    }
    let bytes = buffer.take();
    Ok(ReservedBody { reservation: reader.take_reservation(bytes.len()), bytes })
}

/// Returns how much memory a body of unknown or declared size reserves when `length` bytes have arrived.
fn reserved_bytes(length: usize, declared: Option<usize>, max_bytes: usize) -> usize {
    let step = match length {
        0..=FIRST_RESERVATION => FIRST_RESERVATION,
        0..=SECOND_RESERVATION if declared.is_none() => SECOND_RESERVATION,
        _ => max_bytes,
    };
    step.min(declared.unwrap_or(max_bytes)).min(max_bytes).max(length)
}

// === impl ReservedBody ===

impl ReservedBody {
    /// Returns the bytes, whose memory is reserved until the last reference to them is dropped.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        self.reservation.attach(self.bytes)
    }
}

// === impl BodyBuffer ===

impl BodyBuffer {
    /// Appends a part.
    pub fn push(&mut self, chunk: Bytes) {
        if self.is_empty() {
            self.first = chunk;
            return;
        }
        let length = self.len().saturating_add(chunk.len());
        self.all.reserve(self.expected.max(length).saturating_sub(self.all.len()));
        if self.all.is_empty() {
            self.all.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.all.extend_from_slice(&chunk);
    }

    /// Sets how many bytes are expected, so that the first ones are not copied whenever the buffer grows.
    pub fn expect_bytes(&mut self, length: usize) {
        self.expected = length;
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.first.len().saturating_add(self.all.len())
    }

    /// Returns whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes and leaves the buffer empty.
    pub fn take(&mut self) -> Bytes {
        if self.all.is_empty() { std::mem::take(&mut self.first) } else { std::mem::take(&mut self.all).freeze() }
    }
}

// === impl BodyReader ===

impl<B> BodyReader<B> {
    /// Changes the number of bytes that the body is expected to have. It may turn out to be wrong.
    pub fn expect_bytes(&mut self, length: usize) {
        self.declared = Some(length);
    }

    /// Returns the reservation of what was received, with at most `bytes` bytes; the rest is released. The limits start
    /// again with the first byte of what follows: the parts of a stream of messages may be far apart.
    pub fn take_reservation(&mut self, bytes: usize) -> BodyReservation {
        (self.deadlines, self.declared, self.length) = (None, None, 0);
        self.reservation.take(bytes)
    }
}

impl<B> BodyReader<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    /// Returns a reader of `body`, whose memory is `memory` if it is limited. The time limits begin now.
    pub fn new(body: B, limits: BodyLimits, memory: Option<BodyMemory>) -> Self {
        let declared = body.size_hint().exact().map(|length| usize::try_from(length).unwrap_or(usize::MAX));
        let deadlines = Some(Deadlines::new(Instant::now(), limits));
        let reservation = BodyReservation::new(memory);
        Self { body, limits, deadlines, declared, length: 0, reservation, timer: None }
    }

    /// Returns the next part, whose memory is reserved, or `None` at the end of the body.
    ///
    /// # Errors
    /// The body exceeds a limit, cannot be read, or its memory is not available in time. No further part can be read.
    pub async fn next_chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        let max_bytes = self.limits.max_bytes;
        while let Some(frame) = self.next_frame().await? {
            let Ok(data) = frame.into_data() else { continue };
            self.length = self.length.saturating_add(data.len());
            if self.length > max_bytes {
                return Err(BodyError::TooLarge { max_bytes });
            }
            self.reserve(data.len()).await?;
            return Ok(Some(data));
        }
        Ok(None)
    }

    /// Reserves memory for `received` further bytes.
    async fn reserve(&mut self, received: usize) -> Result<(), BodyError> {
        let needed = reserved_bytes(self.length, self.declared, self.limits.max_bytes);
        let limit = self.limits.memory_timeout;
        let waited = self.reservation.grow_to(needed, limit).await.map_err(|_| BodyError::OutOfMemory(limit))?;
        match (&mut self.deadlines, waited) {
            (Some(deadlines), None) => deadlines.record(received, self.limits),
            (Some(deadlines), Some(waited)) => deadlines.postpone(waited, self.limits),
            (deadlines @ None, _) => *deadlines = Some(Deadlines::new(Instant::now(), self.limits)),
        }
        Ok(())
    }

    /// Returns the next frame, `None` at the end. Most bodies arrive together with the request headers and need no timer.
    async fn next_frame(&mut self) -> Result<Option<Frame<Bytes>>, BodyError> {
        let mut frame = pin!(self.body.frame());
        let frame = match std::future::poll_fn(|context| Poll::Ready(frame.as_mut().poll(context))).await {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                let Some(deadlines) = self.deadlines else { return frame.await.transpose().map_err(read_error) };
                // Boxed, the rest of the future of a request is small.
                let error = Box::pin(deadlines.wait(&mut self.timer, self.limits, &self.reservation));
                tokio::select! {
                    biased;
                    frame = frame => frame,
                    error = error => return Err(error),
                }
            }
        };
        frame.transpose().map_err(read_error)
    }
}

/// Waits at most until `deadline`. An earlier time to which `timer` is set remains, since changing it costs more than elapsing.
async fn wait_until(timer: &mut Option<Pin<Box<Sleep>>>, deadline: Instant) {
    let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
    if timer.is_elapsed() || timer.deadline() > deadline {
        timer.as_mut().reset(deadline);
    }
    timer.as_mut().await;
}

fn read_error(error: impl Into<Box<dyn Error + Send + Sync>>) -> BodyError {
    BodyError::Read(error.into())
}

// === impl Deadlines ===

impl Deadlines {
    fn new(start: Instant, limits: BodyLimits) -> Self {
        let after = |limit| start.checked_add(limit).unwrap_or(start);
        let (complete, pause) = (after(limits.timeout), after(limits.pause_timeout));
        Self { complete, pause, progress: after(STALL_TIMEOUT), received: 0 }
    }

    /// Records the arrival of `length` bytes.
    fn record(&mut self, length: usize, limits: BodyLimits) {
        let fresh = Self::new(Instant::now(), limits);
        self.pause = fresh.pause;
        self.received = self.received.saturating_add(length);
        if self.received >= MIN_PROGRESS {
            *self = Self { complete: self.complete, ..fresh };
        }
    }

    /// Waits for the first deadline and returns the error of the body.
    async fn wait(
        self,
        timer: &mut Option<Pin<Box<Sleep>>>,
        limits: BodyLimits,
        reservation: &BodyReservation,
    ) -> BodyError {
        loop {
            let (now, end) = (Instant::now(), self.complete.min(self.pause));
            if self.complete <= now {
                return BodyError::Timeout(limits.timeout);
            }
            if self.pause <= now {
                return BodyError::Paused(limits.pause_timeout);
            }
            if now < self.progress {
                wait_until(timer, end.min(self.progress)).await;
            } else {
                tokio::select! {
                    biased;
                    () = reservation.wait_until_needed() => return BodyError::Stalled,
                    () = wait_until(timer, end) => {}
                }
            }
        }
    }

    /// Grants the client the time that its body has waited for memory.
    fn postpone(&mut self, waited: Duration, limits: BodyLimits) {
        let complete = self.complete.checked_add(waited).unwrap_or(self.complete);
        *self = Self { complete, ..Self::new(Instant::now(), limits) };
    }
}

#[cfg(test)]
mod tests;
