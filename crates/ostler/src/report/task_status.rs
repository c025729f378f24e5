//! Background tasks of `ostler up` that failed.

use embedded::{ClusterFailure, TaskState, TaskStatus};

use super::errors::error_with_hint;

/// The part of `ostler up` that a background task belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TaskOwner {
    Cluster,
    Operator,
    Actuation,
    Gateway,
}

/// Describes a task that has failed; `None` for one that never has.
pub(crate) fn line(owner: TaskOwner, status: &TaskStatus) -> Option<String> {
    let TaskStatus { name, restarts, state } = status;
    let name = match owner {
        TaskOwner::Cluster => name.clone().into_owned(),
        TaskOwner::Operator => format!("{name} of the operator"),
        TaskOwner::Actuation => format!("{name} of the controller of dual pods"),
        TaskOwner::Gateway => format!("{name} of the gateway"),
    };
    let count = if *restarts == 1 { "1 restart".to_owned() } else { format!("{restarts} restarts") };
    match state {
        TaskState::Running if *restarts == 0 => None,
        TaskState::Running => Some(format!("{name}: running after {count}")),
        TaskState::BackOff { cause, delay } => {
            Some(format!("{name}: {cause}; restarting in {} s after {count}", delay.as_secs()))
        }
        TaskState::Failed { cause } => Some(format!("{name}: {cause}; not restarted again after {count}")),
    }
}

/// Returns the error with which `ostler up` exits.
pub(crate) fn failure_error(failure: &ClusterFailure) -> anyhow::Error {
    error_with_hint(
        format!("the embedded cluster cannot continue: {failure}"),
        "restart `ostler up`; if the error persists, report it with the log lines above",
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use embedded::TaskFailure;
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::healthy(0, TaskState::Running, None)]
    #[case::recovered(1, TaskState::Running, Some("scheduler: running after 1 restart"))]
    #[case::waiting(
        2,
        TaskState::BackOff { cause: "panicked: x".to_owned(), delay: Duration::from_secs(4) },
        Some("scheduler: panicked: x; restarting in 4 s after 2 restarts")
    )]
    #[case::failed(
        9,
        TaskState::Failed { cause: "panicked: x".to_owned() },
        Some("scheduler: panicked: x; not restarted again after 9 restarts")
    )]
    fn describes_failures(#[case] restarts: u32, #[case] state: TaskState, #[case] expect: Option<&str>) {
        let status = TaskStatus { name: "scheduler".into(), restarts, state };
        assert_eq!(line(TaskOwner::Cluster, &status).as_deref(), expect);
    }

    #[rstest]
    #[case(TaskOwner::Cluster, "watch of pods: running after 1 restart")]
    #[case(TaskOwner::Operator, "watch of pods of the operator: running after 1 restart")]
    #[case(TaskOwner::Gateway, "watch of pods of the gateway: running after 1 restart")]
    fn names_the_owner(#[case] owner: TaskOwner, #[case] expect: &str) {
        let status = TaskStatus { name: "watch of pods".into(), restarts: 1, state: TaskState::Running };
        assert_eq!(line(owner, &status).as_deref(), Some(expect));
    }

    #[test]
    fn a_failed_cluster_is_an_error_with_a_hint() {
        let failure = ClusterFailure::Task(TaskFailure { task: "scheduler".into(), cause: "panicked: x".to_owned() });
        assert_eq!(
            super::super::errors::render(&failure_error(&failure)),
            "error: the embedded cluster cannot continue: the scheduler failed repeatedly: it panicked: x\nhint: restart `ostler up`; if the error persists, report it with the log lines above"
        );
    }
}
