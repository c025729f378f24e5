//! The thread that makes writes durable: it writes what came meanwhile as one group, syncs it, and says so.
//!
//! The file is begun anew from the objects when the writes behind its base have become more than the base, in another
//! thread while groups go on into the old one. The same is done after a failure: what a disk keeps of a file after a
//! write or a sync failed is unknown, so that file is not written to again.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::file::{Output, renew, reopen, write_base};
use super::format::{self, Kind};
use super::recovery::{FILE, NEXT};
use super::state::{Lengths, State};
use super::storage::Storage;
use super::{Failure, OpenError, Record, Settings};

/// A group of writes ends here, so that one of many large objects does not keep the others waiting.
const GROUP: usize = 256;

/// Between two tries after a failure.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// A handle; the thread ends with it, after everything before is written.
pub(super) struct Journal {
    sender: Sender<Message>,
    thread: Option<JoinHandle<()>>,
}

enum Message {
    Write(Arc<Record>),
    /// The new file is there, but for what was written meanwhile.
    Rewritten,
    End,
}

/// A new file in the making.
struct Rewriting {
    thread: JoinHandle<io::Result<Output>>,
    /// The groups that were written meanwhile.
    meanwhile: Vec<Vec<u8>>,
}

struct Writer {
    storage: Arc<dyn Storage>,
    state: Arc<Mutex<State>>,
    settings: Settings,
    messages: Receiver<Message>,
    sender: Sender<Message>,
    output: Output,
    /// Length at which the file is begun anew.
    rewrite_at: u64,
    rewriting: Option<Rewriting>,
    /// After a failure: how long until the next try.
    retry: Option<Duration>,
    /// Read from the channel, but not dealt with.
    held: Option<Message>,
}

// === impl Journal ===

impl Journal {
    /// Goes on behind what was found, or begins the file.
    pub(super) fn start(
        storage: Arc<dyn Storage>,
        state: Arc<Mutex<State>>,
        settings: Settings,
        found: Option<Lengths>,
    ) -> Result<Self, OpenError> {
        let output = match found {
            Some(lengths) => reopen(storage.as_ref(), lengths),
            None => renew(storage.as_ref(), &lock(&state).base()),
        };
        let failed = |error| OpenError::Io { file: storage.shown(FILE), error };
        let output = output.map_err(failed)?;
        let (sender, messages) = mpsc::channel();
        let mut writer = Writer {
            storage: Arc::clone(&storage),
            state,
            settings,
            messages,
            sender: sender.clone(),
            output,
            rewrite_at: 0,
            rewriting: None,
            retry: None,
            held: None,
        };
        writer.plan_rewrite();
        let thread = thread::Builder::new().name("journal".to_owned()).spawn(move || writer.run());
        Ok(Self { sender, thread: Some(thread.map_err(failed)?) })
    }

