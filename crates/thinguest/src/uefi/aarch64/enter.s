// From UEFI to what Linux's arm64 boot protocol says: MMU and caches off, interrupts
// masked, x0 = what is told, x1 to x3 = 0. x1: the entry. Memory is mapped one to one, so
// that this goes on where it is; whoever calls has cleaned it to where caches end.

.section .text, "ax"
.globl enter_image, enter_image_end
    .balign 64
enter_image:
    msr daifset, #15
    mov x4, x1
    mov x5, #0x1005             // instruction cache, data cache, MMU
    mrs x1, currentel
    cmp x1, #8
    b.eq 1f
    mrs x1, sctlr_el1
    bic x1, x1, x5
    msr sctlr_el1, x1
    isb
    tlbi vmalle1
    b 2f
1:  mrs x1, sctlr_el2
    bic x1, x1, x5
    msr sctlr_el2, x1
    isb
    tlbi alle2
2:  ic iallu
    dsb sy
    isb
    mov x1, xzr
    mov x2, xzr
    mov x3, xzr
    br x4
enter_image_end:
