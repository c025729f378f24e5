//! Services of both kinds: read, think, act, tell.

use std::sync::Arc;
use std::time::Instant;

use cluster::apply::Convergence;
use cluster::object::terminating;
use cluster::{Error, Key, Kind};
use plan::{Service, Snapshot};
use serde_json::Value;

use crate::answers::Question;
use crate::choice::{self, Choice};
use crate::kinds::ROLES_SERVICE;
use crate::offer::{Offer, document};
use crate::reason::Reason;
use crate::report::Report;
use crate::{Operator, ome_status, readings, roles_status};

impl Operator {
    /// Makes the objects of one service be what its plan says, and tells how far they are. A service that goes needs
    /// nothing: everything it owned is collected with it.
    pub(crate) async fn reconcile_service(&self, kind: Kind, key: &Key) -> Result<(), Error> {
        let Some(service) = self.stores.get(kind, key).filter(|service| !terminating(service)) else { return Ok(()) };
        let unread = if kind == ROLES_SERVICE { Vec::new() } else { self.not_read() };
        if !unread.is_empty() {
            return self.wait_for_cluster(kind, &service, &unread).await;
        }
        let choice = match self.choose(kind, &service) {
            Ok(choice) => choice,
            Err(problem) => {
                let report = ome_status::undecidable(&service, Reason::InvalidSpec, &problem, self.clock.now());
                return self.tell_all(kind, &service, &report).await;
            }
        };
        let outcome = self.act(&service, &choice.plan).await?;
        let report = self.report(kind, &service, &choice, &outcome);
        self.tell_all(kind, &service, &report).await?;
        outcome.refusal.map_or(Ok(()), Err)
    }

    /// Deciding on half a cluster would end engines that work. What was told before stays; a new service hears why.
    async fn wait_for_cluster(&self, kind: Kind, service: &Value, unread: &[String]) -> Result<(), Error> {
        if service["status"]["conditions"].is_array() {
            return Ok(());
        }
        let problem = format!("{} cannot be read yet, and decisions depend on them", unread.join(", "));
        let report = ome_status::undecidable(service, Reason::ClusterNotRead, &problem, self.clock.now());
        self.tell_all(kind, service, &report).await
    }

    /// The plan to follow.
    ///
    /// # Errors
    /// What makes the service unreadable, in words for a condition.
    fn choose(&self, kind: Kind, service: &Arc<Value>) -> Result<Arc<Choice>, String> {
        // Role-based services choose nothing: what is on offer plays no part.
        if kind == ROLES_SERVICE {
            let read = read(kind, service)?;
            let choice = choice::choose(&Snapshot::default(), &[], service, &read);
            return choice.map(Arc::new).map_err(|error| error.to_string());
        }
        let (key, (offer, epoch)) = (Key::of(service), self.offer());
        let claims = self.claims.of_others(&self.stores, &key);
        let question = Question { service: Arc::clone(service), epoch, claims };
        if let Some(answer) = self.answers.find(&key, &question) {
            return Ok(answer);
        }
        let choice = Arc::new(self.decide(kind, &question, &offer)?);
        self.answers.keep(&key, question, &choice);
        Ok(choice)
    }

    fn decide(&self, kind: Kind, question: &Question, offer: &Offer) -> Result<Choice, String> {
        let service = &question.service;
        let read = read(kind, service)?;
        let began = Instant::now();
        let choice = choice::choose(&offer.snapshot, &question.claims, service, &read);
        let took = began.elapsed();
        let mut choice = choice.map_err(|error| error.to_string())?;
        self.metrics.count_decision(choice.plan["reason"].as_str().unwrap_or_default(), took);
        offer.account(service, &mut choice.plan);
        Ok(choice)
    }

    /// A service that cannot be planned keeps what it runs: a mistake in an edit must not end a working engine.
    async fn act(&self, service: &Value, plan: &Value) -> Result<Convergence, Error> {
        if plan["feasible"] != true {
            return Ok(Convergence::default());
        }
        let objects = plan["objects"].as_array().cloned().unwrap_or_default();
        self.applier.converge(service, objects).await
    }

    fn report(&self, kind: Kind, service: &Value, choice: &Choice, outcome: &Convergence) -> Report {
        let plan = &choice.plan;
        let planned = plan["objects"].as_array().map(Vec::as_slice).unwrap_or_default();
        let workloads = readings::workloads(&self.stores, service, planned);
        let (applied, now) = (outcome.applied.as_slice(), self.clock.now());
        if kind == ROLES_SERVICE {
            let roles = roles_status::roles(service);
            let findings = roles_status::Findings { service, plan, roles: &roles, workloads: &workloads, applied };
            return roles_status::report(&findings, now);
        }
        let better = choice.better.as_ref();
        ome_status::report(&ome_status::Findings { service, plan, better, workloads: &workloads, applied }, now)
    }
}

/// The service as plans read it.
///
/// # Errors
/// What makes it unreadable, in words for a condition.
fn read(kind: Kind, service: &Value) -> Result<Service, String> {
    let read = Service::read(&document(kind, service)).map_err(|error| match &error.path {
        Some(path) => format!("{path}: {}", error.cause),
        None => error.cause.clone(),
    })?;
    read.ok_or_else(|| format!("{} is not a service", service["kind"]))
}
