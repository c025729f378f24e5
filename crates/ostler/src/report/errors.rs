//! One line with the cause, and a `hint:` line where there is a remedy.

use std::fmt;

/// An error with a remedy.
#[derive(Debug)]
pub(crate) struct Hinted {
    pub cause: String,
    pub hint: String,
}

impl fmt::Display for Hinted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl std::error::Error for Hinted {}

/// `cause`, with what to do about it.
pub(crate) fn hinted(cause: impl Into<String>, hint: impl Into<String>) -> anyhow::Error {
    Hinted { cause: cause.into(), hint: hint.into() }.into()
}

/// `error: …` and, where known, `hint: …`.
pub(crate) fn render(error: &anyhow::Error) -> String {
    let line = format!("error: {error:#}");
    match error.chain().find_map(|cause| cause.downcast_ref::<Hinted>()) {
        Some(hinted) => format!("{line}\nhint: {}", hinted.hint),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cause_first_then_the_remedy() {
        let error = hinted("address 127.0.0.1:8080 is in use", "choose another with --gateway").context("gateway");
        assert_eq!(
            render(&error),
            "error: gateway: address 127.0.0.1:8080 is in use\nhint: choose another with --gateway"
        );
    }
}
