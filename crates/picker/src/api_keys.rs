//! API keys of clients, from a directory with one file per key, such as a mounted Secret. The files are reloaded when they
//! change. Keys are known by their hashes.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use http::{HeaderMap, header};
use ring::digest::{SHA256, digest};
use subtle::{Choice, ConditionallySelectable as _, ConstantTimeEq as _};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Interval between checks of the files. The kubelet takes about a minute to update a mounted Secret.
const RELOAD_INTERVAL: Duration = Duration::from_secs(15);

/// Prefix of the hash of a key, in hexadecimal digits.
const HASH_PREFIX: &str = "sha256:";

/// Header of clients of the Messages API.
const API_KEY_HEADER: &str = "x-api-key";

/// API keys that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ApiKeyError {
    /// The directory or a file cannot be read.
    #[error("{}: {cause}", path.display())]
    File {
        /// Path of the file or directory.
        path: PathBuf,
        /// I/O error.
        cause: io::Error,
    },
    /// A file does not begin with a key.
    #[error("{}: the first line must be an API key or `{HASH_PREFIX}` and 64 hexadecimal digits", path.display())]
    Invalid {
        /// Path of the file.
        path: PathBuf,
    },
    /// The directory contains no key.
    #[error("{}: the directory contains no API key", path.display())]
    Empty {
        /// Path of the directory.
        path: PathBuf,
    },
}

/// The API keys that a gateway accepts.
#[derive(Debug)]
pub struct ApiKeys {
    directory: PathBuf,
    keys: RwLock<Arc<Vec<ApiKey>>>,
}

/// What the client of a request may use.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Access {
    /// Names of models; `None` allows all.
    models: Option<Arc<BTreeSet<String>>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct ApiKey {
    hash: [u8; 32],
    access: Access,
}

// === impl ApiKeys ===

impl ApiKeys {
    /// Reads the keys in `directory`. The first line of each file is a key or its hash, `sha256:HEX`; further lines are the
    /// models that it gives access to, by default all.
    ///
    /// # Errors
    /// The directory or a file cannot be read, a file does not begin with a key, or there is no key.
    pub fn from_directory(directory: &Path) -> Result<Self, ApiKeyError> {
        let keys = read_keys(directory)?;
        if keys.is_empty() {
            return Err(ApiKeyError::Empty { path: directory.to_owned() });
        }
        Ok(Self { directory: directory.to_owned(), keys: RwLock::new(Arc::new(keys)) })
    }

    /// Reloads changed files until `shutdown`. If they are invalid, the last valid keys remain in use.
    pub async fn reload_on_change(&self, shutdown: CancellationToken) {
        while shutdown.run_until_cancelled(sleep(RELOAD_INTERVAL)).await.is_some() {
            match self.reload() {
                Ok(true) => tracing::info!("reloaded the API keys"),
                Ok(false) => {}
                Err(error) => tracing::warn!(%error, "failed to reload the API keys, using the previous ones"),
            }
        }
    }

    /// Reloads the files and returns whether they changed.
    fn reload(&self) -> Result<bool, ApiKeyError> {
        let keys = read_keys(&self.directory)?;
        let mut current = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        let is_changed = **current != keys;
        if is_changed {
            *current = Arc::new(keys);
        }
        Ok(is_changed)
    }

    /// Returns what a request with these headers may use, or `None` if it contains no valid key. All keys are compared, in
    /// constant time.
    pub(crate) fn access(&self, headers: &HeaderMap) -> Option<Access> {
        let hash = digest(&SHA256, api_key(headers)?);
        let keys = Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner));
        let mut found = u32::MAX;
        for (index, key) in (0..u32::MAX).zip(keys.iter()) {
            let is_equal: Choice = key.hash.ct_eq(hash.as_ref());
            found = u32::conditional_select(&found, &index, is_equal);
        }
        keys.get(usize::try_from(found).ok()?).map(|key| key.access.clone())
    }
}

/// Removes the headers that contain API keys of the gateway.
pub(crate) fn remove_api_key(headers: &mut HeaderMap) {
    headers.remove(header::AUTHORIZATION);
    headers.remove(API_KEY_HEADER);
}

/// Returns the API key of a request.
fn api_key(headers: &HeaderMap) -> Option<&[u8]> {
    let Some(authorization) = headers.get(header::AUTHORIZATION) else {
        return headers.get(API_KEY_HEADER).map(http::HeaderValue::as_bytes);
    };
    let (scheme, key) = authorization.as_bytes().split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| key.trim_ascii())
}

fn read_keys(directory: &Path) -> Result<Vec<ApiKey>, ApiKeyError> {
    let error = |path: &Path| {
        let path = path.to_owned();
        move |cause| ApiKeyError::File { path, cause }
    };
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(error(directory))? {
        let entry = entry.map_err(error(directory))?;
        // The kubelet creates entries such as `..data`.
        if !entry.file_name().as_encoded_bytes().starts_with(b".") && entry.path().is_file() {
            paths.push(entry.path());
        }
    }
    paths.sort();
    paths.iter().map(|path| parse_key(&fs::read(path).map_err(error(path))?, path)).collect()
}

