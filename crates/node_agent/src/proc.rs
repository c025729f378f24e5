//! Host processes, read from `/proc`. Without `/proc`, no processes are found.

use std::fs;

/// A running process; zombies are excluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) process_group: i32,
    /// Start time in clock ticks since boot.
    pub(crate) start_time: u64,
}

/// Returns all running processes.
pub(crate) fn running_processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter_map(read).collect()
}

/// Returns a process if it is running.
pub(crate) fn read(pid: i32) -> Option<Process> {
    parse(pid, &fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses a line of `/proc/PID/stat`, see proc(5). The second field is the name in parentheses, which may contain any
/// characters.
fn parse(pid: i32, line: &str) -> Option<Process> {
    let (_, rest) = line.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let (state, process_group, start_time) = (fields.first()?, fields.get(2)?, fields.get(19)?);
    let is_running = !matches!(*state, "Z" | "X");
    is_running.then_some(Process {
        pid,
        process_group: process_group.parse().ok()?,
        start_time: start_time.parse().ok()?,
    })
}

/// Returns a variable of the initial environment of a process, if it is accessible.
pub(crate) fn environment_variable(pid: i32, name: &str) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut entries = environment.split(|byte| *byte == 0);
    entries.find_map(|entry| {
        let value = std::str::from_utf8(entry).ok()?.strip_prefix(name)?.strip_prefix('=')?;
        Some(value.to_owned())
    })
}

/// Returns the boot id of the host.
pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_unusual_names() {
        let line = "42 (a) b (c) S 1 41 41 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 777 0 0";
        assert_eq!(parse(42, line), Some(Process { pid: 42, process_group: 41, start_time: 777 }));
        assert_eq!(parse(42, &line.replace(" S ", " Z ")), None);
    }

    #[test]
    fn lists_own_process() {
        let pid = i32::try_from(std::process::id()).unwrap();
        assert!(running_processes().iter().any(|process| process.pid == pid));
    }
}
