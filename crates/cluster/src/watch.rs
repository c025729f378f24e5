//! Watches that keep the caches up to date: one per kind, or per kind and namespace, started and stopped as the kind is
//! installed and removed.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use kube::Client;
use kube::core::DynamicObject;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::Value;
use supervisor::Supervisor;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Kind;
use crate::error_chain::error_chain;
use crate::integrations::CUSTOM_RESOURCE_DEFINITION;
use crate::namespaced_name::NamespacedName;
use crate::stores::{Change, Changes, ListError, Stores};

/// Maximum number of changes that are buffered for the receiver: 48 MiB, since etcd limits an object to 1.5 MiB. When the buffer
/// is full, the watches wait for the receiver; no change is lost.
const CHANNEL_CAPACITY: usize = 32;
/// Objects per page of a list. A whole page is held in memory as parsed JSON.
const PAGE_SIZE: u32 = 100;
/// CustomResourceDefinitions per page: they are hundreds of times larger than other objects.
const DEFINITION_PAGE_SIZE: u32 = 4;
/// How long [`Watches::have_synced`] waits for a list that the API server rejects: a forbidden kind or namespace must not
/// block the others. There is no limit for a server that is slow or does not respond, since a decision based on an incomplete
/// cache may be permanent; only an optional kind does not block the others then either.
const FAILED_LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// Status code of the response about a kind that is not served.
const NOT_FOUND: u16 = 404;

/// The watches of one kind.
struct RunningWatch {
    is_optional: bool,
    /// Progress of the first list, by namespace; the empty name is a watch of the whole kind.
    first_lists: BTreeMap<String, Arc<FirstList>>,
    shutdown: CancellationToken,
}

/// Progress of the first list of one watch.
#[derive(Debug, Default)]
struct FirstList(Mutex<FirstListState>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct FirstListState {
    is_complete: bool,
    /// Whether objects have arrived since the last failure.
    is_in_progress: bool,
    /// When an attempt failed for the first time, for any reason.
    first_failure: Option<Instant>,
    /// When the API server rejected the list for the first time.
    first_rejection: Option<Instant>,
    /// Why the last attempt failed.
    error: Option<ListError>,
}

/// A watch whose first list is not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsyncedWatch {
    /// The watched kind.
    pub kind: Kind,
    /// The watched namespace; empty for a watch of the whole kind.
    pub namespace: String,
    /// Why the API server rejected the last attempt to list the objects, if it did.
    pub error: Option<String>,
}

/// The running watches.
pub struct Watches {
    client: Client,
    stores: Stores,
    changes: mpsc::Sender<Change>,
    running: BTreeMap<Kind, RunningWatch>,
    supervisor: Supervisor,
    shutdown: CancellationToken,
    /// Namespaces in which namespaced kinds are watched; empty: all.
    namespaces: Vec<String>,
}

/// The cache that one watch keeps up to date.
#[derive(Clone)]
struct WatchedCache {
    kind: Kind,
    /// Namespace of the watch; empty if no other watch updates the cache.
    namespace: String,
    stores: Stores,
    changes: mpsc::Sender<Change>,
    first_list: Arc<FirstList>,
    /// Whether a failure that repeats is expected.
    is_optional: bool,
}

// === impl Watches ===

impl Watches {
    /// Returns an empty set of watches and a receiver of changes. The caches contain a change before it is sent. A watch
    /// that panics is restarted by `supervisor` and lists its objects again.
    #[must_use]
    pub fn new(
        client: Client,
        stores: Stores,
        supervisor: Supervisor,
        shutdown: CancellationToken,
    ) -> (Watches, mpsc::Receiver<Change>) {
        let (changes, receiver) = mpsc::channel(CHANNEL_CAPACITY);
        let (running, namespaces) = (BTreeMap::new(), Vec::new());
        (Watches { client, stores, changes, running, supervisor, shutdown, namespaces }, receiver)
    }

