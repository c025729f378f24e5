//! Catching panics, so that an error in one operation does not stop the others.

use std::any::Any;
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;

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

/// Runs `future` and catches its panic, like [`catch_panic`]. The future is boxed, so that nested ones do not fill the stack.
///
/// # Errors
/// If `future` panics.
pub fn catch_future_panic<F: Future>(future: F) -> impl Future<Output = Result<F::Output, CaughtPanic>> {
    let mut future = Box::pin(future);
    poll_fn(move |context| match catch_panic(|| future.as_mut().poll(context)) {
        Ok(poll) => poll.map(Ok),
        Err(panic) => Poll::Ready(Err(panic)),
    })
}

// === impl CaughtPanic ===

impl CaughtPanic {
    /// Reads the message from the payload of a panic.
    fn from_payload(payload: &(dyn Any + Send)) -> Self {
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
    use std::pin::pin;

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

    #[test]
    fn catches_the_panic_of_a_later_poll() {
        let poll = |future: &mut dyn FnMut(&mut std::task::Context<'_>) -> Poll<()>| {
            let mut caught = pin!(catch_future_panic(poll_fn(future)));
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            [(); 2].map(|()| caught.as_mut().poll(&mut context).map_err(|panic| panic.to_string()))
        };
        let mut polls = 0;
        let results = poll(&mut |_| {
            polls += 1;
            assert!(polls < 2, "second poll");
            Poll::Pending
        });
        assert_eq!(results, [Poll::Pending, Poll::Ready(Err("panicked: second poll".to_owned()))]);
    }
}
