//! The node that is decided about, and queries of the rules.

use std::cell::OnceCell;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;

use super::outcome::{Outcome, earliest};
use crate::action::{Action, Write};
use crate::call::{Call, Request, Target};
use crate::container::ContainerPhase;
use crate::delete_purpose::DeletePurpose;
use crate::facts::Process;
use crate::node::{Engine, EngineState, LauncherState, NodeState, Server};
use crate::nominal::LAUNCHER_PORT;
use crate::problem::Problem;
use crate::requester::Requester;
use crate::settings::Settings;
use crate::write;

/// Timeout of a call: shorter than the duration of the Lease, so that no call of a former leader arrives later than a second after
/// the next one leads.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Attempts after which a failing engine is deleted.
pub(super) const MAX_FAILURES: u32 = 3;
/// Grace period of deleted engines that serve no requests. With 0, the object would be removed before the process ends.
const SHORT_GRACE_SECONDS: u32 = 1;

/// The input of a step.
#[derive(Clone, Debug)]
pub(super) struct Context<'a> {
    pub(super) node: &'a NodeState,
    pub(super) settings: &'a Settings,
    pub(super) now: Timestamp,
    sleepers: OnceCell<Vec<&'a Engine>>,
}

/// The engines that are bound to one server.
#[derive(Clone, Debug, Default)]
pub(super) struct BoundEngines<'a> {
    /// The one that serves it.
    pub(super) retained: Option<&'a Engine>,
    /// Others, which are unbound.
    pub(super) surplus: Vec<&'a Engine>,
}

// === impl Context ===