    /// Restricts the watches of namespaced kinds that are started from now on to `namespaces`, unless the list is empty.
    pub fn restrict_to(&mut self, namespaces: &[String]) {
        self.namespaces = namespaces.to_vec();
    }

    /// Starts the watch of `kind`, in every namespace or in those of [`Self::restrict_to`]. Returns false if a watch of
    /// `kind` is already running.
    pub fn start(&mut self, kind: Kind) -> bool {
        self.start_in_namespaces(kind, false)
    }

    /// Starts the watch of `kind` like [`Self::start`]. No decision depends on the kind: [`Self::have_synced`] waits 10
    /// seconds for it if its list fails for any reason, for example because a conversion webhook does not respond.
    pub fn start_optional(&mut self, kind: Kind) -> bool {
        self.start_in_namespaces(kind, true)
    }

    fn start_in_namespaces(&mut self, kind: Kind, is_optional: bool) -> bool {
        let config = watcher::Config::default();
        let selector = kind.label_selector;
        let config = if selector.is_empty() { config } else { config.labels(selector) };
        if !kind.namespaced || self.namespaces.is_empty() {
            let api = kube::Api::all_with(self.client.clone(), &kind.api_resource());
            return self.spawn(kind, BTreeMap::from([(String::new(), api)]), config, is_optional);
        }
        let api = |namespace: &String| (namespace.clone(), kind.api(self.client.clone(), namespace));
        let apis = self.namespaces.iter().map(api).collect();
        self.spawn(kind, apis, config, is_optional)
    }

    /// Starts a watch of one object of a namespaced `kind`, for kinds with many objects or without permission to list all
    /// of them. Returns false if a watch of `kind` is already running.
    pub fn start_named(&mut self, kind: Kind, key: &NamespacedName) -> bool {
        self.spawn_named(kind, key, false)
    }

    /// Starts a watch like [`Self::start_named`]; the kind may be absent, or the permission to read it.
    pub fn start_optional_named(&mut self, kind: Kind, key: &NamespacedName) -> bool {
        self.spawn_named(kind, key, true)
    }

    /// Starts a watch of the objects with one name in several namespaces; in all if the list is empty. Returns false if a watch
    /// of `kind` is already running.
    pub fn start_named_in(&mut self, kind: Kind, name: &str, namespaces: &BTreeSet<String>) -> bool {
        let apis = if namespaces.is_empty() {
            BTreeMap::from([(String::new(), kube::Api::all_with(self.client.clone(), &kind.api_resource()))])
        } else {
            let api = |namespace: &String| (namespace.clone(), kind.api(self.client.clone(), namespace));
            namespaces.iter().map(api).collect()
        };
        self.spawn(kind, apis, watcher::Config::default().fields(&format!("metadata.name={name}")), false)
    }

    fn spawn_named(&mut self, kind: Kind, key: &NamespacedName, is_optional: bool) -> bool {
        let api = kind.api(self.client.clone(), &key.namespace);
        let config = watcher::Config::default().fields(&format!("metadata.name={}", key.name));
        self.spawn(kind, BTreeMap::from([(String::new(), api)]), config, is_optional)
    }

    /// Starts a watch of a namespaced `kind` in one namespace, for service accounts that may read no other namespace.
    /// Returns false if a watch of `kind` is already running.
    pub fn start_namespace(&mut self, kind: Kind, namespace: &str) -> bool {
        self.spawn_namespace(kind, namespace, false)
    }

    /// Starts a watch like [`Self::start_namespace`]; the kind may be absent, or the permission to read it.
    pub fn start_optional_namespace(&mut self, kind: Kind, namespace: &str) -> bool {
        self.spawn_namespace(kind, namespace, true)
    }

    fn spawn_namespace(&mut self, kind: Kind, namespace: &str, is_optional: bool) -> bool {
        let api = kind.api(self.client.clone(), namespace);
        self.spawn(kind, BTreeMap::from([(String::new(), api)]), watcher::Config::default(), is_optional)
    }

