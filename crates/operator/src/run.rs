//! The loop: changes go in, reconciles come out. They think one after the other, and a few of them wait for the API server
//! at the same time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cluster::conditions::Transition;
use cluster::events::Recorder;
use cluster::neighbours::{DEFINITIONS, served};
use cluster::status::StatusWriter;
use cluster::{Applier, Change, Clock, Condition, Error, Key, Kind, Queue, Stores, Watches};
use futures::FutureExt as _;
use kube::Client;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::accounting::{self, Accounts};
use crate::answers::Answers;
use crate::claims::Claims;
use crate::crashes::Crashes;
use crate::kinds::{
    BASE_SET, BUILTIN, CLASS, CLUSTER_RUNTIME, DEFINED, FLAVORS, LABELLED, MADE, OME_SERVICE, OURS, POD, ROLES_SERVICE,
    RUNTIME, keeping,
};
use crate::metrics::Metrics;
use crate::news::{self, Feed};
use crate::offer::{LastOffer, LeftOut, OFFERED};
use crate::report::Report;
use crate::roster::Roster;
use crate::visits::{Visited, Visits};
use crate::wake::{self, Item};
use crate::{MANAGER, Options, base_set, pod_groups};

/// Name under which events are reported.
const CONTROLLER: &str = "ostler.io/operator";
/// How long events may still be on their way when the work has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How often the first lists are waited for at start.
const SETTLING: Duration = Duration::from_millis(500);

/// What reconcilers work with.
pub struct Operator {
    pub(crate) stores: Stores,
    pub(crate) applier: Applier,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) accelerator_aware: bool,
    pub(crate) events: Recorder,
    news: Feed,
    pub(crate) offer: Mutex<LastOffer>,
    pub(crate) claims: Claims,
    roster: Mutex<Roster>,
    pub(crate) answers: Answers,
    pub(crate) crashes: Crashes,
    pub(crate) left_out: Mutex<Vec<LeftOut>>,
    pub(crate) accounts: Accounts,
    pub(crate) discovery: bool,
    pub(crate) known: Vec<(decide::Class, Value)>,
    pub(crate) namespace: String,
    pub(crate) picker_image: String,
    pub(crate) metrics: Arc<Metrics>,
    /// What was last said about the base set: the ConfigMap's UID and the problems.
    pub(crate) told: Mutex<Option<(String, Vec<String>)>>,
    statuses: StatusWriter,
}

/// Runs until `stop` is cancelled; with an election, whenever it is won.
///
/// # Errors
/// None at present: what the API server refuses is tried again. The type leaves room for start-up checks.
pub async fn run(client: Client, options: Options, stop: CancellationToken) -> Result<(), Error> {
    if let Some(webhook) = options.webhook.clone() {
        tokio::spawn(admit(client.clone(), options.clock.clone(), webhook, stop.clone()));
    }
    match &options.seat {
        None => operate(client, &options, stop).await,
        Some(seat) => {
            let election = seat.election(client.clone(), options.clock.clone());
            let led = election.lead(stop, |term| operate(client.clone(), &options, term)).await;
            led.unwrap_or(Ok(()))
        }
    }
}

/// Serves the admission webhook, on every replica and so with stores of its own. Without it the operator works, and
/// tells in conditions what it could have refused.
async fn admit(
    client: Client,
    clock: Arc<dyn Clock>,
    webhook: crate::admission::webhook::Webhook,
    stop: CancellationToken,
) {
    let stores = Stores::new(MANAGER);
    let (mut watches, mut changes) = Watches::new(client.clone(), stores.clone(), stop.clone());
    for kind in [CLASS, RUNTIME, CLUSTER_RUNTIME, ROLES_SERVICE] {
        watches.start(kind);
    }
    let follow = async { while changes.recv().await.is_some() {} };
    let serve = crate::admission::webhook::run(client, stores, clock, webhook, stop.clone());
    let (served, ()) = tokio::join!(serve, follow);
    if let Err(error) = served {
        tracing::error!(error = %chain(&error), "the admission webhook ended");
    }
}

/// Works, and tells what is new beside it: a server that is slow to take events holds no reconcile up.
async fn operate(client: Client, options: &Options, stop: CancellationToken) -> Result<(), Error> {
    let (news, outlet) = news::feed();
    let recorder = Recorder::new(client.clone(), options.clock.clone(), CONTROLLER);
    let (work, publish) = (work(client, options, news, stop), outlet.publish(&recorder));
    tokio::pin!(work, publish);
    let worked = tokio::select! {
        biased;
        worked = &mut work => worked,
        () = &mut publish => return work.await,
    };
    // What is told by then is told; whoever stopped this does not wait for a server that answers nobody.
    tokio::time::timeout(LAST_WORDS, publish).await.ok();
    worked
}

