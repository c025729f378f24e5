//! A list as text, made from the texts of its items while it is sent: as a whole it would take as much room again as the
//! objects, and nobody could read its beginning before its end is there.

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

use crate::http::{present, respond};
use crate::resources::Resource;
use crate::store::{Collection, Kept, Place};

/// Length of a piece in bytes, about: of a list that is sent, no more than this is held as text at once.
const PIECE: usize = 64 * 1024;

/// What is still to be listed.
pub(super) enum Items {
    Picked(vec::IntoIter<Arc<Kept>>),
    /// A whole collection, behind a place.
    Whole(Arc<Collection>, Option<Arc<Place>>),
}

/// The pieces of a list.
struct Listing {
    resource: Arc<Resource>,
    form: Form,
    /// What stands before the first item, until it was written.
    head: Vec<u8>,
    items: Items,
    /// Some item was written.
    begun: bool,
    over: bool,
}

/// How the items of a list are made.
#[derive(Debug, Clone, Copy)]
enum Form {
    Text,
    /// Items of typed lists do not repeat their kind.
    TextWithoutKind,
    /// As another version, say, shows them.
    Tree,
}

/// A list that is one piece is sent as one, with its length.
pub(super) fn respond(resource: &Arc<Resource>, items: Items, metadata: &Value) -> Response {
    let (kind, version) = (json!(resource.list_kind), json!(resource.api_version()));
    let head = format!(r#"{{"kind":{kind},"apiVersion":{version},"metadata":{metadata},"items":["#);
    let (resource, form) = (Arc::clone(resource), Form::of(resource));
    let mut list = Listing { resource, form, head: head.into_bytes(), items, begun: false, over: false };
    let first = list.piece();
    if list.over {
        return respond::json_text(StatusCode::OK, first);
    }
    let pieces = iter::once(first).chain(list).map(Ok::<_, Infallible>);
    respond::json_text(StatusCode::OK, Body::from_stream(stream::iter(pieces)))
}

// === impl Form ===

impl Form {
    fn of(resource: &Resource) -> Self {
        match (present::is_shown_as_kept(resource), resource.custom) {
            (true, true) => Self::Text,
            (true, false) => Self::TextWithoutKind,
            (false, _) => Self::Tree,
        }
    }

    fn write(self, list: &mut Vec<u8>, resource: &Resource, kept: &Kept) {
        match self {
            Self::Text => list.extend_from_slice(kept.text()),
            Self::TextWithoutKind => {
                list.push(b'{');
                list.extend_from_slice(kept.rest());
            }
            Self::Tree => {
                let item = present::listed(resource, &present::present(resource, &kept.tree()));
                list.extend_from_slice(item.to_string().as_bytes());
            }
        }
    }
}

// === impl Items ===

impl Items {
    /// Passes them on until `take` has enough; whether that was so before their end.
    fn pass(&mut self, mut take: impl FnMut(&Kept) -> ControlFlow<()>) -> ControlFlow<()> {
        match self {
            Self::Picked(items) => items.try_for_each(|item| take(&item)),
            Self::Whole(objects, after) => {
                let from = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
                let mut rest = objects.range::<Place, _>((from, Bound::Unbounded));
                let last = rest.find(|(_, object)| take(object).is_break());
                let Some((place, _)) = last else { return ControlFlow::Continue(()) };
                *after = Some(Arc::clone(place));
                ControlFlow::Break(())
            }
        }
    }
}

// === impl Listing ===

impl Listing {
    fn piece(&mut self) -> Bytes {
        let mut text = Vec::with_capacity(PIECE + PIECE / 8);
        text.append(&mut self.head);
        let (resource, form, begun) = (&self.resource, self.form, &mut self.begun);
        let passed = self.items.pass(|item| {
            if mem::replace(begun, true) {
                text.push(b',');
            }
            form.write(&mut text, resource, item);
            if text.len() < PIECE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        if passed.is_continue() {
            self.over = true;
            text.extend_from_slice(b"]}");
        }
        Bytes::from(text)
    }
}

impl Iterator for Listing {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        (!self.over).then(|| self.piece())
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
        Picked,
        Whole,
    }

    /// The list and its length, where that was told at once.
    async fn listed(source: Source, count: usize, length: usize) -> (Value, Option<u64>) {
        let resource = Registry::builtin().by_name("configmaps").unwrap();
        let object =
            |number: usize| json!({"kind": "ConfigMap", "data": {"k": format!("{number}{}", "x".repeat(length))}});
        let items = (0..count).map(|number| Arc::new(Kept::new(&Arc::new(object(number)))));
        let items = match source {
            Source::Picked => Items::Picked(items.collect::<Vec<_>>().into_iter()),
            Source::Whole => {
                let place = |number: usize| Arc::new((String::new(), format!("{number:09}")));
                Items::Whole(Arc::new(items.enumerate().map(|(number, item)| (place(number), item)).collect()), None)
            }
        };
        let body = respond(&resource, items, &json!({"resourceVersion": "7"})).into_body();
        let told = http_body::Body::size_hint(&body).exact();
        let text = body.collect().await.unwrap().to_bytes();
        (serde_json::from_slice(&text).unwrap(), told)
    }

    #[rstest]
    #[case::empty(0, 0)]
    #[case::one(1, 10)]
    #[case::in_one_piece(20, 100)]
    #[case::in_many(100, 10_000)]
    #[case::each_longer_than_a_piece(3, 2 * PIECE)]
    #[tokio::test]
    async fn a_list_is_whole_however_many_pieces_it_takes(
        #[values(Source::Picked, Source::Whole)] source: Source,
        #[case] count: usize,
        #[case] length: usize,
    ) {
        let (list, told) = listed(source, count, length).await;
        assert_eq!((&list["kind"], &list["metadata"]["resourceVersion"]), (&json!("ConfigMapList"), &json!("7")));
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), count);
        for (number, item) in items.iter().enumerate() {
            assert_eq!(item, &json!({"data": {"k": format!("{number}{}", "x".repeat(length))}}));
        }
        assert_eq!(told.is_some(), count * length < PIECE / 2);
    }
}
