//! What `/proc` says of the processes of this machine; nothing where there is none.

use std::fs;

/// One process that runs; zombies do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) id: i32,
    pub(super) group: i32,
    /// Clock ticks after the boot.
    pub(super) started: u64,
}

/// All that run.
pub(super) fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(read).collect()
}

/// One, if it runs.
pub(super) fn read(id: i32) -> Option<Process> {
    parse(id, &fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

/// A line of `/proc/PID/stat`; see proc(5). The second field is a name in parentheses that may hold anything.
fn parse(id: i32, line: &str) -> Option<Process> {
    let (_, rest) = line.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let (state, group, started) = (fields.first()?, fields.get(2)?, fields.get(19)?);
    let runs = !matches!(*state, "Z" | "X");
    runs.then_some(Process { id, group: group.parse().ok()?, started: started.parse().ok()? })
}

/// A variable of the environment that the process was started with, if we may see it.
pub(super) fn variable(id: i32, name: &str) -> Option<String> {
    let environment = fs::read(format!("/proc/{id}/environ")).ok()?;
    let mut entries = environment.split(|byte| *byte == 0);
    entries.find_map(|entry| {
        let value = std::str::from_utf8(entry).ok()?.strip_prefix(name)?.strip_prefix('=')?;
        Some(value.to_owned())
    })
}

/// Identity of the running system since it was started.
pub(super) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let line = "42 (a) b (c) S 1 41 41 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0";
        assert_eq!(parse(42, line), Some(Process { id: 42, group: 41, started: 777 }));
        assert_eq!(parse(42, &line.replace(" S ", " Z ")), None);
    }

    #[test]
    fn this_process_runs() {
        let id = i32::try_from(std::process::id()).unwrap();
        assert!(all().iter().any(|process| process.id == id));
    }
}
