//! Arguments as a shell takes them.

/// The arguments as words of a POSIX shell, separated by spaces.
#[must_use]
pub fn join<S: AsRef<str>>(args: &[S]) -> String {
    args.iter().map(|arg| quote(arg.as_ref())).collect::<Vec<_>>().join(" ")
}

/// Quoted only if a shell would take the plain text for something else.
fn quote(arg: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !arg.is_empty() && arg.chars().all(plain) {
        arg.to_owned()
    } else {
        format!("'{}'", arg.replace('\'', r"'\''"))
    }
}
