//! GET with `watch=true`: one JSON object a line, as long as the client stays.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use std::{mem, vec};

use apimachinery::status::Status;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, header};
use serde_json::{Value, json};
use tokio::time::{Instant, Sleep};

use crate::http::call::Call;
use crate::http::path::Target;
use crate::http::present;
use crate::http::selection::Selection;
use crate::http::shape::Shape;
use crate::object;
use crate::resources::Resource;
use crate::server::Server;
use crate::store::{Compacted, Kept, Place, Record, Snapshot};
use crate::table::Table;
use crate::watch::Follower;
use crate::write::typed;

/// How often a client that asked for it learns the revision it may resume from.
const BOOKMARK: Duration = Duration::from_secs(60);

/// How long a watch lasts that did not say; kube-apiserver draws from 30 to 60 minutes.
const LONGEST: u64 = 2700;

/// How many records or objects become text at once: a watch that is read slowly holds no more than that as text.
const AT_ONCE: usize = 64;

/// After a change was sent, those that come within this time are sent together: with many watches of one collection,
/// most of the work is in sending, whether it is one line or fifty. A change that comes alone is sent at once.
const GATHER: Duration = Duration::from_millis(5);

struct Watch {
    server: Server,
    resource: Arc<Resource>,
    name: Option<String>,
    selection: Selection,
    shape: Shape,
    headed: bool,
    follower: Follower,
    /// What is still to be shown of the state that the watch begins with.
    initial: vec::IntoIter<(Arc<Place>, Arc<Kept>)>,
    /// The revision of that state, where its end is to be told.
    initial_end: Option<u64>,
    /// Lines to be sent.
    pending: Vec<u8>,
    /// When more may be sent.
    gathered: Instant,
    bookmarks: bool,
    next_bookmark: Instant,
    end: Instant,
    /// Rings at the earlier of the two; set when it is first waited for.
    alarm: Option<Pin<Box<Sleep>>>,
    over: bool,
}

