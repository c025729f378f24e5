//! Receiving requests within the limits on their size, time and memory.

use std::time::Duration;

use apimachinery::Status;
use axum::body::Body;
use http::request::Parts;
use http_server::{BodyError, BodyLimits, BodyMemory, HeadReservation, ReservedBody};

/// Limits of a request body: the size as in kube-apiserver.
const LIMITS: BodyLimits = BodyLimits {
    max_bytes: 3 * 1024 * 1024,
    timeout: Duration::from_secs(30),
    pause_timeout: Duration::from_secs(30),
    memory_timeout: Duration::from_secs(30),
};

/// Maximum size in bytes of all request bodies that are being received or handled; further requests wait.
const BODY_MEMORY: usize = 256 * 1024 * 1024;

/// Returns the memory for the bodies of requests of a network listener. Callers in the process hold their bodies in memory
/// already.
pub(crate) fn body_memory() -> BodyMemory {
    BodyMemory::new(BODY_MEMORY)
}

/// Reserves the memory of a request without its body, if it is limited.
///
/// # Errors
/// 429 if the heads of other requests occupy the memory.
pub(super) fn reserve_head(head: &Parts, memory: Option<&BodyMemory>) -> Result<Option<HeadReservation>, Status> {
    let reservation = memory.map(|memory| memory.reserve_head(head)).transpose();
    reservation.map_err(|error| Status::too_many_requests(error.to_string()))
}

/// Reads the body of a request.
///
/// # Errors
/// 400 if reading fails, 408 on timeout or lack of progress, 413 if the body is too large, 429 if other bodies occupy the
/// memory for too long.
pub(super) async fn read_body(body: Body, memory: Option<BodyMemory>) -> Result<ReservedBody, Status> {
    http_server::read_body(body, LIMITS, memory).await.map_err(|error| status(&error))
}

fn status(error: &BodyError) -> Status {
    let message = error.to_string();
    match error {
        BodyError::TooLarge { max_bytes } => Status::request_entity_too_large(format!("limit is {max_bytes} bytes")),
        BodyError::Timeout(_) | BodyError::Paused(_) | BodyError::Stalled => Status::request_timeout(message),
        BodyError::OutOfMemory(_) => Status::too_many_requests(message),
        BodyError::Read(_) => Status::bad_request(message),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;
    use rstest::rstest;

    use super::*;

    #[test]
    fn headers_without_memory_are_429() {
        let head = Request::new(()).into_parts().0;
        let status = reserve_head(&head, Some(&BodyMemory::new(1024))).unwrap_err();
        assert_eq!((status.code, status.reason), (429, "TooManyRequests"));
        assert!(reserve_head(&head, None).unwrap().is_none(), "callers in the process have no limit");
    }

    #[rstest]
    #[case(BodyError::TooLarge { max_bytes: 3 }, 413, "limit is 3 bytes")]
    #[case(BodyError::Timeout(LIMITS.timeout), 408, "the request body did not arrive within 30 seconds")]
    #[case(
        BodyError::Stalled,
        408,
        "less than 64 KiB of the request body arrived within 5 seconds while other requests waited for memory; try again"
    )]
    #[case(
        BodyError::OutOfMemory(LIMITS.memory_timeout),
        429,
        "other request bodies occupied the memory for 30 seconds; try again"
    )]
    #[case(BodyError::Read("closed".into()), 400, "failed to read the request body: closed")]
    fn errors_are_statuses(#[case] error: BodyError, #[case] code: u16, #[case] message: &str) {
        let status = status(&error);
        assert_eq!(status.code, code);
        assert!(status.message.contains(message), "{}", status.message);
    }
}
