//! Copies the output of a process to the log of its container.

use std::fs::File;
use std::io::Read;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio_util::sync::CancellationToken;

use crate::logs::{LogSink, LogTag, MAX_RECORD_BYTES};

/// Size of a read in bytes.
const CHUNK_BYTES: usize = 16 << 10;

/// Maximum number of bytes that are read after the container has ended: the largest capacity of a pipe by default
/// (`fs.pipe-max-size`). A process that was not killed could write forever.
const MAX_REMAINING_BYTES: usize = 1 << 20;

/// Splits output into the records of a log; invalid UTF-8 is replaced.
struct LineSplitter {
    log: LogSink,
    /// The beginning of the current line or record, at most [`MAX_RECORD_BYTES`].
    buffer: Vec<u8>,
}

/// Copies the output until the pipe closes. When the container has `ended`, copies only what is already in the pipe.
pub(crate) async fn copy_output(mut output: pipe::Receiver, log: LogSink, ended: CancellationToken) {
    let (mut splitter, mut chunk) = (LineSplitter { log, buffer: Vec::new() }, vec![0; CHUNK_BYTES]);
    loop {
        tokio::select! {
            read = output.read(&mut chunk) => match read {
                Ok(length @ 1..) => splitter.write(&chunk[..length]),
                Ok(0) | Err(_) => break,
            },
            () = ended.cancelled() => {
                if let Ok(pipe) = output.into_nonblocking_fd() {
                    copy_remaining(File::from(pipe), &mut splitter, &mut chunk);
                }
                break;
            }
        }
    }
    splitter.finish();
}

/// Copies what can be read without waiting.
fn copy_remaining(mut pipe: File, splitter: &mut LineSplitter, chunk: &mut [u8]) {
    let mut remaining = MAX_REMAINING_BYTES;
    // At the end, or when the pipe is empty, the read returns no bytes or an error.
    while let Ok(length @ 1..) = pipe.read(chunk) {
        splitter.write(&chunk[..length]);
        remaining = remaining.saturating_sub(length);
        if remaining == 0 {
            return;
        }
    }
}

// === impl LineSplitter ===

impl LineSplitter {
    fn write(&mut self, mut bytes: &[u8]) {
        while let Some(first) = bytes.first() {
            if self.buffer.len() == MAX_RECORD_BYTES && *first != b'\n' {
                self.write_partial();
            }
            let free = MAX_RECORD_BYTES - self.buffer.len();
            match bytes.iter().take(free + 1).position(|byte| *byte == b'\n') {
                Some(end) => {
                    self.buffer.extend_from_slice(&bytes[..end]);
                    self.log.write_record(LogTag::Full, &String::from_utf8_lossy(&self.buffer));
                    self.buffer.clear();
                    bytes = &bytes[end + 1..];
                }
                None => {
                    let (text, rest) = bytes.split_at(free.min(bytes.len()));
                    self.buffer.extend_from_slice(text);
                    bytes = rest;
                }
            }
        }
    }

    /// Writes the buffer as a part of a line. Bytes of an incomplete character remain in the buffer.
    fn write_partial(&mut self) {
        let incomplete = self.buffer.utf8_chunks().last().map_or(0, |chunk| chunk.invalid().len());
        let complete = self.buffer.len() - incomplete;
        self.log.write_record(LogTag::Partial, &String::from_utf8_lossy(&self.buffer[..complete]));
        self.buffer.drain(..complete);
    }

    /// Writes the last line if it has no newline.
    fn finish(self) {
        if !self.buffer.is_empty() {
            self.log.write_record(LogTag::Full, &String::from_utf8_lossy(&self.buffer));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(output: &[u8], chunk: usize) -> LogSink {
        let log = LogSink::default();
        let mut splitter = LineSplitter { log: log.clone(), buffer: Vec::new() };
        output.chunks(chunk).for_each(|bytes| splitter.write(bytes));
        splitter.finish();
        log
    }

    proptest! {
        #[test]
        fn log_has_the_whole_output(
            lines in prop::collection::vec(("[a-z€😀]{1,9}", 0_usize..5000), 1..4), chunk in 1_usize..40_000,
        ) {
            let lines: Vec<String> = lines.iter().map(|(text, count)| format!("{}\n", text.repeat(*count))).collect();
            prop_assert_eq!(split(lines.concat().as_bytes(), chunk).lines(None), lines);
        }

        #[test]
        fn accepts_any_bytes(output: Vec<u8>, repetitions in 1_usize..400, chunk in 1_usize..40_000) {
            let output = output.repeat(repetitions);
            let lines = String::from_utf8_lossy(&output).lines().count();
            prop_assert_eq!(split(&output, chunk).lines(None).len(), lines);
        }
    }

    #[test]
    fn line_of_the_maximum_record_length_has_one_record() {
        let line = "x".repeat(MAX_RECORD_BYTES);
        let log = split(format!("{line}\nlast").as_bytes(), 1000);
        assert_eq!(log.lines(None), [format!("{line}\n"), "last\n".to_owned()]);
    }

    /// A process that was not killed writes faster than the output is read.
    #[tokio::test]
    async fn copies_a_limited_amount_after_the_end() {
        let log = LogSink::default();
        let ended = CancellationToken::new();
        ended.cancel();
        let (output, mut writer) = std::io::pipe().unwrap();
        let writer_thread = std::thread::spawn(move || {
            use std::io::Write;
            while writer.write_all(b"x\n").is_ok() {}
        });
        copy_output(pipe::Receiver::from_owned_fd(output.into()).unwrap(), log, ended).await;
        writer_thread.join().unwrap();
    }
}
