//! Rule 10: an engine is bound. It is woken, verified and published, and its readiness is relayed.

use std::time::Duration;

use apimachinery::time::duration_until;

use super::budget;
use super::context::{CALL_TIMEOUT, Context, MAX_FAILURES, last_failure};
use super::outcome::Outcome;
use super::sleeping::{Progress, put_to_sleep};
use crate::call::Request;
use crate::delete_purpose::DeletePurpose;
use crate::facts::{Activity, Process, Verification};
use crate::node::{Availability, Engine, EngineState, Server};
use crate::problem::Problem;
use crate::provider::PoolLabels;
use crate::requester::Requester;
use crate::write;

/// How long an engine may take to wake up.
const WAKE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long one request waits for an instance to become healthy.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the outcome for a server with a bound engine.
pub(super) fn rule(context: &Context, server: &Server, requester: &Requester, engine: &Engine) -> Outcome {
    let provider = &engine.provider;
    if engine.is_deletion_sent {
        return Outcome::wait();
    }
    if context.node.availability == Availability::Cordoned && !provider.is_scheduled {
        return context.delete_requester(server, DeletePurpose::NodeCordoned);
    }
    if !provider.has_finalizer() {
        return Outcome::write(write::restore(provider));
    }
    if requester.accelerators.as_ref() != Some(&provider.accelerators) {
        return rebind(context, engine);
    }
    let outcome = match engine.state() {
        EngineState::Loading => loading(context, server, engine),
        EngineState::Unknown => context.call_engine(engine, Request::IsSleeping, CALL_TIMEOUT),
        EngineState::Asleep if !serves(server, engine) => rebind(context, engine),
        EngineState::Asleep => wake(context, server, requester, engine),
        EngineState::Changing => follow_wake(context, engine),
        EngineState::Awake => return awake(context, server, requester, engine),
        EngineState::Dead => Outcome::wait(),
    };
    not_ready(context, server, requester, engine, outcome).with_problem(last_failure(engine))
}

/// Whether the engine is the one that the requester needs. A demand that cannot be derived any longer, such as after an edit of
/// `gpu-map`, does not end a binding.
fn serves(server: &Server, engine: &Engine) -> bool {
    server.nominal().is_none_or(|nominal| nominal.identity == engine.provider.identity)
}

/// Unbinds an engine that is not the one that the requester needs.
fn rebind(context: &Context, engine: &Engine) -> Outcome {
    match put_to_sleep(context, engine, None) {
        Progress::Asleep => Outcome::write(write::unbind(&engine.provider, true, context.now)),
        Progress::Impossible(purpose) => context.delete_engine(engine, purpose),
        Progress::Next(outcome) => outcome,
    }
}

fn loading(context: &Context, server: &Server, engine: &Engine) -> Outcome {
    let pod = engine.provider.pod.name.clone();
    if let Some(message) = &engine.provider.unschedulable {
        return budget::free_host_resources(context, message)
            .with_problem(Some(Problem::Unschedulable { pod, message: message.clone() }));
    }
    let reason = engine.provider.container.start_failure().map(str::to_owned);
    let outcome = match engine.facts.instance.process {
        Some(Process::Absent) => create_instance(context, server, engine),
        Some(Process::Running) => context.call_engine(engine, Request::AwaitHealth, HEALTH_TIMEOUT),
        Some(Process::Ended) | None => Outcome::wait(),
    };
    outcome.with_problem(reason.map(|reason| Problem::EngineNotStarted { pod, reason }))
}

/// Creates the engine in the launcher to which it is bound.
fn create_instance(context: &Context, server: &Server, engine: &Engine) -> Outcome {
    let provider = &engine.provider;
    let nominal = server.nominal().filter(|nominal| nominal.identity == provider.identity);
    let Some((nominal, instance)) = nominal.and_then(|nominal| Some((nominal, nominal.instance.as_ref()?))) else {
        // The requester needs another engine since.
        return context.delete_engine(engine, DeletePurpose::NotReusable);
    };
    if let Some(problem) = context.busy_accelerator(&provider.accelerators, Some(engine)) {
        return Outcome::blocked(problem);
    }
    let config = instance.request(&nominal.accelerators, nominal.port);
    context.call_about_instance(engine, Request::CreateInstance { id: nominal.identity.clone(), config })
}

fn wake(context: &Context, server: &Server, requester: &Requester, engine: &Engine) -> Outcome {
    if let Some(problem) = failed_too_often(engine) {
        return context.delete_engine(engine, DeletePurpose::NotWaking(problem));
    }
    if let Some(problem) = context.busy_accelerator(&engine.provider.accelerators, Some(engine)) {
        return Outcome::blocked(problem);
    }
    let sleepers = context.settings.sleeper_limit.saturating_add(1);
    match budget::check_memory(context, server, requester, &engine.provider.accelerators, sleepers) {
        Some(outcome) => outcome,
        None => context.call_engine(engine, Request::WakeUp, CALL_TIMEOUT),
    }
}

