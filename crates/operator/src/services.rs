//! Services of both kinds: read, think, act, tell.

use std::sync::Arc;
use std::time::Instant;

use cluster::apply::{Applied, Convergence, Desired, Outcome};
use cluster::neighbours::served;
use cluster::object::{meta, terminating};
use cluster::{Error, Key, Kind};
use jiff::{SignedDuration, Timestamp};
use plan::{Claim, Service, ServicePlan, Snapshot};
use serde_json::Value;

use crate::answers::Question;
use crate::choice::{self, Choice};
use crate::kinds::{
    DEPLOYMENT, HTTP_ROUTE, INFERENCE_POOL, LABELLED, LEADER_WORKER_SET, POD, POD_GROUP, ROLES_SERVICE,
};
use crate::offer::{Offer, document};
use crate::readings::Readings;
use crate::reason::Reason;
use crate::report::Report;
use crate::rollout::Rollouts;
use crate::routes::{self, Answer};
use crate::{Operator, ome_status, pod_groups, revisions, roles_status, rollout};

/// How often an object is looked at that is somebody else's and not watched.
const RECHECK: SignedDuration = SignedDuration::from_secs(30);

impl Operator {
    /// Makes the objects of one service be what its plan says, and tells how far they are. A service that goes needs
    /// nothing: everything it owned is collected with it. Returns when to look again though nothing changes.
    pub(crate) async fn reconcile_service(&self, kind: Kind, key: &Key) -> Result<Option<Timestamp>, Error> {
        let Some(service) = self.stores.get(kind, key).filter(|service| !terminating(service)) else { return Ok(None) };
        let unread = if kind == ROLES_SERVICE { Vec::new() } else { self.not_read() };
        if !unread.is_empty() {
            return self.wait_for_cluster(kind, &service, &unread).await.map(|()| None);
        }
        let unseen = self.unseen_workloads();
        if kind == ROLES_SERVICE && !unseen.is_empty() {
            return self.tell_all(kind, &service, &self.blind(&service, &unseen)).await.map(|()| None);
        }
        let choice = match self.choose(kind, &service) {
            Ok(choice) => choice,
            Err(problem) => {
                let report = ome_status::undecidable(&service, Reason::InvalidSpec, &problem, self.clock.now());
                return self.tell_all(kind, &service, &report).await.map(|()| None);
            }
        };
        let (outcome, rollouts) = self.act(&service, &choice.plan).await?;
        let report = self.report(kind, &service, &choice, &outcome, &rollouts);
        self.tell_all(kind, &service, &report).await?;
        let due = rollouts.values().filter_map(|rollout| rollout.due).chain(self.recheck(&outcome)).min();
        outcome.refusal.map_or(Ok(due), Err)
    }

