//! GET with `watch=true`: one JSON object a line, as long as the client stays.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use apimachinery::status::Status;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use http::{HeaderValue, header};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Call;
use super::path::Target;
use super::query::Selection;
use super::respond::{self, Shape};
use crate::object;
use crate::resources::Resource;
use crate::server::Server;
use crate::store::Record;
use crate::table::Table;
use crate::watch::Cursor;
use crate::write::typed;

/// How often a client that asked for it learns the revision it may resume from.
const BOOKMARK: Duration = Duration::from_secs(60);

/// How long a watch lasts that did not say; kube-apiserver draws from 30 to 60 minutes.
const LONGEST: u64 = 2700;

struct Watch {
    server: Server,
    resource: Arc<Resource>,
    namespace: Option<String>,
    name: Option<String>,
    selection: Selection,
    shape: Shape,
    headed: bool,
    cursor: Cursor,
    pending: VecDeque<Bytes>,
    bookmarks: bool,
    next_bookmark: Instant,
    end: Instant,
    over: bool,
}

pub(super) fn serve(server: &Server, target: &Target, call: &Call) -> Result<Response, Status> {
    if target.resource.virtual_only {
        return Err(Status::method_not_allowed());
    }
    let seconds = call.query.number::<u64>("timeoutSeconds")?.unwrap_or(LONGEST);
    call.query.check_watch_versions()?;
    let from = call.query.revision()?.unwrap_or(0);
    let initial = from == 0 || call.query.flag("sendInitialEvents");
    let now = server.store().list(&target.resource.storage, target.namespace.as_deref());
    let start = if initial { now.revision } else { from };
    let mut watch = Watch {
        server: server.clone(),
        resource: Arc::clone(&target.resource),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        selection: call.query.selection(&target.resource)?,
        shape: call.shape,
        headed: false,
        cursor: Cursor::new(server.store(), start),
        pending: VecDeque::new(),
        bookmarks: call.query.flag("allowWatchBookmarks"),
        next_bookmark: Instant::now() + BOOKMARK,
        end: Instant::now() + Duration::from_secs(seconds),
        over: false,
    };
    if initial {
        now.objects.values().for_each(|object| watch.show("ADDED", object));
    }
    if call.query.flag("sendInitialEvents") && watch.bookmarks {
        watch.bookmark(start, true);
    }
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
            if let Some(line) = self.pending.pop_front() {
                return Some(line);
            }
            if self.over {
                return None;
            }
            let wake = if self.bookmarks { self.next_bookmark.min(self.end) } else { self.end };
            tokio::select! {
                records = self.cursor.next() => match records {
                    Ok(records) => records.iter().for_each(|record| self.record(record)),
                    Err(gone) => self.expire(gone.oldest),
                },
                () = tokio::time::sleep_until(wake) => self.tick(),
            }
        }
    }

    fn record(&mut self, record: &Record) {
        let key = &record.key;
        if key.resource != self.resource.storage || self.namespace.as_ref().is_some_and(|only| *only != key.namespace) {
            return;
        }
        let (old, new) = (self.wanted(record.old.as_ref()), self.wanted(record.new.as_ref()));
        match (old, new) {
            (false, true) => self.show_some("ADDED", record.new.as_ref()),
            (true, true) => self.show_some("MODIFIED", record.new.as_ref()),
            (true, false) if record.removed.is_some() => self.show_some("DELETED", record.removed.as_ref()),
            (true, false) => self.left(record),
            (false, false) => {}
        }
    }

    /// It no longer matches: gone for this client, as it was before, at the revision of the change.
    fn left(&mut self, record: &Record) {
        if let Some(old) = &record.old {
            let mut last = Value::clone(old);
            object::set_resource_version(&mut last, record.revision);
            self.emit("DELETED", &Arc::new(last));
        }
    }

    fn wanted(&self, object: Option<&Arc<Value>>) -> bool {
        object.is_some_and(|object| {
            self.name.as_ref().is_none_or(|name| object::name(object) == name)
                && self.selection.matches(&respond::present(&self.resource, object))
        })
    }

    fn show(&mut self, kind: &str, object: &Arc<Value>) {
        if self.wanted(Some(object)) {
            self.emit(kind, object);
        }
    }

    fn show_some(&mut self, kind: &str, object: Option<&Arc<Value>>) {
        if let Some(object) = object {
            self.emit(kind, object);
        }
    }

    fn emit(&mut self, kind: &str, object: &Arc<Value>) {
        let shown = respond::present(&self.resource, object);
        let body = match self.shape {
            Shape::Full => Value::clone(&shown),
            Shape::Metadata => respond::partial(&shown),
            Shape::Table => {
                let metadata = json!({"resourceVersion": object::resource_version(object)});
                let table = Table::new(&self.resource, self.server.now());
                // Only the first event of a watch carries the columns.
                table.render(&[shown], metadata, !std::mem::replace(&mut self.headed, true))
            }
        };
        self.line(kind, &body);
    }

    fn line(&mut self, kind: &str, object: &Value) {
        self.pending.push_back(Bytes::from(format!("{}\n", json!({"type": kind, "object": object}))));
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
            Shape::Metadata => {
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
        self.line("BOOKMARK", &object);
    }

    fn tick(&mut self) {
        let now = Instant::now();
        if self.bookmarks {
            self.bookmark(self.cursor.position(), false);
            self.next_bookmark = now + BOOKMARK;
        }
        self.over = now >= self.end;
    }

    /// Tells the client to list again, in the stream as kube-apiserver does.
    fn expire(&mut self, oldest: u64) {
        let message = format!("too old resource version: {} ({oldest})", self.cursor.position());
        self.line("ERROR", &Status::expired(message).to_json());
        self.over = true;
    }
}