async fn work(client: Client, options: &Options, news: Feed, stop: CancellationToken) -> Result<(), Error> {
    let stores = Stores::keeping(MANAGER, keeping);
    let (mut watches, mut changes) = Watches::new(client.clone(), stores.clone(), stop.clone());
    watches.start(DEFINITIONS);
    for kind in BUILTIN {
        watches.start(*kind);
    }
    for kind in LABELLED {
        watches.start(*kind);
    }
    if options.accelerator_aware {
        watches.start_one(BASE_SET, &Key::new(&options.namespace, base_set::NAME));
    }
    let operator = Operator::new(client, stores, options, news);
    let (mut queue, mut visits) = (Queue::default(), Visits::default());
    while !stop.is_cancelled() {
        operator.take_changes(&mut watches, &mut changes, &mut queue);
        while let Some(visited) = visits.ended().await {
            operator.finish(visited, &mut queue);
        }
        let may_begin = watches.settled() && !visits.are_full();
        match if may_begin { queue.pop(operator.clock.now()) } else { None } {
            Some(item) => operator.begin(item, &mut visits, &mut queue).await,
            None => operator.wait(&mut watches, &mut changes, &mut queue, &mut visits, &stop).await,
        }
    }
    while let Some(visited) = visits.next().await {
        operator.finish(visited, &mut queue);
    }
    Ok(())
}

// === impl Operator ===

impl Operator {
    fn new(client: Client, stores: Stores, options: &Options, news: Feed) -> Operator {
        Operator {
            applier: Applier::new(client.clone(), stores.clone(), MADE, MANAGER),
            statuses: StatusWriter::new(client.clone(), stores.clone(), MANAGER),
            events: Recorder::new(client, options.clock.clone(), CONTROLLER),
            news,
            clock: options.clock.clone(),
            accelerator_aware: options.accelerator_aware,
            offer: Mutex::default(),
            claims: Claims::default(),
            roster: Mutex::default(),
            answers: Answers::default(),
            crashes: Crashes::default(),
            left_out: Mutex::default(),
            accounts: Accounts::default(),
            discovery: options.discovery,
            known: accounting::known(&options.known_classes),
            namespace: options.namespace.clone(),
            picker_image: options.picker_image.clone(),
            metrics: Arc::clone(&options.metrics),
            told: Mutex::default(),
            stores,
        }
    }

    /// Takes every change that has arrived, so that a reconcile sees the newest state.
    fn take_changes(&self, watches: &mut Watches, changes: &mut mpsc::Receiver<Change>, queue: &mut Queue<Item>) {
        while let Ok(change) = changes.try_recv() {
            self.take(&change, watches, queue);
        }
    }

    fn take(&self, change: &Change, watches: &mut Watches, queue: &mut Queue<Item>) {
        if wake::alters_offer(change) {
            self.forget_offer();
        } else if wake::alters_inventory(change) {
            self.release_inventory();
        }
        match change {
            Change::Synced(DEFINITIONS) => self.name_missing(),
            Change::Synced(kind) => self.appeared(*kind, queue),
            Change::Object { kind: DEFINITIONS, .. } => {
                self.follow_definitions(watches, queue);
                if pod_groups::altered(change) {
                    self.forget_offer();
                    self.roster().all().into_iter().for_each(|item| queue.add(item));
                }
            }
            Change::Object { kind, key, old, new } => {
                self.crashes.take(change, self.clock.now());
                if (*kind, new) == (OME_SERVICE, &None) {
                    self.answers.forget(key);
                }
                self.look(*kind, key);
                self.account(*kind, change, queue);
                if *kind == POD {
                    self.recount(old.as_deref(), new.as_deref());
                }
                let asked = wake::items(&self.roster(), change);
                asked.now.into_iter().for_each(|item| queue.add(item));
                asked.patiently.into_iter().for_each(|item| queue.add_patiently(item));
            }
        }
    }