    /// Starts one watch per entry of `apis`. The keys are the namespaces whose objects the watch replaces in the cache when
    /// it lists; the empty name replaces the whole cache.
    fn spawn(
        &mut self,
        kind: Kind,
        apis: BTreeMap<String, kube::Api<DynamicObject>>,
        config: watcher::Config,
        is_optional: bool,
    ) -> bool {
        if self.running.contains_key(&kind) {
            return false;
        }
        let page_size = if kind == CUSTOM_RESOURCE_DEFINITION { DEFINITION_PAGE_SIZE } else { PAGE_SIZE };
        let config = config.page_size(page_size);
        let shutdown = self.shutdown.child_token();
        self.stores.add_kind(kind, apis.keys().cloned().collect());
        let mut first_lists = BTreeMap::new();
        for (namespace, api) in apis {
            let first_list = Arc::<FirstList>::default();
            first_lists.insert(namespace.clone(), Arc::clone(&first_list));
            let (stores, changes) = (self.stores.clone(), self.changes.clone());
            let task_name = task_name(kind, &namespace);
            let cache = WatchedCache { kind, namespace, stores, changes, first_list, is_optional };
            let (config, stop) = (config.clone(), shutdown.clone());
            let start = move || run(api.clone(), config.clone(), cache.clone(), stop.clone());
            tokio::spawn(self.supervisor.supervise(task_name, shutdown.clone(), start));
        }
        self.running.insert(kind, RunningWatch { is_optional, first_lists, shutdown });
        true
    }

    /// Stops the watch of `kind` and empties its cache. Returns the cached objects as deleted.
    #[must_use]
    pub fn stop(&mut self, kind: Kind) -> Changes {
        if let Some(watch) = self.running.remove(&kind) {
            watch.shutdown.cancel();
        }
        self.stores.remove_kind(kind)
    }

    /// Returns whether the first list of every running watch is complete, or has been rejected for 10 seconds. For an
    /// optional kind, every failure counts as a rejection.
    #[must_use]
    pub fn have_synced(&self) -> bool {
        let now = Instant::now();
        self.running
            .values()
            .all(|watch| watch.first_lists.values().all(|list| !list.state().is_awaited(watch.is_optional, now)))
    }

    /// Returns the watches whose first list is not complete, in order of kind and namespace. Unlike
    /// [`Self::have_synced`], it retains lists that have been rejected for 10 seconds, unless the kind is optional or not
    /// served.
    #[must_use]
    pub fn unsynced(&self) -> Vec<UnsyncedWatch> {
        let now = Instant::now();
        let mut unsynced = Vec::new();
        for (kind, watch) in &self.running {
            for (namespace, list) in &watch.first_lists {
                let state = list.state();
                if state.is_missing(watch.is_optional, now) {
                    let rejection = state.error.as_ref().filter(|error| is_rejection(error));
                    let error = rejection.map(|error| error.message.clone());
                    unsynced.push(UnsyncedWatch { kind: *kind, namespace: namespace.clone(), error });
                }
            }
        }
        unsynced
    }

    /// Returns the optional kinds whose first list the API server has neither completed nor rejected, in their order. Unlike
    /// [`Self::have_synced`], it does not wait after a rejection: the kind may be absent for good.
    #[must_use]
    pub fn unanswered_optional_kinds(&self) -> Vec<Kind> {
        let now = Instant::now();
        let is_unanswered = |(_, watch): &(&Kind, &RunningWatch)| {
            watch.is_optional && watch.first_lists.values().any(|list| list.state().is_unanswered(now))
        };
        self.running.iter().filter(is_unanswered).map(|(kind, _)| *kind).collect()
    }

    /// Returns whether a watch of `kind` is running.
    #[must_use]
    pub fn is_running(&self, kind: Kind) -> bool {
        self.running.contains_key(&kind)
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.running.values().for_each(|watch| watch.shutdown.cancel());
    }
}

// === impl FirstList ===

impl FirstList {
    fn state(&self) -> MutexGuard<'_, FirstListState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut FirstListState)) {
        change(&mut self.state());
    }
}

