//! Workload controllers: Deployment, ReplicaSet, StatefulSet, Job, LeaderWorkerSet, the EndpointSlices of Services, the
//! counts of PodDisruptionBudgets, and the volumes of PersistentVolumeClaims.
//!
//! Each is a pure function from what exists to [`action::Action`]s; this file is the shell that knows when to call which.
//! Reads and writes are direct calls into the store, so a plan never works with objects older than its own writes and
//! needs no expectations as `kube-controller-manager` does.

pub(crate) mod action;
pub(crate) mod condition;
mod deployment;
pub(crate) mod disruption;
pub(crate) mod endpoints;
mod hash;
mod job;
mod leader_worker_set;
pub(crate) mod ownership;
pub(crate) mod pod;
mod replica_set;
mod rolling;
mod stateful_set;
pub(crate) mod volume_claim;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::Server;
use crate::object;
use crate::ports::Ports;
use crate::watch::Change;
use action::Plan;

/// After an error that is no conflict.
const RETRY: SignedDuration = SignedDuration::from_secs(5);

/// One object to look at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    kind: Kind,
    namespace: String,
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Deployment,
    ReplicaSet,
    StatefulSet,
    Job,
    LeaderWorkerSet,
    Service,
    DisruptionBudget,
    Claim,
    Volume,
}

const KINDS: [Kind; 9] = [
    Kind::Deployment,
    Kind::ReplicaSet,
    Kind::StatefulSet,
    Kind::Job,
    Kind::LeaderWorkerSet,
    Kind::Service,
    Kind::DisruptionBudget,
    Kind::Claim,
    Kind::Volume,
];

/// What to look at, and when.
struct Controller {
    server: Server,
    ports: Ports,
    /// Where volumes are made.
    volumes: Option<PathBuf>,
    due: BTreeSet<Key>,
    wakes: BTreeMap<Key, Timestamp>,
}

/// Runs the controllers until `stop`. Sleeps unless something changed or a moment it waits for came. With a folder for
/// `volumes`, claims that fit none get one there.
pub async fn run(server: Server, ports: Ports, volumes: Option<PathBuf>, stop: CancellationToken) {
    let mut changes = server.subscribe();
    server.keep_ready(&KINDS.map(Kind::resource));
    server.keep_ready(&["pods", endpoints::RESOURCE, stateful_set::REVISIONS]);
    let mut controller = Controller { server, ports, volumes, due: BTreeSet::new(), wakes: BTreeMap::new() };
    controller.everything();
    loop {
        controller.work();
        tokio::select! {
            () = stop.cancelled() => return,
            () = wait(controller.until_next_wake()) => controller.ring(),
            change = changes.next() => match change {
                Ok(change) => controller.note(&change),
                Err(_lagged) => controller.everything(),
            },
        }
    }
}

async fn wait(duration: Option<std::time::Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}

// === impl Controller ===

impl Controller {
    fn everything(&mut self) {
        for kind in KINDS {
            for object in self.server.list(kind.resource()) {
                self.due.insert(Key::of(kind, &object));
            }
        }
    }

    /// Which objects a change concerns.
    fn note(&mut self, change: &Change) {
        let versions: Vec<&Arc<Value>> = change.old.iter().chain(&change.new).collect();
        if let Some(kind) = KINDS.into_iter().find(|kind| kind.resource() == change.resource) {
            self.due.insert(Key { kind, namespace: change.namespace.clone(), name: change.name.clone() });
        }
        for object in versions {
            match change.resource.as_str() {
                "pods" => self.note_pod(object, change.new.is_none()),
                replica_set::RESOURCE => self.note_owner(object, Kind::Deployment, "Deployment"),
                endpoints::RESOURCE => {
                    if let Some(name) = endpoints::service_of(object) {
                        let namespace = change.namespace.clone();
                        self.due.insert(Key { kind: Kind::Service, namespace, name: name.to_owned() });
                    }
                }
                "services" => self.note_owner(object, Kind::LeaderWorkerSet, "LeaderWorkerSet"),
                volume_claim::CLAIMS => self.note_volumes(object),
                volume_claim::VOLUMES => self.note_claims(object),
                volume_claim::CLASSES => self.due.extend(self.open_claims()),
                _ => {}
            }
        }
    }

