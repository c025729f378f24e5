//! Processes of the host, from `/proc`; empty where it does not exist.

use std::fs;

/// A running process; zombies are excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) id: i32,
    pub(super) group: i32,
    /// Start time in clock ticks since boot.
    pub(super) started: u64,
}

/// Returns all running processes.
pub(super) fn running_processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(read).collect()
}

/// Returns a process if it is running.
pub(super) fn read(id: i32) -> Option<Process> {
    parse(id, &fs::read_to_string(format!("/proc/{id}/stat")).ok()?)
}

/// Parses a line of `/proc/PID/stat`, see proc(5). The second field is the name in parentheses, which may contain any
/// characters.
fn parse(id: i32, line: &str) -> Option<Process> {
    let (_, rest) = line.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let (state, group, started) = (fields.first()?, fields.get(2)?, fields.get(19)?);
    let is_running = !matches!(*state, "Z" | "X");
    is_running.then_some(Process { id, group: group.parse().ok()?, started: started.parse().ok()? })
}

/// Returns a variable of the initial environment of a process, if it is accessible.
pub(super) fn environment_variable(id: i32, name: &str) -> Option<String> {
    let environment = fs::read(format!("/proc/{id}/environ")).ok()?;
    let mut entries = environment.split(|byte| *byte == 0);
    entries.find_map(|entry| {
        let value = std::str::from_utf8(entry).ok()?.strip_prefix(name)?.strip_prefix('=')?;
        Some(value.to_owned())
    })
}

/// Returns the boot id of the host.
pub(super) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_unusual_names() {
        let line = "42 (a) b (c) S 1 41 41 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0";
        assert_eq!(parse(42, line), Some(Process { id: 42, group: 41, started: 777 }));
        assert_eq!(parse(42, &line.replace(" S ", " Z ")), None);
    }

    #[test]
    fn lists_own_process() {
        let id = i32::try_from(std::process::id()).unwrap();
        assert!(running_processes().iter().any(|process| process.id == id));
    }
}