pub(super) fn serve(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    if target.resource.virtual_only {
        return Err(Status::method_not_allowed());
    }
    let seconds = call.query.number::<u64>("timeoutSeconds")?.unwrap_or(LONGEST);
    call.query.check_watch_versions()?;
    let from = call.query.revision()?.unwrap_or(0);
    let initial = match call.query.get("sendInitialEvents") {
        Some(_) => call.query.flag("sendInitialEvents"),
        None => from == 0,
    };
    let now = if initial {
        server.store().list(&target.scope())
    } else {
        let revision = if from == 0 { server.store().revision() } else { from };
        Snapshot { revision, objects: Vec::new(), rest: 0 }
    };
    let start = now.revision;
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut watch = Watch {
        server: server.clone(),
        resource: Arc::clone(&target.resource),
        name: target.name.clone(),
        selection: call.query.selection(&target.resource)?,
        shape: call.shape,
        headed: false,
        follower: Follower::new(server.store(), target.scope(), start),
        initial: now.objects.into_iter(),
        initial_end: None,
        pending: Vec::new(),
        gathered: Instant::now(),
        bookmarks: call.query.flag("allowWatchBookmarks"),
        next_bookmark: Instant::now() + BOOKMARK,
        end,
        alarm: None,
        over: false,
    };
    // Who does not say where to begin is told where the beginning ends.
    let is_told = call.query.flag("sendInitialEvents") || initial && call.query.get("resourceVersion").is_none();
    watch.initial_end = (is_told && watch.bookmarks).then_some(start);
    let lines = stream::unfold(watch, |mut watch| async move {
        let line = watch.next().await?;
        Some((Ok::<_, Infallible>(line), watch))
    });
    let mut response = Response::new(Body::from_stream(lines));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

// === impl Watch ===

impl Watch {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if !self.pending.is_empty() {
                return Some(Bytes::from(mem::take(&mut self.pending)));
            }
            if self.over {
                return None;
            }
            if self.begin() {
                continue;
            }
            let wake = if self.bookmarks { self.next_bookmark.min(self.end) } else { self.end };
            let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(wake)));
            tokio::select! {
                records = Self::gather(&mut self.follower, self.gathered) => match records {
                    Ok(records) => self.records(&records),
                    Err(gone) => self.expire(gone.oldest),
                },
                () = alarm => self.tick(),
            }
        }
    }

    /// Shows more of the state that the watch begins with; false when that is done.
    fn begin(&mut self) -> bool {
        let some: Vec<_> = self.initial.by_ref().take(AT_ONCE).collect();
        for (_, object) in &some {
            if self.wanted(Some(object)) {
                self.emit("ADDED", object);
            }
        }
        if some.is_empty()
            && let Some(revision) = self.initial_end.take()
        {
            self.bookmark(revision, true);
            return true;
        }
        !some.is_empty()
    }

    /// The next records, once their time has come. Cancel-safe.
    async fn gather(follower: &mut Follower, from: Instant) -> Result<Vec<Arc<Record>>, Compacted> {
        if from > Instant::now() {
            tokio::time::sleep_until(from).await;
        }
        follower.next(AT_ONCE).await
    }

    fn records(&mut self, records: &[Arc<Record>]) {
        records.iter().for_each(|record| self.record(record));
        // Who is behind does not wait.
        if records.len() < AT_ONCE {
            self.gathered = Instant::now() + GATHER;
        }
    }

    fn record(&mut self, record: &Record) {
        let (old, new) = (self.wanted(record.old.as_ref()), self.wanted(record.new.as_ref()));
        let shown = match (old, new) {
            (false, true) => ("ADDED", record.new.as_ref()),
            (true, true) => ("MODIFIED", record.new.as_ref()),
            (true, false) if record.removed.is_some() => ("DELETED", record.removed.as_ref()),
            (true, false) => return self.left(record),
            (false, false) => return,
        };
        if let (kind, Some(object)) = shown {
            self.emit(kind, object);
        }
    }

    /// It no longer matches: gone for this client, as it was before, at the revision of the change.
    fn left(&mut self, record: &Record) {
        if let Some(old) = &record.old {
            let mut last = Value::clone(&old.tree());
            object::set_resource_version(&mut last, record.revision);
            self.emit("DELETED", &Arc::new(Kept::new(&Arc::new(last))));
        }
    }

    fn wanted(&self, object: Option<&Arc<Kept>>) -> bool {
        let Some(object) = object else { return false };
        if self.name.is_none() && self.selection.is_everything() {
            return true;
        }
        let tree = object.tree();
        self.name.as_ref().is_none_or(|name| object::name(&tree) == name)
            && self.selection.matches(&present::present(&self.resource, &tree))
    }

    fn emit(&mut self, kind: &str, object: &Arc<Kept>) {
        if self.shape == Shape::Full && present::is_shown_as_kept(&self.resource) {
            return self.line(kind, object.text());
        }
        let shown = present::present(&self.resource, &object.tree());
        let body = match self.shape {
            Shape::Full => Value::clone(&shown),
            Shape::Metadata | Shape::MetadataList => present::partial(&shown),
            Shape::Table => {
                let metadata = json!({"resourceVersion": object::resource_version(&shown)});
                let table = Table::new(&self.resource, self.server.now());
                // Only the first event of a watch carries the columns.
                table.render(&[shown], metadata, !mem::replace(&mut self.headed, true))
            }
        };
        self.line(kind, body.to_string().as_bytes());
    }

    fn line(&mut self, kind: &str, object: &[u8]) {
        for part in [br#"{"type":""#, kind.as_bytes(), br#"","object":"#, object, b"}\n"] {
            self.pending.extend_from_slice(part);
        }
    }

    fn bookmark(&mut self, revision: u64, end_of_initial: bool) {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if end_of_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = match self.shape {
            Shape::Table => {
                json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": null, "rows": []})
            }
            Shape::Metadata | Shape::MetadataList => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Shape::Full => {
                let mut object = typed::blank(&self.resource);
                object["kind"] = json!(self.resource.kind);
                object["apiVersion"] = json!(self.resource.api_version());
                object["metadata"] = metadata;
                object
            }
        };
        self.line("BOOKMARK", object.to_string().as_bytes());
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if self.bookmarks {
            self.bookmark(self.follower.position(), false);
            self.next_bookmark = now + BOOKMARK;
        }
        self.over = now >= self.end;
        self.alarm = None;
    }

    /// Tells the client to list again, in the stream as kube-apiserver does.
    fn expire(&mut self, oldest: u64) {
        let message = format!("too old resource version: {} ({oldest})", self.follower.position());
        self.line("ERROR", Status::expired(message).to_json().to_string().as_bytes());
        self.over = true;
    }
}
