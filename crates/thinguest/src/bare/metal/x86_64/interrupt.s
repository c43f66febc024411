# Exceptions, the interrupts that are counted, and ring 3. AT&T syntax.

.section .text.interrupts, "ax"
.code64

# --- Exceptions: all registers, then Rust, to which they are
# metal::exception::Frame.
.irp vector, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
exception_\vector:
    .if ((1 << \vector) & 0x60227d00) == 0
    pushq $0                    # those without an error code
    .endif
    pushq $\vector
    jmp exception_common
.endr

exception_common:
    pushq %rax
    pushq %rcx
    pushq %rdx
    pushq %rbx
    pushq %rbp
    pushq %rsi
    pushq %rdi
    pushq %r8
    pushq %r9
    pushq %r10
    pushq %r11
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, %rdi
    cld
    call {on_exception}
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %r11
    popq %r10
    popq %r9
    popq %r8
    popq %rdi
    popq %rsi
    popq %rbp
    popq %rbx
    popq %rdx
    popq %rcx
    popq %rax
    addq $16, %rsp
    iretq

.section .rodata.exceptions, "a"
    .balign 8
.globl exceptions
exceptions:
.irp vector, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    .quad exception_\vector
.endr

# --- Counted interrupts: no Rust, so that what is measured is short and the same
# everywhere. %gs:{timers} and the like are counters of the vCPU.
.section .text.interrupts, "ax"
.macro counted name, counter, before
.globl \name\()_xapic, \name\()_x2apic
\name\()_xapic:
    pushq %rax
    \before
    incq %gs:\counter
    movl $0xfee000b0, %eax
    movl $0, (%rax)
    popq %rax
    iretq
\name\()_x2apic:
    pushq %rax
    pushq %rcx
    pushq %rdx
    \before
    incq %gs:\counter
    movl $0x80b, %ecx
    xorl %eax, %eax
    xorl %edx, %edx
    wrmsr
    popq %rdx
    popq %rcx
    popq %rax
    iretq
.endm
counted on_timer, {timers}, nop
counted on_ipi, {ipis}, nop
counted on_device, {devices}, nop
counted on_shootdown, {ipis}, "invlpg {shot}(%rip)"

.globl on_spurious
on_spurious:
    iretq

# --- Ring 3: %rdi empty system calls, at least one.
.macro enter_ring_3 program
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, {kernel_stack}(%rip)
    movq %rsp, %rax
    pushq $0x23
    pushq %rax
    pushq $2
    pushq $0x2b
    leaq \program(%rip), %rax
    pushq %rax
    iretq
.endm

.globl system_calls
system_calls:
    enter_ring_3 user_loop
user_loop:
    xorl %eax, %eax
    syscall
    decq %rdi
    jnz user_loop
    movl $1, %eax
    syscall
    ud2

# %rdi times: a write of %rdx bytes at %rsi to the file %rcx, and a read. Returns how
# many did as the null device does.
.globl null_io_from_ring_3
null_io_from_ring_3:
    enter_ring_3 user_io
user_io:
    movq %rdi, %rbx
    movq %rsi, %r12
    movq %rdx, %r13
    movq %rcx, %r14
    xorl %ebp, %ebp
1:  movl ${write}, %eax
    movq %r14, %rdi
    movq %r12, %rsi
    movq %r13, %rdx
    syscall
    cmpq %r13, %rax
    jne 2f
    incq %rbp
2:  movl ${read}, %eax
    movq %r14, %rdi
    movq %r12, %rsi
    movq %r13, %rdx
    syscall
    testq %rax, %rax
    jne 3f
    incq %rbp
3:  decq %rbx
    jnz 1b
    movq %rbp, %rdi
    movl $1, %eax
    syscall
    ud2

# %eax: 0 does nothing, 1 ends the program with %rdi as its result, others are files'.
.globl on_syscall
on_syscall:
    testl %eax, %eax
    jnz 1f
    sysretq
1:  cmpl $1, %eax
    jne 2f
    movq {kernel_stack}(%rip), %rsp
    movq %rdi, %rax
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    ret
2:  movq %rsp, %r10
    movq {kernel_stack}(%rip), %rsp
    pushq %r10
    pushq %rcx
    pushq %r11
    movl %eax, %ecx
    call {on_file_call}
    popq %r11
    popq %rcx
    popq %rsp
    sysretq

.globl empty_call
empty_call:
    ret
