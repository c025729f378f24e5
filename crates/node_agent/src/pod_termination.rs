//! Termination of a Pod: by deletion, by its deadline, or by the shutdown of the agent.

use std::sync::Arc;
use std::time::Duration;

use apimachinery::object;

use crate::container;
use crate::pod_signals::PodSignals;
use crate::pod_worker::PodWorker;
use crate::status::{ContainerState, DEADLINE_EXCEEDED_MESSAGE};

/// The reason for stopping the containers of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TerminationReason {
    /// The Pod was deleted with this grace period.
    Deleted { grace: Duration },
    /// The agent is shutting down.
    Shutdown,
    /// `activeDeadlineSeconds` has passed since the start of the Pod.
    DeadlineExceeded,
}

/// Maximum grace period of containers when the agent shuts down.
const SHUTDOWN_GRACE_PERIOD: Duration = Duration::from_secs(5);

/// Terminates the containers of a Pod that exceeded `activeDeadlineSeconds`, and sets its phase to `Failed`. A Pod
/// in phase `Succeeded` or `Failed` is not changed.
pub(crate) async fn fail_on_deadline(worker: &mut PodWorker, signals: &PodSignals) {
    if worker.containers.iter().all(|container| container.done) {
        return;
    }
    worker.event("Normal", "DeadlineExceeded", DEADLINE_EXCEEDED_MESSAGE);
    let grace = container::grace_period(&worker.stored_pod().unwrap_or_else(|| Arc::clone(&worker.pod)));
    terminate_containers(worker, grace, signals).await;
    worker.placement.deadline_exceeded = true;
    worker.sync_status();
}

/// Terminates the containers. If the Pod is being deleted, also removes it from the API.
pub(crate) async fn terminate(worker: &mut PodWorker, reason: TerminationReason, signals: &PodSignals) {
    let TerminationReason::Deleted { grace } = reason else {
        shut_down_containers(worker).await;
        kill_containers(worker).await;
        return;
    };
    terminate_containers(worker, grace, signals).await;
    remove_pod(worker);
}

/// Terminates the containers within `grace`, or earlier if the Pod is deleted with a shorter grace period, the Pod is
/// removed or the agent shuts down.
async fn terminate_containers(worker: &mut PodWorker, grace: Duration, signals: &PodSignals) {
    report_termination(worker);
    tokio::select! {
        biased;
        () = stop_containers(worker) => {}
        () = signals.grace_period_passed(grace) => {}
        () = signals.removed.cancelled() => {}
        () = signals.shutdown.cancelled() => shut_down_containers(worker).await,
    }
    kill_containers(worker).await;
    end_containers(worker);
}

/// Reports that the containers are being stopped: with events and in the status.
fn report_termination(worker: &mut PodWorker) {
    for name in worker.containers.iter().filter(|c| matches!(c.state, ContainerState::Running { .. })).map(|c| &c.name)
    {
        worker.event("Normal", "Killing", &format!("Stopping container {name}"));
    }
    worker.containers.iter_mut().for_each(|container| container.ready = false);
    worker.sync_status();
}

/// Signals all containers to stop and waits until they have exited. The caller kills those that run for too long.
async fn stop_containers(worker: &mut PodWorker) {
    worker.stop.cancel();
    worker.join_containers().await;
    // Sidecars are stopped after the main containers.
    worker.join_sidecars().await;
}

/// Stops the containers within the grace period of a shutdown.
async fn shut_down_containers(worker: &mut PodWorker) {
    let _ = tokio::time::timeout(SHUTDOWN_GRACE_PERIOD, stop_containers(worker)).await;
}

/// Kills all containers and handles their last events.
async fn kill_containers(worker: &mut PodWorker) {
    worker.kill_containers().await;
    worker.drain_events();
}

/// Records the end of containers that were killed or have not started.
fn end_containers(worker: &mut PodWorker) {
    let now = object::format_time(worker.context.server.now());
    worker.containers.iter_mut().for_each(|container| container.end(&now));
}

/// Updates the status one last time, then removes the Pod.
fn remove_pod(worker: &mut PodWorker) {
    worker.sync_status();
    worker.context.remove_pod(&worker.pod);
}