// === impl FirstListState ===

impl FirstListState {
    /// Returns whether [`Watches::have_synced`] waits for the list.
    fn is_awaited(&self, is_optional: bool, now: Instant) -> bool {
        let failure = if is_optional { self.first_failure } else { self.first_rejection };
        let is_in_time = failure.is_none_or(|failure| now.duration_since(failure) < FAILED_LIST_TIMEOUT);
        !self.is_complete && (self.is_in_progress || is_in_time)
    }

    /// Returns whether [`Watches::unsynced`] contains the list.
    fn is_missing(&self, is_optional: bool, now: Instant) -> bool {
        // A kind that is not served has no objects.
        let is_absent = self.error.as_ref().is_some_and(|error| error.code == Some(NOT_FOUND));
        if is_optional || is_absent { self.is_awaited(is_optional, now) } else { !self.is_complete }
    }

    /// Returns whether [`Watches::unanswered_optional_kinds`] contains the kind of the list.
    fn is_unanswered(&self, now: Instant) -> bool {
        self.is_awaited(true, now) && !self.error.as_ref().is_some_and(is_rejection)
    }

    /// Records that an attempt failed; `error` is the response of the API server or of the request, if any.
    fn record_failure(&mut self, error: Option<ListError>, now: Instant) {
        self.is_in_progress = false;
        self.first_failure.get_or_insert(now);
        if error.as_ref().is_some_and(is_rejection) {
            self.first_rejection.get_or_insert(now);
        }
        self.error = error;
    }
}

// === impl WatchedCache ===

impl WatchedCache {
    /// Records the start of the watch. A first list that was in progress has ended with a panic.
    fn begin(&self) {
        self.first_list.update(|state| {
            if state.is_in_progress && !state.is_complete {
                state.record_failure(None, Instant::now());
            }
        });
    }

    fn apply_event(&self, event: watcher::Event<DynamicObject>) -> Changes {
        use watcher::Event;
        let (is_listed, is_complete) = (matches!(event, Event::InitApply(_)), matches!(event, Event::InitDone));
        let event = match event {
            Event::Apply(object) => Event::Apply(to_json(object)),
            Event::Delete(object) => Event::Delete(to_json(object)),
            Event::InitApply(object) => Event::InitApply(to_json(object)),
            Event::Init => Event::Init,
            Event::InitDone => Event::InitDone,
        };
        let changes = self.stores.apply_namespace_event(self.kind, &self.namespace, event);
        if is_listed || is_complete {
            self.first_list.update(|state| {
                state.is_in_progress = true;
                state.error = None;
                state.is_complete |= is_complete;
            });
        }
        changes
    }

    fn record_error(&self, error: &watcher::Error) {
        let list_error = list_error(error);
        let is_repeated = self.is_optional && self.first_list.state().error.as_ref() == Some(&list_error);
        self.first_list.update(|state| state.record_failure(Some(list_error.clone()), Instant::now()));
        self.stores.record_list_error(self.kind, list_error);
        let (resource, namespace) = (self.kind.group_resource(), &self.namespace);
        if is_repeated {
            return tracing::debug!(resource, namespace, error = %error_chain(error), "watch failed again, retrying");
        }
        tracing::warn!(resource, namespace, error = %error_chain(error), "watch failed, retrying");
    }
}

/// Returns the name of a watch for logs, probes and errors.
fn task_name(kind: Kind, namespace: &str) -> String {
    match namespace {
        "" => format!("watch of {}", kind.group_resource()),
        namespace => format!("watch of {} in namespace {namespace}", kind.group_resource()),
    }
}

/// Lists and watches objects until `shutdown`.
async fn run(api: kube::Api<DynamicObject>, config: watcher::Config, cache: WatchedCache, shutdown: CancellationToken) {
    cache.begin();
    let mut events = pin!(watcher(api, config).default_backoff());
    loop {
        let event = tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            event = events.next() => event,
        };
        match event {
            Some(Ok(event)) => {
                for change in cache.apply_event(event) {
                    if cache.changes.send(change).await.is_err() {
                        // The receiver is dropped during shutdown.
                        return shutdown.cancelled().await;
                    }
                }
            }
            Some(Err(error)) => cache.record_error(&error),
            None => return,
        }
    }
}

