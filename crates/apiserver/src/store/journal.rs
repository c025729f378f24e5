//! The journal thread: it writes all queued events as one batch, syncs the file, and marks the batch as durable.
//!
//! When the writes after the current checkpoint have become larger than the checkpoint itself, another thread writes a
//! new file with a checkpoint of all objects. Meanwhile, batches are still appended to the old file. A new file is also
//! written after a failure: the contents of a file are undefined after a failed write or sync, so that file is not
//! written to again.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use apimachinery::catch_panic;
use tokio_util::sync::CancellationToken;

use super::format::{self, FrameBuffer, FrameKind};
use super::journal_file::{JournalFile, reopen_journal, replace_journal, switch_journal, write_checkpoint};
use super::queued_bytes::QueuedBytes;
use super::recovery::{JOURNAL_FILE, NEXT_JOURNAL_FILE};
use super::state::{JournalLengths, State};
use super::storage::Storage;
use super::{StorageFailure, StoreEvent, StoreOpenError, StoreSettings};

/// Maximum number of writes per batch.
const MAX_BATCH_SIZE: usize = 256;

/// Size of the objects in bytes from which a batch takes no further writes: the batch is encoded in memory, and its writers
/// wait for all of it.
const MAX_BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Memory in bytes that is reserved for the key of a write in a batch.
const KEY_CAPACITY: usize = 512;

/// Size in bytes of the frames during a checkpoint from which the journal waits for the checkpoint.
const MAX_CHECKPOINT_FRAMES: usize = 32 * 1024 * 1024;

/// Maximum delay between two retries after a failure.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Handle of the journal thread; dropping it writes all queued events and ends the thread.
pub(super) struct Journal {
    sender: Sender<Message>,
    queued_bytes: Arc<QueuedBytes>,
    thread: Option<JoinHandle<()>>,
    path: String,
    /// Cancelled when the thread ends.
    ended: CancellationToken,
}

/// A message to the journal thread.
enum Message {
    /// Persist this write.
    Write(Arc<StoreEvent>),
    /// The checkpoint thread has written a new file.
    CheckpointWritten,
    /// Persist what is queued, then stop.
    Shutdown,
}

/// A checkpoint that is being written.
struct CheckpointTask {
    thread: JoinHandle<io::Result<JournalFile>>,
    /// Frames that were appended to the old file in the meantime.
    frames: Vec<Vec<u8>>,
    /// Size of the frames in bytes.
    frame_bytes: usize,
}

/// The state of the journal thread.
struct JournalWriter {
    storage: Arc<dyn Storage>,
    state: Arc<Mutex<State>>,
    settings: StoreSettings,
    messages: Receiver<Message>,
    sender: Sender<Message>,
    queued_bytes: Arc<QueuedBytes>,
    file: JournalFile,
    /// File length at which a new checkpoint is written.
    checkpoint_at: u64,
    checkpoint_task: Option<CheckpointTask>,
    /// Delay before the next retry; `None` unless the last write has failed.
    retry_delay: Option<Duration>,
    /// A message that was received but has not been handled yet.
    pending: Option<Message>,
}

// === impl Journal ===

impl Journal {
    /// Starts the journal thread with the existing file, or with a new one.
    pub(super) fn start(
        storage: Arc<dyn Storage>,
        state: Arc<Mutex<State>>,
        settings: StoreSettings,
        existing_lengths: Option<JournalLengths>,
    ) -> Result<Self, StoreOpenError> {
        let file = match existing_lengths {
            Some(lengths) => reopen_journal(storage.as_ref(), lengths),
            None => replace_journal(storage.as_ref(), &lock(&state).checkpoint()),
        };
        let io_error = |error| StoreOpenError::Io { file: storage.display_path(JOURNAL_FILE), error };
        let file = file.map_err(io_error)?;
        let (sender, messages) = mpsc::channel();
        let queued_bytes = Arc::<QueuedBytes>::default();
        let mut writer = JournalWriter {
            storage: Arc::clone(&storage),
            state,
            settings,
            messages,
            sender: sender.clone(),
            queued_bytes: Arc::clone(&queued_bytes),
            file,
            checkpoint_at: 0,
            checkpoint_task: None,
            retry_delay: None,
            pending: None,
        };
        writer.schedule_checkpoint();
        let (ended, path) = (CancellationToken::new(), storage.display_path(JOURNAL_FILE));
        let guard = ended.clone().drop_guard();
        let (shared_state, shared_queue) = (Arc::clone(&writer.state), Arc::clone(&queued_bytes));
        let failed_path = path.clone();
        let run = move || {
            let _guard = guard;
            if let Err(panic) = catch_panic(|| writer.run()) {
                tracing::error!(%panic, "the journal thread ended; rejecting writes");
                let mut state = lock(&shared_state);
                shared_queue.reset();
                state.roll_back(StorageFailure::new(failed_path, &io::Error::other(panic)));
            }
        };
        let thread = thread::Builder::new().name("journal".to_owned()).spawn(run);
        Ok(Self { sender, queued_bytes, thread: Some(thread.map_err(io_error)?), path, ended })
    }

