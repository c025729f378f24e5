//! Visits under way. Each thinks at once, in the order in which they begin, and then waits for the API server beside the
//! others.

use std::task::Poll;

use cluster::Error;
use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;

use crate::wake::Item;

/// Visits that wait for the API server at the same time: a large cluster's server gives one client about so many.
const MOST: usize = 8;

/// A visit that has ended: when to look again though nothing changes, or what went wrong.
pub(crate) type Visited = (Item, Result<Option<Timestamp>, Error>);

/// The visits that have begun and not ended.
#[derive(Default)]
pub(crate) struct Visits<'a> {
    running: FuturesUnordered<BoxFuture<'a, Visited>>,
}

// === impl Visits ===

impl<'a> Visits<'a> {
    /// Whether no more may begin now.
    pub(crate) fn are_full(&self) -> bool {
        self.running.len() >= MOST
    }

    /// Begins a visit: it goes on to its first request before anything else happens, or to its end.
    pub(crate) async fn begin(&mut self, mut visit: BoxFuture<'a, Visited>) -> Option<Visited> {
        match futures::poll!(visit.as_mut()) {
            Poll::Ready(visited) => Some(visited),
            Poll::Pending => {
                self.running.push(visit);
                None
            }
        }
    }

    /// One that has ended by now; the others go on.
    pub(crate) async fn ended(&mut self) -> Option<Visited> {
        match futures::poll!(self.running.next()) {
            Poll::Ready(visited) => visited,
            Poll::Pending => None,
        }
    }

    /// The next that ends; `None` when none is under way.
    pub(crate) async fn next(&mut self) -> Option<Visited> {
        self.running.next().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use std::sync::{Arc, Mutex};
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn visits_think_in_order_and_end_in_any() {
        let thought = Arc::new(Mutex::new(Vec::new()));
        let mut visits = Visits::default();
        let mut answers = Vec::new();
        for name in ["a", "b"] {
            let (answer, asked) = oneshot::channel::<()>();
            let thought = Arc::clone(&thought);
            let visit = async move {
                thought.lock().unwrap().push(name);
                asked.await.unwrap();
                (Item::Class(name.to_owned()), Ok(None))
            };
            assert!(visits.begin(visit.boxed()).await.is_none());
            answers.push(answer);
        }
        assert_eq!(*thought.lock().unwrap(), ["a", "b"]);
        assert!(visits.ended().await.is_none());
        answers.pop().unwrap().send(()).unwrap();
        assert_eq!(visits.ended().await.unwrap().0, Item::Class("b".to_owned()));
        answers.pop().unwrap().send(()).unwrap();
        assert_eq!(visits.next().await.unwrap().0, Item::Class("a".to_owned()));
        assert!(visits.next().await.is_none());
        let at_once = visits.begin(async { (Item::Offer, Ok(None)) }.boxed()).await;
        assert_eq!(at_once.unwrap().0, Item::Offer);
    }
}