fn parse_key(contents: &[u8], path: &Path) -> Result<ApiKey, ApiKeyError> {
    let invalid = || ApiKeyError::Invalid { path: path.to_owned() };
    let text = std::str::from_utf8(contents).map_err(|_| invalid())?;
    let mut lines = text.lines().map(str::trim);
    let key = lines.next().filter(|key| !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic()));
    let key = key.ok_or_else(invalid)?;
    let hash = match key.strip_prefix(HASH_PREFIX) {
        Some(digits) => parse_hash(digits).ok_or_else(invalid)?,
        None => digest(&SHA256, key.as_bytes()).as_ref().try_into().map_err(|_| invalid())?,
    };
    let models: BTreeSet<String> = lines.filter(|line| !line.is_empty()).map(str::to_owned).collect();
    Ok(ApiKey { hash, access: Access { models: (!models.is_empty()).then(|| Arc::new(models)) } })
}

fn parse_hash(digits: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if digits.len() != 64 || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    for (byte, index) in hash.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(&digits[index..index + 2], 16).ok()?;
    }
    Some(hash)
}

// === impl Access ===

impl Access {
    /// Returns whether the client may use all models.
    pub(crate) fn is_unrestricted(&self) -> bool {
        self.models.is_none()
    }

    /// Returns whether the client may use the model with this name.
    pub(crate) fn allows(&self, model: &str) -> bool {
        self.models.as_ref().is_none_or(|models| models.contains(model))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// SHA-256 of `hashed-key`.
    const HASH: &str = "sha256:a4ae87b73fa5645e6aee415a6f72be4dcbd99d057a7b40cb1b867c181d179260";

    fn access(keys: &ApiKeys, name: &'static str, value: &'static str) -> Option<Access> {
        keys.access(&HeaderMap::from_iter([(header::HeaderName::from_static(name), value.parse().unwrap())]))
    }

    #[test]
    fn keys_give_access_to_models() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("..data")).unwrap();
        for (name, contents) in [("all", "plain-key\n"), ("some", &format!("{HASH}\nchat\norg/m\n"))] {
            fs::write(directory.path().join(name), contents).unwrap();
        }
        let keys = ApiKeys::from_directory(directory.path()).unwrap();
        let all = access(&keys, "authorization", "Bearer plain-key").unwrap();
        assert!(all.allows("chat") && all.allows("other"));
        let some = access(&keys, "authorization", "bearer hashed-key").unwrap();
        assert_eq!(["chat", "org/m", "other"].map(|model| some.allows(model)), [true, true, false]);
        assert_eq!(access(&keys, "x-api-key", "hashed-key"), Some(some));
        for (name, value) in [
            ("authorization", "Bearer plain-ke"),
            ("authorization", "Bearer "),
            ("authorization", "Basic plain-key"),
            ("authorization", "plain-key"),
            ("x-api-key", ""),
            ("x-api-key", HASH),
            ("x-other", "plain-key"),
        ] {
            assert_eq!(access(&keys, name, value), None, "{name}: {value}");
        }
    }

    #[test]
    fn changed_keys_are_reloaded() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        fs::write(&path, "first").unwrap();
        let keys = ApiKeys::from_directory(directory.path()).unwrap();
        assert!(!keys.reload().unwrap());
        fs::write(&path, "second").unwrap();
        assert!(keys.reload().unwrap());
        let is_valid = |value| access(&keys, "x-api-key", value).is_some();
        assert_eq!((is_valid("first"), is_valid("second")), (false, true));
        fs::write(&path, "").unwrap();
        assert!(keys.reload().is_err() && access(&keys, "x-api-key", "second").is_some(), "the last valid keys");
        fs::remove_file(&path).unwrap();
        assert!(keys.reload().unwrap() && access(&keys, "x-api-key", "second").is_none(), "all keys are revoked");
    }

    #[rstest]
    #[case::empty("")]
    #[case::empty_line("\nkey")]
    #[case::space("a key")]
    #[case::short_hash("sha256:ab")]
    #[case::not_hexadecimal("sha256:zz68f3a6b4cd4ed3e0aa1ee3ad6bde2bb6f5b9c2d1a9d7a7f37f6f3a8d5b1c2d")]
    fn file_must_begin_with_a_key(#[case] contents: &str) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("key");
        fs::write(&path, contents).unwrap();
        let error = ApiKeys::from_directory(directory.path()).unwrap_err().to_string();
        let expect = "the first line must be an API key or `sha256:` and 64 hexadecimal digits";
        assert_eq!(error, format!("{}: {expect}", path.display()));
    }

    #[test]
    fn directory_must_contain_a_key() {
        let directory = tempfile::tempdir().unwrap();
        let error = ApiKeys::from_directory(directory.path()).unwrap_err().to_string();
        assert_eq!(error, format!("{}: the directory contains no API key", directory.path().display()));
        assert!(matches!(ApiKeys::from_directory(&directory.path().join("x")), Err(ApiKeyError::File { .. })));
    }
}
