//! Effects of calls on what is known about engines and requesters: when they start, and when they are answered.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use jiff::Timestamp;

use crate::call::{Answer, Call, CallError, CallErrorKind, PUT_TO_SLEEP, Request, SleepMode};
use crate::facts::{
    Activity, CallFailure, Drain, EngineFacts, LauncherFacts, MemoryUsage, Process, RequesterFacts, Verification,
};
use crate::problem::Problem;

/// Delay after the first failure; it doubles with each consecutive failure.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(200);
/// Maximum delay after a failure.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(20);
/// Interval at which an engine is queried that takes long to wake up.
const WAKE_POLL: Duration = Duration::from_millis(500);
/// Interval at which a launcher is listed that reports no changes.
const LAUNCHER_POLL: Duration = Duration::from_secs(1);
/// Attempts to release a requester that does not respond.
const MAX_RELEASE_FAILURES: u32 = 3;

/// Result of a call.
pub(crate) type CallResult = Result<Answer, CallError>;

/// Returns when to try again after a number of consecutive failures.
pub(crate) fn retry_at(failures: u32, now: Timestamp) -> Timestamp {
    let factor = 1_u32.checked_shl(failures.saturating_sub(1).min(16)).unwrap_or(u32::MAX);
    let delay = MIN_RETRY_DELAY.saturating_mul(factor).min(MAX_RETRY_DELAY);
    now.checked_add(delay).unwrap_or(now)
}

/// Records that a call to an engine starts.
pub(crate) fn start_engine_call(facts: &mut EngineFacts, request: &Request, now: Timestamp) {
    facts.outstanding = Some(request.clone());
    facts.retry_at = None;
    match request {
        Request::WakeUp => {
            facts.waking_since.get_or_insert(now);
            facts.verification = None;
            facts.drain = None;
            facts.sleep_failures = 0;
            facts.instance.is_new = false;
        }
        Request::DeleteInstance { purpose, .. } => facts.instance.deletion = Some(purpose.clone()),
        Request::Drain { .. } | Request::Sleep(_) => {
            facts.drain.get_or_insert(Drain { since: now, is_idle: false, is_sleep_sent: false, is_overdue: false });
        }
        _ => {}
    }
}

/// Records the answer of an engine.
pub(crate) fn finish_engine_call(facts: &mut EngineFacts, call: &Call, result: &CallResult, now: Timestamp) {
    facts.outstanding = None;
    match result {
        Ok(answer) => {
            facts.last_failure.take_if(|failure| is_resolved(failure, answer));
            record_engine_answer(facts, &call.request, answer, now);
        }
        Err(error) => {
            record_engine_failure(facts, &call.request, error, now);
            let action = call.request.action();
            facts.last_failure = Some(CallFailure { action, message: error.message.clone() });
        }
    }
}

/// Returns whether an answer shows that a failure has ended. That an engine sleeps does not show that it can be woken, and only that
/// shows that it can be put to sleep.
fn is_resolved(failure: &CallFailure, answer: &Answer) -> bool {
    let is_asleep = *answer == Answer::Sleeping(true);
    match failure.action {
        PUT_TO_SLEEP => is_asleep,
        action => !is_asleep || action == Request::IsSleeping.action(),
    }
}