    /// Queues an event. Events must be queued in the order of revisions.
    ///
    /// The queue is not limited here, because the caller holds the lock that the journal thread needs. Its writers limit
    /// it: requests wait until their writes are durable, each task of the process waits before its next write while
    /// [`Self::queued_bytes`] is large, and so does each cascade before its next step.
    pub(super) fn write(&self, event: Arc<StoreEvent>) {
        self.queued_bytes.add(event.queued_bytes());
        // Sending succeeds, because the thread runs until this handle is dropped.
        let _ = self.sender.send(Message::Write(event));
    }

    /// Returns the size in bytes of the events that are queued or being written.
    pub(super) fn queued_bytes(&self) -> &QueuedBytes {
        &self.queued_bytes
    }

    /// Waits until the thread has ended although this handle exists.
    pub(super) async fn failed(&self) -> StorageFailure {
        self.ended.cancelled().await;
        StorageFailure::new(self.path.clone(), &io::Error::other("the journal thread ended"))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let _ = self.sender.send(Message::Shutdown);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl JournalWriter ===

impl JournalWriter {
    /// Runs until the handle of the journal is dropped. A panic is handled like a failed write: the writes that are not
    /// durable are rolled back, and a new file is written after a delay.
    fn run(mut self) {
        while let Err(panic) = catch_panic(|| self.process_messages()) {
            self.fail(&io::Error::other(panic));
        }
        self.abandon_checkpoint();
    }

    /// Handles messages until the journal is shut down.
    fn process_messages(&mut self) {
        while let Some(message) = self.next() {
            match message {
                Message::Write(event) => self.write_batch(event),
                Message::CheckpointWritten => self.finish_checkpoint(),
                Message::Shutdown => break,
            }
        }
    }

    /// Returns the next message. After a failure, retries periodically while waiting for a message.
    fn next(&mut self) -> Option<Message> {
        if let Some(pending) = self.pending.take() {
            return Some(pending);
        }
        loop {
            let Some(delay) = self.retry_delay else { return self.messages.recv().ok() };
            match self.messages.recv_timeout(delay) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Timeout) => self.recover(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Writes an event and all events that are already queued after it as one batch.
    fn write_batch(&mut self, first: Arc<StoreEvent>) {
        let mut bytes = first.written_bytes();
        let mut batch = vec![first];
        while batch.len() < MAX_BATCH_SIZE && bytes < MAX_BATCH_BYTES {
            match self.messages.try_recv() {
                Ok(Message::Write(event)) => {
                    bytes += event.written_bytes();
                    batch.push(event);
                }
                Ok(message) => {
                    self.pending = Some(message);
                    break;
                }
                Err(_) => break,
            }
        }
        let revision = batch.last().map_or(0, |event| event.revision);
        if let Err(error) = self.append_batch(&batch) {
            return self.fail(&error);
        }
        // This frame is not synced. It survives if the process is killed; after a power loss, only the information that
        // the last batch was acknowledged is missing.
        let acknowledged = self.file.append(&format::frame(FrameKind::Acknowledged, &[]));
        self.queued_bytes.subtract(batch.iter().map(|event| event.queued_bytes()).sum());
        lock(&self.state).mark_durable(revision);
        match acknowledged {
            Ok(()) => self.advance_checkpoint(),
            Err(error) => self.fail(&error),
        }
    }

    /// Starts a checkpoint if one is due. Waits for the current one if many writes have followed it: they are held in
    /// memory until then.
    fn advance_checkpoint(&mut self) {
        match &self.checkpoint_task {
            Some(task) if task.frame_bytes >= MAX_CHECKPOINT_FRAMES => self.finish_checkpoint(),
            None if self.file.lengths.file >= self.checkpoint_at => self.start_checkpoint(),
            _ => {}
        }
    }

    fn append_batch(&mut self, batch: &[Arc<StoreEvent>]) -> io::Result<()> {
        let length = batch.iter().map(|event| event.written_bytes() + KEY_CAPACITY).sum();
        let mut frame = FrameBuffer::with_capacity(length);
        for event in batch {
            frame.write_entry(event.revision, &event.key, event.new.as_deref())?;
        }
        let frame = frame.finish(FrameKind::Commit);
        self.file.append(&frame)?;
        self.file.handle.sync()?;
        if let Some(checkpoint_task) = &mut self.checkpoint_task {
            checkpoint_task.frame_bytes += frame.len();
            checkpoint_task.frames.push(frame);
        }
        Ok(())
    }

    /// Starts a thread that writes a checkpoint.
    fn start_checkpoint(&mut self) {
        let (checkpoint, storage, sender) =
            (lock(&self.state).checkpoint(), Arc::clone(&self.storage), self.sender.clone());
        let write_new_file = move || {
            let checkpoint_result = write_checkpoint(storage.as_ref(), &checkpoint);
            let _ = sender.send(Message::CheckpointWritten);
            checkpoint_result
        };
        match thread::Builder::new().name("journal-checkpoint".to_owned()).spawn(write_new_file) {
            Ok(thread) => self.checkpoint_task = Some(CheckpointTask { thread, frames: Vec::new(), frame_bytes: 0 }),
            Err(error) => self.postpone_checkpoint(&error),
        }
    }

    /// Appends the batches since the checkpoint to the new file, which then replaces the old one.
    /// Does nothing if the checkpoint has been finished before its message arrived.
    fn finish_checkpoint(&mut self) {
        let Some(CheckpointTask { thread, frames, .. }) = self.checkpoint_task.take() else { return };
        let checkpoint_result =
            thread.join().unwrap_or_else(|_| Err(io::Error::other("the checkpoint thread panicked")));
        let completed = checkpoint_result.and_then(|mut file| {
            frames.iter().try_for_each(|frame| file.append(frame))?;
            file.handle.sync()?;
            Ok(file)
        });
        let mut file = match completed {
            Ok(file) => file,
            // The old file is still valid.
            Err(error) => return self.postpone_checkpoint(&error),
        };
        let replaced = switch_journal(self.storage.as_ref());
        match replaced.and_then(|()| file.append(&format::frame(FrameKind::Acknowledged, &[]))) {
            Ok(()) => self.switch_file(file),
            Err(error) => self.fail(&error),
        }
    }

    /// Switches to another journal file.
    fn switch_file(&mut self, file: JournalFile) {
        self.file = file;
        self.schedule_checkpoint();
    }

    /// Sets the file length at which the next checkpoint is written.
    fn schedule_checkpoint(&mut self) {
        let JournalLengths { checkpoint, .. } = self.file.lengths;
        self.checkpoint_at = checkpoint + checkpoint.max(self.settings.checkpoint_after);
    }

    /// Continues with the old file after a checkpoint has failed.
    fn postpone_checkpoint(&mut self, error: &io::Error) {
        self.storage.remove(NEXT_JOURNAL_FILE);
        let file = self.storage.display_path(JOURNAL_FILE);
        tracing::warn!(file, %error, "failed to write a checkpoint; the journal continues to grow");
        self.checkpoint_at = self.file.lengths.file + self.settings.checkpoint_after;
    }

    /// Waits for the checkpoint thread and discards its result.
    fn abandon_checkpoint(&mut self) {
        if let Some(checkpoint_task) = self.checkpoint_task.take() {
            let _ = checkpoint_task.thread.join();
        }
    }

    /// Rolls back all writes that are not durable, including those still queued in the channel.
    fn fail(&mut self, error: &io::Error) {
        self.abandon_checkpoint();
        let failure = StorageFailure::new(self.storage.display_path(JOURNAL_FILE), error);
        tracing::error!(%failure, "failed to write the journal; rejecting writes");
        let state = Arc::clone(&self.state);
        let mut state = lock(&state);
        while let Ok(message) = self.messages.try_recv() {
            if matches!(message, Message::Shutdown) {
                self.pending = Some(message);
            }
        }
        // The lock is held, so that no event is queued meanwhile.
        self.queued_bytes.reset();
        state.roll_back(failure);
        self.retry_delay = Some(self.settings.retry_delay);
    }

    /// Writes a new journal file; writes are accepted again when that succeeds.
    fn recover(&mut self) {
        let checkpoint = lock(&self.state).checkpoint();
        match replace_journal(self.storage.as_ref(), &checkpoint) {
            Ok(file) => {
                self.switch_file(file);
                self.retry_delay = None;
                lock(&self.state).accept_writes();
                tracing::warn!(
                    file = self.storage.display_path(JOURNAL_FILE),
                    "journal recovered; accepting writes again"
                );
            }
            Err(error) => {
                lock(&self.state).reject_writes(StorageFailure::new(self.storage.display_path(JOURNAL_FILE), &error));
                self.retry_delay = self.retry_delay.map(|delay| delay.saturating_mul(2).min(MAX_RETRY_DELAY));
            }
        }
    }
}
