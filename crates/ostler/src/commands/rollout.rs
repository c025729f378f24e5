//! `ostler rollout`: how far a new revision is, what was there before, and back to it.

use std::collections::BTreeSet;
use std::fmt::{Display, Formatter};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Subcommand;
use futures::{StreamExt, pin_mut};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams};
use kube::runtime::watcher::watch_object;
use operator::revisions::{content, number, restored};
use operator::rollout::{is_paused, pause_annotation};
use serde_json::{Value, json};
use tokio::time::Instant;

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
  ostler rollout status inferenceservice/chat                   waits until the new revision is there, stopped, or stuck
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
    /// How long to wait at most, such as 90s or 15m; 0 is no limit
    #[arg(long, value_name = "DURATION", default_value = "0")]
    timeout: Patience,
    /// How long to wait where nothing moves or something is wrong that may pass, such as a lack of room; 0 is no limit
    #[arg(long, value_name = "DURATION", default_value = "10m")]
    progress_deadline: Patience,
}

/// `90`, `90s`, `15m`, `2h`; nothing for 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Patience(Option<Duration>);

impl FromStr for Patience {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const UNITS: [(char, u64); 3] = [('s', 1), ('m', 60), ('h', 3600)];
        let unit = UNITS.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(*unit)?, *seconds)));
        let (number, seconds) = unit.unwrap_or((text, 1));
        let number = number.parse::<u64>().ok().and_then(|number| number.checked_mul(seconds));
        let seconds = number.ok_or_else(|| "write a duration such as 90s or 15m".to_owned())?;
        Ok(Self((seconds > 0).then(|| Duration::from_secs(seconds))))
    }
}

impl Display for Patience {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self.0.map_or(0, |limit| limit.as_secs()) {
            seconds if seconds % 60 == 0 => write!(f, "{} min", seconds / 60),
            seconds => write!(f, "{seconds} s"),
        }
    }
}

impl Patience {
    /// What comes of `future`, or nothing if it does not come by the end that counts from `since`.
    async fn bound<F: Future>(self, since: Instant, future: F) -> Option<F::Output> {
        match self.0.and_then(|limit| since.checked_add(limit)) {
            Some(end) => tokio::time::timeout_at(end, future).await.ok(),
            None => Some(future.await),
        }
    }
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
    let followed = follow(&target, args.progress_deadline);
    args.timeout.bound(Instant::now(), followed).await.unwrap_or_else(|| {
        Err(hinted(
            format!("{}: not rolled out after {}", target.title, args.timeout),
            format!("it goes on in the cluster; `ostler explain {}` says what it waits for", target.title),
        ))
    })
}

/// One line for each step, until nothing more will happen by itself, or nothing has happened for as long as `deadline`. A
/// line that came before is no step: an engine that starts and crashes in turn gets nowhere.
async fn follow(target: &Target, deadline: Patience) -> Result<ExitCode> {
    let states = watch_object(target.api.clone(), &target.name);
    pin_mut!(states);
    let (mut last, mut told, mut moved) = (String::new(), BTreeSet::new(), Instant::now());
    while let Some(state) = deadline.bound(moved, states.next()).await.ok_or_else(|| stuck(target, deadline, &last))? {
        // An interrupted watch goes on by itself.
        let Ok(state) = state else { continue };
        let Some(service) = state else {
            return Err(hinted(format!("{} is gone", target.title), "somebody deleted it meanwhile"));
        };
        let (standing, line) = progress(&serde_json::to_value(&service)?);
        if line != last {
            output::print_line(&format!("{}: {line}", target.title))?;
        }
        if told.insert(line.clone()) && standing == Standing::UnderWay {
            moved = Instant::now();
        }
        last = line;
        match standing {
            Standing::UnderWay | Standing::Troubled => {}
            Standing::Stopped => {
                output::tell(&format!("hint: `ostler rollout undo {}` goes back", target.title));
                return Ok(code(standing));
            }
            Standing::Done | Standing::Paused => return Ok(code(standing)),
        }
    }
    Ok(ExitCode::FAILURE)
}

fn stuck(target: &Target, deadline: Patience, last: &str) -> anyhow::Error {
    let title = &target.title;
    hinted(
        format!("{title}: has not moved for {deadline}; {last}"),
        format!(
            "`ostler explain {title}` says what would help, `ostler rollout undo {title}` goes back; --progress-deadline waits longer"
        ),
    )
}

fn code(standing: Standing) -> ExitCode {
    match standing {
        Standing::Stopped => ExitCode::FAILURE,
        Standing::Done | Standing::Paused | Standing::UnderWay | Standing::Troubled => ExitCode::SUCCESS,
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
    let spec = restored(&target.service["spec"], chosen);
    let (before, now) = (content(&target.service["spec"]), content(&spec));
    if before == now {
        return output::print_line(&format!("{} is at revision {} already", target.title, number(chosen)));
    }
    target.respecify(&spec).await?;
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("0", Some(0), "0 min")]
    #[case("60", Some(60), "1 min")]
    #[case("90s", Some(90), "90 s")]
    #[case("15m", Some(900), "15 min")]
    #[case("2h", Some(7200), "120 min")]
    #[case("soon", None, "")]
    #[case("-1s", None, "")]
    #[case("99999999999999999h", None, "")]
    fn durations(#[case] text: &str, #[case] seconds: Option<u64>, #[case] shown: &str) {
        let read = text.parse::<Patience>().ok();
        assert_eq!(read.map(|one| one.0.map_or(0, |limit| limit.as_secs())), seconds);
        assert_eq!(read.map(|one| one.to_string()).unwrap_or_default(), shown);
    }
}
