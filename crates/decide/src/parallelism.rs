//! How an engine distributes a model over accelerators, as flags and environment variables state it.

use std::sync::Arc;

use crate::merge::origin::{Origin, SettingField};

/// Sizes of the parallelism of an engine. A size that is not stated is up to the decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parallelism {
    /// Tensor parallelism.
    pub tensor: Option<StatedSize>,
    /// Pipeline parallelism.
    pub pipeline: Option<StatedSize>,
    /// Data parallelism: copies of the model, each on accelerators of its own.
    pub data: Option<StatedSize>,
    /// Data parallelism of the attention, which shares the accelerators of tensor parallelism.
    pub attention: Option<StatedSize>,
}

/// A size, and the setting that states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatedSize {
    /// The size, at least 1.
    pub size: u32,
    /// The flag or the environment variable, as its source spells it.
    pub field: Arc<SettingField>,
    /// Who sets the field.
    pub origin: Origin,
    /// Whether the flag is a part of a shell script, which is never changed.
    pub in_script: bool,
}

// === impl Parallelism ===

impl Parallelism {
    /// Returns the number of accelerators of a replica; `None` if the size of tensor parallelism is not stated.
    #[must_use]
    pub fn accelerators(&self) -> Option<u32> {
        self.tensor.as_ref().map(|tensor| tensor.size.saturating_mul(self.tensor_groups()))
    }

    /// Returns the number of accelerators of a replica whose resources request `requested`: if the size of tensor parallelism is not
    /// stated, each group has the same share of them, and at least one.
    #[must_use]
    pub fn accelerators_of(&self, requested: u32) -> u32 {
        let groups = self.tensor_groups();
        self.accelerators().unwrap_or_else(|| groups.saturating_mul((requested / groups.max(1)).max(1)))
    }

    /// Returns the number of groups of accelerators that tensor parallelism uses: pipeline stages × copies of the model.
    #[must_use]
    pub fn tensor_groups(&self) -> u32 {
        size(self.pipeline.as_ref()).saturating_mul(self.copies())
    }

    /// Returns the number by which that of the accelerators must be divisible: the groups, and within each of them the copies of the
    /// attention (sglang 0.5.23, arg_groups/parallel_hook.py).
    pub(crate) fn divisor(&self) -> u32 {
        self.tensor_groups().saturating_mul(size(self.attention.as_ref()))
    }

    /// Returns the number of copies of the model.
    #[must_use]
    pub fn copies(&self) -> u32 {
        size(self.data.as_ref())
    }

    /// Returns the stated sizes, the one that determines the number of accelerators first.
    pub fn stated(&self) -> impl Iterator<Item = &StatedSize> {
        [&self.tensor, &self.pipeline, &self.data].into_iter().flatten()
    }

    /// Removes the sizes for which `retains` returns false.
    pub(crate) fn retain(&mut self, retains: impl Fn(&StatedSize) -> bool) {
        for size in [&mut self.tensor, &mut self.pipeline, &mut self.data, &mut self.attention] {
            size.take_if(|size| !retains(size));
        }
    }
}

fn size(stated: Option<&StatedSize>) -> u32 {
    stated.map_or(1, |stated| stated.size)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn stated(size: u32) -> Option<StatedSize> {
        let field = Arc::new(SettingField::Flag("--x".to_owned()));
        Some(StatedSize { size, field, origin: Origin::Runtime, in_script: false })
    }

    /// Columns: stated sizes of tensor, pipeline and data parallelism, requested accelerators, used ones.
    #[rstest]
    #[case::nothing_stated(None, None, None, 4, 4)]
    #[case::tensor_parallelism_decides(Some(2), None, None, 8, 2)]
    #[case::copies_share(None, None, Some(2), 8, 8)]
    #[case::copies_leave_one(None, None, Some(3), 4, 3)]
    #[case::too_few_for_the_copies(None, None, Some(4), 2, 4)]
    #[case::stages_leave_two(None, Some(3), None, 8, 6)]
    #[case::stages_and_copies(None, Some(2), Some(2), 16, 16)]
    fn groups_share_the_requested_accelerators(
        #[case] tensor: Option<u32>,
        #[case] pipeline: Option<u32>,
        #[case] data: Option<u32>,
        #[case] requested: u32,
        #[case] expected: u32,
    ) {
        let [tensor, pipeline, data] = [tensor, pipeline, data].map(|size| size.and_then(stated));
        assert_eq!(Parallelism { tensor, pipeline, data, attention: None }.accelerators_of(requested), expected);
    }

    /// Columns: stated sizes of tensor, pipeline and data parallelism, accelerators, groups, copies.
    #[rstest]
    #[case(Some(4), Some(2), None, Some(8), 2, 1)]
    #[case(None, Some(2), Some(3), None, 6, 3)]
    #[case(Some(u32::MAX), Some(2), None, Some(u32::MAX), 2, 1)]
    fn accelerators_depend_on_tensor_parallelism(
        #[case] tensor: Option<u32>,
        #[case] pipeline: Option<u32>,
        #[case] data: Option<u32>,
        #[case] accelerators: Option<u32>,
        #[case] groups: u32,
        #[case] copies: u32,
    ) {
        let [tensor, pipeline, data] = [tensor, pipeline, data].map(|size| size.and_then(stated));
        let parallelism = Parallelism { tensor, pipeline, data, attention: None };
        assert_eq!(
            (parallelism.accelerators(), parallelism.tensor_groups(), parallelism.copies()),
            (accelerators, groups, copies)
        );
    }
}
