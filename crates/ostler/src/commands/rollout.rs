//! `ostler rollout`: shows and controls the rollout of a service, and rolls back to earlier revisions.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Subcommand;
use cluster::{error_chain, find_condition};
use futures::{StreamExt, pin_mut};
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::watch_object;
use operator::{
    ConditionReason, ServicePreview, is_rollout_paused, kinds, restore_revision, revision_content, revision_number,
    rollout_pause_annotation,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::pending_rollout::{LiveObjects, Pending, pending_rollout};
use super::rollout_change::{FailedRollout, Remedy, RolloutChange, has_plan, previous_revision, revert_runtime};
use super::target_service::{Target, TargetArgs};
use super::time_limit::TimeLimit;
use crate::exit::Exit;
use crate::output;
use crate::report::errors::error_with_hint;
use crate::report::rollout::{RolloutPhase, describe_changes, history, progress};

/// How long a change that the operator has not applied is waited for. An operator with another version or other options never
/// applies what this version plans.
const PENDING_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which a service is planned again while such a change exists.
const PENDING_INTERVAL: Duration = Duration::from_millis(500);
/// Interval at which it is planned again while the API server does not respond.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RolloutArgs {
    #[command(subcommand)]
    action: RolloutCommand,
}

const EXAMPLES: &str = "\
Examples:
  ostler rollout status inferenceservice/chat                 Wait until the rollout completes, fails or stalls
  ostler rollout undo inferenceservice/chat                   Roll back to the previous revision
  ostler rollout undo inferenceservice/chat --to-revision 3   Roll back to revision 3

The replicas of a role are updated one at a time (`maxUnavailable`). The rollout stops if an updated replica does not become
ready.";

#[derive(Subcommand)]
enum RolloutCommand {
    /// Show the status of the rollout and wait until it ends
    Status(StatusArgs),
    /// List the last 10 revisions
    History(TargetArgs),
    /// Pause the rollout: do not update further replicas
    Pause(TargetArgs),
    /// Resume a paused rollout
    Resume(TargetArgs),
    /// Roll back to an earlier revision; the number of replicas does not change
    Undo(UndoArgs),
}

#[derive(clap::Args)]
struct StatusArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Print the status once and do not wait
    #[arg(long)]
    no_wait: bool,
    /// Wait at most this long, such as 90s or 15m; 0 means no limit
    #[arg(long, value_name = "DURATION", default_value = "0")]
    timeout: TimeLimit,
    /// Wait at most this long without progress; 0 means no limit
    ///
    /// The rollout makes no progress while, for example, accelerators are missing.
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    progress_deadline: TimeLimit,
}

#[derive(clap::Args)]
struct UndoArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Roll back to this revision [default: the previous one]
    #[arg(long, value_name = "N")]
    to_revision: Option<i64>,
}

pub(super) async fn run(args: RolloutArgs) -> Result<Exit> {
    match args.action {
        RolloutCommand::Status(args) => return status(args).await,
        RolloutCommand::History(target) => print_history(&target.find().await?).await?,
        RolloutCommand::Pause(target) => set_paused(&target.find().await?, true).await?,
        RolloutCommand::Resume(target) => set_paused(&target.find().await?, false).await?,
        RolloutCommand::Undo(args) => undo(&args.target.find().await?, args.to_revision).await?,
    }
    Ok(Exit::Success)
}

async fn status(args: StatusArgs) -> Result<Exit> {
    let target = args.target.find().await?;
    if args.no_wait {
        let (phase, message) = progress(&target.service);
        let (phase, message) = match pending_rollout(&target, &target.service, phase).await? {
            Some(Pending::Status(difference) | Pending::Plan(difference)) => (RolloutPhase::Progressing, difference),
            None => (phase, message),
        };
        output::print_line(&format!("{}: {message}", target.display_name))?;
        return Ok(exit_code(phase));
    }
    let watch = watch_rollout(&target, args.progress_deadline);
    args.timeout.apply(Instant::now(), watch).await.unwrap_or_else(|| {
        Err(error_with_hint(
            format!("{}: rollout did not complete within {}", target.display_name, args.timeout),
            format!(
                "the rollout continues; run `ostler explain {}` to see what it is waiting for",
                target.display_name
            ),
        ))
    })
}