impl<'a> Context<'a> {
    pub(super) fn new(node: &'a NodeState, settings: &'a Settings, now: Timestamp) -> Context<'a> {
        Context { node, settings, now, sleepers: OnceCell::new() }
    }

    /// Returns the servers with their UIDs: those whose requester ends first, since they free accelerators, then the oldest.
    pub(super) fn servers(&self) -> Vec<(&'a str, &'a Server)> {
        let mut servers: Vec<_> = self.node.servers.iter().map(|(uid, server)| (uid.as_str(), server)).collect();
        servers.sort_by_key(|(_, server)| {
            server.requester.as_ref().map(|requester| (!requester.has_ended(), requester.created))
        });
        servers
    }

    /// Returns the engines that are bound to a server. Of several, the ready one is retained, else the oldest.
    pub(super) fn bound(&self, uid: &'a str) -> BoundEngines<'a> {
        let mut engines: Vec<&Engine> = self.node.bound_engines(uid).collect();
        engines.sort_by_key(|engine| {
            let provider = &engine.provider;
            (provider.is_terminating, Reverse(engine.is_ready()), provider.created, provider.pod.name.as_str())
        });
        let mut engines = engines.into_iter();
        BoundEngines { retained: engines.next(), surplus: engines.collect() }
    }

    /// Returns the problem that another engine on one of the accelerators may use their memory.
    pub(super) fn busy_accelerator(&self, accelerators: &BTreeSet<String>, except: Option<&Engine>) -> Option<Problem> {
        let is_other =
            |engine: &&Engine| except.is_none_or(|except| except.provider.engine_id() != engine.provider.engine_id());
        let busy = self.node.engines.values().filter(is_other).filter(|engine| engine.state().is_busy());
        busy.filter_map(|engine| Some((engine, engine.provider.accelerators.intersection(accelerators).next()?)))
            .map(|(engine, accelerator)| Problem::AcceleratorBusy {
                pod: engine.provider.pod.name.clone(),
                accelerator: accelerator.clone(),
                state: engine.state().as_str(),
            })
            .next()
    }

    /// Returns unbound engines that are known to sleep and are not being deleted, least recently used first.
    pub(super) fn sleepers(&self) -> &[&'a Engine] {
        self.sleepers.get_or_init(|| sleepers(self.node))
    }

    /// Starts a call to an engine, unless one is outstanding or a failure was recent.
    pub(super) fn call_engine(&self, engine: &Engine, request: Request, timeout: Duration) -> Outcome {
        // A port without a process of the engine may be that of another one.
        let is_reachable =
            engine.provider.instance.is_none() || engine.facts.instance.process == Some(Process::Running);
        if is_reachable { self.call(engine, request, engine.provider.port, timeout) } else { Outcome::wait() }
    }

    /// Starts a call to the launcher of an instance about it, unless one is outstanding or a failure was recent.
    pub(super) fn call_about_instance(&self, engine: &Engine, request: Request) -> Outcome {
        self.call(engine, request, LAUNCHER_PORT, CALL_TIMEOUT)
    }

    /// Starts a call to a launcher that is Ready, unless one is outstanding or a failure was recent.
    pub(super) fn call_launcher(&self, state: &LauncherState, request: Request, timeout: Duration) -> Outcome {
        let provider = &state.launcher.provider;
        let (Some(ip), None, true) = (&provider.ip, &state.facts.outstanding, provider.is_ready) else {
            return Outcome::wait();
        };
        match state.facts.retry_at {
            Some(retry_at) if retry_at > self.now => Outcome::wait_until(retry_at),
            _ => Outcome::call(Call {
                node: self.node.name.clone(),
                target: Target::Launcher(provider.pod.uid.clone()),
                ip: ip.clone(),
                port: LAUNCHER_PORT,
                request,
                timeout,
            }),
        }
    }

    fn call(&self, engine: &Engine, request: Request, port: u16, timeout: Duration) -> Outcome {
        let (Some(ip), None) = (&engine.provider.ip, &engine.facts.outstanding) else { return Outcome::wait() };
        match engine.facts.retry_at {
            Some(retry_at) if retry_at > self.now => Outcome::wait_until(retry_at),
            _ => Outcome::call(Call {
                node: self.node.name.clone(),
                target: Target::Engine(engine.provider.engine_id()),
                ip: ip.clone(),
                port,
                request,
                timeout,
            }),
        }
    }

    /// Starts a call to a requester, unless one is outstanding or a failure was recent.
    pub(super) fn call_requester(&self, server: &Server, requester: &Requester, request: Request) -> Outcome {
        let (Some(ip), Ok(port)) = (&requester.ip, &requester.admin_port) else { return Outcome::wait() };
        match server.facts.retry_at {
            _ if server.facts.outstanding.is_some() => Outcome::wait(),
            Some(retry_at) if retry_at > self.now => Outcome::wait_until(retry_at),
            _ => Outcome::call(Call {
                node: self.node.name.clone(),
                target: Target::Requester(requester.pod.uid.clone()),
                ip: ip.clone(),
                port: *port,
                request,
                timeout: CALL_TIMEOUT,
            }),
        }
    }

    /// Returns whether the readiness that was last relayed is true; after a restart of the controller, whether the requester's
    /// container is ready.
    pub(super) fn is_relayed_ready(&self, server: &Server, requester: &Requester) -> bool {
        server.facts.relayed.unwrap_or(requester.container.ready)
    }

    /// Withdraws the readiness of a requester, if it may be ready, before anything else is done.
    pub(super) fn withdraw_readiness(&self, server: &Server, requester: &Requester, outcome: Outcome) -> Outcome {
        if !self.is_relayed_ready(server, requester) {
            return outcome;
        }
        let call = self.call_requester(server, requester, Request::Ready(false));
        match call.action {
            Some(_) => Outcome { problems: outcome.problems, ..call },
            None => Outcome { again: earliest(outcome.again, call.again), ..outcome },
        }
    }

    /// Delays a patch or deletion of a Pod of which the API server rejected one, and reports the rejection.
    pub(super) fn delay_rejected(&self, mut outcome: Outcome) -> Outcome {
        let Some(Action::Write(Write::Patch { pod, .. } | Write::Delete { pod, .. })) = &outcome.action else {
            return outcome;
        };
        let Some(rejection) = self.node.rejections.get(&pod.uid) else { return outcome };
        if rejection.retry_at > self.now {
            outcome.action = None;
            outcome.again = earliest(outcome.again, Some(rejection.retry_at));
        }
        outcome.with_problem(rejection.problem.clone())
    }

    /// Deletes an engine, once: its provider, or the instance in its launcher.
    pub(super) fn delete_engine(&self, engine: &Engine, purpose: DeletePurpose) -> Outcome {
        match &engine.provider.instance {
            Some(_) => self.delete_instance(engine, purpose),
            None => self.delete_pod(engine, purpose),
        }
    }

    /// Continues the deletion of an instance that has begun; `None` for other engines.
    pub(super) fn instance_deletion(&self, engine: &Engine) -> Option<Outcome> {
        let purpose = engine.facts.instance.deletion.clone()?;
        Some(self.delete_instance(engine, purpose))
    }

    /// Deletes an instance, then its record. A launcher that cannot delete it is deleted itself.
    fn delete_instance(&self, engine: &Engine, purpose: DeletePurpose) -> Outcome {
        let (provider, facts) = (&engine.provider, &engine.facts.instance);
        let Some(instance) = &provider.instance else { return Outcome::wait() };
        if provider.is_terminating || engine.is_deletion_sent {
            return Outcome::wait();
        }
        if provider.has_pool_labels() {
            return Outcome::write(write::withdraw(provider));
        }
        if facts.process == Some(Process::Absent) {
            return Outcome::write(write::remove_instance(provider, instance));
        }
        let cannot_delete = facts.delete_failures >= MAX_FAILURES || self.launcher_failures(engine) >= MAX_FAILURES;
        if cannot_delete || provider.container.phase == ContainerPhase::Terminated {
            return self.delete_pod(engine, purpose);
        }
        self.call_about_instance(engine, Request::DeleteInstance { id: instance.id.clone(), purpose })
    }

    fn launcher_failures(&self, engine: &Engine) -> u32 {
        self.node.launchers.get(&engine.provider.pod.uid).map(|state| state.facts.failures).unwrap_or_default()
    }

    /// Deletes a launcher with all its engines, once.
    pub(super) fn delete_launcher(&self, state: &LauncherState, purpose: DeletePurpose) -> Outcome {
        let provider = &state.launcher.provider;
        if state.is_deletion_sent || provider.is_terminating {
            return Outcome::wait();
        }
        Outcome::write(Write::Delete { pod: provider.pod.clone(), purpose, grace_seconds: Some(SHORT_GRACE_SECONDS) })
    }

    /// Deletes the Pod of an engine, once.
    pub(super) fn delete_pod(&self, engine: &Engine, purpose: DeletePurpose) -> Outcome {
        if engine.provider.is_terminating || engine.is_deletion_sent {
            return Outcome::wait();
        }
        let grace_seconds = Some(SHORT_GRACE_SECONDS);
        Outcome::write(Write::Delete { pod: engine.provider.pod.clone(), purpose, grace_seconds })
    }

    /// Deletes a requester, once.
    pub(super) fn delete_requester(&self, server: &Server, purpose: DeletePurpose) -> Outcome {
        match &server.requester {
            Some(requester) if !server.is_deletion_sent && requester.deletion_deadline.is_none() => {
                Outcome::write(Write::Delete { pod: requester.pod.clone(), purpose, grace_seconds: None })
            }
            _ => Outcome::wait(),
        }
    }
}

/// Returns the engines of a node that are known to sleep, are not bound and are not being deleted, least recently used first: the
/// order in which they are deleted for others.
pub(crate) fn sleepers(node: &NodeState) -> Vec<&Engine> {
    let is_sleeper = |engine: &&Engine| {
        let provider = &engine.provider;
        provider.binding.is_none()
            && !engine.is_leaving()
            && engine.facts.outstanding.is_none()
            && engine.state() == EngineState::Asleep
    };
    let mut sleepers: Vec<&Engine> = node.engines.values().filter(is_sleeper).collect();
    sleepers.sort_by_key(|engine| (engine.provider.last_used(), engine.provider.pod.name.as_str()));
    sleepers
}

/// Returns the problem that the last call to an engine failed.
pub(super) fn last_failure(engine: &Engine) -> Option<Problem> {
    engine.facts.last_failure.as_ref().map(|failure| Problem::EngineCall {
        action: failure.action,
        pod: engine.provider.pod.name.clone(),
        message: failure.message.clone(),
    })
}
