//! `ostler scale KIND/NAME ROLE=N`: how many replicas a role or a component has.

use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Result;
use serde_json::{Value, json};

use super::target::TargetArgs;
use crate::output;
use crate::report::errors::hinted;

#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ScaleArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Role and its replicas; of an `ome.io` service also a range that an autoscaler keeps to
    #[arg(required = true, value_name = "ROLE=N")]
    counts: Vec<Assignment>,
}

const EXAMPLES: &str = "\
Examples:
  ostler scale inferenceservice/chat decode=3              three decode replicas
  ostler scale inferenceservice/chat prefill=2 decode=4    both at once, so that a gang grows once
  ostler scale inferenceservice.ome.io/chat engine=1..8    an autoscaler keeps it between 1 and 8

Scaling restarts nothing and is no revision: `ostler rollout undo` does not scale back.";

/// `decode=3`, `engine=1..8`
#[derive(Clone, Debug, PartialEq, Eq)]
struct Assignment {
    role: String,
    count: Count,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Count {
    Fixed(i32),
    Range(i32, i32),
}

impl FromStr for Assignment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write ROLE=N, such as decode=3".to_owned();
        let (role, count) = text.split_once('=').filter(|(role, _)| !role.is_empty()).ok_or_else(wrong)?;
        let number = |text: &str| text.parse().ok().filter(|count: &i32| *count >= 0).ok_or_else(wrong);
        let count = match count.split_once("..") {
            None => Count::Fixed(number(count)?),
            Some((least, most)) => match (number(least)?, number(most)?) {
                (least, most) if least <= most => Count::Range(least, most),
                _ => return Err("the first number of a range is the smaller one".to_owned()),
            },
        };
        Ok(Self { role: role.to_owned(), count })
    }
}

pub(super) async fn run(args: ScaleArgs) -> Result<ExitCode> {
    let target = args.target.find().await?;
    let mut scaled = target.service.clone();
    let mut lines = Vec::new();
    for assignment in &args.counts {
        lines.push(format!("{}: {}", target.title, assign(&mut scaled, assignment)?));
    }
    if scaled["spec"] != target.service["spec"] {
        target.respecify(&scaled["spec"]).await?;
    }
    output::print_line(&lines.join("\n"))?;
    Ok(ExitCode::SUCCESS)
}

/// Changes `service`, and says what.
fn assign(service: &mut Value, assignment: &Assignment) -> Result<String> {
    match service["spec"]["roles"].is_array() {
        true => role(service, assignment),
        false => component(service, assignment),
    }
}

fn role(service: &mut Value, Assignment { role, count }: &Assignment) -> Result<String> {
    let roles = service["spec"]["roles"].as_array_mut().into_iter().flatten();
    let mut names = Vec::new();
    for one in roles {
        let name = one["name"].as_str().unwrap_or_default().to_owned();
        if name != *role {
            names.push(name);
            continue;
        }
        if one["componentType"] == "router" {
            let hint = "a router is one Deployment of the service's own; scale the roles that run engines";
            return Err(hinted(format!("role {role} is a router and has no replicas to set"), hint));
        }
        let Count::Fixed(count) = *count else {
            return Err(hinted(format!("role {role} has a fixed number of replicas"), format!("write {role}=N")));
        };
        let before = one["replicas"].as_i64().unwrap_or(1);
        one["replicas"] = json!(count);
        return Ok(changed(role, &before.to_string(), &count.to_string()));
    }
    Err(hinted(format!("the service has no role `{role}`"), format!("it has {}", names.join(", "))))
}

/// Engines may be the runtime's alone; what nothing states yet would be another topology.
fn component(service: &mut Value, Assignment { role, count }: &Assignment) -> Result<String> {
    let there = |name: &str| {
        name == "engine" || service["spec"][name].is_object() || service["status"]["components"][name].is_object()
    };
    let names: Vec<&str> = ["engine", "decoder", "router"].into_iter().filter(|name| there(name)).collect();
    if !names.contains(&role.as_str()) {
        return Err(hinted(format!("the service has no component `{role}`"), format!("it has {}", names.join(", "))));
    }
    let own = &service["spec"][role];
    let least = own["minReplicas"].as_i64().unwrap_or(1);
    let most = own["maxReplicas"].as_i64().unwrap_or(least).max(least);
    let (min, max) = match *count {
        Count::Fixed(0) => {
            return Err(hinted(
                format!("{role}=0 leaves nothing to start it again"),
                format!("write {role}=0..1: it sleeps while nobody asks"),
            ));
        }
        Count::Fixed(count) if most > least => {
            let hint = format!(
                "write {role}={least}..{} to move its bounds, or {role}={count}..{count} to fix it",
                count.max(1)
            );
            return Err(hinted(format!("an autoscaler keeps {role} between {least} and {most}"), hint));
        }
        Count::Fixed(count) => (count, count),
        Count::Range(least, most) => (least, most),
    };
    service["spec"][role]["minReplicas"] = json!(min);
    service["spec"][role]["maxReplicas"] = json!(max);
    Ok(changed(role, &range(least, most), &range(min.into(), max.into())))
}

fn range(least: i64, most: i64) -> String {
    if least == most { least.to_string() } else { format!("{least}..{most}") }
}

fn changed(role: &str, before: &str, now: &str) -> String {
    if before == now { format!("{role} has {now} already") } else { format!("{role} {before} → {now}") }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn roles() -> Value {
        json!({"spec": {"roles": [{"name": "prefill", "componentType": "prefiller"},
            {"name": "decode", "componentType": "decoder", "replicas": 2}, {"name": "entry", "componentType": "router"}]}})
    }

    fn ome(min: i64, max: i64) -> Value {
        json!({"spec": {"engine": {"minReplicas": min, "maxReplicas": max}}})
    }

    #[rstest]
    #[case::more(roles(), "decode=3", "decode 2 → 3")]
    #[case::unset_is_one(roles(), "prefill=0", "prefill 1 → 0")]
    #[case::the_same(roles(), "decode=2", "decode has 2 already")]
    #[case::a_router(roles(), "entry=2", "role entry is a router and has no replicas to set")]
    #[case::no_such_role(roles(), "decoder=2", "the service has no role `decoder`")]
    #[case::no_range(roles(), "decode=1..3", "role decode has a fixed number of replicas")]
    #[case::component(json!({"spec": {}}), "engine=2", "engine 1 → 2")]
    #[case::from_fixed_to_range(ome(2, 2), "engine=1..4", "engine 2 → 1..4")]
    #[case::an_autoscaler_has_it(ome(1, 4), "engine=3", "an autoscaler keeps engine between 1 and 4")]
    #[case::to_nothing(ome(1, 1), "engine=0", "engine=0 leaves nothing to start it again")]
    #[case::no_such_component(ome(1, 1), "decoder=2", "the service has no component `decoder`")]
    fn scaling(#[case] mut service: Value, #[case] words: &str, #[case] expect: &str) {
        let told = assign(&mut service, &words.parse().unwrap()).unwrap_or_else(|error| error.to_string());
        assert_eq!(told, expect);
    }

    #[test]
    fn numbers_are_written_where_they_belong() {
        let (mut roles, mut ome) = (roles(), json!({"spec": {}}));
        assign(&mut roles, &"decode=3".parse().unwrap()).unwrap();
        assert_eq!(roles["spec"]["roles"][1]["replicas"], 3);
        assign(&mut ome, &"engine=2..5".parse().unwrap()).unwrap();
        assert_eq!(ome["spec"]["engine"], json!({"minReplicas": 2, "maxReplicas": 5}));
    }

    #[rstest]
    #[case("decode")]
    #[case("=3")]
    #[case("decode=-1")]
    #[case("decode=x")]
    #[case("decode=3..1")]
    #[case("decode=99999999999")]
    fn other_words_are_refused(#[case] words: &str) {
        assert!(words.parse::<Assignment>().is_err());
    }
}