    /// Of kinds of which only our own objects are watched, nobody tells that somebody else's has gone.
    fn recheck(&self, outcome: &Convergence) -> Option<Timestamp> {
        let unwatched = |one: &&Applied| LABELLED.iter().any(|kind| kind.kind == one.kind);
        let mut applied = outcome.applied.iter().filter(unwatched);
        let kept_out = applied.any(|one| matches!(one.outcome, Outcome::Foreign(_)));
        if kept_out { self.clock.now().checked_add(RECHECK).ok() } else { None }
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
    fn choose(&self, kind: Kind, service: &Value) -> Result<Arc<Choice>, String> {
        // Role-based services choose nothing: what is on offer plays no part.
        if kind == ROLES_SERVICE {
            let read = read(kind, service)?;
            let (pod_groups, picker_image) = (pod_groups::schema(&self.stores), self.picker_image.clone());
            let snapshot = Snapshot { pod_groups, picker_image, ..Snapshot::default() };
            return Ok(Arc::new(choice::choose(&snapshot, &[], service, &read)));
        }
        let key = Key::of(service);
        let choice = self.answer(kind, &key, service)?;
        self.claims.promise(&key, claim(&key, &choice.plan), &self.accounts.index());
        Ok(choice)
    }

    fn answer(&self, kind: Kind, key: &Key, service: &Value) -> Result<Arc<Choice>, String> {
        let (offer, epoch) = self.offer();
        let (claims, count) = self.claims.beside(key, &offer.snapshot.inventory);
        let question = Question::new(service, epoch, count);
        if let Some(answer) = self.answers.find(key, &question) {
            return Ok(answer);
        }
        let choice = Arc::new(self.decide(kind, service, &claims, &offer)?);
        self.answers.keep(key, question, &choice);
        Ok(choice)
    }

    fn decide(&self, kind: Kind, service: &Value, claims: &[Claim], offer: &Offer) -> Result<Choice, String> {
        let read = read(kind, service)?;
        let began = Instant::now();
        let mut choice = choice::choose(&offer.snapshot, claims, service, &read);
        self.metrics.count_decision(&choice.plan.reason, began.elapsed());
        offer.account(service, &mut choice.plan);
        Ok(choice)
    }

    /// Kinds of workloads that the cluster serves and the operator cannot read.
    fn unseen_workloads(&self) -> Vec<String> {
        let defined = [LEADER_WORKER_SET, POD_GROUP].into_iter().filter(|kind| served(&self.stores, *kind));
        let kinds = [POD, DEPLOYMENT].into_iter().chain(defined);
        kinds.filter(|kind| !self.stores.synced(*kind)).map(|kind| kind.resource()).collect()
    }

    /// What is told of a role-based service whose state cannot be read: the last that was known.
    fn blind(&self, service: &Value, unread: &[String]) -> Report {
        let findings = roles_status::Findings {
            service,
            plan: None,
            roles: &roles_status::roles(service),
            workloads: &[],
            applied: &[],
            rollouts: &Rollouts::new(),
            routes: &Answer::NotAsked,
            unread,
        };
        roles_status::report(&findings, self.clock.now())
    }

    /// A service that cannot be planned keeps what it runs: a mistake in an edit must not end a working engine.
    async fn act(&self, service: &Value, plan: &ServicePlan) -> Result<(Convergence, Rollouts), Error> {
        if !plan.feasible {
            return Ok((Convergence::default(), Rollouts::new()));
        }
        let objects = plan.objects.as_slice();
        let workloads = self.readings().workloads(service, objects);
        let rollouts = rollout::rollouts(service, &workloads, self.clock.now());
        let history = revisions::history(service, &revisions::held(&self.stores, service));
        let mut desired: Vec<Desired> = history.into_iter().map(Desired::from).collect();
        desired.extend(rollout::scheduled(service, objects, &workloads, &rollouts));
        Ok((self.applier.converge(service, desired).await?, rollouts))
    }

    fn readings(&self) -> Readings<'_> {
        Readings { stores: &self.stores, crashes: &self.crashes, now: self.clock.now() }
    }

    /// What gateways say of the service's route and pool.
    fn led_to(&self, service: &Value) -> Answer {
        let owned = |kind| self.stores.owned(kind, meta(service, "uid"));
        let objects = [HTTP_ROUTE, INFERENCE_POOL].map(owned).concat();
        routes::answer(objects.iter().map(AsRef::as_ref))
    }

    fn report(&self, kind: Kind, service: &Value, choice: &Choice, outcome: &Convergence, before: &Rollouts) -> Report {
        let plan = &choice.plan;
        // What cannot be laid out anew still runs as it was.
        let workloads = match plan.feasible || kind != ROLES_SERVICE {
            true => self.readings().workloads(service, &plan.objects),
            false => self.readings().running(service),
        };
        let (applied, now) = (outcome.applied.as_slice(), self.clock.now());
        if kind != ROLES_SERVICE {
            let better = choice.better.as_ref();
            let findings = ome_status::Findings { service, plan, better, workloads: &workloads, applied };
            return ome_status::report(&findings, now);
        }
        let roles = roles_status::roles(service);
        let rollouts = rollout::told(service, before, rollout::rollouts(service, &workloads, now));
        let findings = roles_status::Findings {
            service,
            plan: Some(plan),
            roles: &roles,
            workloads: &workloads,
            applied,
            rollouts: &rollouts,
            routes: &self.led_to(service),
            unread: &[],
        };
        roles_status::report(&findings, now)
    }
}

/// What a service takes by its plan, as its status will say.
fn claim(key: &Key, plan: &ServicePlan) -> Option<Claim> {
    let takes = plan.feasible && !plan::claims::waits(&plan.warnings);
    takes.then(|| Claim::new(&key.namespace, &key.name, &plan.components)).flatten()
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
