//! Add-ons of the control plane: kwok, LeaderWorkerSet, Volcano and CustomResourceDefinitions of other projects.

mod gateway;
mod kueue;
mod kwok;
mod lws;
mod volcano;
mod webhooks;
