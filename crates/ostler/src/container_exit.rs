//! How containers of `ostler up` exit.

use embedded::ports::{ContainerConfig, ContainerExit};

/// Exit code of a process that SIGTERM terminated, as shells report it: 128 + 15.
pub(crate) const EXIT_CODE_SIGTERM: i32 = 143;

/// Returns the exit of a container that ended without an error message.
pub(crate) fn exited(code: i32) -> ContainerExit {
    ContainerExit { code, message: String::new() }
}

/// Writes `message` to the log of the container and returns its exit.
pub(crate) fn failed(container: &ContainerConfig, message: &str) -> ContainerExit {
    container.log.write_line(message);
    ContainerExit { code: 1, message: message.to_owned() }
}
