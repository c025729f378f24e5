//! Background tasks of a command, which ends when one of them fails.

use anyhow::Result;
use apimachinery::catch_future_panic;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The background tasks of a command. They run until `shutdown` unless one fails; dropping the value aborts them.
pub(crate) struct BackgroundTasks {
    tasks: JoinSet<(&'static str, Result<()>)>,
    shutdown: CancellationToken,
}

// === impl BackgroundTasks ===

impl BackgroundTasks {
    /// Returns an empty set of tasks that end after `shutdown`.
    pub(crate) fn new(shutdown: CancellationToken) -> Self {
        Self { tasks: JoinSet::new(), shutdown }
    }

    /// Spawns a task. `name` begins the error if it fails.
    pub(crate) fn spawn<E: Into<anyhow::Error>>(
        &mut self,
        name: &'static str,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) {
        self.tasks.spawn(async move {
            let result = match catch_future_panic(task).await {
                Ok(result) => result.map_err(Into::into),
                Err(panic) => Err(panic.into()),
            };
            (name, result)
        });
    }

    /// Waits until a task fails, panics, or ends before the shutdown, and returns its error. Cancel-safe.
    pub(crate) async fn failed(&mut self) -> anyhow::Error {
        loop {
            match self.tasks.join_next().await {
                Some(Ok((name, Err(error)))) => return error.context(name),
                Some(Ok((name, Ok(())))) if !self.shutdown.is_cancelled() => {
                    return anyhow::anyhow!("ended unexpectedly").context(name);
                }
                Some(_) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Runs until the shutdown or until a task fails, and then stops all tasks.
    ///
    /// # Errors
    /// The first error of a task.
    pub(crate) async fn run(mut self) -> Result<()> {
        let shutdown = self.shutdown.clone();
        let result = tokio::select! {
            biased;
            error = self.failed() => Err(error),
            () = shutdown.cancelled() => Ok(()),
        };
        shutdown.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            if let (Ok((name, Err(error))), true) = (ended, result.is_ok()) {
                return Err(error.context(name));
            }
        }
        result
    }

    /// Waits until all tasks have ended. The caller cancels the shutdown token first.
    pub(crate) async fn join(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn error_line(error: &anyhow::Error) -> String {
        format!("{error:#}")
    }

    #[tokio::test]
    async fn first_failure_stops_the_other_tasks_and_names_the_task() {
        let shutdown = CancellationToken::new();
        let mut tasks = BackgroundTasks::new(shutdown.clone());
        let token = shutdown.clone();
        tasks.spawn("metrics", async move {
            token.cancelled().await;
            Ok::<_, io::Error>(())
        });
        tasks.spawn("gateway", async { Err(io::Error::other("no listener")) });
        assert_eq!(error_line(&tasks.run().await.unwrap_err()), "gateway: no listener");
        assert!(shutdown.is_cancelled());
    }

    #[tokio::test]
    async fn panics_and_early_ends_are_failures() {
        let mut tasks = BackgroundTasks::new(CancellationToken::new());
        tasks.spawn("gateway", async { panic!("broken") as Result<(), io::Error> });
        assert_eq!(error_line(&tasks.failed().await), "gateway: panicked: broken");
        tasks.spawn("metrics", async { Ok::<_, io::Error>(()) });
        assert_eq!(error_line(&tasks.failed().await), "metrics: ended unexpectedly");
    }

    #[tokio::test]
    async fn tasks_may_end_after_the_shutdown() {
        let shutdown = CancellationToken::new();
        let mut tasks = BackgroundTasks::new(shutdown.clone());
        tasks.spawn("metrics", async { Ok::<_, io::Error>(()) });
        shutdown.cancel();
        tasks.run().await.unwrap();
    }
}
