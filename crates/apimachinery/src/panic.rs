//! Catching panics, so that an error in one operation does not stop the others.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A caught panic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct CaughtPanic {
    message: String,
}

/// Runs `operation` and catches its panic. The caller must not rely on state that `operation` has left half modified.
///
/// # Errors
/// If `operation` panics.
pub fn catch_panic<T>(operation: impl FnOnce() -> T) -> Result<T, CaughtPanic> {
    catch_unwind(AssertUnwindSafe(operation)).map_err(|payload| CaughtPanic::from_payload(payload.as_ref()))
}

// === impl CaughtPanic ===

impl CaughtPanic {
    /// Reads the message from the payload of a panic.
    #[must_use]
    pub fn from_payload(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let message = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self { message: message.unwrap_or("without a message").to_owned() }
    }
}

impl fmt::Display for CaughtPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panicked: {}", self.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn returns_the_result_or_the_message() {
        assert_eq!(catch_panic(|| 1), Ok(1));
        let number = 2;
        assert_eq!(catch_panic(|| panic!("literal")).map(|()| 0).unwrap_err().to_string(), "panicked: literal");
        assert_eq!(catch_panic(|| panic!("{number}")).map(|()| 0).unwrap_err().to_string(), "panicked: 2");
        let other = catch_panic(|| std::panic::panic_any(number)).map(|()| 0).unwrap_err();
        assert_eq!(other.to_string(), "panicked: without a message");
    }
}
