//! The directory that contains a name. A new file or directory survives a power loss only if it was synced.

use std::path::{Component, Path, PathBuf};

/// Returns the directory that contains the last name of `path`; it is relative if `path` is.
#[must_use]
pub fn parent_directory(path: &Path) -> PathBuf {
    match path.components().next_back() {
        Some(Component::Normal(_)) => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            parent.unwrap_or(Path::new(".")).to_owned()
        }
        Some(Component::CurDir | Component::ParentDir) => path.join(".."),
        Some(Component::RootDir | Component::Prefix(_)) | None => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::absolute("/a/b", "/a")]
    #[case::below_the_root("/a", "/")]
    #[case::root("/", "/")]
    #[case::relative("a/b", "a")]
    #[case::name("b", ".")]
    #[case::trailing_slash("b/", ".")]
    #[case::below_the_working_directory("./b", ".")]
    #[case::working_directory(".", "./..")]
    #[case::parent_of_the_working_directory("..", "../..")]
    #[case::parent("a/..", "a/../..")]
    fn contains_the_last_name(#[case] path: &str, #[case] expect: &str) {
        assert_eq!(parent_directory(Path::new(path)), Path::new(expect));
    }
}
