//! Add-ons of a running control plane: LeaderWorkerSet, Volcano and CustomResourceDefinitions of other projects.

mod gateway;
mod kueue;
mod lws;
mod volcano;
mod webhooks;
