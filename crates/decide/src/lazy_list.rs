//! Lists that are computed when they are first read: most decisions are made for what they select, and hundreds of runtimes that were
//! not selected, with their classes, are rarely read.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use serde::{Serialize, Serializer};

type Compute<T> = Box<dyn FnOnce() -> Arc<[T]> + Send>;

/// A list that is computed once, when it is first read. Clones share it. Dereferences to a slice.
pub enum LazyList<T> {
    /// A list whose items are known.
    Ready(Arc<[T]>),
    /// A list that is computed on first access.
    Lazy(Arc<LazyLock<Arc<[T]>, Compute<T>>>),
}

impl<T> LazyList<T> {
    /// Creates a list of the items that `compute` returns.
    pub(crate) fn new(compute: impl FnOnce() -> Vec<T> + Send + 'static) -> Self {
        Self::Lazy(Arc::new(LazyLock::new(Box::new(move || compute().into()))))
    }

    /// Whether the list is empty. Computes the list if necessary. This is an inherent method, because serde attributes
    /// refer to it by path.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        (**self).is_empty()
    }
}

impl<T> Deref for LazyList<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Ready(list) => list,
            Self::Lazy(list) => list,
        }
    }
}

impl<T> Clone for LazyList<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Ready(list) => Self::Ready(Arc::clone(list)),
            Self::Lazy(list) => Self::Lazy(Arc::clone(list)),
        }
    }
}

impl<T> Default for LazyList<T> {
    fn default() -> Self {
        Self::Ready(Arc::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for LazyList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: PartialEq> PartialEq for LazyList<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T> FromIterator<T> for LazyList<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        Self::Ready(items.into_iter().collect())
    }
}

impl<'a, T> IntoIterator for &'a LazyList<T> {
    type Item = &'a T;
    type IntoIter = std::slice::Iter<'a, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T: Serialize> Serialize for LazyList<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn computes_once_on_first_access() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&calls);
        let list = LazyList::new(move || {
            counter.fetch_add(1, Ordering::Relaxed);
            vec![1, 2]
        });
        let clone = list.clone();
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        assert_eq!((list.len(), clone.first(), clone == [1, 2].into_iter().collect()), (2, Some(&1), true));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}
