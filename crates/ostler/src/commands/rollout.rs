//! `ostler rollout`: how far a new revision is, what was there before, and back to it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Subcommand;
use futures::{StreamExt, pin_mut};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::runtime::watcher::watch_object;
use operator::revisions::{content, number, restored};
use operator::rollout::{is_paused, pause_annotation};
use serde_json::{Value, json};

use super::target::{Target, TargetArgs};
use crate::report::errors::hinted;
use crate::report::rollout::{Standing, changes, history, progress};
use crate::{live, output};

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RolloutArgs {
    #[command(subcommand)]
    action: Action,
}

const EXAMPLES: &str = "\
Examples:
  ostler rollout status inferenceservice/chat                   waits until the new revision is there, or stopped
  ostler rollout undo inferenceservice/chat                     back to the revision before
  ostler rollout undo inferenceservice/chat --to-revision 3

A role's replicas take a new template one at a time (`maxUnavailable`), and none after the first that does not come back.";

#[derive(Subcommand)]
enum Action {
    /// Tell how far the present revision is, and wait for its end
    Status(StatusArgs),
    /// List the revisions that are kept: the last 10
    History(TargetArgs),
    /// Let no running replica take another template until `resume`
    Pause(TargetArgs),
    /// Go on after `pause`
    Resume(TargetArgs),
    /// Go back to an earlier revision; the number of replicas stays
    Undo(UndoArgs),
}

#[derive(clap::Args)]
struct StatusArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Tell once and do not wait
    #[arg(long)]
    no_wait: bool,
    /// Seconds to wait at most
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
}

#[derive(clap::Args)]
struct UndoArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Revision of `ostler rollout history`; otherwise the one before the present
    #[arg(long, value_name = "N")]
    to_revision: Option<i64>,
}

