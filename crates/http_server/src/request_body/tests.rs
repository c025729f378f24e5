use std::convert::Infallible;

use futures::channel::mpsc;
use futures::{FutureExt as _, StreamExt as _, stream};
use http_body_util::{Full, StreamBody};
use rstest::rstest;

use super::*;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
const SECOND: Duration = Duration::from_secs(1);

const LIMITS: BodyLimits = BodyLimits {
    max_bytes: 3 * MIB,
    timeout: Duration::from_secs(30),
    pause_timeout: Duration::from_secs(30),
    memory_timeout: Duration::from_secs(30),
};

fn data(length: usize) -> Result<Frame<Bytes>, Infallible> {
    Ok(Frame::data(Bytes::from(vec![b'x'; length])))
}

fn full(length: usize) -> Full<Bytes> {
    Full::new(Bytes::from(vec![b'x'; length]))
}

/// Returns a body of unknown length and the sender of its chunks.
fn chunked_body() -> (mpsc::UnboundedSender<usize>, impl Body<Data = Bytes, Error = Infallible> + Unpin) {
    let (sender, chunks) = mpsc::unbounded();
    (sender, StreamBody::new(chunks.map(data)))
}

async fn read<B>(body: B, memory: &BodyMemory) -> Result<ReservedBody, BodyError>
where
    B: Body<Data = Bytes, Error = Infallible> + Unpin,
{
    read_body(body, LIMITS, Some(memory.clone())).await
}

/// Columns: received bytes, declared bytes, expected reservation in a server with bodies of up to 32 MiB.
#[rstest]
#[case::first_bytes(1, None, 64 * KIB)]
#[case::first_bytes_of_a_small_body(1, Some(100), 100)]
#[case::large_body(64 * KIB + 1, Some(20 * MIB), 20 * MIB)]
#[case::unknown_size(64 * KIB + 1, None, 4 * MIB)]
#[case::large_body_of_unknown_size(4 * MIB + 1, None, 32 * MIB)]
#[case::longer_than_declared(5 * MIB, Some(MIB), 5 * MIB)]
fn reservation_depends_on_received_and_declared_bytes(
    #[case] length: usize,
    #[case] declared: Option<usize>,
    #[case] expect: usize,
) {
    assert_eq!(reserved_bytes(length, declared, 32 * MIB), expect);
}

#[tokio::test(start_paused = true)]
async fn memory_is_reserved_as_bytes_arrive() {
    let memory = BodyMemory::new(8 * MIB);
    let (sender, body) = chunked_body();
    let mut reading = Box::pin(read(body, &memory));
    assert!((&mut reading).now_or_never().is_none());
    assert_eq!(memory.available_bytes(), 8 * MIB, "a client that sends nothing holds no memory");
    for (chunk, reserved) in [(1, FIRST_RESERVATION), (63 * KIB, FIRST_RESERVATION), (KIB, LIMITS.max_bytes)] {
        sender.unbounded_send(chunk).unwrap();
        assert!((&mut reading).now_or_never().is_none());
        assert_eq!(memory.available_bytes(), 8 * MIB - reserved);
    }
    drop(sender);
    let body = reading.await.unwrap();
    assert_eq!(body.bytes.len(), 64 * KIB + 1);
    assert_eq!(memory.available_bytes(), 8 * MIB - body.bytes.len(), "the surplus is released");
    drop(body);
    assert_eq!(memory.available_bytes(), 8 * MIB);
}

#[rstest]
#[case::empty(0)]
#[case::small(100)]
#[case::large(2 * MIB)]
#[tokio::test(start_paused = true)]
async fn declared_length_is_reserved(#[case] length: usize) {
    let memory = BodyMemory::new(4 * MIB);
    let body = read(full(length), &memory).await.unwrap();
    assert_eq!((body.bytes.len(), memory.available_bytes()), (length, 4 * MIB - length));
}

#[tokio::test(start_paused = true)]
async fn body_of_one_part_is_not_copied() {
    let bytes = Bytes::from(vec![b'x'; MIB]);
    let body = read(Full::new(bytes.clone()), &BodyMemory::new(MIB)).await.unwrap();
    assert_eq!(body.into_bytes().as_ptr(), bytes.as_ptr());
}

/// Growing the buffer would copy what it contains.
#[test]
fn body_of_expected_size_is_copied_once() {
    let mut buffer = BodyBuffer::default();
    buffer.expect_bytes(10 * KIB);
    let mut addresses = Vec::new();
    for _ in 0..10 {
        buffer.push(Bytes::from(vec![b'x'; KIB]));
        addresses.push(buffer.all.as_ptr());
    }
    addresses.dedup();
    assert_eq!((addresses.len(), buffer.take().len()), (2, 10 * KIB), "without and with a buffer");
}

#[tokio::test(start_paused = true)]
async fn request_waits_for_memory_of_others_and_then_has_its_own_time() {
    let memory = BodyMemory::new(LIMITS.max_bytes);
    let first = read(full(LIMITS.max_bytes), &memory).await.unwrap();
    let (sender, body) = chunked_body();
    let mut reading = Box::pin(read(body, &memory));
    sender.unbounded_send(100).unwrap();
    let waited = tokio::time::timeout(29 * SECOND, &mut reading).await;
    assert!(waited.is_err(), "it waits for the first request");
    let in_process = read_body(full(4), LIMITS, None).await.unwrap();
    assert_eq!(in_process.bytes.len(), 4);
    drop(first);
    assert!((&mut reading).now_or_never().is_none());
    assert!(tokio::time::timeout(29 * SECOND, &mut reading).await.is_err(), "the wait does not count");
    sender.unbounded_send(100).unwrap();
    drop(sender);
    assert_eq!(reading.await.unwrap().bytes.len(), 200);
}

#[tokio::test(start_paused = true)]
async fn request_without_memory_ends() {
    let memory = BodyMemory::new(LIMITS.max_bytes);
    let first = read(full(LIMITS.max_bytes), &memory).await.unwrap();
    let start = Instant::now();
    let error = read(full(100), &memory).await.unwrap_err();
    assert_eq!(error.to_string(), "other request bodies occupied the memory for 30 seconds; try again");
    assert_eq!(start.elapsed(), 30 * SECOND);
    drop(first);
    assert_eq!(memory.available_bytes(), LIMITS.max_bytes);
}

/// Each body holds its first reservation and waits for the rest, which the others hold.
#[tokio::test(start_paused = true)]
async fn bodies_that_wait_for_each_other_end() {
    let memory = BodyMemory::new(4 * FIRST_RESERVATION);
    let bodies = (0..4).map(|_| async {
        let body = StreamBody::new(Box::pin(stream::iter([FIRST_RESERVATION, 1]).then(|length| async move {
            tokio::task::yield_now().await;
            data(length)
        })));
        read(body, &memory).await
    });
    let results = futures::future::join_all(bodies).await;
    let failed = results.iter().filter(|result| matches!(result, Err(BodyError::OutOfMemory(_)))).count();
    assert_eq!(failed, 4, "{results:?}");
    assert_eq!(memory.available_bytes(), 4 * FIRST_RESERVATION);
}

/// The first body fills the memory, then sends `chunk` bytes per second. Returns the seconds after which a second request
/// has its memory, and the result of the first one.
async fn second_request(chunk: usize) -> (u64, Result<usize, BodyError>) {
    let memory = BodyMemory::new(LIMITS.max_bytes);
    let chunks = stream::iter([65 * KIB]).chain(stream::iter([chunk; 20]).then(|chunk| async move {
        tokio::time::sleep(SECOND).await;
        chunk
    }));
    let first = async {
        let body = StreamBody::new(Box::pin(chunks.map(data)));
        read(body, &memory).await.map(|body| body.bytes.len())
    };
    let start = Instant::now();
    let second = async {
        tokio::task::yield_now().await;
        assert_eq!(memory.available_bytes(), 0);
        assert_eq!(read(full(4), &memory).await.unwrap().bytes.len(), 4);
        start.elapsed().as_secs()
    };
    let (first, seconds) = tokio::join!(first, second);
    (seconds, first)
}

