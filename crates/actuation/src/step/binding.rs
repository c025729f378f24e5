//! Rules 11 to 15: no engine is bound. A suitable sleeper is bound, else a provider is created within the budget.

use std::sync::Arc;

use super::budget;
use super::context::Context;
use super::outcome::Outcome;
use crate::action::{DeletePurpose, Write};
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
    let suitable =
        |provider: &&Provider| provider.identity == nominal.identity && provider.pod.namespace == nominal.namespace;
    if let Some(provider) = context.sleepers().iter().map(|engine| &engine.provider).rfind(suitable) {
        return Outcome::write(write::bind(requester, nominal, provider));
    }
    let outcome = match &server.rejection {
        Some(rejection) if rejection.retry_at > context.now => Outcome::wait_until(rejection.retry_at),
        _ => create(context, server, requester, nominal),
    };
    outcome.with_problem(server.rejection.as_ref().and_then(|rejection| rejection.problem.clone()))
}

/// Creates the provider, once its name and its resources are free.
fn create(context: &Context, server: &Server, requester: &Requester, nominal: &Arc<NominalProvider>) -> Outcome {
    let outcome = free_name(context, requester)
        .or_else(|| budget::enforce_limits(context, server, requester, &nominal.accelerators));
    let write = || Write::Create { requester: requester.pod.clone(), nominal: Arc::clone(nominal) };
    outcome.unwrap_or_else(|| Outcome::write(write()))
}

/// Deletes an unbound provider that was created for this requester but is not suitable any longer: the next one has its name.
fn free_name(context: &Context, requester: &Requester) -> Option<Outcome> {
    let name = provider_name(&requester.pod.name, &requester.pod.uid);
    let has_name = |provider: &Provider| provider.pod.name == name && provider.pod.namespace == requester.pod.namespace;
    let engine = context.node.engines.values().find(|engine| has_name(&engine.provider))?;
    if engine.provider.binding.is_some() {
        let message = format!("Pod {name} serves another requester, and the provider of this one would have its name");
        return Some(Outcome::blocked(Problem::Rejected(message)));
    }
    Some(context.delete_engine(engine, DeletePurpose::NameReused))
}
