//! Protocol of the connections.

use std::time::Duration;

use tokio_util::codec::LengthDelimitedCodec;

use crate::peers::MAX_MESSAGE_BYTES;

/// Protocol for ALPN: its version changes with the meaning of messages.
pub(super) const PROTOCOL: &[u8] = b"ostler-peers/1";

/// How long a connection or a TLS handshake may take.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the framing of messages.
pub(super) fn framing() -> LengthDelimitedCodec {
    LengthDelimitedCodec::builder().max_frame_length(MAX_MESSAGE_BYTES).new_codec()
}
