//! The cluster of a run: the API server, the operator processes, and the objects that belong to people.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;

use embedded::Server;
use embedded::ports::{Random, ServerPorts};
use operator::{LeaderElection, Options};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::clock::Clock;
use crate::faults::Faults;
use crate::journal::Journal;
use crate::mistake::Mistake;
use crate::seed::Seed;
use crate::transport::{Transport, WriteObserver};

const LEASES: &str = "leases.coordination.k8s.io";
const LEASE: &str = "ostler-operator";

/// Resource, namespace and name of an object.
pub(crate) type Target = (String, String, String);

/// The cluster of a run.
pub struct World {
    server: Server,
    journal: Journal,
    processes: Vec<Process>,
    mistake: Option<Mistake>,
    /// Objects that people created, without the fields that the API server sets.
    foreign: BTreeMap<Target, Value>,
    writes: Arc<AtomicUsize>,
    /// The first write outside of a term.
    write_without_lease: Arc<Mutex<Option<String>>>,
}

/// A replica of the operator.
pub(crate) struct Process {
    name: String,
    /// Wall clock of the machine of the replica.
    pub(crate) clock: Clock,
    /// Faults of its connection.
    pub(crate) faults: Faults,
    running: Option<Running>,
}

/// A running replica.
struct Running {
    crashed: CancellationToken,
    /// Number of polls after which the replica crashes.
    remaining_polls: Arc<AtomicU32>,
    task: AbortOnDropHandle<()>,
}

/// Random bits derived from the seed, also in the threads of the API server.
struct SeededRandom(Mutex<fastrand::Rng>);

// === impl World ===

impl World {
    /// Starts an API server with ostler's definitions.
    pub(crate) fn start(seed: Seed, mistake: Option<Mistake>) -> Self {
        let random = Arc::new(SeededRandom(Mutex::new(seed.generator("API server"))));
        let ports = ServerPorts { clock: Arc::new(Clock::start()), random, ..ServerPorts::default() };
        let server = Server::new(&ports);
        Self {
            server,
            journal: Journal::start(),
            processes: Vec::new(),
            mistake,
            foreign: BTreeMap::new(),
            writes: Arc::default(),
            write_without_lease: Arc::default(),
        }
    }

    /// Returns the API server, for people and controllers beside the operator.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the journal of the run.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Returns the number of writes that the operators have sent, without those of the Lease.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }

    /// Returns the first write that a replica sent while the Lease had another holder.
    #[must_use]
    pub fn write_without_lease(&self) -> Option<String> {
        self.write_without_lease.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records that an object belongs to a person: the operator must neither change nor delete it.
    pub fn add_foreign(&mut self, resource: &str, object: &Value) {
        self.foreign.insert(target(resource, object), user_fields(object));
    }

    /// Records a new version of an object if it belongs to a person.
    pub fn update_foreign(&mut self, resource: &str, object: &Value) {
        if let Some(fields) = self.foreign.get_mut(&target(resource, object)) {
            *fields = user_fields(object);
        }
    }

    /// Records that a person deletes an object of theirs.
    pub fn remove_foreign(&mut self, resource: &str, namespace: &str, name: &str) {
        self.foreign.remove(&(resource.to_owned(), namespace.to_owned(), name.to_owned()));
    }

    /// Returns the objects that belong to people, with their content.
    pub(crate) fn foreign(&self) -> &BTreeMap<Target, Value> {
        &self.foreign
    }

    /// Adds a replica of the operator and starts it.
    pub(crate) fn add_process(&mut self, name: &str) {
        let process =
            Process { name: name.to_owned(), clock: Clock::start(), faults: Faults::default(), running: None };
        self.processes.push(process);
        self.start_process(self.processes.len() - 1);
    }

    /// Returns the replicas of the operator.
    pub(crate) fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// Starts a replica unless it is running. Returns its name if it was not running.
    pub(crate) fn start_process(&mut self, index: usize) -> Option<String> {
        let process = self.processes.get(index)?;
        if process.is_running() {
            return None;
        }
        let (crashed, remaining_polls) = (CancellationToken::new(), Arc::new(AtomicU32::new(u32::MAX)));
        let transport = Transport {
            server: self.server.clone(),
            process: process.name.clone(),
            faults: process.faults.clone(),
            journal: self.journal.clone(),
            mistake: self.mistake,
            on_write: self.write_observer(),
            crashed: crashed.clone(),
            watched: Arc::default(),
        };
        let leader_election = LeaderElection {
            namespace: "default".to_owned(),
            name: LEASE.to_owned(),
            identity: process.name.clone(),
            timings: cluster::LeaderElectionTimings::default(),
        };
        let options = Options {
            clock: Arc::new(process.clock.clone()),
            leader_election: (self.mistake != Some(Mistake::NoLeaderElection)).then_some(leader_election),
            ..Options::default()
        };
        let operator = operator::run(transport.client(), options, crashed.child_token());
        let operator = run_until_crash(operator, Arc::clone(&remaining_polls), crashed.clone());
        let task = AbortOnDropHandle::new(tokio::spawn(operator));
        self.processes.get_mut(index)?.running = Some(Running { crashed, remaining_polls, task });
        self.processes.get(index).map(|process| process.name.clone())
    }

    /// Crashes all replicas.
    pub(crate) fn crash_all(&mut self) {
        self.processes.iter_mut().for_each(Process::crash);
    }

    /// Returns the function that counts writes and checks that the sender holds the Lease.
    fn write_observer(&self) -> WriteObserver {
        let (server, writes) = (self.server.clone(), Arc::clone(&self.writes));
        let write_without_lease = Arc::clone(&self.write_without_lease);
        Arc::new(move |process, path| {
            writes.fetch_add(1, Ordering::Relaxed);
            let lease = server.get(LEASES, "default", LEASE);
            let holder = lease.as_ref().and_then(|lease| lease["spec"]["holderIdentity"].as_str());
            if holder != Some(process) {
                let holder = holder.map_or_else(|| "no replica".to_owned(), str::to_owned);
                let text = format!("{process} sent a write of {path} while {holder} held the Lease");
                write_without_lease.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(text);
            }
        })
    }
}

// === impl Process ===

impl Process {
    /// Returns the name of the replica, which is its identity in the Lease.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.as_ref().is_some_and(|running| !running.task.is_finished())
    }

    /// Makes the replica crash at its poll number `polls` from now on, or not at all.
    pub(crate) fn crash_after(&self, polls: Option<u32>) {
        if let Some(running) = &self.running {
            running.remaining_polls.store(polls.unwrap_or(u32::MAX), Ordering::Relaxed);
        }
    }

    /// Crashes the replica now.
    pub(crate) fn crash(&mut self) {
        if let Some(running) = self.running.take() {
            running.crashed.cancel();
        }
    }
}

// === impl SeededRandom ===

impl Random for SeededRandom {
    fn bits(&self) -> u128 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).u128(..)
    }
}

/// Polls `operator` until its number of polls is used up, and then drops it between two of its steps.
async fn run_until_crash(operator: impl Future, remaining_polls: Arc<AtomicU32>, crashed: CancellationToken) {
    let mut operator = pin!(operator);
    poll_fn(|context| {
        let polls = remaining_polls.load(Ordering::Relaxed);
        if polls == 0 || crashed.is_cancelled() {
            return Poll::Ready(());
        }
        if polls < u32::MAX {
            remaining_polls.store(polls - 1, Ordering::Relaxed);
        }
        operator.as_mut().poll(context).map(|_| ())
    })
    .await;
    crashed.cancel();
}

fn target(resource: &str, object: &Value) -> Target {
    let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
    (resource.to_owned(), field("namespace"), field("name"))
}

/// Returns what a person wrote: the object without the fields that other clients' writes change.
pub(crate) fn user_fields(object: &Value) -> Value {
    json!({"uid": object["metadata"]["uid"], "labels": object["metadata"]["labels"],
        "annotations": object["metadata"]["annotations"], "owners": object["metadata"]["ownerReferences"],
        "spec": object["spec"], "isTerminating": object["metadata"]["deletionTimestamp"].is_string()})
}
