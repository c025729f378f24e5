//! How a Pod ends: it is deleted, it has had its time, or the whole cluster stops.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::container;
use super::lifecycle::{Signals, Worker};
use super::status::Phase;
use super::volumes;
use crate::object;

/// Why the containers of a Pod have to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Whoever deleted the Pod gives it so long.
    Deleted { grace: Duration },
    /// The agent ends.
    Shutdown,
    /// `activeDeadlineSeconds` have passed since its start.
    Overdue,
}

/// When the whole cluster ends, containers get no longer than this.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);

impl Worker {
    /// Runs the Pod until it has to end.
    pub(super) async fn live_until(&mut self, signals: &Signals) -> Ending {
        let deadline = self.until_deadline();
        tokio::select! {
            biased;
            () = signals.gone.cancelled() => Ending::Deleted { grace: Duration::ZERO },
            () = signals.shutdown.cancelled() => Ending::Shutdown,
            () = signals.delete.cancelled() => Ending::Deleted { grace: self.grace() },
            () = wait(deadline) => Ending::Overdue,
            never = self.live() => match never {},
        }
    }

    /// The same for one whose containers do not run any more.
    pub(super) async fn asked_to_end(&mut self, signals: &Signals) -> Ending {
        tokio::select! {
            biased;
            () = signals.gone.cancelled() => Ending::Deleted { grace: Duration::ZERO },
            () = signals.shutdown.cancelled() => Ending::Shutdown,
            () = signals.delete.cancelled() => Ending::Deleted { grace: self.grace() },
        }
    }

    /// What is left of `activeDeadlineSeconds`, as it was when the Pod came.
    fn until_deadline(&self) -> Option<Duration> {
        let seconds = self.pod.pointer("/spec/activeDeadlineSeconds").and_then(Value::as_u64)?;
        let started: Timestamp = self.place.since.parse().ok()?;
        let ran = Duration::try_from(self.shared.ports.clock.now().duration_since(started)).unwrap_or_default();
        Some(Duration::from_secs(seconds).saturating_sub(ran))
    }

    /// The Pod has had its time: its containers end, and it has failed. One that has finished stays what it is.
    pub(super) async fn give_up(&mut self, signals: &Signals) {
        if self.containers.iter().all(|container| container.done) {
            return;
        }
        self.event("Normal", "DeadlineExceeded", super::status::OVERDUE);
        let grace = self.grace();
        tokio::select! {
            () = self.terminate(grace) => {}
            () = signals.gone.cancelled() => {}
            () = signals.shutdown.cancelled() => self.end(SHUTDOWN_GRACE).await,
        }
        self.kill().await;
        self.containers.iter_mut().for_each(|container| container.done = true);
        self.place.overdue = true;
        self.publish();
    }

    /// Ends the containers; a Pod that was deleted goes.
    pub(super) async fn finish(&mut self, ending: Ending, signals: &Signals) {
        let Ending::Deleted { grace } = ending else {
            self.end(SHUTDOWN_GRACE).await;
            self.kill().await;
            return;
        };
        tokio::select! {
            () = self.terminate(grace) => {}
            () = signals.gone.cancelled() => {}
            () = signals.shutdown.cancelled() => self.end(SHUTDOWN_GRACE).await,
        }
        self.kill().await;
        self.remove();
    }

    /// The grace that the delete asked for.
    fn grace(&self) -> Duration {
        container::grace(&self.current().unwrap_or_else(|| Arc::clone(&self.pod)))
    }

    /// Asks all containers to stop and waits for them, for at most the grace.
    async fn terminate(&mut self, grace: Duration) {
        for name in self.containers.iter().filter(|c| matches!(c.phase, Phase::Running { .. })).map(|c| &c.name) {
            self.event("Normal", "Killing", &format!("Stopping container {name}"));
        }
        self.containers.iter_mut().for_each(|container| container.ready = false);
        self.publish();
        self.end(grace).await;
    }

    async fn end(&mut self, grace: Duration) {
        self.stop.cancel();
        let all = async {
            while self.tasks.join_next().await.is_some() {}
            // Sidecars outlive whom they serve; the last that started ends first.
            for sidecar in self.sidecars.iter_mut().rev() {
                sidecar.stop.cancel();
                let _ = (&mut sidecar.task).await;
            }
        };
        // Whatever is left after the grace is killed by the caller.
        let _ = tokio::time::timeout(grace, all).await;
    }

    /// Dropping a container's future kills it.
    async fn kill(&mut self) {
        self.tasks.shutdown().await;
        for sidecar in self.sidecars.drain(..).filter(|sidecar| !sidecar.task.is_finished()) {
            sidecar.task.abort();
            let _ = sidecar.task.await;
        }
        self.follower = None;
        self.catch_up();
    }

    /// The last status, then the end of the object and of what belonged to it.
    fn remove(&mut self) {
        self.publish();
        let (namespace, name, uid) = (object::namespace(&self.pod), object::name(&self.pod), object::uid(&self.pod));
        if self.current().is_some()
            && let Err(status) = self.shared.server.remove("pods", namespace, name, Some(uid))
        {
            tracing::debug!(namespace, name, %status, "the Pod was not removed");
        }
        self.shared.logs.remove(namespace, name, uid);
        if let Some(folder) = &self.folder {
            volumes::remove(folder);
        }
    }
}

async fn wait(duration: Option<Duration>) {
    match duration {
        Some(duration) => tokio::time::sleep(duration).await,
        None => std::future::pending().await,
    }
}
