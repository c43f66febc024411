//! What KVM itself says that it can do, by `KVM_CHECK_EXTENSION`.
//!
//! Source: Linux `Documentation/virt/kvm/api.rst`, 4.4 `KVM_CHECK_EXTENSION` and 7.13
//! `KVM_CAP_X86_DISABLE_EXITS`.

use kvm_ioctls::Kvm;

const KVM_CAP_X86_DISABLE_EXITS: u64 = 143;

/// The mask of exits that this host's KVM can leave out; `None` where there is no KVM to ask.
pub(crate) fn disable_exits() -> Option<u32> {
    // On another architecture the number stands for nothing.
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    let kvm = Kvm::new().ok()?;
    // Below 0 is an error of the call.
    u32::try_from(kvm.check_extension_raw(KVM_CAP_X86_DISABLE_EXITS)).ok()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn it_is_known_where_there_is_a_kvm() {
        let device = File::options().read(true).write(true).open("/dev/kvm");
        let asked = cfg!(target_arch = "x86_64") && device.is_ok();
        assert_eq!(disable_exits().is_some(), asked, "{device:?}");
    }
}
