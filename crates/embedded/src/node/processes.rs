//! Which processes were started, kept where the next start of the same data directory finds them: after a kill nobody
//! else ends them.
//!
//! A process is known again by its number and the moment it started, within one boot of the machine. What it started
//! itself may have left its process group; that is known by a variable in its environment, whose value is new at every
//! start.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use super::proc::{self, Process};

/// The variable that every process started here has.
const MARK: &str = "EMBEDDED_STARTED_BY";

/// How long a killed process may take to be gone, in tries of [`PAUSE`]: drivers take their time to free the memory of a
/// GPU.
const TRIES: u32 = 1500;
const PAUSE: Duration = Duration::from_millis(20);

/// How often nothing has to be found before nothing is there: a process that just becomes another program shows no
/// variables for a moment.
const LOOKS: u32 = 2;

/// Keeps which processes run; the default keeps nothing. Clones are the same.
#[derive(Debug, Clone, Default)]
pub struct Processes(Option<Arc<Kept>>);

#[derive(Debug)]
struct Kept {
    file: PathBuf,
    list: Mutex<List>,
}

/// The file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct List {
    /// Identity of the boot; numbers and times of another one say nothing.
    boot: String,
    /// Value of the variable.
    mark: String,
    /// Number of the process, which is that of its group → when it started, in clock ticks after the boot.
    started: BTreeMap<i32, u64>,
}

/// Keeps one process in the list as long as this lives.
#[derive(Debug)]
pub(crate) struct Entry {
    processes: Processes,
    id: Option<i32>,
}

/// What was found of an earlier start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeftBehind {
    /// How many processes were killed.
    pub ended: usize,
    /// How many are still there.
    pub remain: usize,
}

// === impl Processes ===

impl Processes {
    /// Kills what an earlier start left behind, and keeps a new list in the same file.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn open(file: PathBuf, mark: String) -> io::Result<(Self, LeftBehind)> {
        let left = match read(&file)? {
            Some(list) => end(&list),
            None => LeftBehind::default(),
        };
        let list = List { boot: proc::boot(), mark, started: BTreeMap::new() };
        write(&file, &list)?;
        Ok((Self(Some(Arc::new(Kept { file, list: Mutex::new(list) }))), left))
    }

    /// Variables that a process gets, so that it is known again.
    pub(crate) fn variables(&self) -> Option<(&'static str, String)> {
        Some((MARK, self.0.as_ref()?.list().mark.clone()))
    }

    /// A process was started, the first of its group.
    pub(crate) fn started(&self, id: Option<i32>) -> Entry {
        if let (Some(kept), Some(id)) = (&self.0, id)
            && let Some(process) = proc::read(id)
        {
            kept.change(|list| list.started.insert(id, process.started));
        }
        Entry { processes: self.clone(), id }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let (Some(kept), Some(id)) = (&self.processes.0, self.id) {
            kept.change(|list| list.started.remove(&id));
        }
    }
}

// === impl Kept ===

impl Kept {
    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Under the lock, so that the file is never older than what was said.
    fn change(&self, change: impl FnOnce(&mut List) -> Option<u64>) {
        let mut list = self.list();
        change(&mut list);
        if let Err(error) = write(&self.file, &list) {
            tracing::warn!(file = %self.file.display(), %error, "which processes run is not kept");
        }
    }
}

