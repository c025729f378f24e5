//! What is added to a control plane: kwok, LeaderWorkerSet, Volcano.

mod kueue;
mod kwok;
mod lws;
mod volcano;
mod webhooks;