    fn note_pod(&mut self, pod: &Value, gone: bool) {
        self.note_owner(pod, Kind::ReplicaSet, "ReplicaSet");
        self.note_owner(pod, Kind::StatefulSet, "StatefulSet");
        self.note_owner(pod, Kind::Job, "Job");
        let namespace = object::namespace(pod);
        for claim in volume_claim::used_by(pod) {
            self.due.insert(Key { kind: Kind::Claim, namespace: namespace.to_owned(), name: claim.to_owned() });
        }
        let labels = ownership::labels(pod);
        if let Some(name) = labels.get(leader_worker_set::NAME) {
            let key = Key { kind: Kind::LeaderWorkerSet, namespace: namespace.to_owned(), name: name.clone() };
            self.due.insert(key);
        }
        for service in self.server.list_in("services", namespace) {
            let selector = ownership::string_map(service.pointer("/spec/selector"));
            let selects = !selector.is_empty() && selector.iter().all(|(key, value)| labels.get(key) == Some(value));
            if selects {
                self.due.insert(Key::of(Kind::Service, &service));
            }
        }
        let budgets = self.server.list(disruption::BUDGETS);
        let own = budgets.iter().filter(|budget| disruption::covers(budget, pod));
        self.due.extend(own.map(|budget| Key::of(Kind::DisruptionBudget, budget)));
        // `Recreate` waits for the last Pod of the old generation.
        if let Some(owner) = ownership::controller(pod).filter(|_| gone)
            && let Some(set) = self.server.get(replica_set::RESOURCE, namespace, object::text(owner, "/name"))
        {
            self.note_owner(&set, Kind::Deployment, "Deployment");
        }
    }

    /// The controller of `object` if it is of this kind; an orphan concerns every one in its namespace.
    fn note_owner(&mut self, object: &Value, kind: Kind, name: &str) {
        let namespace = object::namespace(object);
        match ownership::controller(object) {
            Some(owner) if object::text(owner, "/kind") == name => {
                let name = object::text(owner, "/name").to_owned();
                self.due.insert(Key { kind, namespace: namespace.to_owned(), name });
            }
            Some(_) => {}
            None => {
                let near = self.server.list_in(kind.resource(), namespace);
                self.due.extend(near.iter().map(|other| Key::of(kind, other)));
            }
        }
    }

    /// The volumes that a claim has, or that say they are its.
    fn note_volumes(&mut self, claim: &Value) {
        let named = object::text(claim, "/spec/volumeName");
        let own = |volume: &&Arc<Value>| {
            let reference = volume.pointer("/spec/claimRef").unwrap_or(&Value::Null);
            object::name(volume) == named
                || object::text(reference, "/name") == object::name(claim)
                    && object::text(reference, "/namespace") == object::namespace(claim)
        };
        let volumes = self.server.list(volume_claim::VOLUMES);
        self.due.extend(volumes.iter().filter(own).map(|volume| Key::of(Kind::Volume, volume)));
    }

    /// The claim of a volume, and those that have none yet.
    fn note_claims(&mut self, volume: &Value) {
        if let Some(reference) = volume.pointer("/spec/claimRef").filter(|reference| !reference.is_null()) {
            let text = |field| object::text(reference, field).to_owned();
            self.due.insert(Key { kind: Kind::Claim, namespace: text("/namespace"), name: text("/name") });
        }
        self.due.extend(self.open_claims());
    }

    fn open_claims(&self) -> Vec<Key> {
        let claims = self.server.list(volume_claim::CLAIMS);
        let open = claims.iter().filter(|claim| object::text(claim, "/status/phase") != "Bound");
        open.map(|claim| Key::of(Kind::Claim, claim)).collect()
    }

    fn work(&mut self) {
        while let Some(key) = self.due.pop_first() {
            self.wakes.remove(&key);
            let Some(subject) = self.server.get(key.kind.resource(), &key.namespace, &key.name) else { continue };
            let plan = self.plan(key.kind, &subject);
            if let Some(at) = plan.wake {
                self.wakes.insert(key.clone(), at);
            }
            self.perform(&key, &subject, plan);
        }
    }