fn record_engine_answer(facts: &mut EngineFacts, request: &Request, answer: &Answer, now: Timestamp) {
    match (request, answer) {
        (_, Answer::SleepUnsupported) => {
            facts.activity = Some(Activity::SleepUnsupported);
            (facts.query_failures, facts.waking_since) = (0, None);
        }
        (Request::IsSleeping, Answer::Sleeping(true)) => {
            (facts.activity, facts.query_failures) = (Some(Activity::Asleep), 0);
            facts.retry_at = facts.waking_since.and_then(|_| now.checked_add(WAKE_POLL).ok());
            if facts.drain.is_some_and(|drain| drain.is_sleep_sent) {
                (facts.drain, facts.sleep_failures, facts.verification, facts.last_failure) = (None, 0, None, None);
            }
        }
        (Request::IsSleeping, Answer::Sleeping(false)) => {
            (facts.activity, facts.query_failures, facts.waking_since) = (Some(Activity::Awake), 0, None);
            if let Some(drain) = facts.drain.as_mut().filter(|drain| drain.is_sleep_sent) {
                drain.is_sleep_sent = false;
                let message = "the engine accepted the request but is awake".to_owned();
                facts.last_failure = Some(CallFailure { action: PUT_TO_SLEEP, message });
                facts.sleep_failures = facts.sleep_failures.saturating_add(1);
                facts.retry_at = Some(retry_at(facts.sleep_failures, now));
            }
        }
        (Request::WakeUp, _) => (facts.activity, facts.waking_since) = (Some(Activity::Awake), None),
        (Request::Drain { .. }, Answer::Idle(is_idle)) => {
            if let Some(drain) = &mut facts.drain {
                drain.is_idle = *is_idle;
            }
        }
        (Request::Sleep(_), _) => {
            // Confirmed by a query.
            (facts.activity, facts.waking_since) = (None, None);
            if let Some(drain) = &mut facts.drain {
                drain.is_sleep_sent = true;
            }
        }
        (Request::Verify { .. }, Answer::Completion(completion)) => {
            facts.verification = Some(Verification { completion: completion.clone() });
            facts.wake_failures = 0;
            (facts.instance.is_healthy, facts.instance.health_checked_at) = (true, Some(now));
        }
        (Request::AwaitHealth, Answer::Healthy(is_healthy)) => {
            (facts.instance.is_healthy, facts.instance.health_checked_at) = (*is_healthy, Some(now));
            if !is_healthy && facts.verification.is_some() {
                facts.retry_at = Some(retry_at(1, now));
            }
        }
        (Request::CreateInstance { .. }, Answer::InstanceCreated { revision }) => {
            let instance = &mut facts.instance;
            (instance.process, instance.revision) = (Some(Process::Running), *revision);
            (instance.is_new, instance.create_failures) = (true, 0);
        }
        // Whether it runs follows from the next response.
        (Request::CreateInstance { .. }, Answer::InstanceExists) => facts.instance.process = None,
        (Request::DeleteInstance { .. }, Answer::InstanceDeleted { revision }) => {
            let instance = &mut facts.instance;
            (instance.process, instance.revision) = (Some(Process::Absent), instance.revision.max(*revision));
            (instance.is_healthy, facts.activity) = (false, None);
        }
        _ => {}
    }
}

fn record_engine_failure(facts: &mut EngineFacts, request: &Request, error: &CallError, now: Timestamp) {
    let failures = match request {
        Request::WakeUp => {
            facts.activity = None;
            if error.kind == CallErrorKind::NoResponse {
                // The engine may still be waking up.
                return;
            }
            facts.waking_since = None;
            &mut facts.wake_failures
        }
        Request::Verify { .. } => &mut facts.wake_failures,
        Request::AwaitHealth => {
            facts.retry_at = Some(retry_at(1, now));
            return;
        }
        Request::CreateInstance { .. } => {
            if error.kind == CallErrorKind::NoResponse {
                // The launcher may have created it.
                facts.instance.process = None;
            }
            &mut facts.instance.create_failures
        }
        Request::DeleteInstance { .. } => &mut facts.instance.delete_failures,
        Request::Sleep(mode) => {
            facts.activity = None;
            if (*mode, error.kind) == (SleepMode::Wait, CallErrorKind::NoResponse) {
                // The engine did not finish its requests in time.
                if let Some(drain) = &mut facts.drain {
                    drain.is_overdue = true;
                }
                return;
            }
            &mut facts.sleep_failures
        }
        Request::Drain { .. } => {
            facts.retry_at = Some(retry_at(1, now));
            return;
        }
        _ => &mut facts.query_failures,
    };
    *failures = failures.saturating_add(1);
    facts.retry_at = Some(retry_at(*failures, now));
}

