//! Rewrites mount paths in command lines and environment variables.

use std::path::Path;

use crate::runtime::Mount;

/// Replaces every mount path in `text` with the host path of its volume. A match must not be the end of a longer path
/// or the start of a longer name: `/etc/app` matches in `--file=/etc/app/a` and in `cat "/etc/app"`, but not in
/// `/etc/app.yaml`, `/srv/etc/app` or `http://host/etc/app`.
pub(crate) fn rewrite_mount_paths(text: &str, mounts: &[Mount]) -> String {
    let mut rewritten = String::with_capacity(text.len());
    let mut position = 0;
    while let Some(rest) = text.get(position..).filter(|rest| !rest.is_empty()) {
        let mount = mounts
            .iter()
            .find(|mount| can_precede_path(&text[..position]) && starts_with_path(rest, &mount.container_path));
        let length = match mount {
            Some(mount) => {
                rewritten.push_str(&mount.host_path.to_string_lossy());
                mount.container_path.len()
            }
            None => {
                let length = rest.chars().next().map_or(1, char::len_utf8);
                rewritten.push_str(&rest[..length]);
                length
            }
        };
        position += length;
    }
    rewritten
}

/// Whether a program can access the mount: either its path is the same on the host, or the command line or an
/// environment variable contains the path.
pub(crate) fn is_reachable<'a>(mount: &Mount, mut texts: impl Iterator<Item = &'a str>) -> bool {
    Path::new(&mount.container_path) == mount.host_path
        || texts.any(|text| rewrite_mount_paths(text, std::slice::from_ref(mount)) != text)
}

/// Whether a path can start after this text.
fn can_precede_path(preceding: &str) -> bool {
    preceding.ends_with("file://")
        || preceding
            .chars()
            .next_back()
            .is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '/' | '.' | '_' | '-' | '~'))
}

/// Whether the text starts with the path, and the path is not just the start of a longer name.
fn starts_with_path(rest: &str, path: &str) -> bool {
    let Some(following) = (!path.is_empty()).then(|| rest.strip_prefix(path)).flatten() else { return false };
    following.chars().next().is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '.' | '_' | '-'))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::exact("/etc/app", "/d/1")]
    #[case::file("--config=/etc/app/a.yaml", "--config=/d/1/a.yaml")]
    #[case::script("cat \"/etc/app/a\" && ls /etc/app;", "cat \"/d/1/a\" && ls /d/1;")]
    #[case::path_list("/usr/bin:/etc/app/bin", "/usr/bin:/d/1/bin")]
    #[case::longest_mount("/etc/app/more/x", "/d/2/x")]
    #[case::file_url("file:///etc/app/a", "file:///d/1/a")]
    #[case::longer_name("/etc/app.yaml /etc/app-2 /etc/apple", "/etc/app.yaml /etc/app-2 /etc/apple")]
    #[case::suffix_of_other_path("/srv/etc/app ./etc/app", "/srv/etc/app ./etc/app")]
    #[case::url_path("http://host/etc/app", "http://host/etc/app")]
    #[case::non_ascii("é/etc/app ü /etc/app", "é/etc/app ü /d/1")]
    fn rewrites_mount_paths(#[case] text: &str, #[case] expect: &str) {
        let mount =
            |path: &str, host_path: &str| Mount { container_path: path.to_owned(), host_path: host_path.into() };
        assert_eq!(rewrite_mount_paths(text, &[mount("/etc/app/more", "/d/2"), mount("/etc/app", "/d/1")]), expect);
    }
}