    fn plan(&self, kind: Kind, subject: &Value) -> Plan {
        let now = self.ports.clock.now();
        let random = self.ports.random.as_ref();
        let near = |resource: &str| self.server.list_in(resource, object::namespace(subject));
        let pods = near("pods");
        match kind {
            Kind::Deployment => deployment::plan(subject, &near(replica_set::RESOURCE), &pods, now),
            Kind::ReplicaSet => replica_set::plan(subject, &pods, random, now),
            Kind::StatefulSet => {
                let (revisions, claims) = (near(stateful_set::REVISIONS), near(volume_claim::CLAIMS));
                stateful_set::plan(subject, &pods, &revisions, &claims, now)
            }
            Kind::Job => job::plan(subject, &pods, random, now),
            Kind::LeaderWorkerSet => {
                let node = |name: &str| self.server.get("nodes", "", name);
                leader_worker_set::plan(subject, &pods, &near("services"), &node, now)
            }
            Kind::DisruptionBudget => {
                disruption::plan(subject, &pods, |pod| disruption::scale(&self.server, pod), &object::time(now))
            }
            Kind::Claim => {
                let (volumes, classes) =
                    (self.server.list(volume_claim::VOLUMES), self.server.list(volume_claim::CLASSES));
                volume_claim::plan_claim(subject, &volumes, &classes, &pods, self.volumes.as_deref())
            }
            Kind::Volume => {
                let part = |field| object::text(subject, field);
                let (namespace, name) = (part("/spec/claimRef/namespace"), part("/spec/claimRef/name"));
                let claim = self.server.get(volume_claim::CLAIMS, namespace, name);
                volume_claim::plan_volume(subject, claim.as_deref())
            }
            Kind::Service => endpoints::plan(subject, &pods, &near(endpoints::RESOURCE), random),
        }
    }

    /// Writes in order. A conflict is looked at again at once: the newer object is in the store already.
    fn perform(&mut self, key: &Key, subject: &Value, plan: Plan) {
        for action in plan.actions {
            let creates = matches!(action, action::Action::Create { .. });
            let Err(status) = action.perform(&self.server, key.kind.component()) else { continue };
            match status.code {
                404 => {}
                409 if !creates => {
                    self.due.insert(key.clone());
                }
                _ => {
                    tracing::debug!(?key, %status, "a write failed");
                    if creates {
                        let message = format!("Error creating: {status}");
                        self.server.event(subject, "Warning", "FailedCreate", &message, key.kind.component());
                    }
                    let at = self.ports.clock.now().checked_add(RETRY).unwrap_or(Timestamp::MAX);
                    self.wakes.insert(key.clone(), at);
                }
            }
            return;
        }
    }

    fn until_next_wake(&self) -> Option<std::time::Duration> {
        let at = self.wakes.values().min()?;
        Some(at.duration_since(self.ports.clock.now()).try_into().unwrap_or_default())
    }

    /// Moves what is due from the wakes to the queue.
    fn ring(&mut self) {
        let now = self.ports.clock.now();
        let rung: Vec<Key> = self.wakes.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        self.due.extend(rung);
    }
}

// === impl Key ===

impl Key {
    fn of(kind: Kind, object: &Value) -> Self {
        Self { kind, namespace: object::namespace(object).to_owned(), name: object::name(object).to_owned() }
    }
}

// === impl Kind ===

impl Kind {
    fn resource(self) -> &'static str {
        match self {
            Self::Deployment => deployment::RESOURCE,
            Self::ReplicaSet => replica_set::RESOURCE,
            Self::StatefulSet => stateful_set::RESOURCE,
            Self::Job => job::RESOURCE,
            Self::LeaderWorkerSet => leader_worker_set::RESOURCE,
            Self::Service => "services",
            Self::DisruptionBudget => disruption::BUDGETS,
            Self::Claim => volume_claim::CLAIMS,
            Self::Volume => volume_claim::VOLUMES,
        }
    }

    fn component(self) -> &'static str {
        match self {
            Self::Deployment => "deployment-controller",
            Self::ReplicaSet => "replicaset-controller",
            Self::StatefulSet => "statefulset-controller",
            Self::Job => "job-controller",
            Self::LeaderWorkerSet => "leaderworkerset",
            Self::DisruptionBudget => "controllermanager",
            Self::Service => "endpoint-slice-controller",
            Self::Claim | Self::Volume => "persistentvolume-controller",
        }
    }
}