#[rstest]
#[case::pause(0, 5, None)]
#[case::few_bytes(KIB, 5, None)]
#[case::slow(14 * KIB, 20, Some(345 * KIB))]
#[tokio::test(start_paused = true)]
async fn body_without_progress_releases_its_memory(
    #[case] chunk: usize,
    #[case] seconds: u64,
    #[case] expect: Option<usize>,
) {
    let (waited, result) = second_request(chunk).await;
    if let Err(error) = &result {
        let expect = "less than 64 KiB of the request body arrived within 5 seconds while other requests waited for memory; try again";
        assert_eq!(error.to_string(), expect);
    }
    assert_eq!((waited, result.ok()), (seconds, expect));
}

#[tokio::test(start_paused = true)]
async fn body_may_pause_while_no_request_needs_its_memory() {
    let (sender, body) = chunked_body();
    let memory = BodyMemory::new(LIMITS.max_bytes);
    let mut reading = Box::pin(read(body, &memory));
    sender.unbounded_send(65 * KIB).unwrap();
    assert!(tokio::time::timeout(29 * SECOND, &mut reading).await.is_err());
    drop(sender);
    assert_eq!(reading.await.unwrap().bytes.len(), 65 * KIB);
}

#[tokio::test(start_paused = true)]
async fn slow_and_large_bodies_are_rejected() {
    let (_sender, body) = chunked_body();
    let error = read_body(body, LIMITS, None).await.unwrap_err();
    assert_eq!(error.to_string(), "the request body did not arrive within 30 seconds");
    let memory = BodyMemory::new(LIMITS.max_bytes);
    let chunks = stream::repeat_with(|| data(MIB)).take(4);
    let (streamed, declared) = (read(StreamBody::new(chunks), &memory).await, read(full(4 * MIB), &memory).await);
    for result in [streamed, declared] {
        assert!(matches!(result, Err(BodyError::TooLarge { max_bytes }) if max_bytes == LIMITS.max_bytes));
    }
    assert_eq!(memory.available_bytes(), LIMITS.max_bytes);
}

/// Columns: chunks, seconds before each, seconds until the end, whether the body is accepted. The limits are the gateway's.
#[rstest]
#[case::steady(10, 10, 100, true)]
#[case::stalled(2, 31, 30, false)]
#[case::slow(1000, 29, 135, false)]
#[tokio::test(start_paused = true)]
async fn body_must_arrive_in_time(
    #[case] chunks: u64,
    #[case] interval: u64,
    #[case] expected_seconds: u64,
    #[case] is_accepted: bool,
) {
    let frames = stream::unfold(0, move |index| async move {
        if index == chunks {
            return None;
        }
        tokio::time::sleep(Duration::from_secs(interval)).await;
        Some((data(1), index + 1))
    });
    let start = Instant::now();
    let limits = BodyLimits { timeout: Duration::from_secs(135), ..LIMITS };
    let result = read_body(StreamBody::new(Box::pin(frames)), limits, None).await;
    assert_eq!((start.elapsed().as_secs(), result.is_ok()), (expected_seconds, is_accepted));
}

/// After a message, nothing is reserved and nothing must arrive until the next one begins.
#[tokio::test(start_paused = true)]
async fn limits_apply_to_each_message() {
    let memory = BodyMemory::new(8 * MIB);
    let (sender, body) = chunked_body();
    let mut reader = BodyReader::new(body, LIMITS, Some(memory.clone()));
    sender.unbounded_send(1000).unwrap();
    reader.next_chunk().await.unwrap();
    let reservation = reader.take_reservation(900);
    assert_eq!(memory.available_bytes(), 8 * MIB - 900);
    drop(reservation);
    assert!(tokio::time::timeout(600 * SECOND, reader.next_chunk()).await.is_err(), "the stream may be idle");
    sender.unbounded_send(1000).unwrap();
    reader.next_chunk().await.unwrap();
    let start = Instant::now();
    assert!(matches!(reader.next_chunk().await, Err(BodyError::Timeout(_))));
    assert_eq!(start.elapsed(), 30 * SECOND);
}