    fn roster(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What everybody goes by of a service that has changed or gone, or that we have just written.
    fn look(&self, kind: Kind, key: &Key) {
        if ![OME_SERVICE, ROLES_SERVICE].contains(&kind) {
            return;
        }
        let service = self.stores.get(kind, key);
        self.roster().look(kind, key, service.as_deref());
        if kind == OME_SERVICE {
            self.claims.look(key, service.as_deref(), &self.accounts.index());
        }
    }

    /// Claims of which a Pod has come or gone. The inventory has taken it in.
    fn recount(&self, old: Option<&Value>, new: Option<&Value>) {
        for item in [old, new].into_iter().flatten().filter_map(wake::service_of_pod) {
            if let Item::Service(OME_SERVICE, key) = item {
                self.claims.recount(&key, &self.accounts.index());
            }
        }
    }

    /// With the gate off nothing is done about classes.
    fn account(&self, kind: Kind, change: &Change, queue: &mut Queue<Item>) {
        if !self.accelerator_aware {
            return;
        }
        let mut asked = self.accounts.take(change);
        if FLAVORS.contains(&kind) {
            asked.extend(self.linked_classes());
        }
        asked.into_iter().for_each(|item| queue.add(item));
    }

    /// A kind can be used from now on: services that waited for it go on.
    fn appeared(&self, kind: Kind, queue: &mut Queue<Item>) {
        if self.accelerator_aware {
            self.accounts.completed(kind).into_iter().for_each(|item| queue.add(item));
        }
        if MADE.contains(&kind) || OFFERED.contains(&kind) || BUILTIN.contains(&kind) {
            self.roster().all().into_iter().for_each(|item| queue.add(item));
        }
    }

    /// Without our own definitions there is nothing to do; they may come any time.
    fn name_missing(&self) {
        let missing: Vec<String> =
            OURS.iter().filter(|kind| !served(&self.stores, **kind)).map(Kind::resource).collect();
        if !missing.is_empty() {
            tracing::warn!(
                "the cluster does not serve {}; apply the definitions: ostler crds | kubectl apply --server-side -f -",
                missing.join(", ")
            );
        }
    }

    fn follow_definitions(&self, watches: &mut Watches, queue: &mut Queue<Item>) {
        for kind in DEFINED {
            if served(&self.stores, *kind) {
                if watches.start(*kind) && self.stores.synced(DEFINITIONS) {
                    tracing::info!("{} is served now", kind.resource());
                }
            } else if watches.runs(*kind) {
                tracing::warn!("{} is no longer served; what needs it waits", kind.resource());
                self.forget_offer();
                self.accounts.ended(*kind);
                for gone in watches.end(*kind) {
                    self.take(&gone, watches, queue);
                }
                // Its objects may have gone before their definition: nobody hears of them now.
                if MADE.contains(kind) {
                    self.roster().all().into_iter().for_each(|item| queue.add(item));
                }
            }
        }
        if self.accelerator_aware {
            self.follow_flavors(watches, queue);
        }
    }

    /// Of the versions of Kueue's flavors the preferred one that is served. Flavors that go with their definition were
    /// deleted by nobody: what was made from them stays.
    fn follow_flavors(&self, watches: &mut Watches, queue: &mut Queue<Item>) {
        let preferred = FLAVORS.into_iter().find(|kind| served(&self.stores, *kind));
        let mut changed = false;
        for kind in FLAVORS {
            if Some(kind) == preferred {
                changed |= watches.start(kind);
            } else if watches.runs(kind) {
                drop(watches.end(kind));
                self.accounts.ended(kind);
                changed = true;
            }
        }
        if changed {
            self.linked_classes().into_iter().for_each(|item| queue.add(item));
        }
    }

    async fn wait(
        &self,
        watches: &mut Watches,
        changes: &mut mpsc::Receiver<Change>,
        queue: &mut Queue<Item>,
        visits: &mut Visits<'_>,
        stop: &CancellationToken,
    ) {
        let until = |due: jiff::Timestamp| due.duration_since(self.clock.now()).max(jiff::SignedDuration::ZERO);
        let delay = match queue.next_due() {
            _ if !watches.settled() => Some(SETTLING),
            // What is due begins when another visit has ended.
            _ if visits.are_full() => None,
            due => due.and_then(|due| until(due).try_into().ok()),
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = sleep(delay) => {}
            Some(visited) = visits.next() => self.finish(visited, queue),
            Some(change) = changes.recv() => self.take(&change, watches, queue),
        }
    }

    /// Begins a visit; one that must be alone waits until all others have ended, and they for it.
    async fn begin<'a>(&'a self, item: Item, visits: &mut Visits<'a>, queue: &mut Queue<Item>) {
        if item.is_alone() {
            while let Some(visited) = visits.next().await {
                self.finish(visited, queue);
            }
            self.finish(self.visit(item).await, queue);
        } else if let Some(visited) = visits.begin(self.visit(item).boxed()).await {
            self.finish(visited, queue);
            // Many visits that find nothing to do must not keep everything else on this thread waiting.
            tokio::task::yield_now().await;
        }
    }

