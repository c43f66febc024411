//! What a running switch may still do: make and remove sockets in the folders of its
//! sockets, and the system calls that forwarding and its control need, without any of
//! root's capabilities. What breaks into it by way of a guest's memory gets no more.
//!
//! Landlock judges by folder and all below it: it can't tell one file there from another,
//! nor a socket from what else is removed.
//!
//! Source: `landlock(7)`, `seccomp(2)`, `capabilities(7)`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use rustix::fs::{Access as FileAccess, AtFlags, CWD, accessat};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Error type for the sandbox.
#[derive(Debug, thiserror::Error)]
pub enum ConfinementError {
    /// A folder can't be opened.
    #[error("Cannot open the folder of a socket")]
    Folder(#[source] landlock::PathFdError),
    /// Landlock refuses.
    #[error("Landlock refuses")]
    Landlock(#[source] RulesetError),
    /// Capabilities can't be dropped.
    #[error("Cannot drop root's capabilities")]
    Capabilities(#[source] rustix::io::Errno),
    /// The filter can't be made.
    #[error("Cannot make the filter of system calls")]
    Filter(#[source] seccompiler::BackendError),
    /// seccomp refuses.
    #[error("seccomp refuses")]
    Seccomp(#[source] seccompiler::Error),
}

/// Lets this thread, and those that it starts from now on, use no file but sockets
/// in `folders`. A kernel without Landlock (before 5.13) leaves it at what the
/// filter of system calls forbids: then the answer is false.
pub(crate) fn keep_to_folders(folders: &[PathBuf]) -> Result<bool, ConfinementError> {
    // What the first version knows is all that a switch could misuse.
    let handled = AccessFs::from_all(ABI::V1);
    let allowed: BitFlags<AccessFs> = AccessFs::MakeSock | AccessFs::RemoveFile;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(handled)
        .map_err(ConfinementError::Landlock)?
        // Other processes' abstract sockets, and signals to them (Linux 6.12).
        .scope(Scope::AbstractUnixSocket | Scope::Signal)
        .map_err(ConfinementError::Landlock)?
        .create()
        .map_err(ConfinementError::Landlock)?;
    for folder in folders {
        let folder = PathFd::new(folder).map_err(ConfinementError::Folder)?;
        let rule = PathBeneath::new(folder, allowed);
        rules = rules.add_rule(rule).map_err(ConfinementError::Landlock)?;
    }
    let kept = rules.restrict_self().map_err(ConfinementError::Landlock)?;
    Ok(kept.ruleset != RulesetStatus::NotEnforced)
}

/// Takes all capabilities from this thread and those that it starts from now on: what
/// needed one is done. Root in whose folders others' sockets lie keeps the right to write
/// there, which Landlock narrows to sockets.
///
/// # Errors
/// [`ConfinementError::Capabilities`].
pub(crate) fn drop_capabilities(folders: &[PathBuf]) -> Result<(), ConfinementError> {
    let has = capabilities(None).map_err(ConfinementError::Capabilities)?;
    let none = CapabilitySet::empty();
    let set = |kept: CapabilitySet, effective: CapabilitySet| {
        let sets = CapabilitySets { effective, permitted: kept, inheritable: none };
        set_capabilities(None, sets).map_err(ConfinementError::Capabilities)
    };
    let write = CapabilitySet::DAC_OVERRIDE & has.permitted;
    // By what its user may do without any.
    set(write, none)?;
    let may_write = |folder: &PathBuf| {
        let access = FileAccess::WRITE_OK | FileAccess::EXEC_OK;
        accessat(CWD, folder, access, AtFlags::EACCESS).is_ok()
    };
    if folders.iter().all(may_write) { set(none, none) } else { set(write, write) }
}

/// System calls that a running switch makes, and its allocator and threads.
const CALLS: &[libc::c_long] = &[
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_eventfd2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fchmod,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_io_destroy,
    libc::SYS_io_getevents,
    libc::SYS_io_submit,
    libc::SYS_listen,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_ppoll,
    libc::SYS_preadv2,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    libc::SYS_umask,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Those that other processors' kernels lack.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[libc::c_long] =
    &[libc::SYS_poll, libc::SYS_unlink, libc::SYS_lstat, libc::SYS_stat];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[libc::c_long] = &[];

/// Lets all threads of this process make only the system calls above. Others fail
/// with EPERM. Memory can't be made executable, sockets are Unix sockets, and only a switch
/// some of whose frontends listen may connect them. A thread names itself, which one that
/// was only just started may do after this.
pub(crate) fn keep_to_calls(connects: bool) -> Result<(), ConfinementError> {
    let backend = |error| ConfinementError::Filter(error);
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for &call in CALLS.iter().chain(OLD_CALLS) {
        rules.insert(call, Vec::new());
    }
    if connects {
        rules.insert(libc::SYS_connect, Vec::new());
    }
    let executable = u64::from(libc::PROT_EXEC.unsigned_abs());
    let not_executable =
        SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(executable), 0);
    let not_executable = not_executable.map_err(backend)?;
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        let rule = SeccompRule::new(vec![not_executable.clone()]).map_err(backend)?;
        rules.insert(call, vec![rule]);
    }
    // Sockets, how the standard library makes one not block, and how it names a thread.
    let only = [
        (libc::SYS_socket, 0, u64::from(libc::AF_UNIX.unsigned_abs())),
        (libc::SYS_ioctl, 1, u64::from(u32::try_from(libc::FIONBIO).unwrap_or_default())),
        (libc::SYS_prctl, 0, u64::from(libc::PR_SET_NAME.unsigned_abs())),
    ];
    for (call, argument, value) in only {
        let equal =
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value);
        let rule = SeccompRule::new(vec![equal.map_err(backend)?]).map_err(backend)?;
        rules.insert(call, vec![rule]);
    }
    let refuse = SeccompAction::Errno(libc::EPERM.unsigned_abs());
    let arch = std::env::consts::ARCH.try_into().map_err(backend)?;
    let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, arch).map_err(backend)?;
    let program: BpfProgram = filter.try_into().map_err(backend)?;
    seccompiler::apply_filter_all_threads(&program).map_err(ConfinementError::Seccomp)
}
