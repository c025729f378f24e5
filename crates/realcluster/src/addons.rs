//! What is added to a control plane: kwok, LeaderWorkerSet, Volcano, and definitions of others.

mod gateway;
mod kueue;
mod kwok;
mod lws;
mod volcano;
mod webhooks;
