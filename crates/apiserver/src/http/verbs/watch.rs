//! GET with `watch=true`: a stream of JSON events, one per line.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use std::{mem, vec};

use apimachinery::{Status, catch_future_panic, object, time};
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, header};
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep};

use crate::async_worker;
use crate::http::path::RequestTarget;
use crate::http::representation;
use crate::http::request::ApiRequest;
use crate::http::response_format::ResponseFormat;
use crate::http::selection_predicate::SelectionPredicate;
use crate::resources::Resource;
use crate::server::Server;
use crate::store::{CompactedError, EventBatch, ListPage, NamespacedName, StoreEvent, StoredObject};
use crate::table::Table;
use crate::watch::CollectionCursor;
use crate::write::normalize;

/// Interval of bookmarks.
const BOOKMARK_INTERVAL: Duration = Duration::from_secs(60);

/// Default duration of a watch; kube-apiserver uses a random duration of 30 to 60 minutes.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(45 * 60);

/// Maximum number of events per batch, which bounds the memory of a watch with a slow client.
const MAX_BATCH: usize = 64;

/// Encoded size in bytes from which a batch of the initial state takes no further objects.
const MAX_INITIAL_BATCH_BYTES: usize = 256 * 1024;

/// Size in bytes of the objects after whose parsing other tasks of the worker continue: it takes about a millisecond. A
/// larger object is parsed outside of the worker.
const MAX_PARSED_BYTES: usize = 32 * 1024;

/// Time after a send during which further events are batched. With many watches of a collection, the cost per send
/// exceeds the cost per event. The first event after a pause is sent immediately.
const BATCH_INTERVAL: Duration = Duration::from_millis(5);

/// Size of an object in bytes from which its stored text is sent instead of a copy.
const SHARED_TEXT_BYTES: usize = 32 * 1024;

/// Encoded events to be sent.
#[derive(Default)]
struct WatchOutput {
    /// Complete chunks, which precede `text`.
    chunks: VecDeque<Bytes>,
    text: Vec<u8>,
}

/// State of a watch request.
struct Watch {
    server: Server,
    resource: Arc<Resource>,
    name: Option<String>,
    predicate: SelectionPredicate,
    format: ResponseFormat,
    has_sent_columns: bool,
    cursor: CollectionCursor,
    /// Objects of the initial state that have not been sent yet.
    initial_objects: vec::IntoIter<(Arc<NamespacedName>, Arc<StoredObject>)>,
    /// Revision of the initial state, if the end of the initial state is marked with a bookmark.
    initial_end_revision: Option<u64>,
    output: WatchOutput,
    /// Whether the next objects or events are already available. They are not delayed by the batch interval.
    is_behind: bool,
    /// End of the batch interval.
    batch_end: Instant,
    sends_bookmarks: bool,
    next_bookmark: Instant,
    end: Instant,
    /// Timer for the next bookmark or the end of the watch; created when first needed.
    timer: Option<Pin<Box<Sleep>>>,
    is_finished: bool,
}

