//! Calls the plan of each object that is due, and does what it says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::action::{Action, Plan};
use super::kind::{KINDS, Key, Kind};
use super::{
    autoscaler, deployment, disruption, endpoints, job, leader_worker_set, replica_set, stateful_set, volume_claim,
};
use crate::Server;
use crate::object;
use crate::ports::Ports;

/// After an error that is no conflict.
const RETRY: SignedDuration = SignedDuration::from_secs(5);

/// What to look at, and when.
pub(super) struct Controller {
    pub(super) server: Server,
    ports: Ports,
    /// Where volumes are made.
    volumes: Option<PathBuf>,
    pub(super) due: BTreeSet<Key>,
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
            Kind::Autoscaler => {
                let name = object::text(subject, "/spec/scaleTargetRef/name");
                let target = autoscaler::target_resource(subject)
                    .and_then(|resource| self.server.get(resource, object::namespace(subject), name));
                autoscaler::plan(subject, target.as_deref(), &object::time(now))
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
            let creates = matches!(action, Action::Create { .. });
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
