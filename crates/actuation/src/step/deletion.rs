//! Rules 1 to 4: one of the two Pods ends.

use apimachinery::time::duration_until;
use jiff::Timestamp;

use super::context::{BoundEngines, Context, last_failure};
use super::outcome::Outcome;
use super::sleeping::{Progress, put_to_sleep};
use crate::call::Request;
use crate::container::ContainerPhase;
use crate::delete_purpose::DeletePurpose;
use crate::node::{Availability, Engine, EngineState, Server};
use crate::requester::Requester;
use crate::write;

/// Returns the outcome of the first of these rules that applies.
pub(super) fn rule(context: &Context, server: &Server, bound: &BoundEngines) -> Option<Outcome> {
    let surplus = bound.surplus.iter().map(|engine| release_surplus(context, engine));
    if let Some(outcome) = surplus.into_iter().find(|outcome| outcome.action.is_some()) {
        return Some(outcome);
    }
    if let Some(outcome) = bound
        .retained
        .filter(|engine| !engine.provider.is_terminating)
        .and_then(|engine| context.instance_deletion(engine))
    {
        return Some(outcome);
    }
    let has_ended = server.requester.as_ref().is_none_or(Requester::has_ended);
    match bound.retained {
        Some(engine) if engine.provider.is_terminating => Some(terminating_engine(context, server, engine)),
        Some(engine) if !has_ended && engine.state() == EngineState::Dead && !engine.is_deletion_sent => {
            Some(context.delete_requester(server, DeletePurpose::EngineDied))
        }
        Some(engine) if has_ended => {
            let grace_end = server.requester.as_ref().and_then(|requester| requester.deletion_deadline);
            Some(release_running(context, engine, grace_end))
        }
        None if has_ended => Some(release_requester(context, server)),
        _ => None,
    }
}

/// Rule 3: a bound provider is being deleted. If the controller did not delete it, its requester is deleted, too. The finalizer
/// is removed when the engine can no longer use the accelerators.
fn terminating_engine(context: &Context, server: &Server, engine: &Engine) -> Outcome {
    if !engine.is_deletion_sent {
        let outcome = context.delete_requester(server, DeletePurpose::ProviderLost);
        if outcome.action.is_some() {
            return outcome;
        }
    }
    finish_terminating(context, engine)
}

/// Removes the finalizer of a provider that is being deleted, once its engine is gone.
fn finish_terminating(context: &Context, engine: &Engine) -> Outcome {
    match engine.is_gone(context.node.availability) {
        true => Outcome::write(write::unbind(&engine.provider, false, context.now)),
        false => Outcome::wait(),
    }
}

/// Rule 2: one of several bound engines is unbound.
fn release_surplus(context: &Context, engine: &Engine) -> Outcome {
    if engine.provider.is_terminating {
        return finish_terminating(context, engine);
    }
    context.instance_deletion(engine).unwrap_or_else(|| release_running(context, engine, None))
}

/// Rule 4: the engine is put to sleep and unbound, or its provider is deleted if that is not possible.
fn release_running(context: &Context, engine: &Engine, grace_end: Option<Timestamp>) -> Outcome {
    if context.node.availability == Availability::Gone {
        return context.delete_engine(engine, DeletePurpose::NotReusable);
    }
    let outcome = match put_to_sleep(context, engine, grace_end) {
        Progress::Asleep => Outcome::write(write::unbind(&engine.provider, true, context.now)),
        Progress::Impossible(purpose) => context.delete_engine(engine, purpose),
        Progress::Next(outcome) => outcome,
    };
    outcome.with_problem(last_failure(engine))
}

/// Lets a requester end whose engine is asleep or gone: it may give up its accelerators, then the finalizer is removed.
fn release_requester(context: &Context, server: &Server) -> Outcome {
    let Some(requester) = &server.requester else { return Outcome::wait() };
    if must_release(context, server, requester) {
        let outcome = context.call_requester(server, requester, Request::Release);
        let is_waiting = outcome.action.is_none() && outcome.again.is_none();
        // A call that is outstanding does not delay the end for longer than its timeout.
        if !is_waiting || server.facts.outstanding.is_some() {
            return outcome;
        }
    }
    if requester.has_finalizer() {
        return Outcome::write(write::finish(requester));
    }
    Outcome::wait()
}

/// Whether the requester may still hold its accelerators.
fn must_release(context: &Context, server: &Server, requester: &Requester) -> bool {
    let grace_is_over = requester.deletion_deadline.is_some_and(|end| duration_until(end, context.now).is_zero());
    requester.container.phase == ContainerPhase::Running
        && context.node.availability != Availability::Gone
        && !server.facts.is_released
        && !grace_is_over
}