pub(super) fn serve(server: &Server, target: &RequestTarget, request: &ApiRequest) -> Result<Response, Status> {
    if target.resource.create_only {
        return Err(Status::method_not_allowed());
    }
    let timeout = match request.query.number::<i64>("timeoutSeconds")? {
        None | Some(0) => DEFAULT_TIMEOUT,
        Some(seconds) => time::duration_from_seconds(seconds),
    };
    let requested_revision = request.query.check_watch_options()?.unwrap_or(0);
    let sends_initial = match request.query.get("sendInitialEvents") {
        Some(_) => request.query.flag("sendInitialEvents"),
        None => requested_revision == 0,
    };
    let snapshot = if sends_initial {
        server.store().list(&target.collection_key())
    } else {
        let revision = if requested_revision == 0 { server.store().revision() } else { requested_revision };
        ListPage { revision, objects: Vec::new(), remaining: 0 }
    };
    let start = snapshot.revision;
    let now = Instant::now();
    let mut watch = Watch {
        server: server.clone(),
        resource: Arc::clone(&target.resource),
        name: target.name.clone(),
        predicate: request.query.selection_predicate(&target.resource)?,
        format: request.format,
        has_sent_columns: false,
        cursor: CollectionCursor::new(server.store(), target.collection_key(), start),
        initial_objects: snapshot.objects.into_iter(),
        initial_end_revision: None,
        output: WatchOutput::default(),
        is_behind: false,
        batch_end: now,
        sends_bookmarks: request.query.flag("allowWatchBookmarks"),
        next_bookmark: instant_after(now, BOOKMARK_INTERVAL),
        end: instant_after(now, timeout),
        timer: None,
        is_finished: false,
    };
    // Clients that start without a resource version get a bookmark at the end of the initial state.
    let sends_initial_bookmark =
        request.query.flag("sendInitialEvents") || sends_initial && request.query.get("resourceVersion").is_none();
    watch.initial_end_revision = (sends_initial_bookmark && watch.sends_bookmarks).then_some(start);
    let events = stream::unfold(watch, |mut watch| async move {
        // The client of a watch that fails gets an end of the stream, after which it continues or lists again.
        let events = catch_future_panic(watch.next()).await.unwrap_or_else(|panic| {
            tracing::error!(%panic, "failed to encode the events of a watch");
            None
        });
        Some((Ok::<_, Infallible>(events?), watch))
    });
    let mut response = Response::new(Body::from_stream(events));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Returns the instant `duration` after `start`.
fn instant_after(start: Instant, duration: Duration) -> Instant {
    start.checked_add(duration).unwrap_or(start)
}

// === impl Watch ===

impl Watch {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(chunk) = self.output.next_chunk() {
                return Some(chunk);
            }
            if self.is_finished {
                return None;
            }
            // A batch of parsed objects takes about a millisecond: let other tasks of the worker continue.
            if mem::take(&mut self.is_behind) && self.parses_objects() {
                tokio::task::yield_now().await;
            }
            if self.send_initial_events() {
                self.is_behind = true;
                continue;
            }
            let deadline = if self.sends_bookmarks { self.next_bookmark.min(self.end) } else { self.end };
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            tokio::select! {
                // The order is fixed, so that a run on a virtual clock is reproducible.
                biased;
                () = timer => self.handle_timer(),
                events = Self::next_batch(&mut self.cursor, self.batch_end) => match events {
                    Ok(batch) => self.handle_events(&batch).await,
                    Err(compacted) => self.send_expired(compacted.oldest),
                },
            }
        }
    }

    /// Encodes the next part of the initial state; returns `false` once all of it has been encoded.
    fn send_initial_events(&mut self) -> bool {
        let (mut count, mut bytes_read) = (0, 0);
        let max_bytes_read = if self.parses_objects() { MAX_PARSED_BYTES } else { MAX_INITIAL_BATCH_BYTES };
        while count < MAX_BATCH
            && bytes_read < max_bytes_read
            && self.output.len() < MAX_INITIAL_BATCH_BYTES
            && let Some((_, object)) = self.initial_objects.next()
        {
            count += 1;
            bytes_read += object.json().len();
            self.process(object.json().len(), |watch| {
                if watch.is_selected(Some(&object)) {
                    watch.encode_event("ADDED", &object);
                }
            });
        }
        if count == 0
            && let Some(revision) = self.initial_end_revision.take()
        {
            self.encode_bookmark(revision, true);
            return true;
        }
        count > 0
    }

    /// Waits for the end of the batch interval and the next events. Cancel-safe.
    async fn next_batch(cursor: &mut CollectionCursor, start: Instant) -> Result<EventBatch, CompactedError> {
        if start > Instant::now() {
            tokio::time::sleep_until(start).await;
        }
        cursor.next(MAX_BATCH).await
    }

    /// Encodes events. Other tasks of the worker continue in between. Not cancel-safe.
    async fn handle_events(&mut self, batch: &EventBatch) {
        let mut bytes_read = 0_usize;
        for event in &batch.events {
            if bytes_read >= MAX_PARSED_BYTES && self.parses_objects() {
                tokio::task::yield_now().await;
                bytes_read = 0;
            }
            bytes_read += event.read_bytes();
            self.process(event.read_bytes(), |watch| watch.handle_event(event));
        }
        self.is_behind = batch.has_more;
        if !self.is_behind {
            self.batch_end = instant_after(Instant::now(), BATCH_INTERVAL);
        }
    }

    /// Processes objects of `bytes` bytes; outside of the async worker if parsing them takes long.
    fn process(&mut self, bytes: usize, work: impl FnOnce(&mut Self)) {
        if bytes >= MAX_PARSED_BYTES && self.parses_objects() {
            async_worker::leave(|| work(self));
        } else {
            work(self);
        }
    }

    fn handle_event(&mut self, event: &StoreEvent) {
        let (old, new) = (self.is_selected(event.old.as_ref()), self.is_selected(event.new.as_ref()));
        let encoded = match (old, new) {
            (false, true) => ("ADDED", event.new.as_ref()),
            (true, true) => ("MODIFIED", event.new.as_ref()),
            (true, false) if event.deleted.is_some() => ("DELETED", event.deleted.as_ref()),
            (true, false) => return self.encode_deselected(event),
            (false, false) => return,
        };
        if let (kind, Some(object)) = encoded {
            self.encode_event(kind, object);
        }
    }

    /// Encodes the DELETED event for an object that no longer matches the selectors: its previous state with the
    /// revision of the change.
    fn encode_deselected(&mut self, event: &StoreEvent) {
        if let Some(old) = &event.old {
            let mut deleted = Value::clone(&old.value());
            object::set_resource_version(&mut deleted, event.revision);
            self.encode_event("DELETED", &Arc::new(StoredObject::new(&Arc::new(deleted))));
        }
    }

    /// Reports whether events need the parsed object.
    fn parses_objects(&self) -> bool {
        let is_text = self.format == ResponseFormat::Object && representation::is_stored_representation(&self.resource);
        !is_text || self.name.is_some() || !self.predicate.selects_everything()
    }

    fn is_selected(&self, object: Option<&Arc<StoredObject>>) -> bool {
        let Some(object) = object else { return false };
        if self.name.is_none() && self.predicate.selects_everything() {
            return true;
        }
        let value = object.value();
        self.name.as_ref().is_none_or(|name| object::name(&value) == name)
            && self.predicate.matches(&representation::to_served_version(&self.resource, &value))
    }

    fn encode_event(&mut self, kind: &str, object: &Arc<StoredObject>) {
        if self.format == ResponseFormat::Object && representation::is_stored_representation(&self.resource) {
            return self.output.write_stored(kind, object);
        }
        let converted = representation::to_served_version(&self.resource, &object.value());
        let body = match self.format {
            ResponseFormat::Object => Value::clone(&converted),
            ResponseFormat::PartialObjectMetadata | ResponseFormat::PartialObjectMetadataList => {
                representation::partial_object_metadata(&converted)
            }
            ResponseFormat::Table => {
                let metadata = json!({"resourceVersion": object::resource_version(&converted)});
                let table = Table::new(&self.resource, self.server.now());
                // Only the first event of a watch contains the column definitions.
                table.render(&[converted], metadata, !mem::replace(&mut self.has_sent_columns, true))
            }
        };
        self.output.write(kind, body.to_string().as_bytes());
    }

    fn encode_bookmark(&mut self, revision: u64, end_of_initial: bool) {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if end_of_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.format {
            ResponseFormat::Table => {
                json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": null, "rows": []})
            }
            ResponseFormat::PartialObjectMetadata | ResponseFormat::PartialObjectMetadataList => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            ResponseFormat::Object => {
                let mut object = normalize::empty_object(&self.resource);
                object["kind"] = json!(self.resource.kind);
                object["apiVersion"] = json!(self.resource.api_version());
                object["metadata"] = metadata;
                object
            }
        };
        self.output.write("BOOKMARK", object.to_string().as_bytes());
    }

    fn handle_timer(&mut self) {
        let now = Instant::now();
        if self.sends_bookmarks {
            self.encode_bookmark(self.cursor.position(), false);
            self.next_bookmark = instant_after(now, BOOKMARK_INTERVAL);
        }
        self.is_finished = now >= self.end;
        self.timer = None;
    }

    /// Ends the watch with an ERROR event, so that the client relists.
    fn send_expired(&mut self, oldest: u64) {
        let message = format!("too old resource version: {} ({oldest})", self.cursor.position());
        self.output.write("ERROR", Status::expired(message).to_json().to_string().as_bytes());
        self.is_finished = true;
    }
}

