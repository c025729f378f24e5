//! Memory that the requests of one server share.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{Instant, timeout};

/// Fixed part of the memory of a request in bytes: its task and its stream.
const REQUEST_OVERHEAD: usize = 4 * 1024;

/// Memory of one header in bytes, in addition to its name and value.
const HEADER_OVERHEAD: usize = 128;

/// The heads of requests have this fraction of the memory for bodies, in addition to it: requests that only send heads do not
/// delay bodies, and requests whose bodies wait do not cause others to be rejected.
const HEAD_FRACTION: usize = 4;

/// Memory for the requests of one server. Requests whose body does not fit wait, in order of their arrival. Requests whose
/// head does not fit are rejected.
#[derive(Debug, Clone)]
pub struct BodyMemory {
    /// One permit per byte.
    available: Arc<Semaphore>,
    /// Memory for heads, one permit per byte.
    available_for_heads: Arc<Semaphore>,
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

/// Memory that is reserved for the head of one request, until the value is dropped.
#[derive(Debug)]
pub struct HeadReservation {
    permit: OwnedSemaphorePermit,
}

/// The heads of other requests occupy the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the headers of other requests occupy the memory; try again")]
pub struct HeadMemoryExhausted;

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
    /// Returns `bytes` of unused memory for bodies, and a quarter as much for heads.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        let semaphore = |permits: usize| Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS)));
        Self {
            available: semaphore(bytes),
            available_for_heads: semaphore(bytes / HEAD_FRACTION),
            waiting: watch::Sender::new(0),
        }
    }

    /// Returns how many bytes are not reserved for bodies.
    #[must_use]
    pub fn available_bytes(&self) -> usize {
        self.available.available_permits()
    }

    /// Reserves the memory of a request without its body. Callers hold the reservation as long as the request.
    ///
    /// # Errors
    /// The memory is not available now.
    pub fn reserve_head(&self, head: &Parts) -> Result<HeadReservation, HeadMemoryExhausted> {
        let permit = try_acquire(&self.available_for_heads, head_bytes(head))?;
        Ok(HeadReservation { permit })
    }
}

fn try_acquire(available: &Arc<Semaphore>, bytes: usize) -> Result<OwnedSemaphorePermit, HeadMemoryExhausted> {
    let permits = u32::try_from(bytes).unwrap_or(u32::MAX);
    Arc::clone(available).try_acquire_many_owned(permits).map_err(|_| HeadMemoryExhausted)
}

/// Returns the memory of a request without its body.
fn head_bytes(head: &Parts) -> usize {
    let path = head.uri.path_and_query().map_or(0, |path| path.as_str().len());
    let authority = head.uri.authority().map_or(0, |authority| authority.as_str().len());
    let header_sizes = head
        .headers
        .iter()
        .map(|(name, value)| name.as_str().len().saturating_add(value.len()).saturating_add(HEADER_OVERHEAD));
    header_sizes.fold(REQUEST_OVERHEAD, usize::saturating_add).saturating_add(path).saturating_add(authority)
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
    pub(crate) fn bytes(&self) -> usize {
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

// === impl HeadReservation ===

impl HeadReservation {
    /// Reserves `bytes` more: the request has further headers in its messages.
    ///
    /// # Errors
    /// The memory is not available now.
    pub fn grow_by(&mut self, bytes: usize) -> Result<(), HeadMemoryExhausted> {
        let added = try_acquire(self.permit.semaphore(), bytes)?;
        self.permit.merge(added);
        Ok(())
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
    use http::Request;

    use super::*;

    #[test]
    fn heads_have_a_share_of_the_memory() {
        let request = Request::get("http://host/path?query").header("name", "v".repeat(1000)).header("x", "").body(());
        let head = request.unwrap().into_parts().0;
        let size = 4096 + "/path?query".len() + "host".len() + "name".len() + 1000 + "x".len() + 2 * 128;
        let memory = BodyMemory::new(4 * (2 * size + size / 2));
        let reservations = [memory.reserve_head(&head).unwrap(), memory.reserve_head(&head).unwrap()];
        assert_eq!(memory.reserve_head(&head).unwrap_err(), HeadMemoryExhausted);
        assert_eq!(memory.available_for_heads.available_permits(), size / 2);
        let [mut first, second] = reservations;
        assert_eq!(first.grow_by(size / 2 + 1), Err(HeadMemoryExhausted));
        first.grow_by(size / 2).unwrap();
        assert_eq!(memory.available_for_heads.available_permits(), 0);
        drop((first, second));
        assert!(memory.reserve_head(&head).is_ok());
        assert_eq!(memory.available_for_heads.available_permits(), 2 * size + size / 2);
    }

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
