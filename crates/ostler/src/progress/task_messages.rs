//! Messages about background tasks that fail or are restarted.

use std::collections::BTreeMap;
use std::future::pending;

use embedded::{TaskId, TaskStatuses};
use futures::stream::{self, Stream, StreamExt};
use tokio::sync::watch;

use super::message_output::MessageOutput;
use crate::report::task_status::{self, TaskOwner};

/// The background tasks of one part of `ostler up`.
pub(crate) struct TaskGroup {
    pub owner: TaskOwner,
    pub statuses: watch::Receiver<TaskStatuses>,
}

/// The last message about each task that has failed.
type Messages = BTreeMap<TaskId, String>;

/// Prints a message for each task that has failed, and when a task fails or is restarted. Never returns.
pub(crate) async fn watch_tasks(groups: impl IntoIterator<Item = TaskGroup>, output: &MessageOutput) {
    let mut updates = stream::select_all(groups.into_iter().map(|group| group.updates().boxed()));
    let mut printed: BTreeMap<TaskOwner, Messages> = BTreeMap::new();
    while let Some((owner, messages)) = updates.next().await {
        let printed = printed.entry(owner).or_default();
        let is_new = |(id, message): &(&TaskId, &String)| printed.get(id) != Some(message);
        messages.iter().filter(is_new).for_each(|(_, message)| output.print(&format!("  {message}")));
        // Tasks that were stopped are forgotten.
        *printed = messages;
    }
    pending::<()>().await;
}

// === impl TaskGroup ===

impl TaskGroup {
    /// Returns the current messages, and those after each change.
    fn updates(self) -> impl Stream<Item = (TaskOwner, Messages)> + Send {
        let Self { owner, mut statuses } = self;
        statuses.mark_changed();
        stream::unfold(statuses, move |mut statuses| async move {
            statuses.changed().await.ok()?;
            let messages = messages(owner, &statuses.borrow_and_update());
            Some(((owner, messages), statuses))
        })
    }
}

fn messages(owner: TaskOwner, statuses: &TaskStatuses) -> Messages {
    statuses.iter().filter_map(|(id, status)| Some((*id, task_status::line(owner, status)?))).collect()
}