// === impl WatchOutput ===

impl WatchOutput {
    /// Returns the next chunk to be sent, or `None` if everything was sent.
    fn next_chunk(&mut self) -> Option<Bytes> {
        let chunk = self.chunks.pop_front().unwrap_or_else(|| Bytes::from(mem::take(&mut self.text)));
        (!chunk.is_empty()).then_some(chunk)
    }

    /// Returns the number of bytes to be sent.
    fn len(&self) -> usize {
        self.chunks.iter().map(Bytes::len).sum::<usize>() + self.text.len()
    }

    /// Appends an event.
    fn write(&mut self, kind: &str, object: &[u8]) {
        self.write_start(kind);
        self.text.extend_from_slice(object);
        self.write_end();
    }

    /// Appends an event with the stored text of an object. Every watch of a large object sends the same text.
    fn write_stored(&mut self, kind: &str, object: &StoredObject) {
        if object.json().len() < SHARED_TEXT_BYTES {
            return self.write(kind, object.json());
        }
        self.write_start(kind);
        self.chunks.push_back(Bytes::from(mem::take(&mut self.text)));
        self.chunks.push_back(object.json_bytes());
        self.write_end();
    }

    fn write_start(&mut self, kind: &str) {
        for fragment in [br#"{"type":""#, kind.as_bytes(), br#"","object":"#] {
            self.text.extend_from_slice(fragment);
        }
    }

