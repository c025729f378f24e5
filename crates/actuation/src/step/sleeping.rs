//! Puts an engine to sleep: remove the pool labels, wait until endpoint pickers have observed it, drain, sleep, confirm.

use std::time::Duration;

use apimachinery::time::duration_until;
use jiff::Timestamp;

use super::context::{CALL_TIMEOUT, Context, MAX_FAILURES};
use super::outcome::Outcome;
use crate::call::{Request, SleepMode};
use crate::delete_purpose::DeletePurpose;
use crate::facts::Activity;
use crate::node::Engine;
use crate::write;

/// Part of the grace period of a requester that remains for the sleep request and the writes after it.
const RESERVED_GRACE: Duration = Duration::from_secs(5);
/// Shortest timeout of a request that waits for the engine.
const MIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Progress of putting an engine to sleep.
pub(super) enum Progress {
    /// It is asleep.
    Asleep,
    /// It cannot be put to sleep and has to be deleted.
    Impossible(DeletePurpose),
    /// This is to be done first.
    Next(Outcome),
}

/// Returns what to do next until the engine is asleep. `grace_end` is the end of the grace period of the requester.
pub(super) fn put_to_sleep(context: &Context, engine: &Engine, grace_end: Option<Timestamp>) -> Progress {
    let facts = &engine.facts;
    if engine.is_broken() || engine.was_never_ready() || facts.activity == Some(Activity::SleepUnsupported) {
        return Progress::Impossible(DeletePurpose::NotReusable);
    }
    if engine.provider.ip.is_none() || facts.sleep_failures >= MAX_FAILURES || facts.query_failures >= MAX_FAILURES {
        return Progress::Impossible(DeletePurpose::NotSleeping);
    }
    if facts.outstanding.is_some() {
        return Progress::Next(Outcome::wait());
    }
    match facts.activity {
        Some(Activity::Asleep) if facts.waking_since.is_none() => Progress::Asleep,
        // A wake request whose answer was lost may still have its effect.
        Some(Activity::Asleep) => Progress::Next(request_sleep(context, engine, true, CALL_TIMEOUT)),
        None => Progress::Next(context.call_engine(engine, Request::IsSleeping, CALL_TIMEOUT)),
        _ if engine.provider.has_pool_labels() => Progress::Next(Outcome::write(write::withdraw(&engine.provider))),
        _ => Progress::Next(drain_and_sleep(context, engine, grace_end)),
    }
}

fn drain_and_sleep(context: &Context, engine: &Engine, grace_end: Option<Timestamp>) -> Outcome {
    let drain = engine.facts.drain;
    let since = drain.map_or(context.now, |drain| drain.since);
    let deadline = deadline(context, since, grace_end);
    let remaining = duration_until(deadline, context.now);
    let is_idle = drain.is_some_and(|drain| drain.is_idle);
    if !is_idle && !remaining.is_zero() {
        let settle = if drain.is_none() { context.settings.settle } else { Duration::ZERO };
        let timeout = remaining.clamp(MIN_TIMEOUT, CALL_TIMEOUT);
        return context.call_engine(engine, Request::Drain { settle }, timeout);
    }
    let is_overdue = remaining.is_zero() || drain.is_some_and(|drain| drain.is_overdue);
    request_sleep(context, engine, is_overdue, remaining)
}

fn request_sleep(context: &Context, engine: &Engine, abort: bool, remaining: Duration) -> Outcome {
    let mode = if abort { SleepMode::Abort } else { SleepMode::Wait };
    let timeout = if abort { CALL_TIMEOUT } else { remaining.clamp(MIN_TIMEOUT, CALL_TIMEOUT) };
    context.call_engine(engine, Request::Sleep(mode), timeout)
}

fn deadline(context: &Context, since: Timestamp, grace_end: Option<Timestamp>) -> Timestamp {
    let drain_end = since.checked_add(context.settings.drain).unwrap_or(Timestamp::MAX);
    let grace_end = grace_end.and_then(|end| end.checked_sub(RESERVED_GRACE).ok());
    grace_end.map_or(drain_end, |end| end.min(drain_end))
}
