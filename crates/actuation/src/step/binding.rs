//! Rules 11 to 15: no engine is bound. A suitable sleeper is bound, else a provider is created within the budget.

use std::sync::Arc;

use super::context::Context;
use super::outcome::Outcome;
use super::{budget, placement};
use crate::action::Write;
use crate::delete_purpose::DeletePurpose;
use crate::names::provider_name;
use crate::node::{Availability, Server};
use crate::nominal::NominalProvider;
use crate::problem::Problem;
use crate::provider::Provider;
use crate::requester::Requester;
use crate::write;

/// Returns the outcome for a server without an engine.
pub(super) fn rule(
    context: &Context,
    server: &Server,
    requester: &Requester,
    nominal: &Arc<NominalProvider>,
) -> Outcome {
    if context.node.availability == Availability::Cordoned {
        return context.delete_requester(server, DeletePurpose::NodeCordoned);
    }
    if let Some(problem) = context.busy_accelerator(&nominal.accelerators, None) {
        return Outcome::blocked(problem);
    }
    let suitable = |provider: &&Provider| {
        let is_free = provider.instance.as_ref().is_none_or(|instance| !instance.is_launcher_bound);
        provider.identity == nominal.identity && provider.pod.namespace == nominal.namespace && is_free
    };
    if let Some(provider) = context.sleepers().iter().map(|engine| &engine.provider).rfind(suitable) {
        return Outcome::write(match context.node.launchers.get(&provider.pod.uid) {
            Some(state) => write::bind_instance(requester, nominal, &state.launcher),
            None => write::bind(requester, nominal, provider),
        });
    }
    let outcome = match &server.rejection {
        Some(rejection) if rejection.retry_at > context.now => Outcome::wait_until(rejection.retry_at),
        _ => start(context, server, requester, nominal),
    };
    outcome.with_problem(server.rejection.as_ref().and_then(|rejection| rejection.problem.clone()))
}

/// Starts an engine within the budget: in a launcher that exists if one is suitable, else in a Pod that is created once its name is
/// free.
fn start(context: &Context, server: &Server, requester: &Requester, nominal: &Arc<NominalProvider>) -> Outcome {
    let limits = || budget::enforce_limits(context, server, requester, &nominal.accelerators);
    let outcome = match &nominal.instance {
        None => free_name(context, requester).or_else(limits),
        Some(_) => limits()
            .or_else(|| placement::launch(context, requester, nominal))
            .or_else(|| free_name(context, requester)),
    };
    let write = || Write::Create { requester: requester.pod.clone(), nominal: Arc::clone(nominal) };
    outcome.unwrap_or_else(|| Outcome::write(write()))
}

/// Deletes an unbound provider that was created for this requester but is not suitable any longer: the next one has its name.
fn free_name(context: &Context, requester: &Requester) -> Option<Outcome> {
    let name = provider_name(&requester.pod.name, &requester.pod.uid);
    let has_name = |provider: &Provider| provider.pod.name == name && provider.pod.namespace == requester.pod.namespace;
    let launcher = context.node.launchers.values().find(|state| has_name(&state.launcher.provider));
    if let Some(state) = launcher.filter(|state| state.launcher.provider.binding.is_none()) {
        return Some(context.delete_launcher(state, DeletePurpose::NameReused));
    }
    let engine = context.node.engines.values().find(|engine| has_name(&engine.provider))?;
    if engine.provider.binding.is_some() {
        let message = format!("Pod {name} serves another requester, and the provider of this one would have its name");
        return Some(Outcome::blocked(Problem::Rejected(message)));
    }
    Some(context.delete_engine(engine, DeletePurpose::NameReused))
}
