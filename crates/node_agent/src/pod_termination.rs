//! Termination of a Pod: by deletion, by its deadline, or by the shutdown of the agent.

use std::sync::Arc;
use std::time::Duration;

use apimachinery::object;
use jiff::Timestamp;
use serde_json::Value;

use crate::container;
use crate::pod_worker::{PodSignals, PodWorker};
use crate::status::ContainerState;
use crate::volumes;

/// The reason for stopping the containers of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TerminationReason {
    /// The Pod was deleted with this grace period.
    Deleted { grace: Duration },
    /// The agent is shutting down.
    Shutdown,
    /// `activeDeadlineSeconds` has passed since the start of the Pod.
    DeadlineExceeded,
}

/// Maximum grace period of containers when the agent shuts down.
const SHUTDOWN_GRACE_PERIOD: Duration = Duration::from_secs(5);

impl PodWorker {
    /// Runs the Pod until it has to terminate.
    pub(super) async fn run_until_termination(&mut self, signals: &PodSignals) -> TerminationReason {
        let deadline = self.time_until_deadline();
        tokio::select! {
            biased;
            () = signals.removed.cancelled() => TerminationReason::Deleted { grace: Duration::ZERO },
            () = signals.shutdown.cancelled() => TerminationReason::Shutdown,
            () = signals.delete.cancelled() => TerminationReason::Deleted { grace: self.grace_period() },
            () = sleep_or_pend(deadline) => TerminationReason::DeadlineExceeded,
            never = self.run_containers() => match never {},
        }
    }

    /// Waits for the deletion of a Pod whose containers have stopped, or for the shutdown of the agent.
    pub(super) async fn wait_for_termination(&mut self, signals: &PodSignals) -> TerminationReason {
        tokio::select! {
            biased;
            () = signals.removed.cancelled() => TerminationReason::Deleted { grace: Duration::ZERO },
            () = signals.shutdown.cancelled() => TerminationReason::Shutdown,
            () = signals.delete.cancelled() => TerminationReason::Deleted { grace: self.grace_period() },
        }
    }

    /// Returns the remaining time of `activeDeadlineSeconds`.
    fn time_until_deadline(&self) -> Option<Duration> {
        let seconds = self.pod.pointer("/spec/activeDeadlineSeconds").and_then(Value::as_u64)?;
        let started: Timestamp = self.placement.start_time.parse().ok()?;
        let elapsed = Duration::try_from(self.context.server.now().duration_since(started)).unwrap_or_default();
        Some(Duration::from_secs(seconds).saturating_sub(elapsed))
    }

    /// Terminates the containers of a Pod that exceeded `activeDeadlineSeconds`, and sets its phase to `Failed`. A Pod
    /// in phase `Succeeded` or `Failed` is not changed.
    pub(super) async fn fail_on_deadline(&mut self, signals: &PodSignals) {
        if self.containers.iter().all(|container| container.done) {
            return;
        }
        self.event("Normal", "DeadlineExceeded", crate::status::DEADLINE_EXCEEDED_MESSAGE);
        let grace = self.grace_period();
        tokio::select! {
            () = self.terminate_containers(grace) => {}
            () = signals.removed.cancelled() => {}
            () = signals.shutdown.cancelled() => self.stop_containers(SHUTDOWN_GRACE_PERIOD).await,
        }
        self.kill_containers().await;
        self.containers.iter_mut().for_each(|container| container.done = true);
        self.placement.deadline_exceeded = true;
        self.sync_status();
    }

    /// Terminates the containers. If the Pod is being deleted, also removes it from the API.
    pub(super) async fn terminate(&mut self, reason: TerminationReason, signals: &PodSignals) {
        let TerminationReason::Deleted { grace } = reason else {
            self.stop_containers(SHUTDOWN_GRACE_PERIOD).await;
            self.kill_containers().await;
            return;
        };
        tokio::select! {
            () = self.terminate_containers(grace) => {}
            () = signals.removed.cancelled() => {}
            () = signals.shutdown.cancelled() => self.stop_containers(SHUTDOWN_GRACE_PERIOD).await,
        }
        self.kill_containers().await;
        self.remove_pod();
    }

    /// Returns the grace period of the deletion.
    fn grace_period(&self) -> Duration {
        container::grace_period(&self.stored_pod().unwrap_or_else(|| Arc::clone(&self.pod)))
    }

    /// Stops all containers and waits until they have exited, but no longer than the grace period.
    async fn terminate_containers(&mut self, grace: Duration) {
        for name in
            self.containers.iter().filter(|c| matches!(c.state, ContainerState::Running { .. })).map(|c| &c.name)
        {
            self.event("Normal", "Killing", &format!("Stopping container {name}"));
        }
        self.containers.iter_mut().for_each(|container| container.ready = false);
        self.sync_status();
        self.stop_containers(grace).await;
    }

    /// Signals all containers to stop and waits until they have exited, but no longer than the grace period.
    async fn stop_containers(&mut self, grace: Duration) {
        self.stop.cancel();
        let stop_all = async {
            while self.tasks.join_next().await.is_some() {}
            // Sidecars are stopped after the main containers, in reverse start order.
            for sidecar in self.sidecars.iter_mut().rev() {
                sidecar.stop.cancel();
                let _ = (&mut sidecar.task).await;
            }
        };
        // The caller kills the containers that still run after the grace period.
        let _ = tokio::time::timeout(grace, stop_all).await;
    }

    /// Kills all containers: dropping the future of a container kills it.
    async fn kill_containers(&mut self) {
        self.tasks.shutdown().await;
        for sidecar in self.sidecars.drain(..).filter(|sidecar| !sidecar.task.is_finished()) {
            sidecar.task.abort();
            let _ = sidecar.task.await;
        }
        self.volume_updater = None;
        self.drain_events();
    }

    /// Updates the status one last time, then removes the Pod, its logs and its directory.
    fn remove_pod(&mut self) {
        self.sync_status();
        let (namespace, name, uid) = (object::namespace(&self.pod), object::name(&self.pod), object::uid(&self.pod));
        if self.stored_pod().is_some()
            && let Err(status) = self.context.server.force_delete("pods", namespace, name, Some(uid))
        {
            tracing::debug!(namespace, name, %status, "failed to remove the Pod");
        }
        self.context.logs.remove_pod(namespace, name, uid);
        if let Some(pod_dir) = &self.pod_dir {
            volumes::remove_dir(pod_dir);
        }
    }
}

/// Sleeps for `duration`, forever when it is `None`.
async fn sleep_or_pend(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}
