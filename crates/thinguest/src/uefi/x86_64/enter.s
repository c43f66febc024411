# From 64-bit mode to what PVH says: 32-bit, without paging, flat segments, ebx = start_info.
# Intel syntax, as Rust has it. ecx: start_info, edx: the entry. It is copied to below 4 GiB
# and runs there: it knows of itself only how far its parts are apart.

.section .text
.globl enter_pvh, enter_pvh_end
enter_pvh:
    cli
    cld
    mov ebx, ecx
    mov esi, edx
    lea rax, [rip + enter_gdt]
    mov [rip + enter_gdtr + 2], rax
    lgdt [rip + enter_gdtr]
    lea rax, [rip + 2f]
    push 0x08
    push rax
    .byte 0x48, 0xcb            # retfq
.code32
2:  mov eax, 0x10
    mov ds, eax
    mov es, eax
    mov ss, eax
    mov eax, cr0
    and eax, 0x7fffffff         # paging
    mov cr0, eax
    mov ecx, 0xc0000080
    rdmsr
    and eax, 0xfffffeff         # long mode
    wrmsr
    xor eax, eax
    mov cr4, eax
    jmp esi
.code64
    .balign 8
enter_gdt:
    .quad 0
    .quad 0x00cf9a000000ffff    # 0x08: 32-bit code
    .quad 0x00cf92000000ffff    # 0x10: data
enter_gdtr:
    .word 23
    .quad 0
enter_pvh_end:
