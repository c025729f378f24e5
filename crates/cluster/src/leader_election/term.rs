//! A term of a leader: until when it may write, and a client that enforces it.
//!
//! The deadline of a term is measured by tokio's monotonic clock, so steps of the wall clock have no influence. The clock
//! stops while a machine is suspended, so a leader that is suspended between the last check and the sending of a write is
//! protected only by the difference of lease duration and renew deadline.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A term of a leader. Clones share the term; it ends when its deadline passes or when one of them ends it.
#[derive(Clone, Debug)]
pub(super) struct Term {
    state: Arc<TermState>,
}

/// State of a term.
#[derive(Debug)]
struct TermState {
    /// When the term ends unless the Lease is renewed.
    deadline: Mutex<Instant>,
    ended: CancellationToken,
    /// When a write last ended without a response: its sender stopped waiting, or the connection failed.
    last_unanswered_write: Mutex<Option<Instant>>,
}

/// Ends a term when it is dropped.
#[derive(Debug)]
pub(super) struct EndOnDrop(Term);

/// A write that was sent. It counts as unanswered if it is dropped before its response arrived.
struct UnansweredWrite<'a> {
    term: &'a Term,
    answered: bool,
}

/// A write was not sent because this replica does not lead anymore.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("this replica is no longer the leader")]
struct TermEnded;

// === impl Term ===

impl Term {
    /// Starts a term.
    pub(super) fn new(deadline: Instant) -> Term {
        let ended = CancellationToken::new();
        let last_unanswered_write = Mutex::new(None);
        Term { state: Arc::new(TermState { deadline: Mutex::new(deadline), ended, last_unanswered_write }) }
    }

    /// Extends the term to `deadline`. A term that has ended remains ended: another candidate may lead.
    pub(super) fn extend(&self, deadline: Instant) {
        let mut current = self.state.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        if Instant::now() < *current {
            *current = deadline.max(*current);
        }
    }

    /// Ends the term: no further write is sent, and writes in flight fail.
    pub(super) fn end(&self) {
        self.state.ended.cancel();
    }

    /// Returns a guard that ends the term when it is dropped.
    pub(super) fn end_on_drop(&self) -> EndOnDrop {
        EndOnDrop(self.clone())
    }

    /// Returns whether the term has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.state.ended.is_cancelled() || Instant::now() >= self.deadline()
    }

    /// Waits until the term has ended.
    pub(super) async fn ended(&self) {
        while !self.has_ended() {
            tokio::select! {
                () = self.state.ended.cancelled() => {}
                () = tokio::time::sleep_until(self.deadline()) => {}
            }
        }
    }

    /// Returns how long ago a write last ended without a response. The API server may still process it.
    pub(super) fn time_since_unanswered_write(&self) -> Option<Duration> {
        let last = self.state.last_unanswered_write.lock().unwrap_or_else(PoisonError::into_inner);
        last.map(|ended| ended.elapsed())
    }

    /// Returns a client whose writes are sent only during this term. A write in flight fails when the term ends. Reads are
    /// not restricted.
    pub(super) fn client(&self, client: &Client) -> Client {
        let (term, namespace) = (self.clone(), client.default_namespace().to_owned());
        let client = client.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (term, client) = (term.clone(), client.clone());
            async move {
                match *request.method() {
                    Method::GET | Method::HEAD | Method::OPTIONS => client.send(request).await,
                    _ => term.send_write(client.send(request)).await,
                }
            }
        });
        Client::new(service, namespace)
    }

    /// Polls `response` only during the term: it sends the request when it is polled for the first time, or later when it
    /// has a connection.
    async fn send_write(
        &self,
        response: impl Future<Output = Result<Response<Body>, kube::Error>>,
    ) -> Result<Response<Body>, kube::Error> {
        let (mut response, mut ended) = (pin!(response), pin!(self.ended()));
        let mut write = None;
        poll_fn(|context| {
            // The deadline is checked before every step of the request, even if its timer has not fired yet.
            if self.has_ended() || ended.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(kube::Error::Service(Box::new(TermEnded))));
            }
            let write = write.get_or_insert_with(|| UnansweredWrite { term: self, answered: false });
            let result = response.as_mut().poll(context);
            // After an error, such as a deadline, the API server may still process the write.
            write.answered = matches!(result, Poll::Ready(Ok(_)));
            result
        })
        .await
    }

    fn deadline(&self) -> Instant {
        *self.state.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl EndOnDrop ===

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

// === impl UnansweredWrite ===

impl Drop for UnansweredWrite<'_> {
    fn drop(&mut self) {
        if !self.answered {
            let mut last = self.term.state.last_unanswered_write.lock().unwrap_or_else(PoisonError::into_inner);
            *last = Some(Instant::now());
        }
    }
}
