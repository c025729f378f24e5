//! The gateway in front of simulated engines, over real sockets.

mod fleet;
mod proxy;
mod refusals;
