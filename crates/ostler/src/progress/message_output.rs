//! Messages, and below them the table of services.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where `ostler up` writes messages. On a terminal, a table that is updated in place follows the last message.
pub(crate) struct MessageOutput {
    is_terminal: bool,
    state: Mutex<State>,
}

struct State {
    writer: Box<dyn Write + Send>,
    /// The text of the table; empty if there is none.
    table: String,
}

// === impl MessageOutput ===

impl MessageOutput {
    pub(crate) fn stderr() -> Self {
        let stderr = io::stderr();
        Self::new(stderr.is_terminal(), Box::new(stderr))
    }

    fn new(is_terminal: bool, writer: Box<dyn Write + Send>) -> Self {
        Self { is_terminal, state: Mutex::new(State { writer, table: String::new() }) }
    }

    pub(crate) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Writes a line. A table moves below it.
    pub(crate) fn print(&self, message: &str) {
        let mut state = self.state();
        let table = std::mem::take(&mut state.table);
        state.write(&format!("{}{message}\n{}", clear_sequence(&table), table_text(&table)));
        state.table = table;
    }

    /// Replaces the table in place.
    pub(crate) fn show_table(&self, table: &str) {
        let mut state = self.state();
        if state.table != table {
            let text = clear_sequence(&state.table) + &table_text(table);
            state.write(&text);
            table.clone_into(&mut state.table);
        }
    }

    /// Leaves the table where it is: later messages follow it.
    pub(crate) fn end_table(&self) {
        self.state().table.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl State ===

impl State {
    /// Writes and flushes `text`. A closed pipe is not an error.
    fn write(&mut self, text: &str) {
        self.writer.write_all(text.as_bytes()).and_then(|()| self.writer.flush()).ok();
    }
}

/// Returns the escape sequence that deletes the table above the cursor.
fn clear_sequence(table: &str) -> String {
    match table.lines().count() {
        0 => String::new(),
        height => format!("\x1b[{height}A\x1b[J"),
    }
}

/// Returns the text that shows a table. Lines that are too long are truncated, not wrapped.
fn table_text(table: &str) -> String {
    if table.is_empty() { String::new() } else { format!("\x1b[?7l{table}\x1b[?7h\n") }
}

#[cfg(test)]
pub(crate) mod tests {
    use tokio::sync::watch;

    use super::*;

    /// Writes into a text that a test waits for.
    struct TextWriter(watch::Sender<String>);

    impl Write for TextWriter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send_modify(|text| text.push_str(&String::from_utf8_lossy(bytes)));
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns an output and its text.
    pub(crate) fn captured_output(is_terminal: bool) -> (MessageOutput, watch::Receiver<String>) {
        let (sender, text) = watch::channel(String::new());
        (MessageOutput::new(is_terminal, Box::new(TextWriter(sender))), text)
    }

    #[test]
    fn messages_appear_above_the_table() {
        let (output, text) = captured_output(true);
        output.print("first");
        output.show_table("NAME\nchat");
        output.show_table("NAME\nchat");
        output.print("second");
        output.end_table();
        output.print("third");
        let table = "\x1b[?7lNAME\nchat\x1b[?7h\n";
        assert_eq!(*text.borrow(), format!("first\n{table}\x1b[2A\x1b[Jsecond\n{table}third\n"));
    }
}
