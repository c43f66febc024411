//! Names of container images: `[REGISTRY/]PATH[:TAG][@DIGEST]`.
//!
//! Source: OCI Distribution Specification 1.1, "Pulling manifests" (names and tags); OCI
//! Image Specification 1.1, descriptor.md, "Digests"; for the registry before the name,
//! which neither has, the grammar in `reference.go` of <https://github.com/distribution/reference>.

use std::fmt;
use std::str::FromStr;

/// A registry takes no longer name, without tag and digest.
const MAX_NAME: usize = 255;
const MAX_TAG: usize = 128;

/// The name of a container image, as the grammar has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageReference {
    text: String,
    has_registry: bool,
}

/// Error type for [`ImageReference`] and [`check_image_tag`]: why a text is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImageReferenceError {
    /// Nothing.
    #[error("nothing is written: [REGISTRY/]NAME[:TAG]")]
    Empty,
    /// A part of the name.
    #[error(
        "{0:?} is no part of an image's name: small letters and digits, with ., _, __ or - between them"
    )]
    Path(String),
    /// The registry.
    #[error("{0:?} is no registry: HOST or HOST:PORT")]
    Registry(String),
    /// The tag.
    #[error(
        "{0:?} is no tag: at most {MAX_TAG} letters, digits, _, . and -, the first of them neither . nor -"
    )]
    Tag(String),
    /// The digest.
    #[error("{0:?} is no digest: sha256: and 64 hexadecimal digits")]
    Digest(String),
    /// Too long.
    #[error("its name has {0} bytes, and registries take {MAX_NAME}")]
    Long(usize),
}

impl ImageReference {
    /// Whether it says which registry has it.
    #[must_use]
    pub fn has_registry(&self) -> bool {
        self.has_registry
    }
}

impl fmt::Display for ImageReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for ImageReference {
    type Err = ImageReferenceError;

    fn from_str(text: &str) -> Result<Self, ImageReferenceError> {
        if text.is_empty() {
            return Err(ImageReferenceError::Empty);
        }
        let (named, digest) = match text.split_once('@') {
            Some((named, digest)) => (named, Some(digest)),
            None => (text, None),
        };
        // A colon before the last slash is that of a port.
        let last = named.rfind('/').map_or(0, |at| at + 1);
        let (name, tag) = match named[last..].split_once(':') {
            Some((end, tag)) => (&named[..last + end.len()], Some(tag)),
            None => (named, None),
        };
        let (registry, path) = match name.split_once('/') {
            Some((first, rest)) if is_registry_like(first) => (Some(first), rest),
            _ => (None, name),
        };
        if let Some(registry) = registry.filter(|registry| !is_registry(registry)) {
            return Err(ImageReferenceError::Registry(registry.to_owned()));
        }
        if let Some(part) = path.split('/').find(|part| !is_path_part(part)) {
            return Err(ImageReferenceError::Path(part.to_owned()));
        }
        if name.len() > MAX_NAME {
            return Err(ImageReferenceError::Long(name.len()));
        }
        if let Some(tag) = tag {
            check_image_tag(tag)?;
        }
        match digest.filter(|digest| !is_digest(digest)) {
            Some(digest) => Err(ImageReferenceError::Digest(digest.to_owned())),
            None => Ok(Self { text: text.to_owned(), has_registry: registry.is_some() }),
        }
    }
}

/// A tag.
///
/// # Errors
/// [`ImageReferenceError::Tag`]: no registry takes it.
pub fn check_image_tag(text: &str) -> Result<(), ImageReferenceError> {
    let is_first = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let bytes = text.as_bytes();
    let fits = bytes.len() <= MAX_TAG
        && bytes.first().is_some_and(|byte| is_first(*byte))
        && bytes.iter().all(|byte| is_first(*byte) || matches!(byte, b'.' | b'-'));
    if fits { Ok(()) } else { Err(ImageReferenceError::Tag(text.to_owned())) }
}

/// Whether what stands before the first slash is a registry and no part of a path.
fn is_registry_like(text: &str) -> bool {
    text == "localhost" || text.contains(['.', ':', '[']) || text.contains(char::is_uppercase)
}

fn is_registry(text: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(rest) = text.strip_prefix('[') {
        let Some((address, behind)) = rest.split_once(']') else { return false };
        return address.parse::<core::net::Ipv6Addr>().is_ok()
            && (behind.is_empty() || behind.strip_prefix(':').is_some_and(is_port));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty()
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

/// Letters and digits with `.`, `_`, `__` or any number of `-` between them.
fn is_path_part(text: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends_well = |end: Option<&u8>| end.is_some_and(|byte| is_word(*byte));
    ends_well(text.as_bytes().first())
        && ends_well(text.as_bytes().last())
        && text.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'_' | b'-'))
        && text.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()).all(|between| {
            matches!(between, "" | "." | "_" | "__") || between.bytes().all(|byte| byte == b'-')
        })
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, encoded)) = text.split_once(':') else { return false };
    let is_hex = || encoded.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    match algorithm {
        "sha256" => encoded.len() == 64 && is_hex(),
        "sha512" => encoded.len() == 128 && is_hex(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ImageReference, ImageReferenceError> {
        text.parse()
    }

    #[test]
    fn names_are_read_with_registry_tag_and_digest() {
        let digest = format!("debian@sha256:{}", "0a".repeat(32));
        for (text, has_registry) in [
            ("debian", false),
            ("debian:bookworm", false),
            ("library/debian:12.1", false),
            ("vmlab/guest_1__a--b.c:1-0abc", false),
            ("registry.example/vmlab/vmlab:v1.7.0", true),
            ("localhost:5000/guest", true),
            ("localhost/guest:x", true),
            ("[::1]:5000/guest:x", true),
            ("Registry.example/guest", true),
            (digest.as_str(), false),
        ] {
            let reference = read(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(
                (reference.has_registry(), reference.to_string()),
                (has_registry, text.to_owned())
            );
        }
    }

    #[test]
    fn what_no_registry_takes_is_refused_by_its_part() {
        for (text, part) in [
            ("", "nothing is written"),
            ("a b", "\"a b\" is no part"),
            ("guest:", "\"\" is no tag"),
            ("guest:a b:c", "\"a b:c\" is no tag"),
            ("guest:-1", "\"-1\" is no tag"),
            ("Guest", "\"Guest\" is no part"),
            ("lab//guest", "\"\" is no part"),
            ("lab/guest-:1", "\"guest-\" is no part"),
            ("lab/a___b", "\"a___b\" is no part"),
            ("lab/a.-b", "\"a.-b\" is no part"),
            ("reg.example:port/guest", "is no registry"),
            ("-reg.example/guest", "is no registry"),
            ("[::g]/guest", "is no registry"),
            ("guest@sha256:12", "\"sha256:12\" is no digest"),
            ("/guest", "\"\" is no part"),
        ] {
            let said = read(text).unwrap_err().to_string();
            assert!(said.contains(part), "{text:?}: {said}");
        }
        assert!(check_image_tag(&"a".repeat(128)).is_ok());
        assert!(check_image_tag(&"a".repeat(129)).is_err());
        assert_eq!(read(&"a".repeat(256)), Err(ImageReferenceError::Long(256)));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "([a-zA-Z0-9]|[.:/@_ -]|\\[|\\]|é){0,40}") {
            if let Ok(reference) = read(&text) {
                proptest::prop_assert_eq!(reference.to_string(), text);
            }
        }
    }
}
