//! The cluster of a run: the API server, the operator processes, and the objects that belong to people.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apimachinery::object;
use embedded::Server;
use embedded::ports::ServerPorts;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::clock::Clock;
use crate::faults::Faults;
use crate::initial_objects::supply;
use crate::journal::Journal;
use crate::kubelet::run_kubelets;
use crate::mistake::Mistake;
use crate::process::{Process, Program};
use crate::seed::{Seed, SeededRandom};
use crate::term_check::TermCheck;
use crate::transport::{Transport, WriteObserver};

/// Resource, namespace and name of an object.
pub(crate) type Target = (String, String, String);

/// The cluster of a run.
pub struct World {
    server: Server,
    /// Wall clock of the API server and the controllers of Kubernetes.
    clock: Clock,
    journal: Journal,
    processes: Vec<Process>,
    mistake: Option<Mistake>,
    /// Objects that people created, without the fields that the API server sets.
    foreign: BTreeMap<Target, Value>,
    /// Services and what they select from, which people wrote: the fields that they set.
    inputs: BTreeMap<Target, Value>,
    writes: Arc<AtomicUsize>,
    terms: Arc<Mutex<TermCheck>>,
    /// The controllers of Kubernetes.
    _controllers: [AbortOnDropHandle<()>; 4],
}

// === impl World ===