    fn write_end(&mut self) {
        self.text.extend_from_slice(b"}\n");
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use rstest::rstest;
    use tower::ServiceExt;

    use super::*;

    #[test]
    fn large_objects_are_sent_without_a_copy() {
        let small = StoredObject::new(&Arc::new(json!({"kind": "Small"})));
        let large = StoredObject::new(&Arc::new(json!({"kind": "L".repeat(SHARED_TEXT_BYTES)})));
        let mut output = WatchOutput::default();
        for (kind, object) in [("ADDED", &small), ("MODIFIED", &large), ("DELETED", &small)] {
            output.write_stored(kind, object);
        }
        let chunks: Vec<Bytes> = std::iter::from_fn(|| output.next_chunk()).collect();
        assert!(chunks.iter().any(|chunk| chunk.as_ptr() == large.json().as_ptr()));
        let text = chunks.concat();
        let events: Vec<Value> =
            text.split_inclusive(|byte| *byte == b'\n').map(|line| serde_json::from_slice(line).unwrap()).collect();
        let kinds: Vec<&str> = events.iter().filter_map(|event| event["type"].as_str()).collect();
        assert_eq!(kinds, ["ADDED", "MODIFIED", "DELETED"]);
        assert_eq!(events[1]["object"], *large.value());
    }

    #[rstest]
    #[case::sent(|text| json!({"metadata": {"annotations": {"a": text}}}))]
    #[case::omitted_from_the_response(|text| json!({"metadata": {}, "data": {"a": text}}))]
    #[tokio::test]
    async fn batches_of_the_initial_state_are_limited_in_bytes(#[case] large_field: fn(String) -> Value) {
        const COUNT: usize = 100;
        const OBJECT_BYTES: usize = 100 * 1024;
        let server = Server::new(&crate::ports::ServerPorts::default());
        for number in 0..COUNT {
            let mut object = large_field("x".repeat(OBJECT_BYTES));
            object["metadata"]["name"] = json!(format!("c{number}"));
            object["metadata"]["namespace"] = json!("default");
            server.create("configmaps", object).unwrap();
        }
        let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let request = http::Request::get("/api/v1/configmaps?watch=true").header("Accept", accept);
        let response = crate::http::router(&server).oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
        let mut body = response.into_body();
        let mut events = 0;
        while events < COUNT {
            let chunk = body.frame().await.unwrap().unwrap().into_data().unwrap();
            let count = memchr::memchr_iter(b'\n', &chunk).count();
            assert!(count <= MAX_INITIAL_BATCH_BYTES / OBJECT_BYTES + 1, "{count}");
            events += count;
        }
        assert_eq!(events, COUNT);
    }

    /// Creates ConfigMaps with values of `bytes` bytes.
    fn create_config_maps(server: &Server, prefix: &str, count: usize, bytes: usize) {
        for number in 0..count {
            let metadata = json!({"namespace": "default", "name": format!("{prefix}{number}"), "labels": {"a": "b"}});
            let object = json!({"metadata": metadata, "data": {"k": "x".repeat(bytes)}});
            server.create("configmaps", object).unwrap();
        }
    }

    /// Reads `count` events; returns how often other tasks could continue meanwhile, and the maximum number of events that
    /// were sent together.
    async fn read_events(body: &mut Body, count: usize) -> (usize, usize) {
        let (mut read, mut yields, mut max) = (0, 0, 0);
        while read < count {
            let mut frame = std::pin::pin!(body.frame());
            let frame = std::future::poll_fn(|context| {
                let poll = frame.as_mut().poll(context);
                yields += usize::from(poll.is_pending());
                poll
            });
            let chunk = frame.await.unwrap().unwrap().into_data().unwrap();
            let events = memchr::memchr_iter(b'\n', &chunk).count();
            (read, max) = (read + events, max.max(events));
        }
        assert_eq!(read, count);
        (yields, max)
    }

    /// A poll parses at most 32 KiB, or one larger object outside of the async worker.
    #[rstest]
    #[case::selector("labelSelector=a%3Db", "application/json")]
    #[case::table("watch=1", "application/json;as=Table;v=v1;g=meta.k8s.io")]
    #[tokio::test(start_paused = true)]
    async fn parsing_does_not_occupy_the_async_worker(#[case] query: &str, #[case] accept: &str) {
        const BYTES: usize = 10 * 1024;
        let server = Server::new(&crate::ports::ServerPorts::default());
        create_config_maps(&server, "initial", 40, BYTES);
        create_config_maps(&server, "large-initial", 2, 1024 * 1024);
        let uri = format!("/api/v1/namespaces/default/configmaps?watch=true&{query}");
        let request = http::Request::get(uri).header("Accept", accept).body(Body::empty()).unwrap();
        let response = crate::http::router(&server).oneshot(request).await.unwrap();
        let mut body = response.into_body();
        let leaves = || async_worker::LEAVE_COUNT.get();
        let before = leaves();
        let (yields, max) = read_events(&mut body, 42).await;
        assert!(yields >= 10 && max <= 4, "{yields} yields, at most {max} events");
        assert_eq!(leaves() - before, 2);

        create_config_maps(&server, "later", 20, BYTES);
        create_config_maps(&server, "large-later", 2, 1024 * 1024);
        let (yields, _) = read_events(&mut body, 22).await;
        assert!(yields >= 5, "{yields} yields");
        assert_eq!(leaves() - before, 4);
    }

    /// Without a selector, events contain the stored text.
    #[tokio::test(start_paused = true)]
    async fn stored_text_is_sent_by_the_async_worker() {
        let server = Server::new(&crate::ports::ServerPorts::default());
        create_config_maps(&server, "large", 2, 1024 * 1024);
        let request = http::Request::get("/api/v1/configmaps?watch=true").body(Body::empty()).unwrap();
        let mut body = crate::http::router(&server).oneshot(request).await.unwrap().into_body();
        let before = async_worker::LEAVE_COUNT.get();
        read_events(&mut body, 2).await;
        assert_eq!(async_worker::LEAVE_COUNT.get(), before);
    }
}
