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
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

/// Mappings that can be held at once: 64 ports with 32 regions each.
const SLOTS: usize = 2048;

/// One mapping, as the handler sees it.
struct Slot {
    taken: AtomicBool,
    /// Address of the mapping; 0 while it is not to be repaired.
    start: AtomicUsize,
    length: AtomicUsize,
    lost: AtomicBool,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        taken: AtomicBool::new(false),
        start: AtomicUsize::new(0),
        length: AtomicUsize::new(0),
        lost: AtomicBool::new(false),
    }
}; SLOTS];

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
        slot.length.store(length, Ordering::Relaxed);
        slot.start.store(start, Ordering::Release);
        Some(Self(index))
    }

    pub(super) fn is_lost(&self) -> bool {
        TABLE[self.0].lost.load(Ordering::Relaxed)
    }

    /// Ends it, before the mapping ends: what is mapped there next is another's.
    pub(super) fn release(&self) {
        let slot = &TABLE[self.0];
        slot.start.store(0, Ordering::Release);
        slot.taken.store(false, Ordering::Release);
    }
}

/// Installs the handler, once a process.
///
/// # Errors
/// What `sigaction(2)` says.
pub fn install() -> io::Result<()> {
    static ONCE: Once = Once::new();
    let mut outcome = Ok(());
    ONCE.call_once(|| outcome = set_handler());
    outcome
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
        let start = slot.start.load(Ordering::Acquire);
        let length = slot.length.load(Ordering::Relaxed);
        if start == 0 || address < start || address - start >= length {
            continue;
        }
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
