//! Engines that are not bound: each is asleep, or is put to sleep or deleted.

use apimachinery::time::duration_until;

use super::context::Context;
use super::outcome::{Outcome, earliest};
use super::sleeping::{Progress, put_to_sleep};
use crate::delete_purpose::DeletePurpose;
use crate::node::{Availability, Engine};
use crate::write;

/// Returns the outcome for the unbound engines of the node, if there are any.
pub(super) fn rule(context: &Context) -> Option<Outcome> {
    if context.node.availability == Availability::Gone {
        return None;
    }
    let unbound = context.node.engines.values().filter(|engine| engine.provider.binding.is_none());
    let outcomes = unbound.map(|engine| context.delay_rejected(unbound_engine(context, engine)));
    outcomes.reduce(|first, second| Outcome {
        again: earliest(first.again, second.again),
        action: first.action.or(second.action),
        problems: Vec::new(),
    })
}

fn unbound_engine(context: &Context, engine: &Engine) -> Outcome {
    if engine.is_deletion_sent {
        return Outcome::wait();
    }
    if let Some(outcome) = context.instance_deletion(engine) {
        return outcome;
    }
    let is_pod = engine.provider.instance.is_none();
    if is_pod && engine.provider.has_finalizer() {
        // A finalizer without a binding, after an edit of the annotation.
        return Outcome::write(write::unbind(&engine.provider, false, context.now));
    }
    if engine.provider.is_terminating {
        return Outcome::wait();
    }
    if is_pod && engine.provider.container.restarts > 0 {
        return context.delete_engine(engine, DeletePurpose::NotAsleep);
    }
    match put_to_sleep(context, engine, None) {
        Progress::Asleep => expiry(context, engine),
        Progress::Impossible(DeletePurpose::NotReusable) => context.delete_engine(engine, DeletePurpose::NotAsleep),
        Progress::Impossible(purpose) => context.delete_engine(engine, purpose),
        Progress::Next(outcome) => outcome,
    }
}

fn expiry(context: &Context, engine: &Engine) -> Outcome {
    let Some(ttl) = context.settings.sleeper_ttl else { return Outcome::wait() };
    let Ok(end) = engine.provider.last_used().checked_add(ttl) else { return Outcome::wait() };
    match duration_until(end, context.now).is_zero() {
        true => context.delete_engine(engine, DeletePurpose::Expired),
        false => Outcome::wait_until(end),
    }
}
