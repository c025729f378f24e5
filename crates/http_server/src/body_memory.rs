//! Memory that the request bodies of one server share.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout};

/// Memory for the request bodies of one server. Requests whose body does not fit wait, in order of their arrival.
#[derive(Debug, Clone)]
pub struct BodyMemory {
    /// One permit per byte.
    available: Arc<Semaphore>,
    /// Number of requests that wait.
    waiting: watch::Sender<usize>,
}

/// A request that waits for memory.
struct WaitingRequest<'a>(&'a BodyMemory);

/// Memory that is reserved for the body of one request, until the value is dropped.
#[derive(Debug, Default)]
pub struct BodyReservation {
    /// `None` for bodies whose memory is not limited.
    memory: Option<BodyMemory>,
    permit: Option<OwnedSemaphorePermit>,
}

/// Bytes whose memory is reserved until the last reference to them is dropped.
struct ReservedBytes {
    bytes: Bytes,
    _reservation: BodyReservation,
}

/// The memory was not available in time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OutOfMemory;

// === impl BodyMemory ===

impl BodyMemory {
    /// Returns `bytes` of unused memory.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let available = Arc::new(Semaphore::new(bytes.min(Semaphore::MAX_PERMITS)));
        Self { available, waiting: watch::Sender::new(0) }
    }

    /// Returns how many bytes are not reserved.
    #[must_use]
    pub fn available_bytes(&self) -> usize {
        self.available.available_permits()
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

// === impl BodyReservation ===

impl BodyReservation {
    /// Returns an empty reservation.
    pub(crate) fn new(memory: Option<BodyMemory>) -> Self {
        Self { memory, permit: None }
    }

    /// Returns the number of reserved bytes.
    fn bytes(&self) -> usize {
        self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Returns `bytes` such that the reservation lasts until the last reference to them, or to a part of them, is dropped.
    #[must_use]
    pub fn attach(self, bytes: Bytes) -> Bytes {
        if self.permit.is_none() { bytes } else { Bytes::from_owner(ReservedBytes { bytes, _reservation: self }) }
    }

    /// Waits until `bytes` are reserved. Returns how long it waited, `None` if it did not.
    ///
    /// # Errors
    /// The memory is not available within `limit`.
    pub(crate) async fn grow_to(&mut self, bytes: usize, limit: Duration) -> Result<Option<Duration>, OutOfMemory> {
        let missing = u32::try_from(bytes.saturating_sub(self.bytes())).unwrap_or(u32::MAX);
        let Some(memory) = self.memory.as_ref().filter(|_| missing > 0) else { return Ok(None) };
        let (added, waited) = match Arc::clone(&memory.available).try_acquire_many_owned(missing) {
            Ok(permit) => (Some(permit), None),
            Err(_) => {
                let (_waiting, start) = (WaitingRequest::new(memory), Instant::now());
                let acquire = Arc::clone(&memory.available).acquire_many_owned(missing);
                // The semaphore is never closed.
                let permit = timeout(limit, acquire).await.map_err(|_| OutOfMemory)?.ok();
                (permit, Some(start.elapsed()))
            }
        };
        match (&mut self.permit, added) {
            (Some(permit), Some(added)) => permit.merge(added),
            (permit, added) => *permit = added,
        }
        Ok(waited)
    }

    /// Waits until another request waits for memory that this one has reserved.
    pub(crate) async fn wait_until_needed(&self) {
        match self.memory.as_ref().filter(|_| self.bytes() > 0) {
            // The sender exists as long as `memory`.
            Some(memory) => drop(memory.waiting.subscribe().wait_for(|count| *count > 0).await),
            None => std::future::pending().await,
        }
    }

    /// Takes the reservation of at most `bytes` and releases the rest. This reservation is empty afterwards.
    pub(crate) fn take(&mut self, bytes: usize) -> Self {
        let mut permit = self.permit.take();
        let surplus = permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits).saturating_sub(bytes);
        drop(permit.as_mut().and_then(|permit| permit.split(surplus)));
        Self { memory: self.memory.clone(), permit: permit.filter(|permit| permit.num_permits() > 0) }
    }
}

// === impl ReservedBytes ===

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reservation_lasts_as_long_as_any_part_of_the_bytes() {
        let memory = BodyMemory::new(100);
        let mut reservation = BodyReservation::new(Some(memory.clone()));
        reservation.grow_to(90, Duration::ZERO).await.unwrap();
        let body = reservation.take(60).attach(Bytes::from(vec![b'x'; 60]));
        assert_eq!(memory.available_bytes(), 40);
        let (part, copy) = (body.slice(10..11), body.clone());
        drop((body, copy));
        assert_eq!(memory.available_bytes(), 40);
        drop(part);
        assert_eq!(memory.available_bytes(), 100);
    }
}
