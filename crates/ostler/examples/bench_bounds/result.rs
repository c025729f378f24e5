use std::io::Write as _;

pub(crate) type Result<T = (), E = Box<dyn std::error::Error + Send + Sync>> = std::result::Result<T, E>;

pub(crate) fn print(line: &str) -> Result {
    Ok(writeln!(std::io::stdout().lock(), "{line}")?)
}