    /// Queues a record; in the order of revisions.
    pub(super) fn write(&self, record: Arc<Record>) {
        // The thread ends with this handle only.
        let _ = self.sender.send(Message::Write(record));
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        let _ = self.sender.send(Message::End);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

// === impl Writer ===

impl Writer {
    fn run(mut self) {
        while let Some(message) = self.next() {
            match message {
                Message::Write(record) => self.group(record),
                Message::Rewritten => self.switch(),
                Message::End => break,
            }
        }
        self.abandon_rewriting();
    }

    /// The next message; tries to recover while there is none.
    fn next(&mut self) -> Option<Message> {
        if let Some(held) = self.held.take() {
            return Some(held);
        }
        loop {
            let Some(wait) = self.retry else { return self.messages.recv().ok() };
            match self.messages.recv_timeout(wait) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Timeout) => self.recover(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Writes a record and those that wait behind it.
    fn group(&mut self, first: Arc<Record>) {
        let mut group = vec![first];
        while group.len() < GROUP {
            match self.messages.try_recv() {
                Ok(Message::Write(record)) => group.push(record),
                Ok(other) => {
                    self.held = Some(other);
                    break;
                }
                Err(_) => break,
            }
        }
        let revision = group.last().map_or(0, |record| record.revision);
        if let Err(error) = self.append(&group) {
            return self.fail(&error);
        }
        // Not synced: a kill leaves it, and a power loss only takes the proof that the last group was promised.
        let acknowledged = self.output.append(&format::frame(Kind::Acknowledged, &[]));
        lock(&self.state).settle(revision);
        match acknowledged {
            Ok(()) if self.output.lengths.file >= self.rewrite_at && self.rewriting.is_none() => self.begin_rewriting(),
            Ok(()) => {}
            Err(error) => self.fail(&error),
        }
    }

    fn append(&mut self, group: &[Arc<Record>]) -> io::Result<()> {
        let mut payload = Vec::new();
        for record in group {
            format::write_entry(&mut payload, record.revision, &record.key, record.new.as_deref())?;
        }
        let frame = format::frame(Kind::Commit, &payload);
        self.output.append(&frame)?;
        self.output.file.sync()?;
        if let Some(rewriting) = &mut self.rewriting {
            rewriting.meanwhile.push(frame);
        }
        Ok(())
    }

    fn begin_rewriting(&mut self) {
        let (base, storage, sender) = (lock(&self.state).base(), Arc::clone(&self.storage), self.sender.clone());
        let work = move || {
            let written = write_base(storage.as_ref(), &base);
            let _ = sender.send(Message::Rewritten);
            written
        };
        match thread::Builder::new().name("journal-base".to_owned()).spawn(work) {
            Ok(thread) => self.rewriting = Some(Rewriting { thread, meanwhile: Vec::new() }),
            Err(error) => self.postpone_rewriting(&error),
        }
    }

    /// The new file gets what was written meanwhile, and takes the place of the old one.
    fn switch(&mut self) {
        let Some(Rewriting { thread, meanwhile }) = self.rewriting.take() else { return };
        let written = thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread ended early")));
        let complete = written.and_then(|mut output| {
            meanwhile.iter().try_for_each(|frame| output.append(frame))?;
            output.file.sync()?;
            Ok(output)
        });
        let mut output = match complete {
            Ok(output) => output,
            // The old one is as good as before.
            Err(error) => return self.postpone_rewriting(&error),
        };
        let replaced = self.storage.replace(FILE, NEXT);
        match replaced.and_then(|()| output.append(&format::frame(Kind::Acknowledged, &[]))) {
            Ok(()) => self.adopt(output),
            Err(error) => self.fail(&error),
        }
    }

    fn adopt(&mut self, output: Output) {
        self.output = output;
        self.plan_rewrite();
    }

    fn plan_rewrite(&mut self) {
        let Lengths { base, .. } = self.output.lengths;
        self.rewrite_at = base + base.max(self.settings.rewrite_after);
    }

    fn postpone_rewriting(&mut self, error: &io::Error) {
        self.storage.remove(NEXT);
        let file = self.storage.shown(FILE);
        tracing::warn!(file, %error, "the file of objects was not begun anew and grows");
        self.rewrite_at = self.output.lengths.file + self.settings.rewrite_after;
    }

    fn abandon_rewriting(&mut self) {
        if let Some(rewriting) = self.rewriting.take() {
            let _ = rewriting.thread.join();
        }
    }

    /// Undoes what is not durable. Whatever waits in the channel is among it.
    fn fail(&mut self, error: &io::Error) {
        self.abandon_rewriting();
        let failure = Failure::new(self.storage.shown(FILE), error);
        tracing::error!(%failure, "writes are refused");
        let state = Arc::clone(&self.state);
        let mut state = lock(&state);
        while let Ok(message) = self.messages.try_recv() {
            if matches!(message, Message::End) {
                self.held = Some(message);
            }
        }
        state.lose(failure);
        self.retry = Some(self.settings.retry);
    }

    /// Begins the file anew; writes are accepted again when that succeeds.
    fn recover(&mut self) {
        let base = lock(&self.state).base();
        match renew(self.storage.as_ref(), &base) {
            Ok(output) => {
                self.adopt(output);
                self.retry = None;
                lock(&self.state).recover();
                tracing::warn!(file = self.storage.shown(FILE), "writes are accepted again");
            }
            Err(error) => {
                lock(&self.state).refuse(Failure::new(self.storage.shown(FILE), &error));
                self.retry = self.retry.map(|wait| (wait * 2).min(LONGEST_RETRY));
            }
        }
    }
}