/// Prints each new status of the rollout until it ends or makes no progress for `deadline`. A status that was printed before
/// does not count as progress, so an engine that repeatedly starts and crashes reaches the deadline.
async fn watch_rollout(target: &Target, deadline: TimeLimit) -> Result<Exit> {
    let updates = watch_object(target.api.clone(), &target.name).default_backoff();
    pin_mut!(updates);
    let mut watch_error = RepeatedError::default();
    let mut confirmation_error = RepeatedError::default();
    let (mut last_message, mut messages, mut last_progress) = (String::new(), BTreeSet::new(), Instant::now());
    let (mut service, mut pending_since) = (target.service.clone(), None);
    loop {
        let next = async {
            tokio::select! {
                update = updates.next() => Some(update),
                () = tokio::time::sleep(PENDING_INTERVAL), if pending_since.is_some() => None,
                () = tokio::time::sleep(RETRY_INTERVAL), if confirmation_error.is_some() => None,
            }
        };
        let Some(next) = deadline.apply(last_progress, next).await else {
            if let Some(error) = watch_error.message().or(confirmation_error.message()) {
                return Err(error_with_hint(
                    format!("{}: no status was received for {deadline}: {error}", target.display_name),
                    "check the connection to the API server; set --progress-deadline to wait longer",
                ));
            }
            return Err(progress_deadline_exceeded(target, &service, deadline, &last_message).await);
        };
        match next {
            Some(Some(Ok(Some(object)))) => {
                service = serde_json::to_value(&object)?;
                watch_error.clear();
            }
            Some(Some(Ok(None))) => {
                return Err(error_with_hint(format!("{} was deleted", target.display_name), "apply the service again"));
            }
            Some(Some(Err(error))) => {
                watch_error.record(&format!("failed to watch {}", target.display_name), error_chain(&error));
                continue;
            }
            Some(None) => return Ok(Exit::Failure),
            None => {}
        }
        let (phase, message) = match confirmed_progress(target, &service, &mut pending_since).await {
            Ok(progress) => progress,
            Err(error) => {
                confirmation_error.record("failed to confirm the status", error_chain(error.as_ref()));
                continue;
            }
        };
        confirmation_error.clear();
        if message != last_message {
            output::print_line(&format!("{}: {message}", target.display_name))?;
        }
        if messages.insert(message.clone()) && phase == RolloutPhase::Progressing {
            last_progress = Instant::now();
        }
        last_message = message;
        match phase {
            RolloutPhase::Progressing | RolloutPhase::Degraded => {}
            RolloutPhase::Failed => {
                output::print_message(&format!(
                    "hint: {}",
                    failure_remedy(target, &service).await.hint(&target.display_name, &service)
                ));
                return Ok(exit_code(phase));
            }
            RolloutPhase::Complete | RolloutPhase::Paused => return Ok(exit_code(phase)),
        }
    }
}

/// Returns the phase of the rollout of `service`, and a message. A rollout that is complete or failed by its status is progressing
/// while the operator has not observed or applied a change, which is waited for since `pending_since`.
async fn confirmed_progress(
    target: &Target,
    service: &Value,
    pending_since: &mut Option<Instant>,
) -> Result<(RolloutPhase, String)> {
    let (phase, message) = progress(service);
    Ok(match pending_rollout(target, service, phase).await? {
        None => {
            *pending_since = None;
            (phase, message)
        }
        Some(Pending::Status(difference)) => {
            *pending_since = Some(Instant::now());
            (RolloutPhase::Progressing, difference)
        }
        Some(Pending::Plan(difference)) => {
            let since = *pending_since.get_or_insert_with(Instant::now);
            if Instant::now().duration_since(since) < PENDING_TIMEOUT {
                return Ok((RolloutPhase::Progressing, difference));
            }
            output::print_message(&unapplied_note(&difference));
            (phase, message)
        }
    })
}

/// An error of repeated requests, which is printed when it occurs for the first time or changes.
#[derive(Default)]
struct RepeatedError(Option<String>);

// === impl RepeatedError ===

impl RepeatedError {
    fn record(&mut self, failure: &str, cause: String) {
        if self.message() != Some(&cause) {
            output::print_message(&format!("warning: {failure}, retrying: {cause}"));
        }
        self.0 = Some(cause);
    }

    fn clear(&mut self) {
        self.0 = None;
    }

    fn is_some(&self) -> bool {
        self.0.is_some()
    }

    fn message(&self) -> Option<&str> {
        self.0.as_deref()
    }
}

/// Describes a difference from the plan of this version that the operator has not removed within [`PENDING_TIMEOUT`].
fn unapplied_note(difference: &str) -> String {
    format!(
        "note: {difference}; nothing has changed for {} s: the operator does not run, or its version or options differ from those \
         of this command; `ostler plan --diff` shows the difference",
        PENDING_TIMEOUT.as_secs()
    )
}

