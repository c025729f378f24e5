//! Background tasks that run until they are stopped.

use std::{borrow::Cow, time::Duration};

use supervisor::Supervisor;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Spawns a task that is restarted after failures until `stop`.
pub(super) fn spawn<F>(
    supervisor: &Supervisor,
    name: impl Into<Cow<'static, str>>,
    stop: CancellationToken,
    mut start: impl FnMut() -> F + Send + 'static,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let task = {
        let stop = stop.clone();
        move || {
            let (stop, task) = (stop.clone(), start());
            async move {
                stop.run_until_cancelled(task).await;
            }
        }
    };
    tokio::spawn(supervisor.supervise_indefinitely(name, stop, task));
}

/// Waits a random time around `pause`, so that replicas do not act at the same time.
pub(super) async fn sleep_about(pause: Duration) {
    sleep(pause.mul_f64(0.75 + 0.5 * fastrand::f64())).await;
}