/// Records the answer of a launcher. `instances` are the engines that it may run, with whether they were ever ready.
pub(crate) fn finish_launcher_call<'a>(
    facts: &mut LauncherFacts,
    instances: impl Iterator<Item = (&'a str, &'a mut EngineFacts, bool)>,
    result: &CallResult,
    now: Timestamp,
) {
    facts.outstanding = None;
    match result {
        Ok(Answer::Instances { revision, instances: observed }) => {
            // A launcher without a stream of changes is polled.
            let is_unchanged = facts.revision == Some(*revision);
            facts.retry_at = if is_unchanged { now.checked_add(LAUNCHER_POLL).ok() } else { None };
            (facts.revision, facts.failures) = (Some(*revision), 0);
            facts.instances.clone_from(observed);
            for (id, engine, was_ready) in instances {
                engine.instance.observe(*revision, observed.get(id), was_ready);
            }
        }
        Ok(_) => {}
        Err(_) => {
            facts.failures = facts.failures.saturating_add(1);
            facts.retry_at = Some(retry_at(facts.failures, now));
        }
    }
}

/// Records that a call to a requester starts.
pub(crate) fn start_requester_call(facts: &mut RequesterFacts, request: &Request) {
    facts.outstanding = Some(request.clone());
    facts.retry_at = None;
}

/// Records the answer of a requester.
pub(crate) fn finish_requester_call(facts: &mut RequesterFacts, call: &Call, result: &CallResult, now: Timestamp) {
    facts.outstanding = None;
    match result {
        Ok(answer) => {
            (facts.failures, facts.problem) = (0, None);
            record_requester_answer(facts, &call.request, answer, now);
        }
        Err(error) => record_requester_failure(facts, call, error, now),
    }
}

fn record_requester_answer(facts: &mut RequesterFacts, request: &Request, answer: &Answer, now: Timestamp) {
    match (request, answer) {
        (Request::Accelerators, Answer::Accelerators(uuids)) => {
            facts.accelerators = Some(uuids.iter().cloned().collect());
            if uuids.is_empty() {
                facts.problem = Some(Problem::NoAccelerators);
                facts.retry_at = now.checked_add(MAX_RETRY_DELAY).ok();
            }
        }
        (Request::MemoryUsage, Answer::MemoryUsage(used_mib)) => {
            facts.memory = Some(MemoryUsage::Known { used_mib: used_mib.clone(), at: now });
        }
        (Request::Ready(is_ready), _) => facts.relayed = Some(*is_ready),
        (Request::Release, _) => facts.is_released = true,
        _ => {}
    }
}

fn record_requester_failure(facts: &mut RequesterFacts, call: &Call, error: &CallError, now: Timestamp) {
    facts.failures = facts.failures.saturating_add(1);
    facts.retry_at = Some(retry_at(facts.failures, now));
    match &call.request {
        Request::MemoryUsage => {
            (facts.memory, facts.retry_at, facts.failures) = (Some(MemoryUsage::Unavailable), None, 0);
            return;
        }
        Request::Release => {
            // A requester that does not know the route, or that has ended, does not hold its accelerators.
            let is_silent = error.kind == CallErrorKind::NoResponse && facts.failures < MAX_RELEASE_FAILURES;
            facts.is_released = !is_silent;
            return;
        }
        Request::Ready(_) => facts.relayed = None,
        _ => {}
    }
    let (verb, path) = call.request.method_and_path();
    // An IPv6 address has brackets in a URL.
    let address = call.ip.parse().map(|ip: IpAddr| SocketAddr::new(ip, call.port).to_string());
    let url = format!("http://{}{path}", address.unwrap_or_else(|_| format!("{}:{}", call.ip, call.port)));
    facts.problem = Some(Problem::RequesterUnreachable { verb, url, message: error.message.clone() });
}