/// Returns what the user can do about the failed or stalled rollout of `service`.
async fn failure_remedy(target: &Target, service: &Value) -> Remedy {
    let revisions = list_revisions(target).await.unwrap_or_default();
    let ready = find_condition(&service["status"]["conditions"], "Ready").unwrap_or(&Value::Null);
    let reason = ready["reason"].as_str().unwrap_or_default();
    let previous_spec =
        previous_revision(&service["spec"], &revisions).map(|revision| restore_revision(&service["spec"], revision));
    let (mut current, mut previous) = (None, None);
    // Without them, the status is all that is known.
    if let (Some(spec), Ok(Some(objects))) = (&previous_spec, LiveObjects::read(target).await) {
        current = objects.preview(target).await;
        previous = objects.preview_of_spec(target, spec).await;
    }
    let is_planned = |preview: &ServicePreview| preview.plan.as_ref().is_ok_and(|plan| plan.feasible);
    // Without permission to list the objects, the status is all that is known.
    let is_deployable = || previous_spec.is_some() && reason != ConditionReason::ObjectNotOurs.as_str();
    let rollout = FailedRollout {
        service,
        revisions: &revisions,
        ready,
        is_planned: current.as_ref().map_or_else(|| has_plan(reason), is_planned),
        is_rolled_out: current.is_some_and(|preview| preview.is_rolled_out),
        is_undo_deployable: previous.map_or_else(is_deployable, |preview| preview.is_deployable()),
    };
    rollout.remedy()
}

async fn progress_deadline_exceeded(
    target: &Target,
    service: &Value,
    deadline: TimeLimit,
    last_message: &str,
) -> anyhow::Error {
    let title = &target.display_name;
    let hint = match failure_remedy(target, service).await {
        Remedy::Undo => {
            format!(
                "run `ostler explain {title}` to see what would help, or `ostler rollout undo {title}` to roll back"
            )
        }
        remedy => remedy.hint(title, service),
    };
    error_with_hint(
        format!("{title}: no progress for {deadline}; {last_message}"),
        format!("{hint}; set --progress-deadline to wait longer"),
    )
}

fn exit_code(phase: RolloutPhase) -> Exit {
    match phase {
        RolloutPhase::Failed => Exit::Failure,
        RolloutPhase::Complete | RolloutPhase::Paused | RolloutPhase::Progressing | RolloutPhase::Degraded => {
            Exit::Success
        }
    }
}

async fn print_history(target: &Target) -> Result<()> {
    let revisions = list_revisions(target).await?;
    if revisions.is_empty() {
        return Err(no_revisions(target));
    }
    output::print_line(&history(&revisions))
}

fn no_revisions(target: &Target) -> anyhow::Error {
    error_with_hint(
        format!("{} has no revisions yet", target.display_name),
        "the operator creates the first revision when it deploys the service; check `ostler rollout status`",
    )
}

/// Lists the service's ControllerRevisions, oldest first.
async fn list_revisions(target: &Target) -> Result<Vec<Value>> {
    let api = kinds::CONTROLLER_REVISION.api(target.client.clone(), &target.namespace);
    let params = ListParams::default().labels(&format!("{}={}", plan::labels::MANAGED_BY, plan::labels::MANAGER));
    let list = api.list(&params).await.context("failed to list revisions")?;
    let mut revisions = Vec::new();
    for revision in list.items {
        let revision = serde_json::to_value(revision)?;
        if cluster::controller_uid(&revision) == target.service["metadata"]["uid"].as_str() {
            revisions.push(revision);
        }
    }
    revisions.sort_by_key(revision_number);
    Ok(revisions)
}