impl World {
    /// Starts the control plane with a fork of `initial_server`.
    pub(crate) fn start(initial_server: &Server, seed: Seed, mistake: Option<Mistake>) -> Self {
        let clock = Clock::start();
        let (clock_port, random) = (Arc::new(clock.clone()), Arc::new(SeededRandom::new(seed)));
        let ports = ServerPorts { clock: clock_port, random, ..ServerPorts::default() };
        let server = initial_server.fork(&ports);
        let supply = supply().into_iter().filter_map(|(resource, object)| {
            let live = server.get(resource, "", object::name(&object))?;
            Some((target(resource, &live), input_fields(&live)))
        });
        let inputs = supply.collect();
        Self {
            _controllers: spawn_controllers(&server),
            server,
            clock,
            journal: Journal::start(),
            processes: Vec::new(),
            mistake,
            foreign: BTreeMap::new(),
            inputs,
            writes: Arc::default(),
            terms: Arc::default(),
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

    /// Returns the clock of the API server and the controllers of Kubernetes.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Returns the clocks of the API server and of the processes.
    pub(crate) fn clocks(&self) -> impl Iterator<Item = &Clock> {
        self.processes.iter().map(|process| &process.clock).chain([&self.clock])
    }

    /// Returns the number of writes that the processes have sent, without those of the Lease.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }

    /// Returns the first write that a replica sent while the Lease had another holder.
    #[must_use]
    pub fn write_without_lease(&self) -> Option<String> {
        self.terms().violation().map(str::to_owned)
    }

    /// Must be called before a person edits or deletes the Lease.
    pub fn before_lease_edit(&mut self) {
        self.terms().before_edit(&self.server);
    }

    fn terms(&self) -> MutexGuard<'_, TermCheck> {
        self.terms.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Records that all objects of a resource are deleted, with those of people.
    pub fn remove_resource(&mut self, resource: &str) {
        self.foreign.retain(|(foreign, _, _), _| foreign != resource);
        self.inputs.retain(|(input, _, _), _| input != resource);
    }

    /// Records that a person has written a service, or what services select from: the operator writes only its status.
    pub(crate) fn add_input(&mut self, resource: &str, object: &Value) {
        self.inputs.insert(target(resource, object), input_fields(object));
    }

    /// Records that a person deletes an input.
    pub(crate) fn remove_input(&mut self, resource: &str, namespace: &str, name: &str) {
        self.inputs.remove(&(resource.to_owned(), namespace.to_owned(), name.to_owned()));
    }

    /// Returns the inputs, with the fields that people set.
    pub(crate) fn inputs(&self) -> &BTreeMap<Target, Value> {
        &self.inputs
    }

    /// Returns the faults of the connection of a process.
    #[must_use]
    pub fn faults(&self, process: &str) -> Option<&Faults> {
        self.process(process).map(|process| &process.faults)
    }

    /// Returns the objects that belong to people, with their content.
    pub(crate) fn foreign(&self) -> &BTreeMap<Target, Value> {
        &self.foreign
    }

    /// Adds a process and starts it.
    pub(crate) fn add_process(&mut self, name: &'static str, program: Program) {
        self.processes.push(Process::new(name, program));
        self.start_process(name);
    }

    /// Returns the processes.
    pub(crate) fn processes(&self) -> &[Process] {
        &self.processes
    }

    /// Returns the process with this name.
    pub(crate) fn process(&self, name: &str) -> Option<&Process> {
        self.processes.iter().find(|process| process.name() == name)
    }

    /// Starts a process. Returns false if it is running, or if there is none of this name.
    pub(crate) fn start_process(&mut self, name: &str) -> bool {
        let Some(process) = self.process(name).filter(|process| !process.is_running()) else { return false };
        let crashed = CancellationToken::new();
        let transport = Transport {
            server: self.server.clone(),
            process: process.name(),
            faults: process.faults.clone(),
            journal: self.journal.clone(),
            mistake: self.mistake.filter(|_| process.program.is_operator()),
            on_write: self.write_observer(process.program.is_operator()),
            crashed: crashed.clone(),
            watched: Arc::default(),
            owners: Arc::default(),
        };
        if let Some(process) = self.processes.iter_mut().find(|process| process.name() == name) {
            process.start(transport, crashed);
        }
        true
    }

    /// Crashes all processes.
    pub(crate) fn crash_all(&mut self) {
        self.processes.iter_mut().for_each(Process::crash);
    }

    /// Returns the function that counts writes and checks that replicas of the operator hold the Lease.
    fn write_observer(&self, is_operator: bool) -> WriteObserver {
        let (server, writes, terms) = (self.server.clone(), Arc::clone(&self.writes), Arc::clone(&self.terms));
        Arc::new(move |process, path| {
            writes.fetch_add(1, Ordering::Relaxed);
            if is_operator {
                terms.lock().unwrap_or_else(PoisonError::into_inner).check_write(&server, process, path);
            }
        })
    }
}

/// Starts the controllers of Kubernetes and the kubelets.
fn spawn_controllers(server: &Server) -> [AbortOnDropHandle<()>; 4] {
    let (server, stop) = (|| server.clone(), CancellationToken::new());
    [
        tokio::spawn(embedded::run_workload_controllers(server(), None, stop.clone())),
        tokio::spawn(embedded::run_scheduler(server(), stop.clone())),
        tokio::spawn(embedded::run_node_lifecycle_controller(server(), stop)),
        tokio::spawn(run_kubelets(server())),
    ]
    .map(AbortOnDropHandle::new)
}

fn target(resource: &str, object: &Value) -> Target {
    let field = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
    (resource.to_owned(), field("namespace"), field("name"))
}

/// Returns the fields of an input that people set.
pub(crate) fn input_fields(object: &Value) -> Value {
    let metadata = &object["metadata"];
    json!({"uid": metadata["uid"], "labels": metadata["labels"], "annotations": metadata["annotations"],
        "owners": metadata["ownerReferences"], "finalizers": metadata["finalizers"], "spec": object["spec"], "isTerminating": metadata["deletionTimestamp"].is_string()})
}

/// Returns what a person wrote: the object without the fields that other clients' writes change.
pub(crate) fn user_fields(object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut annotations = metadata["annotations"].clone();
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.remove("deployment.kubernetes.io/revision");
    }
    let annotations = Some(annotations).filter(|annotations| *annotations != json!({}));
    let mut fields = object.clone();
    if let Some(fields) = fields.as_object_mut() {
        fields.remove("status");
    }
    fields["metadata"] = json!({"uid": metadata["uid"], "labels": metadata["labels"], "annotations": annotations,
        "owners": metadata["ownerReferences"], "finalizers": metadata["finalizers"],
        "isTerminating": metadata["deletionTimestamp"].is_string()});
    fields
}
