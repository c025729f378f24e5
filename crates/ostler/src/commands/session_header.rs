//! Argument for the header that identifies sessions.

use http::HeaderName;

#[derive(clap::Args)]
pub(super) struct SessionHeaderArgs {
    /// Send all requests with the same value of this header to one target model
    ///
    /// The target models of a use case are drawn by weight for each value instead of for each request. Requests without the header
    /// are drawn one by one.
    #[arg(long, value_name = "HEADER")]
    pub(super) session_header: Option<HeaderName>,
}