pub(super) async fn run(args: RolloutArgs) -> Result<ExitCode> {
    match args.action {
        Action::Status(args) => return status(args).await,
        Action::History(target) => tell_history(&target.find().await?).await?,
        Action::Pause(target) => set_paused(&target.find().await?, Pause::On).await?,
        Action::Resume(target) => set_paused(&target.find().await?, Pause::Off).await?,
        Action::Undo(args) => undo(&args.target.find().await?, args.to_revision).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn status(args: StatusArgs) -> Result<ExitCode> {
    let target = args.target.find().await?;
    if args.no_wait {
        let (standing, line) = progress(&target.service);
        output::print_line(&format!("{}: {line}", target.title))?;
        return Ok(code(standing));
    }
    let followed = follow(&target);
    let Some(seconds) = args.timeout else { return followed.await };
    tokio::time::timeout(Duration::from_secs(seconds), followed).await.unwrap_or_else(|_| {
        Err(hinted(
            format!("{}: not rolled out after {seconds} s", target.title),
            format!("`ostler explain {}` says what it waits for", target.title),
        ))
    })
}

/// One line for each step, until nothing more will happen by itself.
async fn follow(target: &Target) -> Result<ExitCode> {
    let states = watch_object(target.api.clone(), &target.name);
    pin_mut!(states);
    let mut told = String::new();
    while let Some(state) = states.next().await {
        // An interrupted watch goes on by itself.
        let Ok(state) = state else { continue };
        let Some(service) = state else {
            return Err(hinted(format!("{} is gone", target.title), "somebody deleted it meanwhile"));
        };
        let (standing, line) = progress(&serde_json::to_value(&service)?);
        if line != told {
            output::print_line(&format!("{}: {line}", target.title))?;
            told = line;
        }
        match standing {
            Standing::UnderWay => {}
            Standing::Stopped => {
                output::tell(&format!("hint: `ostler rollout undo {}` goes back", target.title));
                return Ok(code(standing));
            }
            Standing::Done | Standing::Paused => return Ok(code(standing)),
        }
    }
    Ok(ExitCode::FAILURE)
}

fn code(standing: Standing) -> ExitCode {
    match standing {
        Standing::Stopped => ExitCode::FAILURE,
        Standing::Done | Standing::Paused | Standing::UnderWay => ExitCode::SUCCESS,
    }
}

async fn tell_history(target: &Target) -> Result<()> {
    let revisions = revisions(target).await?;
    if revisions.is_empty() {
        return Err(no_history(target));
    }
    output::print_line(&history(&revisions))
}

fn no_history(target: &Target) -> anyhow::Error {
    hinted(
        format!("{} has no history yet", target.title),
        "revisions are kept once the operator has laid the service out: `ostler rollout status` tells",
    )
}

/// The service's ControllerRevisions, the oldest first.
async fn revisions(target: &Target) -> Result<Vec<Value>> {
    let resource = live::resource(("apps", "v1", "ControllerRevision"));
    let api: Api<DynamicObject> = Api::namespaced_with(target.client.clone(), &target.namespace, &resource);
    let managed = ListParams::default().labels(&format!("{}={}", plan::labels::MANAGED_BY, plan::labels::OSTLER));
    let listed = api.list(&managed).await.context("reading the history")?;
    let mut own = Vec::new();
    for revision in listed.items {
        let revision = serde_json::to_value(revision)?;
        if cluster::object::controller_uid(&revision) == target.service["metadata"]["uid"].as_str() {
            own.push(revision);
        }
    }
    own.sort_by_key(number);
    Ok(own)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Pause {
    On,
    Off,
}

async fn set_paused(target: &Target, pause: Pause) -> Result<()> {
    let wanted = pause == Pause::On;
    let words = if wanted { "paused" } else { "resumed" };
    if is_paused(&target.service) == wanted {
        let state = if wanted { "is paused already" } else { "is not paused" };
        return output::print_line(&format!("{} {state}", target.title));
    }
    let annotation = pause_annotation(target.service["apiVersion"].as_str().unwrap_or_default());
    let value = if wanted { json!("true") } else { Value::Null };
    let patch = json!({"metadata": {"annotations": {annotation: value}}});
    let sent = target.api.patch(&target.name, &PatchParams::default(), &Patch::Merge(&patch)).await;
    sent.with_context(|| target.title.clone())?;
    output::print_line(&format!("{}: rollout {words}", target.title))
}

async fn undo(target: &Target, to: Option<i64>) -> Result<()> {
    let revisions = revisions(target).await?;
    let chosen = chosen(target, &revisions, to)?;
    let mut service = target.service.clone();
    service["spec"] = restored(&target.service["spec"], chosen);
    let (before, now) = (content(&target.service["spec"]), content(&service["spec"]));
    if before == now {
        return output::print_line(&format!("{} is at revision {} already", target.title, number(chosen)));
    }
    target.replace(service).await?;
    let held = if is_paused(&target.service) { "; its rollout is paused" } else { "" };
    output::print_line(&format!(
        "{}: back to revision {} ({}){held}\n`ostler rollout status {}` follows it",
        target.title,
        number(chosen),
        changes(&before, &now),
        target.title
    ))
}

/// The revision asked for; otherwise the last that differs from the present spec, which need not be laid out yet.
fn chosen<'a>(target: &Target, revisions: &'a [Value], to: Option<i64>) -> Result<&'a Value> {
    let present = content(&target.service["spec"]);
    let found = match to {
        Some(to) => revisions.iter().find(|one| number(one) == to),
        None => revisions.iter().rev().find(|one| one["data"]["spec"] != present),
    };
    let numbers: Vec<String> = revisions.iter().map(|one| number(one).to_string()).collect();
    found.ok_or_else(|| match (to, numbers.is_empty()) {
        (_, true) => no_history(target),
        (Some(to), _) => {
            hinted(format!("{} has no revision {to}", target.title), format!("it has {}", numbers.join(", ")))
        }
        (None, _) => hinted(format!("{} has nothing to go back to", target.title), "there is one revision only"),
    })
}
