// From the loader to Rust. Linux's Documentation/arch/arm64/booting.rst: MMU and caches
// off, x0 = physical address of the device tree, or of what the loader for UEFI tells. The
// other vCPUs begin at other_start (PSCI CPU_ON), x0 = what was handed over for them.

.section .boot, "ax"
.globl image_header
image_header:
    b start
    .long 0
    .quad 0                     // text_offset
    .quad image_bytes
    .quad 0xa                   // little endian, pages of 4 KiB, anywhere
    .quad 0, 0, 0
    .ascii "ARM\x64"
    .long 0

// To Rust: x20, the loader's word, and x21, where the image lies.
start:
    msr daifset, #15
    mov x20, x0
    bl to_el1
    adr x21, image_header

    // The first GiB is devices', but its first 2 MiB are nobody's; memory to 256 GiB;
    // devices above; the image in the last of 512 GiB.
    adrp x1, level_1
    adrp x2, level_2_low
    orr x3, x2, #3
    str x3, [x1]
    ldr x4, =0x0060000000000401 // device, not executable
    str xzr, [x2]
    mov x5, #1
1:  add x6, x4, x5, lsl #21
    str x6, [x2, x5, lsl #3]
    add x5, x5, #1
    cmp x5, #512
    b.lo 1b
    ldr x7, =0x0040000000000705 // memory, not for EL0 to execute
    mov x5, #1
2:  cmp x5, #256
    csel x6, x7, x4, lo
    add x6, x6, x5, lsl #30
    str x6, [x1, x5, lsl #3]
    add x5, x5, #1
    cmp x5, #511
    b.lo 2b
    adrp x2, level_2_image
    orr x3, x2, #3
    str x3, [x1, x5, lsl #3]
    mov x5, #0
    adrp x8, level_3
3:  orr x3, x8, #3
    cmp x5, #4
    csel x3, x3, xzr, lo
    str x3, [x2, x5, lsl #3]
    add x8, x8, #4096
    add x5, x5, #1
    cmp x5, #512
    b.lo 3b
    // The image by 4 KiB: code and constants for all to read, data for all to write.
    adrp x2, level_3
    adrp x9, data_begin
    adrp x10, image_end
    ldr x11, =0x7c7             // read-only
    ldr x12, =0x0060000000000747
    mov x5, x21
    mov x13, #2048
4:  cmp x5, x9
    csel x3, x11, x12, lo
    add x3, x3, x5
    cmp x5, x10
    csel x3, x3, xzr, lo
    str x3, [x2], #8
    add x5, x5, #4096
    subs x13, x13, #1
    b.ne 4b
    // What caches hold of the tables is older.
    dsb sy
    adrp x1, level_1
    adrp x2, tables_end
5:  dc ivac, x1
    add x1, x1, #16
    cmp x1, x2
    b.lo 5b
    dsb sy
    bl paging_on
    // From here on addresses are those of the link.
    ldr x1, =6f
    br x1
6:  ldr x1, =bss_begin
    ldr x2, =bss_end
7:  stp xzr, xzr, [x1], #16
    cmp x1, x2
    b.lo 7b
    ldr x1, ={first_fault_stack_end}
    ldr x1, [x1]
    mov sp, x1
    msr spsel, #0
    ldr x1, ={first_stack_end}
    ldr x1, [x1]
    mov sp, x1
    mov x0, x20
    mov x1, x21
    bl {first_vcpu}
    brk #0

.globl other_start
other_start:
    msr daifset, #15
    bl to_el1
    bl paging_on
    ldr x1, =8f
    br x1
8:  ldr x1, ={next_fault_stack}
    ldr x1, [x1]
    mov sp, x1
    msr spsel, #0
    ldr x1, ={next_stack}
    ldr x1, [x1]
    mov sp, x1
    ldr x0, ={next_index}
    ldr w0, [x0]
    bl {other_vcpu}
    brk #0

// To EL1, where the loader came by EL2. E2H, by which some of EL2's registers have another
// layout and names of EL1's reach EL2's, stays as it is; and it is 1 where the processor
// knows no 0 (DDI 0487, FEAT_E2H0, HCR_EL2.E2H).
to_el1:
    msr spsel, #1
    mrs x1, currentel
    cmp x1, #8
    b.ne 9f
    mrs x1, hcr_el2
    and x1, x1, #1 << 34        // E2H
    mrs x2, s3_0_c0_c7_4        // ID_AA64MMFR4_EL1
    tbz x2, #27, 11f            // E2H0, signed, below 0: E2H has no 0
    orr x1, x1, #1 << 34
11: orr x1, x1, #1 << 31        // EL1 is 64 bits wide
    msr hcr_el2, x1
    isb
    // Some have no 0 and do not say so.
    mrs x2, hcr_el2
    and x2, x2, #1 << 34
    mov x3, #3 << 10
    cmp x2, #0
    mov x1, #3                  // counters and timers are EL1's
    csel x1, x1, x3, eq
    msr cnthctl_el2, x1
    msr cntvoff_el2, xzr
    mrs x1, id_aa64pfr0_el1
    ubfx x1, x1, #24, #4
    cbz x1, 10f
    mov x1, #15
    msr s3_4_c12_c9_5, x1       // ICC_SRE_EL2
    isb
10: mov x1, #0x33ff             // nothing traps
    mov x3, #0x3330000          // FPEN, ZEN, SMEN
    cmp x2, #0
    csel x1, x1, x3, eq
    msr cptr_el2, x1
    mrs x1, midr_el1
    msr vpidr_el2, x1
    mrs x1, mpidr_el1
    msr vmpidr_el2, x1
    mov x1, #0x3c5
    msr spsr_el2, x1
    msr elr_el2, x30
    ldr x1, =0x30d00800
    cbnz x2, 12f
    msr sctlr_el1, x1
    eret
12: msr s3_5_c1_c0_0, x1        // SCTLR_EL12
    eret
9:  ret

paging_on:
    adrp x1, level_1
    msr ttbr0_el1, x1
    mov x1, #0xff00             // 0: device, 1: memory
    msr mair_el1, x1
    ldr x1, =0x803519           // 39 bits, cached and shared walks, no upper half
    mrs x2, id_aa64mmfr0_el1
    and x2, x2, #7
    cmp x2, #5
    mov x3, #5
    csel x2, x2, x3, lo
    orr x1, x1, x2, lsl #32
    msr tcr_el1, x1
    tlbi vmalle1
    ic iallu
    dsb sy
    isb
    ldr x1, =0x30d51805
    msr sctlr_el1, x1
    isb
    ret
.ltorg

.section .tables, "aw", @nobits
    .balign 4096
.globl level_3
level_1:        .skip 4096
level_2_low:    .skip 4096
level_2_image:  .skip 4096
level_3:        .skip 4 * 4096
tables_end:
