//! What is wrong with a container of a Pod.

use serde_json::Value;

use super::{Code, RESTARTS_TO_FAIL};

/// What kind of trouble, in words, and whether it will not pass by itself.
pub(super) type Finding = (Code, String, bool);

/// Init containers first.
pub(super) fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainerStatuses", "containerStatuses"];
    lists.into_iter().filter_map(|list| pod["status"][list].as_array()).flatten()
}

pub(super) fn container_trouble(container: &Value) -> Option<Finding> {
    let waiting = &container["state"]["waiting"];
    let name = container["name"].as_str().unwrap_or_default();
    let detail = waiting["message"].as_str().map(|text| format!(": {text}")).unwrap_or_default();
    let Some(reason) = waiting["reason"].as_str() else {
        // Between two crashes it runs for a while: that is no recovery before it is ready.
        return crashed_before(container).then(|| crash_loop(container, name));
    };
    match reason {
        "ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
            let image = container["image"].as_str().unwrap_or_default();
            Some((Code::ImagePullFailed, format!("image {image} of container {name} cannot be pulled{detail}"), true))
        }
        "CrashLoopBackOff" => Some(crash_loop(container, name)),
        reason @ ("CreateContainerConfigError" | "CreateContainerError" | "RunContainerError") => {
            Some((Code::ContainerCreateFailed, format!("container {name}: {reason}{detail}"), true))
        }
        _ => None,
    }
}

/// Whether a container of the Pod ended in failure, now or before it was restarted.
#[must_use]
pub fn crashed(pod: &Value) -> bool {
    let failed = |state: &Value| state["terminated"]["exitCode"].as_i64().is_some_and(|code| code != 0);
    containers(pod).any(|container| failed(&container["lastState"]) || failed(&container["state"]))
}

/// The container of the Pod that ended in failure, now or before it was restarted.
#[must_use]
pub fn crashed_container(pod: &Value) -> Option<&str> {
    containers(pod).find(|container| crashed_before(container))?["name"].as_str()
}

fn crashed_before(container: &Value) -> bool {
    let failed = |state: &Value| state["terminated"]["exitCode"].as_i64().is_some_and(|code| code != 0);
    container["ready"] != true && (failed(&container["lastState"]) || failed(&container["state"]))
}

fn crash_loop(container: &Value, name: &str) -> Finding {
    let restarts = container["restartCount"].as_i64().unwrap_or_default();
    let last = &container["lastState"]["terminated"];
    let code = last["exitCode"].as_i64().map(|code| format!(" with exit code {code}")).unwrap_or_default();
    let said = last["message"].as_str().and_then(last_line).or(last["reason"].as_str().map(str::to_owned));
    let reason = said.map(|text| format!(" ({text})")).unwrap_or_default();
    let often = if restarts == 1 { "once".to_owned() } else { format!("{restarts} times") };
    let message = format!("container {name} ended{code}{reason} and was restarted {often}; see its logs");
    (Code::CrashLoop, message, restarts >= RESTARTS_TO_FAIL)
}

/// Characters of a line that is quoted.
const LONGEST: usize = 200;

/// The last line that says something, cut to a length that can be read: of many lines of a log it tells what happened.
#[must_use]
pub fn last_line(text: &str) -> Option<String> {
    let last = text.lines().rev().map(str::trim).find(|line| line.chars().any(char::is_alphanumeric))?;
    let cut: String = last.chars().take(LONGEST).collect();
    Some(if cut.len() < last.len() { format!("{cut}…") } else { cut })
}

/// What the container's readiness probe asks, and whether the command line says that somebody listens there: an engine on
/// another port never becomes ready.
pub(super) fn probed(pod: &Value, name: &str) -> Option<String> {
    let mut containers = pod["spec"]["containers"].as_array()?.iter();
    let container = containers.find(|container| container["name"] == name)?;
    let probe = &container["readinessProbe"];
    let (what, port) = match () {
        () if probe["httpGet"].is_object() => {
            let get = &probe["httpGet"];
            (format!("GET {} on port ", get["path"].as_str().unwrap_or("/")), number(container, &get["port"])?)
        }
        () if probe["grpc"].is_object() => ("gRPC on port ".to_owned(), number(container, &probe["grpc"]["port"])?),
        () => ("port ".to_owned(), number(container, &probe["tcpSocket"]["port"])?),
    };
    let words = ["command", "args"].into_iter().filter_map(|part| container[part].as_array()).flatten();
    let words: Vec<&str> = words.filter_map(Value::as_str).collect();
    let named = words.iter().any(|word| word.contains(port.to_string().as_str()));
    let hint = if named { "" } else { ", which its command line does not name" };
    Some(format!("{what}{port}{hint}"))
}

/// A port, given as such or by the name that the container gives it.
fn number(container: &Value, port: &Value) -> Option<u64> {
    let named = |one: &&Value| one["name"] == *port;
    port.as_u64().or_else(|| container["ports"].as_array()?.iter().find(named)?["containerPort"].as_u64())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::the_last("INFO start\nValueError: no such model\n", Some("ValueError: no such model"))]
    #[case::that_says_something("RuntimeError: out of memory\n^^^^^\n\n", Some("RuntimeError: out of memory"))]
    #[case::none("\n  \n", None)]
    fn lines(#[case] log: &str, #[case] expect: Option<&str>) {
        assert_eq!(last_line(log).as_deref(), expect);
    }

    #[test]
    fn a_long_line_is_cut() {
        assert_eq!(last_line(&"x".repeat(300)).unwrap().chars().count(), LONGEST + 1);
    }
}
