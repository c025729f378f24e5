//! How an engine distributes a model over accelerators, as flags and environment variables state it.

use std::sync::Arc;

use crate::merge::origin::SettingField;

/// Sizes of the parallelism of an engine. A size that is not stated is up to the decision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parallelism {
    /// Tensor parallelism.
    pub tensor: Option<StatedSize>,
    /// Pipeline parallelism.
    pub pipeline: Option<StatedSize>,
    /// Data parallelism: copies of the model, each on accelerators of its own.
    pub data: Option<StatedSize>,
}

/// A size, and the setting that states it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatedSize {
    /// The size, at least 1.
    pub size: u32,
    /// The flag or the environment variable, as its source spells it.
    pub field: Arc<SettingField>,
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

    /// Returns the number of copies of the model.
    #[must_use]
    pub fn copies(&self) -> u32 {
        size(self.data.as_ref())
    }

    /// Returns the sizes with those of `weaker` that `self` does not state.
    #[must_use]
    pub fn or(self, weaker: Self) -> Self {
        Self {
            tensor: self.tensor.or(weaker.tensor),
            pipeline: self.pipeline.or(weaker.pipeline),
            data: self.data.or(weaker.data),
        }
    }

    /// Returns the stated sizes, the one that determines the number of accelerators first.
    pub fn stated(&self) -> impl Iterator<Item = &StatedSize> {
        [&self.tensor, &self.pipeline, &self.data].into_iter().flatten()
    }

    /// Returns whether a shell script states one of the sizes.
    #[must_use]
    pub fn is_in_script(&self) -> bool {
        self.stated().any(|size| size.in_script)
    }

    /// Returns the sizes that no shell script states.
    #[must_use]
    pub fn outside_scripts(self) -> Self {
        let outside = |size: &StatedSize| !size.in_script;
        Self {
            tensor: self.tensor.filter(outside),
            pipeline: self.pipeline.filter(outside),
            data: self.data.filter(outside),
        }
    }

    /// Returns whether no size is stated.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stated().next().is_none()
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
        Some(StatedSize { size, field: Arc::new(SettingField::Flag("--x".to_owned())), in_script: false })
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
        assert_eq!(Parallelism { tensor, pipeline, data }.accelerators_of(requested), expected);
    }

    #[test]
    fn accelerators_depend_on_tensor_parallelism() {
        let runtime = Parallelism { tensor: stated(4), pipeline: stated(2), data: None };
        let service = Parallelism { data: stated(3), pipeline: stated(1), tensor: None };
        assert_eq!((runtime.accelerators(), service.accelerators()), (Some(8), None));
        let merged = service.or(runtime);
        assert_eq!((merged.accelerators(), merged.tensor_groups(), merged.copies()), (Some(12), 3, 3));
        let extreme = Parallelism { tensor: stated(u32::MAX), pipeline: stated(2), data: None };
        assert_eq!(extreme.accelerators(), Some(u32::MAX));
    }
}