/// Follows a wake whose request got no response: the engine may still be waking up.
fn follow_wake(context: &Context, engine: &Engine) -> Outcome {
    let (Some(since), None) = (engine.facts.waking_since, &engine.facts.outstanding) else { return Outcome::wait() };
    let elapsed = duration_until(context.now, since);
    if let Some(problem) = failed_too_often(engine) {
        return context.delete_engine(engine, DeletePurpose::NotWaking(problem));
    }
    if elapsed >= WAKE_TIMEOUT {
        let message = format!("it did not wake up within {} s", WAKE_TIMEOUT.as_secs());
        let problem = Problem::EngineCall { action: "wake", pod: engine.provider.pod.name.clone(), message };
        return context.delete_engine(engine, DeletePurpose::NotWaking(problem));
    }
    context.call_engine(engine, Request::IsSleeping, CALL_TIMEOUT)
}

fn awake(context: &Context, server: &Server, requester: &Requester, engine: &Engine) -> Outcome {
    let unsupported = (engine.facts.activity == Some(Activity::SleepUnsupported))
        .then(|| Problem::SleepUnsupported { pod: engine.provider.pod.name.clone() });
    let Some(verification) = &engine.facts.verification else {
        let outcome = verify(context, engine);
        return not_ready(context, server, requester, engine, outcome)
            .with_problem(unsupported)
            .with_problem(last_failure(engine));
    };
    if let Some(problem) = changed_fingerprint(engine, verification) {
        return context.delete_engine(engine, DeletePurpose::NotWaking(problem.clone())).with_problem(Some(problem));
    }
    if !engine.is_ready() {
        let outcome = match engine.provider.instance {
            Some(_) if engine.provider.has_pool_labels() => Outcome::write(write::withdraw(&engine.provider)),
            Some(_) => context.call_engine(engine, Request::AwaitHealth, HEALTH_TIMEOUT),
            None => Outcome::wait(),
        };
        return context.withdraw_readiness(server, requester, outcome).with_problem(unsupported);
    }
    let outcome = if !is_published(engine) {
        Outcome::write(write::publish(&engine.provider, verification.completion.as_deref(), context.now))
    } else if !context.is_relayed_ready(server, requester) {
        context.call_requester(server, requester, Request::Ready(true)).with_problem(server.facts.problem.clone())
    } else if requester.dual.as_deref() != Some(crate::names::label_value(&engine.provider.pod.name).as_str()) {
        Outcome::write(write::link(requester, &engine.provider))
    } else {
        check_health(context, engine)
    };
    outcome.with_problem(unsupported)
}

/// Checks the health of an instance regularly: the kubelet probes only its launcher.
fn check_health(context: &Context, engine: &Engine) -> Outcome {
    let checked_at = engine.facts.instance.health_checked_at.filter(|_| engine.provider.instance.is_some());
    let due = checked_at.and_then(|at| at.checked_add(context.settings.health_interval?).ok());
    match due {
        Some(due) if due > context.now => Outcome::wait_until(due),
        Some(_) => context.call_engine(engine, Request::AwaitHealth, HEALTH_TIMEOUT),
        None => Outcome::wait(),
    }
}

fn verify(context: &Context, engine: &Engine) -> Outcome {
    if let Some(problem) = failed_too_often(engine) {
        return context.delete_engine(engine, DeletePurpose::NotWaking(problem));
    }
    let completion = context.settings.verify_completion;
    context.call_engine(engine, Request::Verify { completion }, CALL_TIMEOUT)
}

fn changed_fingerprint(engine: &Engine, verification: &Verification) -> Option<Problem> {
    let (expected, actual) = (engine.provider.fingerprint.as_ref()?, verification.completion.as_ref()?);
    (expected != actual).then(|| Problem::FingerprintChanged {
        pod: engine.provider.pod.name.clone(),
        expected: expected.clone(),
        actual: actual.clone(),
    })
}

/// Whether the provider has its pool labels, and the time at which its engine was awake is recorded.
fn is_published(engine: &Engine) -> bool {
    let provider = &engine.provider;
    provider.pool_label_state == PoolLabels::Present
        && provider.last_awake.is_some()
        && provider.is_labeled_sleeping == Some(false)
}

/// Withdraws the readiness of the requester, if it may be ready, before anything else is done. An engine whose provider is Ready
/// and that a former leader published remains ready until it is observed.
fn not_ready(context: &Context, server: &Server, requester: &Requester, engine: &Engine, outcome: Outcome) -> Outcome {
    let is_unobserved = matches!(engine.state(), EngineState::Unknown | EngineState::Awake);
    let may_serve = is_unobserved && engine.provider.is_ready;
    if may_serve { outcome } else { context.withdraw_readiness(server, requester, outcome) }
}

fn failed_too_often(engine: &Engine) -> Option<Problem> {
    let failures = engine.facts.wake_failures.max(engine.facts.query_failures);
    last_failure(engine).filter(|_| failures >= MAX_FAILURES)
}
