//! Services of both kinds: read, think, act, tell.

use cluster::apply::Convergence;
use cluster::object::terminating;
use cluster::{Condition, Error, Key, Kind};
use serde_json::Value;

use crate::kinds::ROLES_SERVICE;
use crate::{Operator, ome_status, readings, roles_status};

impl Operator {
    /// Makes the objects of one service be what its plan says, and tells how far they are. A service that goes needs
    /// nothing: everything it owned is collected with it.
    pub(crate) async fn reconcile_service(&self, kind: Kind, key: &Key) -> Result<(), Error> {
        let Some(service) = self.stores.get(kind, key).filter(|service| !terminating(service)) else { return Ok(()) };
        let plan = match self.plan(kind, &service) {
            Ok(plan) => plan,
            Err(problem) => {
                let (conditions, status) = ome_status::unreadable(&service, &problem, self.clock.now());
                return self.tell(kind, &service, &conditions, &status).await;
            }
        };
        let outcome = self.act(&service, &plan).await?;
        let (conditions, status) = self.findings(kind, &service, &plan, &outcome);
        self.tell(kind, &service, &conditions, &status).await?;
        outcome.refusal.map_or(Ok(()), Err)
    }

    /// A service that cannot be planned keeps what it runs: a mistake in an edit must not end a working engine.
    async fn act(&self, service: &Value, plan: &Value) -> Result<Convergence, Error> {
        if plan["feasible"] != true {
            return Ok(Convergence::default());
        }
        let objects = plan["objects"].as_array().cloned().unwrap_or_default();
        self.applier.converge(service, objects).await
    }

    fn findings(&self, kind: Kind, service: &Value, plan: &Value, outcome: &Convergence) -> (Vec<Condition>, Value) {
        let planned = plan["objects"].as_array().map(Vec::as_slice).unwrap_or_default();
        let workloads = readings::workloads(&self.stores, service, planned);
        let (applied, now) = (outcome.applied.as_slice(), self.clock.now());
        if kind == ROLES_SERVICE {
            let roles = roles_status::roles(service);
            return roles_status::status(
                &roles_status::Findings { service, plan, roles: &roles, workloads: &workloads, applied },
                now,
            );
        }
        let findings = ome_status::Findings { service, plan, workloads: &workloads, applied };
        let conditions = ome_status::conditions(&findings);
        let status = ome_status::status(&findings, &conditions, now);
        (conditions, status)
    }
}
