//! Which endpoint is best. One scorer so far; prefix, KV usage and LoRA affinity will stand beside it.

pub mod load;
