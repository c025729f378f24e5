//! Encodes a list incrementally while it is sent, from the stored JSON of its items. Encoding the entire list first
//! would double the memory usage and delay the first byte until the last item is encoded.

use std::convert::Infallible;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::{iter, mem, vec};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use http::StatusCode;
use serde_json::{Value, json};

use crate::http::{representation, response};
use crate::resources::Resource;
use crate::store::{Collection, NamespacedName, StoredObject};

/// Approximate chunk size in bytes, which bounds the encoded part of a list in memory.
const CHUNK_BYTES: usize = 64 * 1024;

/// Remaining items of a list.
pub(super) enum ListItems {
    /// The given objects.
    Selected(vec::IntoIter<Arc<StoredObject>>),
    /// All objects of a collection after the given key, or from the start if it is `None`.
    Collection(Arc<Collection>, Option<Arc<NamespacedName>>),
}

/// Iterator over the chunks of a list.
struct ListBody {
    resource: Arc<Resource>,
    encoding: ItemEncoding,
    /// JSON that precedes the first item; empty once written.
    head: Vec<u8>,
    items: ListItems,
    /// Whether an item has been written.
    has_items: bool,
    is_finished: bool,
}

/// Encoding of list items.
#[derive(Debug, Clone, Copy)]
enum ItemEncoding {
    /// Stored JSON.
    StoredJson,
    /// Stored JSON without `apiVersion` and `kind`, as in lists of built-in kinds.
    StoredJsonWithoutTypeMeta,
    /// The converted object, encoded as JSON.
    Converted,
}

/// Returns the response. A list that fits in one chunk is sent with a content length.
pub(super) fn respond(resource: &Arc<Resource>, items: ListItems, metadata: &Value) -> Response {
    let (kind, version) = (json!(resource.list_kind), json!(resource.api_version()));
    let head = format!(r#"{{"kind":{kind},"apiVersion":{version},"metadata":{metadata},"items":["#);
    let (resource, encoding) = (Arc::clone(resource), ItemEncoding::for_resource(resource));
    let mut list =
        ListBody { resource, encoding, head: head.into_bytes(), items, has_items: false, is_finished: false };
    let first = list.next_chunk();
    if list.is_finished {
        return response::json_response(StatusCode::OK, first);
    }
    let chunks = iter::once(first).chain(list).map(Ok::<_, Infallible>);
    response::json_response(StatusCode::OK, Body::from_stream(stream::iter(chunks)))
}

// === impl ItemEncoding ===

impl ItemEncoding {
    fn for_resource(resource: &Resource) -> Self {
        match (representation::is_stored_representation(resource), resource.custom) {
            (true, true) => Self::StoredJson,
            (true, false) => Self::StoredJsonWithoutTypeMeta,
            (false, _) => Self::Converted,
        }
    }

    fn write(self, list: &mut Vec<u8>, resource: &Resource, stored: &StoredObject) {
        match self {
            Self::StoredJson => list.extend_from_slice(stored.json()),
            Self::StoredJsonWithoutTypeMeta => {
                list.push(b'{');
                list.extend_from_slice(stored.body_after_type_meta());
            }
            Self::Converted => {
                let item =
                    representation::list_item(resource, &representation::to_served_version(resource, &stored.value()));
                list.extend_from_slice(item.to_string().as_bytes());
            }
        }
    }
}

// === impl ListItems ===

impl ListItems {
    /// Passes items to `consume` until it returns `Break`; returns `Continue` if all items were consumed.
    fn try_for_each(&mut self, mut consume: impl FnMut(&StoredObject) -> ControlFlow<()>) -> ControlFlow<()> {
        match self {
            Self::Selected(items) => items.try_for_each(|item| consume(&item)),
            Self::Collection(objects, after) => {
                let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let mut rest = objects.range::<NamespacedName, _>((from, Bound::Unbounded));
                let last = rest.find(|(_, object)| consume(object).is_break());
                let Some((key, _)) = last else { return ControlFlow::Continue(()) };
                *after = Some(Arc::clone(key));
                ControlFlow::Break(())
            }
        }
    }
}

// === impl ListBody ===

impl ListBody {
    fn next_chunk(&mut self) -> Bytes {
        let mut text = Vec::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 8);
        text.append(&mut self.head);
        let (resource, encoding, has_items) = (&self.resource, self.encoding, &mut self.has_items);
        let result = self.items.try_for_each(|item| {
            if mem::replace(has_items, true) {
                text.push(b',');
            }
            encoding.write(&mut text, resource, item);
            if text.len() < CHUNK_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if result.is_continue() {
            self.is_finished = true;
            text.extend_from_slice(b"]}");
        }
        Bytes::from(text)
    }
}

impl Iterator for ListBody {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        (!self.is_finished).then(|| self.next_chunk())
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use rstest::rstest;

    use super::*;
    use crate::resources::Registry;

    #[derive(Clone, Copy)]
    enum Source {
        Selected,
        Collection,
    }

    /// Returns the list and its content length, if the response has one.
    async fn encode_list(source: Source, count: usize, length: usize) -> (Value, Option<u64>) {
        let resource = Registry::builtin().by_name("configmaps").unwrap();
        let object =
            |number: usize| json!({"kind": "ConfigMap", "data": {"k": format!("{number}{}", "x".repeat(length))}});
        let items = (0..count).map(|number| Arc::new(StoredObject::new(&Arc::new(object(number)))));
        let items = match source {
            Source::Selected => ListItems::Selected(items.collect::<Vec<_>>().into_iter()),
            Source::Collection => {
                let key = |number: usize| Arc::new((String::new(), format!("{number:09}")));
                ListItems::Collection(
                    Arc::new(items.enumerate().map(|(number, item)| (key(number), item)).collect()),
                    None,
                )
            }
        };
        let body = respond(&resource, items, &json!({"resourceVersion": "7"})).into_body();
        let content_length = http_body::Body::size_hint(&body).exact();
        let text = body.collect().await.unwrap().to_bytes();
        (serde_json::from_slice(&text).unwrap(), content_length)
    }

    #[rstest]
    #[case::empty(0, 0)]
    #[case::single_item(1, 10)]
    #[case::one_chunk(20, 100)]
    #[case::many_chunks(100, 10_000)]
    #[case::items_larger_than_a_chunk(3, 2 * CHUNK_BYTES)]
    #[tokio::test]
    async fn encodes_complete_list_in_chunks(
        #[values(Source::Selected, Source::Collection)] source: Source,
        #[case] count: usize,
        #[case] length: usize,
    ) {
        let (list, content_length) = encode_list(source, count, length).await;
        assert_eq!((&list["kind"], &list["metadata"]["resourceVersion"]), (&json!("ConfigMapList"), &json!("7")));
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), count);
        for (number, item) in items.iter().enumerate() {
            assert_eq!(item, &json!({"data": {"k": format!("{number}{}", "x".repeat(length))}}));
        }
        assert_eq!(content_length.is_some(), count * length < CHUNK_BYTES / 2);
    }
}
