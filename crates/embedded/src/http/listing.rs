//! A list as text, made from the texts of its items while it is sent: as a whole it would take as much room again as the
//! objects, and nobody could read its beginning before its end is there.

use std::convert::Infallible;
use std::sync::Arc;
use std::{iter, mem, vec};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::stream;
use http::StatusCode;
use serde_json::{Value, json};

use super::respond;
use crate::resources::Resource;
use crate::store::Kept;

/// Length of a piece in bytes, about.
const PIECE: usize = 64 * 1024;

/// The pieces of a list.
struct Listing {
    resource: Arc<Resource>,
    items: vec::IntoIter<Arc<Kept>>,
    /// What stands before the next item.
    before: Vec<u8>,
    over: bool,
}

/// A list that is one piece is sent as one, with its length.
pub(super) fn respond(resource: &Arc<Resource>, items: Vec<Arc<Kept>>, metadata: &Value) -> Response {
    let (kind, version) = (json!(resource.list_kind), json!(resource.api_version()));
    let head = format!(r#"{{"kind":{kind},"apiVersion":{version},"metadata":{metadata},"items":["#);
    let resource = Arc::clone(resource);
    let mut list = Listing { resource, items: items.into_iter(), before: head.into_bytes(), over: false };
    let first = list.piece();
    if list.over {
        return respond::json_text(StatusCode::OK, first);
    }
    let pieces = iter::once(first).chain(list).map(Ok::<_, Infallible>);
    respond::json_text(StatusCode::OK, Body::from_stream(stream::iter(pieces)))
}

// === impl Listing ===

impl Listing {
    fn piece(&mut self) -> Bytes {
        let mut text = Vec::with_capacity(PIECE + PIECE / 8);
        while text.len() < PIECE {
            text.append(&mut mem::take(&mut self.before));
            let Some(item) = self.items.next() else {
                self.over = true;
                text.extend_from_slice(b"]}");
                break;
            };
            respond::write_listed(&mut text, &self.resource, &item);
            if self.items.len() > 0 {
                self.before.push(b',');
            }
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

    /// The list and its length, where that was told at once.
    async fn listed(count: usize, length: usize) -> (Value, Option<u64>) {
        let resource = Registry::builtin().by_name("configmaps").unwrap();
        let object =
            |number: usize| json!({"kind": "ConfigMap", "data": {"k": format!("{number}{}", "x".repeat(length))}});
        let items = (0..count).map(|number| Arc::new(Kept::new(&Arc::new(object(number))))).collect();
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
    #[case::each_longer_than_a_piece(3, 100_000)]
    #[tokio::test]
    async fn a_list_is_whole_however_many_pieces_it_takes(#[case] count: usize, #[case] length: usize) {
        let (list, told) = listed(count, length).await;
        assert_eq!((&list["kind"], &list["metadata"]["resourceVersion"]), (&json!("ConfigMapList"), &json!("7")));
        let items = list["items"].as_array().unwrap();
        assert_eq!(items.len(), count);
        for (number, item) in items.iter().enumerate() {
            assert_eq!(item, &json!({"data": {"k": format!("{number}{}", "x".repeat(length))}}));
        }
        assert_eq!(told.is_some(), count * length < PIECE / 2);
    }
}