async fn set_paused(target: &Target, paused: bool) -> Result<()> {
    if is_rollout_paused(&target.service) == paused {
        let state = if paused { "is already paused" } else { "is not paused" };
        return output::print_line(&format!("{} {state}", target.display_name));
    }
    let annotation = rollout_pause_annotation(target.service["apiVersion"].as_str().unwrap_or_default());
    let value = if paused { json!("true") } else { Value::Null };
    let patch = json!({"metadata": {"annotations": {annotation: value}}});
    let response = target.api.patch(&target.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    response.with_context(|| target.display_name.clone())?;
    output::print_line(&format!("{}: rollout {}", target.display_name, if paused { "paused" } else { "resumed" }))
}

async fn undo(target: &Target, to_revision: Option<i64>) -> Result<()> {
    let revisions = list_revisions(target).await?;
    let revision = select_revision(target, &revisions, to_revision)?;
    if to_revision.is_none() {
        ensure_spec_has_changed(target, &revisions, revision).await?;
    }
    let spec = restore_revision(&target.service["spec"], revision);
    let (before, after) = (revision_content(&target.service["spec"]), revision_content(&spec));
    if before == after {
        return output::print_line(&format!(
            "{} already has the spec of revision {}",
            target.display_name,
            revision_number(revision)
        ));
    }
    target.replace_spec(&spec).await?;
    let paused = if is_rollout_paused(&target.service) { "; the rollout is paused" } else { "" };
    output::print_line(&format!(
        "{}: rolled back to revision {} ({}){paused}\nrun `ostler rollout status {}` to watch the rollout",
        target.display_name,
        revision_number(revision),
        describe_changes(&before, &after),
        target.display_name
    ))
}

/// Returns an error unless the latest change of the service is an edit of its spec, which a rollback to `revision` reverts.
async fn ensure_spec_has_changed(target: &Target, revisions: &[Value], revision: &Value) -> Result<()> {
    let service = &target.service;
    let preview = match LiveObjects::read(target).await? {
        Some(objects) => objects.preview(target).await,
        None => None,
    };
    let is_planned = preview.is_none_or(|preview| preview.plan.is_ok_and(|plan| plan.feasible));
    match RolloutChange::of(&service["spec"], revisions, is_planned) {
        RolloutChange::Spec | RolloutChange::Created => Ok(()),
        RolloutChange::Runtime => Err(error_with_hint(
            format!("the latest change of {} is not an edit of its spec", target.display_name),
            format!(
                "{}; run `ostler rollout undo {} --to-revision {}` to roll back the spec nevertheless",
                revert_runtime(service),
                target.display_name,
                revision_number(revision)
            ),
        )),
    }
}

/// Returns revision `to_revision`, or the latest revision that differs from the current spec, which may not be deployed yet.
fn select_revision<'a>(target: &Target, revisions: &'a [Value], to_revision: Option<i64>) -> Result<&'a Value> {
    let revision = match to_revision {
        Some(number) => revisions.iter().find(|revision| revision_number(revision) == number),
        None => previous_revision(&target.service["spec"], revisions),
    };
    let numbers: Vec<String> = revisions.iter().map(|revision| revision_number(revision).to_string()).collect();
    revision.ok_or_else(|| match (to_revision, numbers.is_empty()) {
        (_, true) => no_revisions(target),
        (Some(number), _) => error_with_hint(
            format!("{} has no revision {number}", target.display_name),
            format!("available revisions: {}", numbers.join(", ")),
        ),
        (None, _) => error_with_hint(
            format!("{} has no previous revision of its spec", target.display_name),
            match numbers.len() {
                1 => "the current revision is the only one".to_owned(),
                _ => format!("only other objects changed; {}", revert_runtime(&target.service)),
            },
        ),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use kube::client::Body;
    use rstest::rstest;

    use super::*;

    type Respond = fn(&http::Request<Body>) -> Option<Value>;

    /// Returns a service on an API server that responds as `respond`, and the number of its requests.
    fn service(respond: Respond) -> (Target, Arc<AtomicU32>) {
        let requests = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&requests);
        let server = tower::service_fn(move |request: http::Request<Body>| {
            counter.fetch_add(1, Ordering::Relaxed);
            let response = respond(&request).map(|body| http::Response::new(Body::from(body.to_string().into_bytes())));
            std::future::ready(response.ok_or_else(|| std::io::Error::from(std::io::ErrorKind::ConnectionRefused)))
        });
        let client = kube::Client::new(server, "default");
        let kind = kinds::OME_SERVICE;
        let target = Target {
            kind,
            api: kind.api(client.clone(), "default"),
            client,
            namespace: "default".to_owned(),
            name: "chat".to_owned(),
            display_name: "inferenceservice.ome.io/chat".to_owned(),
            service: ready_service(),
        };
        (target, requests)
    }

    fn ready_service() -> Value {
        json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceService",
            "metadata": {"name": "chat", "namespace": "default", "generation": 1, "uid": "u", "resourceVersion": "1"}, "spec": {},
            "status": {"observedGeneration": 1, "conditions": [{"type": "Ready", "status": "True", "reason": "Ready",
                "lastTransitionTime": "2026-01-01T00:00:00Z", "message": "", "observedGeneration": 1}]}})
    }

    fn no_response(_: &http::Request<Body>) -> Option<Value> {
        None
    }

    /// Responds to lists of services only.
    fn services_only(request: &http::Request<Body>) -> Option<Value> {
        let is_list = request.uri().path().ends_with("/inferenceservices")
            && !request.uri().query().unwrap_or_default().contains("watch");
        is_list.then(|| {
            json!({"apiVersion": "ome.io/v1beta1", "kind": "InferenceServiceList",
            "metadata": {"resourceVersion": "1"}, "items": [ready_service()]})
        })
    }

    #[rstest]
    #[case::unreachable(no_response, "failed to list: connection refused")]
    #[case::status_is_not_confirmed(services_only, "failed to")]
    #[tokio::test(start_paused = true)]
    async fn retries_with_back_off_while_the_api_server_fails(#[case] respond: Respond, #[case] cause: &str) {
        let (target, requests) = service(respond);
        let error = watch_rollout(&target, "5m".parse().unwrap()).await.err().unwrap().to_string();
        assert!(error.contains("no status was received for 5 min: ") && error.contains(cause), "{error}");
        let requests = requests.load(Ordering::Relaxed);
        assert!((5..200).contains(&requests), "{requests} requests in 5 min");
    }
}