/// Returns what the API server responded, or why it did not.
fn list_error(error: &watcher::Error) -> ListError {
    use watcher::Error;
    let status = match error {
        Error::InitialListFailed(kube::Error::Api(status))
        | Error::WatchStartFailed(kube::Error::Api(status))
        | Error::WatchFailed(kube::Error::Api(status))
        | Error::WatchError(status) => Some(status),
        _ => None,
    };
    let message = status.map(|status| status.message.clone()).filter(|message| !message.is_empty());
    ListError { code: status.map(|status| status.code), message: message.unwrap_or_else(|| error.to_string()) }
}

/// Returns whether the API server rejected the request, for example because it is forbidden or a conversion webhook failed,
/// rather than not responding or being overloaded.
fn is_rejection(error: &ListError) -> bool {
    error.code.is_some_and(|code| !matches!(code, 408 | 410 | 429 | 503 | 504))
}

/// Converts an object to JSON. kube-rs parses its metadata into a typed struct.
fn to_json(object: DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    enum ListEvent {
        Object,
        Complete,
        Rejected,
        NotServed,
        Unanswered,
    }

    /// Columns: events and their seconds, of 100; whether the list is awaited if the kind is required and if it is optional;
    /// whether it is unanswered if the kind is optional; whether it is missing.
    #[rstest]
    #[case::not_answered(&[], true, true, true, true)]
    #[case::slow(&[(0, ListEvent::Unanswered)], true, false, false, true)]
    #[case::slow_recently(&[(95, ListEvent::Unanswered)], true, true, true, true)]
    #[case::rejected(&[(0, ListEvent::Rejected)], false, false, false, true)]
    #[case::not_served(&[(0, ListEvent::NotServed)], false, false, false, false)]
    #[case::rejected_recently(&[(95, ListEvent::Rejected)], true, true, false, true)]
    #[case::rejected_repeatedly(&[(0, ListEvent::Rejected), (95, ListEvent::Rejected)], false, false, false, true)]
    #[case::accepted_after_a_rejection(&[(0, ListEvent::Rejected), (95, ListEvent::Object)], true, true, true, true)]
    #[case::second_page_is_rejected(&[(0, ListEvent::Object), (1, ListEvent::Rejected)], false, false, false, true)]
    #[case::complete(&[(0, ListEvent::Rejected), (1, ListEvent::Object), (99, ListEvent::Complete)], false, false, false, false)]
    #[case::complete_and_failed_later(&[(0, ListEvent::Complete), (99, ListEvent::Rejected)], false, false, false, false)]
    fn first_list_is_awaited(
        #[case] events: &[(u64, ListEvent)],
        #[case] required: bool,
        #[case] optional: bool,
        #[case] is_unanswered: bool,
        #[case] is_missing: bool,
    ) {
        let error = |code| ListError { code, message: String::new() };
        let (mut state, start) = (FirstListState::default(), Instant::now());
        for (seconds, event) in events {
            let now = start + Duration::from_secs(*seconds);
            match event {
                ListEvent::Object => (state.is_in_progress, state.error) = (true, None),
                ListEvent::Complete => state.is_complete = true,
                ListEvent::Rejected => state.record_failure(Some(error(Some(403))), now),
                ListEvent::NotServed => state.record_failure(Some(error(Some(NOT_FOUND))), now),
                ListEvent::Unanswered => state.record_failure(Some(error(None)), now),
            }
        }
        let now = start + Duration::from_secs(100);
        assert_eq!((state.is_awaited(false, now), state.is_awaited(true, now)), (required, optional));
        assert_eq!(state.is_unanswered(now), is_unanswered);
        assert_eq!((state.is_missing(false, now), state.is_missing(true, now)), (is_missing, optional));
    }
}
