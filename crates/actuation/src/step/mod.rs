//! [`step`] decides the next action of a node. For one server, the first rule that applies decides.
//!
//! Layers, from low to high: `outcome` (result of a rule), `context` (the node and queries of the rules); `sleeping`,
//! `budget`, `placement` (in launchers); `deletion` (rules 1 to 4), `waking` (rule 10), `binding` (rules 11 to 15); `claim` (rules 5 to 9) calls those two,
//! `unbound_engines` are about engines without a server, and `launchers` about Pods that run several.

mod binding;
mod budget;
mod claim;
mod context;
mod deletion;
mod launchers;
mod outcome;
mod placement;
mod sleeping;
#[cfg(test)]
mod tests;
mod unbound_engines;
mod waking;

use jiff::Timestamp;

use crate::action::{Next, StatusUpdate};
use crate::node::{NodeState, Server};
use crate::problem::Problem;
use crate::settings::Settings;
use context::Context;
pub(crate) use context::sleepers;
use outcome::{Outcome, earliest};
pub(crate) use placement::launcher_with_room;

/// Decides what to do next for a node: at most one action, when to decide again if nothing changes, and the status annotations
/// to update. The same input gives the same result; the action's effect is part of the next input.
#[must_use]
pub fn step(node: &NodeState, settings: &Settings, now: Timestamp) -> Next {
    let context = Context::new(node, settings, now);
    let mut next = Next::default();
    let outcomes = context.servers().into_iter().map(|(uid, server)| (Some(server), rule(&context, uid, server)));
    let unbound_engines = unbound_engines::rule(&context).map(|outcome| (None, outcome));
    let launchers = launchers::rule(&context).map(|outcome| (None, outcome));
    for (server, outcome) in outcomes.chain(unbound_engines).chain(launchers) {
        let outcome = context.delay_rejected(outcome);
        next.again = earliest(next.again, outcome.again);
        if let Some(status) = server.and_then(|server| status_update(server, &outcome)) {
            match server.and_then(|server| server.status_retry_at).filter(|retry_at| *retry_at > now) {
                Some(retry_at) => next.again = earliest(next.again, Some(retry_at)),
                None => next.statuses.push(status),
            }
        }
        if next.action.is_none() {
            next.action = outcome.action;
        }
    }
    next
}

/// Returns the problems of the server with this UID, which [`step`] would report.
#[must_use]
pub(crate) fn server_problems(node: &NodeState, settings: &Settings, now: Timestamp, uid: &str) -> Vec<Problem> {
    let context = Context::new(node, settings, now);
    let server = context.servers().into_iter().find(|(server_uid, _)| *server_uid == uid);
    server.map(|(uid, server)| rule(&context, uid, server).problems).unwrap_or_default()
}

/// Applies the rules to one server.
fn rule<'a>(context: &Context<'a>, uid: &'a str, server: &Server) -> Outcome {
    let bound = context.bound(uid);
    let outcome = match (deletion::rule(context, server, &bound), &server.requester) {
        (Some(outcome), _) => outcome,
        (None, Some(requester)) => claim::rule(context, server, requester, bound.retained),
        (None, None) => Outcome::wait(),
    };
    let surplus = bound.surplus.first().map(|_| Problem::SeveralProviders {
        count: bound.surplus.len().saturating_add(1),
        retained: bound.retained.map(|engine| engine.provider.pod.name.clone()).unwrap_or_default(),
    });
    Outcome { problems: surplus.into_iter().chain(outcome.problems).collect(), ..outcome }
}

fn status_update(server: &Server, outcome: &Outcome) -> Option<StatusUpdate> {
    let requester = server.requester.as_ref()?;
    let reported = requester.errors.as_deref().unwrap_or_default();
    let messages = outcome.problems.iter().map(Problem::to_string);
    let is_current = messages.eq(reported.iter().cloned());
    (!is_current).then(|| StatusUpdate {
        requester: requester.pod.clone(),
        problems: outcome.problems.clone(),
        reported: reported.to_vec(),
    })
}
