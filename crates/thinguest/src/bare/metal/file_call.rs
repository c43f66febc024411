//! Calls of a program without privileges: writing to a file and reading from one.

/// Where a program's call arrives: its number, and what it is given.
///
/// # Safety
/// `buffer` has `length` bytes that nobody else uses meanwhile.
pub(super) unsafe extern "C" fn on_file_call(
    file: u32,
    buffer: *mut u8,
    length: u64,
    number: u32,
) -> i64 {
    // SAFETY: what the caller promises.
    let bytes = unsafe { core::slice::from_raw_parts_mut(buffer, length as usize) };
    match number {
        WRITE => crate::files::write(file, bytes),
        _ => crate::files::read(file, bytes),
    }
}

/// The numbers of a program's calls; 0 does nothing, and 1 ends the program.
pub(super) const WRITE: u32 = 2;
pub(super) const READ: u32 = 3;
