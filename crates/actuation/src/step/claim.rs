//! Rules 5 to 9: what has to be known and recorded before an engine is created, bound or woken.

use std::collections::BTreeSet;

use super::context::Context;
use super::outcome::Outcome;
use super::{binding, waking};
use crate::call::Request;
use crate::container::ContainerPhase;
use crate::node::{Availability, Demand, Engine, Server};
use crate::problem::Problem;
use crate::requester::Requester;
use crate::write;

/// How long after its creation a requester may have no IP address before that is reported.
const ADDRESS_DELAY_SECONDS: i64 = 30;

/// Returns the outcome for a server whose requester runs and whose engine, if it has one, is not being deleted.
pub(super) fn rule(context: &Context, server: &Server, requester: &Requester, bound: Option<&Engine>) -> Outcome {
    if context.node.availability == Availability::Gone {
        return Outcome::wait();
    }
    let outcome = prepare(context, server, requester, bound);
    match bound {
        Some(_) => outcome,
        // For example after another client removed its provider.
        None => context.withdraw_readiness(server, requester, outcome),
    }
}

fn prepare(context: &Context, server: &Server, requester: &Requester, bound: Option<&Engine>) -> Outcome {
    if let (Demand::Invalid(problem), None) = (&server.demand, bound) {
        return match known_accelerators(server, requester) {
            Some(accelerators) if requester.accelerators.as_ref() != Some(accelerators) => {
                Outcome::write(write::record_accelerators(requester, accelerators)).with_problem(Some(problem.clone()))
            }
            _ => Outcome::blocked(problem.clone()),
        };
    }
    if let Err(problem) = &requester.admin_port {
        return Outcome::blocked(problem.clone());
    }
    if requester.ip.is_none() {
        return wait_for_address(context, requester);
    }
    let Some(accelerators) = known_accelerators(server, requester) else {
        return query_accelerators(context, server, requester);
    };
    if accelerators.is_empty() {
        return context
            .call_requester(server, requester, Request::Accelerators)
            .with_problem(server.facts.problem.clone());
    }
    match (&server.demand, bound) {
        _ if !is_claimed(requester, accelerators) => Outcome::write(write::claim(requester, accelerators)),
        (_, Some(engine)) => waking::rule(context, server, requester, engine),
        (Demand::Nominal(nominal), None) => binding::rule(context, server, requester, nominal),
        (Demand::Unknown | Demand::Invalid(_), None) => Outcome::wait(),
    }
}

/// Returns the accelerators that the requester reported, or that are recorded for its container.
fn known_accelerators<'a>(server: &'a Server, requester: &'a Requester) -> Option<&'a BTreeSet<String>> {
    server.facts.accelerators.as_ref().or(requester.accelerators.as_ref())
}

fn is_claimed(requester: &Requester, accelerators: &BTreeSet<String>) -> bool {
    requester.has_finalizer() && requester.accelerators.as_ref() == Some(accelerators)
}

fn wait_for_address(context: &Context, requester: &Requester) -> Outcome {
    let report_at = apimachinery::time::add_seconds(requester.created, ADDRESS_DELAY_SECONDS);
    if report_at > context.now { Outcome::wait_until(report_at) } else { Outcome::blocked(Problem::AddressMissing) }
}

fn query_accelerators(context: &Context, server: &Server, requester: &Requester) -> Outcome {
    let outcome = match requester.container.phase {
        ContainerPhase::Running => context.call_requester(server, requester, Request::Accelerators),
        _ => Outcome::wait(),
    };
    outcome.with_problem(server.facts.problem.clone())
}