    async fn visit(&self, item: Item) -> Visited {
        let never = |()| None;
        let result = match &item {
            Item::Class(name) => self.reconcile_class(name).await.map(never),
            Item::Discovery => self.reconcile_discovery().await.map(never),
            Item::BaseSet => self.reconcile_base_set().await.map(never),
            Item::Flavors => self.reconcile_flavors().await.map(never),
            Item::Offer => self.tell_left_out().await.map(never),
            Item::Service(kind, key) => self.reconcile_service(*kind, key).await,
        };
        (item, result)
    }

    fn finish(&self, (item, result): Visited, queue: &mut Queue<Item>) {
        if let Item::Service(OME_SERVICE, key) = &item {
            let service = self.stores.get(OME_SERVICE, key);
            self.claims.settle(key, service.as_deref(), &self.accounts.index());
        }
        match result {
            Ok(again) => {
                again.into_iter().for_each(|at| queue.add_at(item.clone(), at));
                queue.done(&item);
            }
            Err(error) => {
                if !error.is_conflict() {
                    tracing::warn!(?item, error = %chain(&error), "reconcile failed, trying again");
                }
                queue.retry(item, self.clock.now());
            }
        }
    }

    /// Writes the status if it says something new, and then one event per condition that turned.
    pub(crate) async fn tell(
        &self,
        kind: Kind,
        object: &Value,
        conditions: &[Condition],
        status: &Value,
    ) -> Result<(), Error> {
        let report = Report { conditions: conditions.to_vec(), status: status.clone(), news: Vec::new() };
        self.tell_all(kind, object, &report).await
    }

    /// Likewise, with what else is worth an event.
    pub(crate) async fn tell_all(&self, kind: Kind, object: &Value, report: &Report) -> Result<(), Error> {
        if !self.statuses.publish(kind, object, &report.status).await? {
            return Ok(());
        }
        self.look(kind, &Key::of(object));
        for transition in report.events(object) {
            self.announce(object, &transition);
        }
        Ok(())
    }

    /// One event.
    pub(crate) fn announce(&self, object: &Value, transition: &Transition) {
        self.news.tell(self.events.event(object, "Reconcile", transition));
    }
}

/// Sleeps for `delay`, or for ever.
async fn sleep(delay: Option<Duration>) {
    match delay {
        Some(delay) => tokio::time::sleep(delay).await,
        None => std::future::pending().await,
    }
}

/// An error with its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source()).map(ToString::to_string);
    causes.collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use kube::runtime::watcher::Event;
    use serde_json::json;

    use super::*;
    use crate::kinds::SCALED_OBJECT;

    /// A ScaledObject is deleted before the definition of its kind is, and its service reconciled in between: nobody else
    /// tells that there is no KEDA any more.
    // spec: RT-28
    #[tokio::test]
    async fn services_are_looked_at_again_when_a_kind_goes_whose_objects_went_before() {
        let client = Client::try_from(kube::Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
        let (stores, options, stop) = (Stores::new(MANAGER), Options::default(), CancellationToken::new());
        let (mut watches, _changes) = Watches::new(client.clone(), stores.clone(), stop.clone());
        let operator = Operator::new(client, stores.clone(), &options, news::feed().0);
        let mut queue = Queue::default();
        let service = json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService", "metadata": {"name": "chat", "namespace": "n"}});
        let definition = json!({"metadata": {"name": SCALED_OBJECT.resource()},
            "spec": {"versions": [{"name": SCALED_OBJECT.version, "served": true}]},
            "status": {"conditions": [{"type": "Established", "status": "True"}]}});
        let mut hear = |kind: Kind, event: Event<Value>, queue: &mut Queue<Item>| {
            for change in stores.accept(kind, event) {
                operator.take(&change, &mut watches, queue);
            }
        };
        hear(OME_SERVICE, Event::Apply(service), &mut queue);
        hear(DEFINITIONS, Event::Apply(definition.clone()), &mut queue);
        while let Some(item) = queue.pop(jiff::Timestamp::MAX) {
            queue.done(&item);
        }
        hear(DEFINITIONS, Event::Delete(definition), &mut queue);
        let asked = std::iter::from_fn(|| queue.pop(jiff::Timestamp::MAX));
        assert_eq!(asked.collect::<Vec<_>>(), [Item::Service(OME_SERVICE, Key::new("n", "chat"))]);
        stop.cancel();
    }
}
