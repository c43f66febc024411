//! SIGBUS: a file that is mapped here was made shorter by the process that sent
//! it (or has no huge page left), and we touched what is gone.
//!
//! The handler puts private zero pages over the whole mapping and marks it lost;
//! the access is done again and reads zeros. Whoever owns the mapping finds the
//! mark and lets go of it. A SIGBUS anywhere else ends the process as ever.

use std::ffi::c_void;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};

/// Mappings that can be held at once: 64 ports with 32 regions each.
const SLOTS: usize = 2048;

/// One mapping, as the handler sees it: start and length belong together, which a
/// sequence count keeps (the handler can't wait for a lock that its own thread holds).
struct MappingSlot {
    taken: AtomicBool,
    /// Odd while start and length change.
    sequence: AtomicUsize,
    /// Address of the mapping; 0 while it is not to be repaired.
    start: AtomicUsize,
    length: AtomicUsize,
    lost: AtomicBool,
}

static TABLE: [MappingSlot; SLOTS] = [const {
    MappingSlot {
        taken: AtomicBool::new(false),
        sequence: AtomicUsize::new(0),
        start: AtomicUsize::new(0),
        length: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; SLOTS];

impl MappingSlot {
    /// Only whoever has `taken` calls it.
    fn set(&self, start: usize, length: usize) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.length.store(length, Ordering::Relaxed);
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }

    /// Start and length of the mapping that holds `address`. A slot that changes
    /// meanwhile is not it: whoever touched `address` keeps its mapping.
    fn holds(&self, address: usize) -> Option<(usize, usize)> {
        let sequence = self.sequence.load(Ordering::Acquire);
        let start = self.start.load(Ordering::Relaxed);
        let length = self.length.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let whole = sequence.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == sequence;
        let inside = start != 0 && address >= start && address - start < length;
        (whole && inside).then_some((start, length))
    }
}

/// How many mappings were lost since the process began.
static LOSSES: AtomicU32 = AtomicU32::new(0);

/// How many mappings were lost since the process began: a cheap question for
/// every pass, after which the regions themselves are asked.
#[must_use]
pub fn losses() -> u32 {
    LOSSES.load(Ordering::Relaxed)
}

/// The right to have one mapping repaired.
#[derive(Debug)]
pub(super) struct Guard(usize);

impl Guard {
    /// Has `length` bytes from `start` repaired from now on. None if the table is full.
    pub(super) fn new(start: usize, length: usize) -> Option<Self> {
        let index = TABLE.iter().position(|slot| {
            slot.taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        })?;
        let slot = &TABLE[index];
        slot.lost.store(false, Ordering::Relaxed);
        slot.set(start, length);
        Some(Self(index))
    }

    pub(super) fn is_lost(&self) -> bool {
        TABLE[self.0].lost.load(Ordering::Relaxed)
    }

    /// Ends it, before the mapping ends: what is mapped there next is another's.
    pub(super) fn release(&self) {
        let slot = &TABLE[self.0];
        slot.set(0, 0);
        slot.taken.store(false, Ordering::Release);
    }
}

/// Installs the handler, once a process.
///
/// # Errors
/// What `sigaction(2)` says, to each who asks.
pub fn install() -> io::Result<()> {
    static OUTCOME: OnceLock<Result<(), i32>> = OnceLock::new();
    OUTCOME
        .get_or_init(|| set_handler().map_err(|error| error.raw_os_error().unwrap_or(libc::EIO)))
        .map_err(io::Error::from_raw_os_error)
}

fn set_handler() -> io::Result<()> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all-zero bytes are a valid `sigaction` (no flags, empty mask, SIG_DFL);
    // the fields set after that are plain integers. `on_fault` has the signature that
    // SA_SIGINFO asks for and calls only what is async-signal-safe: atomics, and the
    // system calls mmap and sigaction.
    let result = unsafe {
        let action = action.assume_init_mut();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
        libc::sigaction(libc::SIGBUS, action, ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

extern "C" fn on_fault(_signal: i32, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t` to a handler set with SA_SIGINFO,
    // and for SIGBUS its union holds the address.
    let address = unsafe { (*info).si_addr() } as usize;
    for slot in &TABLE {
        let Some((start, length)) = slot.holds(address) else { continue };
        // SAFETY: the slot is live, so `start..start+length` is a whole mapping that a
        // `Region` owns and nothing else uses; MAP_FIXED replaces just that. Pointers
        // into it stay valid, and all who read through them expect any bytes.
        let mapped = unsafe {
            libc::mmap(
                start as *mut c_void,
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if mapped == libc::MAP_FAILED {
            break;
        }
        if !slot.lost.swap(true, Ordering::Relaxed) {
            LOSSES.fetch_add(1, Ordering::Release);
        }
        return;
    }
    // SAFETY: setting a signal's default action has no precondition. The access
    // faults again on return, and the process ends as without a handler.
    unsafe { libc::signal(libc::SIGBUS, libc::SIG_DFL) };
}