/// A file that does not read says nothing that could be relied on.
fn read(file: &Path) -> io::Result<Option<List>> {
    match fs::read(file) {
        Ok(bytes) => {
            let list = serde_json::from_slice(&bytes);
            let warn = |error: &serde_json::Error| {
                tracing::warn!(file = %file.display(), %error, "not the list of processes: end by hand what is left of an earlier start; it has {MARK} in its environment");
            };
            Ok(list.inspect_err(warn).ok())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Not synced: after a power loss no process is left.
fn write(file: &Path, list: &List) -> io::Result<()> {
    let partial = file.with_extension("partial");
    let mut options = fs::OpenOptions::new();
    let mut new = options.write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
    new.write_all(&serde_json::to_vec(list)?)?;
    fs::rename(&partial, file)
}

/// Kills them until none is left: one may start another while it is looked for.
fn end(list: &List) -> LeftBehind {
    let mut ended = std::collections::BTreeSet::new();
    let mut looks = 0;
    for _ in 0..TRIES {
        let left = find(list);
        looks = if left.is_empty() { looks + 1 } else { 0 };
        if looks == LOOKS {
            return LeftBehind { ended: ended.len(), remain: 0 };
        }
        for process in left {
            ended.insert(process.id);
            // One that is gone meanwhile needs no signal.
            let _ = Pid::from_raw(process.id).map(|id| match process.id == process.group {
                true => rustix::process::kill_process_group(id, Signal::KILL),
                false => rustix::process::kill_process(id, Signal::KILL),
            });
        }
        thread::sleep(PAUSE);
    }
    let remain = find(list).len();
    LeftBehind { ended: ended.len() - remain, remain }
}

fn find(list: &List) -> Vec<Process> {
    let mut all = proc::all();
    all.retain(|process| u32::try_from(process.id) != Ok(std::process::id()) && is_left(list, process));
    all
}

/// The process itself, one of its group as long as it leads it, or one with the variable.
fn is_left(list: &List, process: &Process) -> bool {
    let same_boot = list.boot == proc::boot();
    let is_listed = |id: i32| list.started.get(&id).is_some_and(|at| proc::read(id).is_some_and(|p| p.started == *at));
    same_boot && is_listed(process.group) || proc::variable(process.id, MARK).is_some_and(|value| value == list.mark)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use super::*;

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn file(&self) -> PathBuf {
            self.0.path().join("processes.json")
        }
    }

    fn until(what: &str, holds: impl Fn() -> bool) {
        let begun = std::time::Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(300), "never: {what}");
            thread::yield_now();
        }
    }

    fn start(script: &str, variables: Option<(&str, String)>) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).process_group(0).stdin(Stdio::null()).stdout(Stdio::piped());
        command.envs(variables).spawn().unwrap()
    }

    fn id(child: &Child) -> i32 {
        i32::try_from(child.id()).unwrap()
    }

    /// As a process that was killed leaves the file: entries are not dropped.
    fn leave(processes: &Processes, child: &Child) {
        std::mem::forget(processes.started(Some(id(child))));
    }

    #[test]
    fn the_group_of_a_known_process_is_ended() {
        let folder = Folder::new();
        let (processes, none) = Processes::open(folder.file(), "one".to_owned()).unwrap();
        assert_eq!(none, LeftBehind::default());
        let mut child = start("sleep 1000 & sleep 1000 & wait", None);
        leave(&processes, &child);
        // Both children are there before anyone looks.
        until("three", || proc::all().iter().filter(|process| process.group == id(&child)).count() == 3);
        // What was killed stays a zombie until its parent, this test, looks at it.
        let (_, left) = Processes::open(folder.file(), "two".to_owned()).unwrap();
        assert_eq!(left, LeftBehind { ended: 3, remain: 0 });
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn another_process_with_the_number_is_left_alone() {
        let folder = Folder::new();
        let mut child = start("exec sleep 1000", None);
        let started = BTreeMap::from([(id(&child), 1)]);
        write(&folder.file(), &List { boot: proc::boot(), mark: "x".to_owned(), started }).unwrap();
        let (_, left) = Processes::open(folder.file(), "two".to_owned()).unwrap();
        assert_eq!(left, LeftBehind::default());
        assert_eq!(child.try_wait().unwrap(), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn what_left_its_group_is_known_by_its_variable() {
        let folder = Folder::new();
        let (processes, _) = Processes::open(folder.file(), format!("mark-{}", std::process::id())).unwrap();
        // Nothing is noted: the process was killed between start and note.
        let mut child = start("exec sleep 1000", processes.variables());
        // The variables are those of the test until the program is another one.
        until("the variable", || proc::variable(id(&child), MARK).is_some());
        let (_, left) = Processes::open(folder.file(), "two".to_owned()).unwrap();
        assert_eq!(left, LeftBehind { ended: 1, remain: 0 });
        child.wait().unwrap();
    }

    #[test]
    fn what_ended_is_no_longer_in_the_list() {
        let folder = Folder::new();
        let (processes, _) = Processes::open(folder.file(), "one".to_owned()).unwrap();
        let mut child = start("exec sleep 1000", None);
        let entry = processes.started(Some(id(&child)));
        assert_eq!(read(&folder.file()).unwrap().unwrap().started.len(), 1);
        drop(entry);
        assert_eq!(read(&folder.file()).unwrap().unwrap().started.len(), 0);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
