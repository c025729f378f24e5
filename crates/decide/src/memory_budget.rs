//! Memory that an engine requires on each accelerator of a replica, by purpose.

/// Bytes on one accelerator of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryBudget {
    /// Memory of the accelerator.
    pub memory: u64,
    /// The part that weights, KV cache and, with vLLM, activations may use.
    pub usable: u64,
    /// The part of the model's weights.
    pub weights: u64,
    /// KV cache, and activations in what is usable.
    pub reserve: Reserve,
}

/// Memory that an engine requires in addition to the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// 20 % of the weights for KV cache and activations: the dimensions of the model or the engine are unknown, or the engine would
    /// reduce the context to a KV cache that is smaller than this.
    Estimated {
        /// Bytes.
        bytes: u64,
    },
    /// Computed from the dimensions of the model.
    Computed {
        /// The KV cache of one sequence.
        kv_cache: u64,
        /// Tokens of this sequence.
        tokens: u64,
        /// The model's own maximum, if the engine reduces the context to what its memory holds.
        reduced_from: Option<u64>,
        /// Activations, CUDA graphs and communication buffers in what is usable.
        activations: u64,
    },
}

// === impl MemoryBudget ===

impl MemoryBudget {
    /// Returns the bytes of each part with its description: weights, KV cache, activations, free memory, and memory outside of the fraction.
    #[must_use]
    pub fn parts(&self) -> Vec<(u64, String)> {
        let mut parts = vec![(self.weights, "weights".to_owned())];
        match self.reserve {
            Reserve::Estimated { bytes } => {
                parts.push((bytes, "KV cache and activations, estimated as 20 % of the weights".to_owned()));
            }
            Reserve::Computed { kv_cache, tokens, reduced_from, activations } => {
                let reduced =
                    reduced_from.map(|maximum| format!("; the engine reduces the context of {maximum} to these"));
                let reduced = reduced.unwrap_or_default();
                parts.push((kv_cache, format!("KV cache of a sequence of {tokens} tokens{reduced}")));
                if activations > 0 {
                    parts.push((activations, "activations, CUDA graphs and buffers, estimated".to_owned()));
                }
            }
        }
        let further = match self.sequences() {
            Some(sequences) => format!("free for the KV cache of {:.1} further sequences", (sequences - 1.0).max(0.0)),
            None => "free for the KV cache of further sequences".to_owned(),
        };
        parts.push((self.free(), further));
        let outside = match self.reserve {
            Reserve::Computed { activations: 0, .. } => {
                "activations and CUDA graphs, outside of the engine's memory fraction"
            }
            _ => "outside of the engine's memory fraction",
        };
        parts.push((self.memory.saturating_sub(self.usable), outside.to_owned()));
        parts
    }

    /// Returns the bytes that the engine requires of what is usable.
    #[must_use]
    pub fn required(&self) -> u64 {
        self.weights.saturating_add(match self.reserve {
            Reserve::Estimated { bytes } => bytes,
            Reserve::Computed { kv_cache, activations, .. } => kv_cache.saturating_add(activations),
        })
    }

    fn free(&self) -> u64 {
        self.usable.saturating_sub(self.required())
    }

    /// Returns how many sequences of the stated length the KV cache holds at a time, rounded down to tenths; vLLM logs it as the
    /// maximum concurrency. `None` if its size is unknown.
    #[must_use]
    pub fn sequences(&self) -> Option<f64> {
        let Reserve::Computed { kv_cache, .. } = self.reserve else { return None };
        let available = u128::from(kv_cache) + u128::from(self.free());
        let tenths = (available * 10).checked_div(u128::from(kv_cache))?;
        Some(tenths as f64 / 10.0)
    }

    /// Whether the model fits.
    #[must_use]
    pub fn fits(&self) -> bool {
        self.required() <= self.usable
    }
}
