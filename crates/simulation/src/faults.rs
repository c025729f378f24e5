//! Faults of the connection between one process and the API server.

use std::fmt::{self, Display, Formatter};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Method, Request};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

/// What happens to one request instead of an immediate response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Fault {
    /// The API server receives the request after this time, even if the process no longer waits for it.
    Delay(Duration),
    /// The API server processes the request; the connection breaks before the response arrives.
    LostResponse,
    /// The API server rejects the request with this status code.
    Reject(u16),
    /// The API server receives the request and never responds; it does not process it.
    Unprocessed,
    /// The API server processes the request and never responds.
    Unanswered,
}

/// Requests that faults distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RequestClass {
    /// The first page of a list, or the read of one object.
    Read,
    /// A further page of a list.
    NextPage,
    /// The start of a watch.
    Watch,
    /// A write of the Lease.
    Lease,
    /// The creation or repetition of an Event.
    Event,
    /// Any other write.
    Write,
}

/// The faults of one process. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Faults of the next requests of a class, in order.
    armed: Vec<(RequestClass, Fault)>,
    /// Delay of the events of the watches whose path contains the text.
    watch_delays: Vec<(String, Duration)>,
    /// Maximum number of objects in a page of a list.
    page_size: Option<usize>,
    /// Ends the open watches.
    cut: CancellationToken,
}

// === impl Fault ===

impl Display for Fault {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Delay(delay) => write!(formatter, "delayed by {delay:?}"),
            Fault::LostResponse => write!(formatter, "response lost after the API server processed the request"),
            Fault::Reject(code) => write!(formatter, "rejected with {code}"),
            Fault::Unprocessed => write!(formatter, "neither processed nor answered"),
            Fault::Unanswered => write!(formatter, "processed without a response"),
        }
    }
}

// === impl RequestClass ===

impl RequestClass {
    /// Returns the class of a request.
    #[must_use]
    pub fn of<B>(request: &Request<B>) -> Self {
        let uri = request.uri();
        match *request.method() {
            Method::GET if uri.query().is_some_and(|query| query.contains("watch=true")) => Self::Watch,
            Method::GET if uri.query().is_some_and(|query| query.contains("continue=")) => Self::NextPage,
            Method::GET => Self::Read,
            _ if uri.path().contains("/leases") => Self::Lease,
            _ if uri.path().contains("/events") => Self::Event,
            _ => Self::Write,
        }
    }
}

// === impl Faults ===

impl Faults {
    /// Applies `fault` to each of the next `count` requests of `class`.
    pub fn arm(&self, class: RequestClass, fault: Fault, count: usize) {
        self.state().armed.extend(std::iter::repeat_n((class, fault), count));
    }

    /// Delays the events of all watches whose path contains `resource` from now on, so that they arrive after those of other
    /// kinds.
    pub fn delay_watches(&self, resource: String, delay: Duration) {
        self.state().watch_delays.push((resource, delay));
    }

    /// Divides lists into pages of `size` objects from now on.
    pub fn limit_pages(&self, size: usize) {
        self.state().page_size = Some(size);
    }

    /// Ends all open watches.
    pub fn cut_watches(&self) {
        std::mem::take(&mut self.state().cut).cancel();
    }

    /// Ends all faults.
    pub fn clear(&self) {
        let mut state = self.state();
        state.armed.clear();
        state.watch_delays.clear();
        state.page_size = None;
    }

    /// Returns the fault of the next request of `class`.
    pub(crate) fn take(&self, class: RequestClass) -> Option<Fault> {
        let mut state = self.state();
        let index = state.armed.iter().position(|(armed, _)| *armed == class)?;
        Some(state.armed.remove(index).1)
    }

    /// Returns the delay of the events of a watch.
    pub(crate) fn watch_delay(&self, path: &str) -> Duration {
        let state = self.state();
        let delays = state.watch_delays.iter().filter(|(resource, _)| path.contains(resource.as_str()));
        delays.map(|(_, delay)| *delay).max().unwrap_or_default()
    }

    /// Returns the maximum number of objects in a page of a list.
    pub(crate) fn page_size(&self) -> Option<usize> {
        self.state().page_size
    }

    /// Returns the token that ends a watch that starts now.
    pub(crate) fn cut_token(&self) -> CancellationToken {
        self.state().cut.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
