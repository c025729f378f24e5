//! Mount paths in command lines and variables.

use std::path::Path;

use crate::ports::Mount;

/// `text` with every mount path that stands in it replaced by where the volume lies. A path stands where nothing before
/// it makes it the tail of another one, and nothing after it makes it a longer name: `/etc/app` is in `--file=/etc/app/a`
/// and in `cat "/etc/app"`, but not in `/etc/app.yaml`, `/srv/etc/app` or `http://host/etc/app`.
pub(crate) fn rewrite(text: &str, mounts: &[Mount]) -> String {
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let mount = mounts.iter().find(|mount| begins(&text[..at]) && stands(rest, &mount.path));
        let step = match mount {
            Some(mount) => {
                out.push_str(&mount.lies.to_string_lossy());
                mount.path.len()
            }
            None => {
                let step = rest.chars().next().map_or(1, char::len_utf8);
                out.push_str(&rest[..step]);
                step
            }
        };
        at += step;
    }
    out
}

/// Whether a program that is told `words` finds the mount: it lies where the program looks, or is named to it.
pub(crate) fn is_reachable<'a>(mount: &Mount, mut words: impl Iterator<Item = &'a str>) -> bool {
    Path::new(&mount.path) == mount.lies || words.any(|word| rewrite(word, std::slice::from_ref(mount)) != word)
}

fn begins(before: &str) -> bool {
    before.ends_with("file://")
        || before.chars().next_back().is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '/' | '.' | '_' | '-' | '~'))
}

fn stands(rest: &str, path: &str) -> bool {
    let Some(after) = (!path.is_empty()).then(|| rest.strip_prefix(path)).flatten() else { return false };
    after.chars().next().is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '.' | '_' | '-'))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::alone("/etc/app", "/d/1")]
    #[case::a_file("--config=/etc/app/a.yaml", "--config=/d/1/a.yaml")]
    #[case::in_a_script("cat \"/etc/app/a\" && ls /etc/app;", "cat \"/d/1/a\" && ls /d/1;")]
    #[case::in_a_list("/usr/bin:/etc/app/bin", "/usr/bin:/d/1/bin")]
    #[case::the_longest("/etc/app/more/x", "/d/2/x")]
    #[case::a_url("file:///etc/app/a", "file:///d/1/a")]
    #[case::another_name("/etc/app.yaml /etc/app-2 /etc/apple", "/etc/app.yaml /etc/app-2 /etc/apple")]
    #[case::the_tail_of_another("/srv/etc/app ./etc/app", "/srv/etc/app ./etc/app")]
    #[case::of_a_host("http://host/etc/app", "http://host/etc/app")]
    #[case::other_letters("é/etc/app ü /etc/app", "é/etc/app ü /d/1")]
    fn rewritten(#[case] text: &str, #[case] expect: &str) {
        let mount = |path: &str, lies: &str| Mount { path: path.to_owned(), lies: lies.into() };
        assert_eq!(rewrite(text, &[mount("/etc/app/more", "/d/2"), mount("/etc/app", "/d/1")]), expect);
    }
}
