// Exceptions, the interrupts that are counted, and EL0. Rust runs on SP_EL0; exceptions
// take SP_EL1, a stack of its own.

.section .text.interrupts, "ax"

// All registers, then Rust, to which they are metal::aarch64::exception::Frame.
.macro exception kind
    sub sp, sp, #288
    stp x0, x1, [sp]
    mov x1, #\kind
    b exception_saved
.endm

exception_saved:
    stp x2, x3, [sp, #16]
    stp x4, x5, [sp, #32]
    stp x6, x7, [sp, #48]
    stp x8, x9, [sp, #64]
    stp x10, x11, [sp, #80]
    stp x12, x13, [sp, #96]
    stp x14, x15, [sp, #112]
    stp x16, x17, [sp, #128]
    stp x18, x19, [sp, #144]
    stp x20, x21, [sp, #160]
    stp x22, x23, [sp, #176]
    stp x24, x25, [sp, #192]
    stp x26, x27, [sp, #208]
    stp x28, x29, [sp, #224]
    mrs x2, elr_el1
    mrs x3, sp_el0
    stp x30, x2, [sp, #240]
    stp x3, x1, [sp, #256]
    mov x0, sp
    bl {on_exception}
    ldr x2, [sp, #248]
    msr elr_el1, x2
    ldr x30, [sp, #240]
    ldp x28, x29, [sp, #224]
    ldp x26, x27, [sp, #208]
    ldp x24, x25, [sp, #192]
    ldp x22, x23, [sp, #176]
    ldp x20, x21, [sp, #160]
    ldp x18, x19, [sp, #144]
    ldp x16, x17, [sp, #128]
    ldp x14, x15, [sp, #112]
    ldp x12, x13, [sp, #96]
    ldp x10, x11, [sp, #80]
    ldp x8, x9, [sp, #64]
    ldp x6, x7, [sp, #48]
    ldp x4, x5, [sp, #32]
    ldp x2, x3, [sp, #16]
    ldp x0, x1, [sp]
    add sp, sp, #288
    eret

// Counted interrupts: no Rust, so that what is measured is short and the same
// everywhere. w0: the interrupt's number; a spurious one is none. w3 is `end`'s.
.macro counted acknowledge, end
    stp x0, x1, [sp, #-32]!
    stp x2, x3, [sp, #16]
    \acknowledge
    mrs x1, tpidr_el1
    cbnz w0, 1f
    ldr x2, [x1, #{ipis}]
    add x2, x2, #1
    str x2, [x1, #{ipis}]
    b 3f
1:  ldr x2, ={timer_interrupt}
    ldr w2, [x2]
    cmp w0, w2
    b.ne 2f
    msr cntv_ctl_el0, xzr
    isb
    ldr x2, [x1, #{timers}]
    add x2, x2, #1
    str x2, [x1, #{timers}]
3:  \end
4:  ldp x2, x3, [sp, #16]
    ldp x0, x1, [sp], #32
    eret
2:  cmp w0, #1020
    b.hs 4b
    ldr x2, [x1, #{devices}]
    add x2, x2, #1
    str x2, [x1, #{devices}]
    b 3b
.endm

.macro acknowledge_v3
    mrs x0, s3_0_c12_c12_0      // ICC_IAR1_EL1
.endm
.macro end_v3
    msr s3_0_c12_c12_1, x0      // ICC_EOIR1_EL1
.endm
.macro acknowledge_v2
    ldr x3, ={cpu_interface}
    ldr x3, [x3]
    ldr w3, [x3, #12]           // GICC_IAR
    and w0, w3, #0x3ff
.endm
// With all that was acknowledged: of an IPI, who sent it as well (IHI 0048, GICC_EOIR).
.macro end_v2
    ldr x0, ={cpu_interface}
    ldr x0, [x0]
    str w3, [x0, #16]           // GICC_EOIR
.endm

irq_v3: counted acknowledge_v3, end_v3
irq_v2: counted acknowledge_v2, end_v2
.ltorg

sync:        exception {sync}
serror:      exception {serror}
unexpected:  exception {unexpected}

.macro vectors name, irq
    .balign 2048
.globl \name
\name:
    .irp handler, sync, \irq, unexpected, serror, sync, unexpected, unexpected, serror, from_el0, unexpected, unexpected, serror, unexpected, unexpected, unexpected, unexpected
    .balign 128
    b \handler
    .endr
.endm
vectors vectors_v3, irq_v3
vectors vectors_v2, irq_v2

// From EL0: x8 is 0 for nothing, 1 to end the program with x0 as its result, else a file's.
from_el0:
    mrs x9, esr_el1
    lsr x9, x9, #26
    cmp x9, #0x15               // SVC
    b.ne sync
    cbnz x8, 1f
    eret
1:  cmp x8, #1
    b.ne 2f
    ldr x9, =left_el0
    msr elr_el1, x9
    mov x9, #0x3c4              // EL1 on SP_EL0, all masked
    msr spsr_el1, x9
    eret
2:  stp x29, x30, [sp, #-16]!
    mov x3, x8
    bl {on_file_call}
    ldp x29, x30, [sp], #16
    eret

.macro enter_el0 program
    stp x19, x20, [sp, #-96]!
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    ldr x9, =\program
    msr elr_el1, x9
    mov x9, #0x3c0              // EL0, all masked
    msr spsr_el1, x9
    eret
.endm

left_el0:
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp x19, x20, [sp], #96
    ret

// x0 empty system calls, at least one.
.globl system_calls
system_calls:
    enter_el0 user_loop
user_loop:
    mov x8, #0
    svc #0
    subs x0, x0, #1
    b.ne user_loop
    mov x8, #1
    svc #0

// x0 times: a write of x2 bytes at x1 to the file x3, and a read. Returns how many did
// as the null device does.
.globl null_io_from_ring_3
null_io_from_ring_3:
    enter_el0 user_io
user_io:
    mov x19, x0
    mov x20, x1
    mov x21, x2
    mov x22, x3
    mov x23, #0
1:  mov x8, #{write}
    mov x0, x22
    mov x1, x20
    mov x2, x21
    svc #0
    cmp x0, x21
    cinc x23, x23, eq
    mov x8, #{read}
    mov x0, x22
    mov x1, x20
    mov x2, x21
    svc #0
    cmp x0, #0
    cinc x23, x23, eq
    subs x19, x19, #1
    b.ne 1b
    mov x0, x23
    mov x8, #1
    svc #0

.globl empty_call
empty_call:
    ret
.ltorg
