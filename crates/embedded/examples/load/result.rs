//! The result type of all modules.

use std::error::Error;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
