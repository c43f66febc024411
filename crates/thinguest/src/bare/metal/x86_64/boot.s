# From the loader to Rust. AT&T syntax.
#
# PVH (Xen's docs/misc/pvh.pandoc): 32-bit protected mode without paging, flat
# segments, %ebx = physical address of hvm_start_info. The other vCPUs begin in real
# mode at 0x8000, where the copy of ap_start lies.

.section .note.pvh, "a", @note
    .balign 4
    .long 4                     # length of the name
    .long 8                     # length of the value
    .long 18                    # XEN_ELFNOTE_PHYS32_ENTRY
    .asciz "Xen"
    .quad pvh_entry

.section .bss.tables, "aw", @nobits
    .balign 4096
    .globl page_map, page_tables
page_map:        .skip 4096     # PML4
page_pointers:   .skip 4096     # one PDPT: 512 GiB
page_folders:    .skip 4 * 4096 # four page directories: 4 GiB
page_tables:     .skip 8 * 4096 # the first 16 MiB by 4 KiB, for guard pages

.section .rodata.gdt, "a"
    .balign 8
boot_gdt:
    .quad 0
    .quad 0x00209a0000000000    # 0x08: 64-bit code
    .quad 0x00cf92000000ffff    # 0x10: data
    .quad 0x00cf9a000000ffff    # 0x18: 32-bit code
boot_gdt_end:
boot_gdtr:
    .word boot_gdt_end - boot_gdt - 1
    .quad boot_gdt

.section .boot, "ax"
.code32
.globl pvh_entry
pvh_entry:
    cli
    cld
    movl %ebx, %ebp
    movl $page_pointers + 7, page_map
    movl $page_folders + 7, %eax
    xorl %ecx, %ecx
1:  movl %eax, page_pointers(,%ecx,8)
    addl $4096, %eax
    incl %ecx
    cmpl $4, %ecx
    jne 1b
    # 2 MiB each: present, writable, user, large; uncached in the last GiB.
    xorl %ecx, %ecx
2:  movl %ecx, %eax
    shll $21, %eax
    orl $0x87, %eax
    cmpl $1536, %ecx
    jb 3f
    orl $0x18, %eax
3:  movl %eax, page_folders(,%ecx,8)
    incl %ecx
    cmpl $2048, %ecx
    jne 2b
    # 4 KiB each.
    xorl %ecx, %ecx
4:  movl %ecx, %eax
    shll $12, %eax
    orl $7, %eax
    movl %eax, page_tables(,%ecx,8)
    incl %ecx
    cmpl $4096, %ecx
    jne 4b
    movl $page_tables + 7, %eax
    xorl %ecx, %ecx
5:  movl %eax, page_folders(,%ecx,8)
    addl $4096, %eax
    incl %ecx
    cmpl $8, %ecx
    jne 5b
    xorl %esi, %esi

# %esi: 0 on the first vCPU, 1 on another.
long_mode:
    movl %cr4, %eax
    orl $0x620, %eax            # PAE, OSFXSR, OSXMMEXCPT
    movl %eax, %cr4
    movl $page_map, %eax
    movl %eax, %cr3
    movl $0xc0000080, %ecx
    rdmsr
    orl $0x101, %eax            # LME, SCE
    wrmsr
    movl %cr0, %eax
    andl $~0x6000000c, %eax     # not CD, NW, EM, TS
    orl $0x80010023, %eax       # PG, WP, NE, MP, PE
    movl %eax, %cr0
    lgdt boot_gdtr
    ljmp $0x08, $long_entry

.code64
long_entry:
    movw $0x10, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movw %ax, %fs
    movw %ax, %gs
    testl %esi, %esi
    jnz 6f
    movq {first_stack_end}(%rip), %rsp
    movl %ebp, %edi
    call {first_vcpu}
    ud2
6:  movq {next_stack}(%rip), %rsp
    movl {next_index}(%rip), %edi
    call {other_vcpu}
    ud2

.code32
ap_protected:
    movw $0x10, %ax
    movw %ax, %ds
    movw %ax, %es
    movw %ax, %ss
    movl $1, %esi
    jmp long_mode

# Copied to 0x8000.
.code16
.globl ap_start, ap_start_end
ap_start:
    cli
    cld
    xorw %ax, %ax
    movw %ax, %ds
    lgdtl 0x8000 + ap_gdtr - ap_start
    movl %cr0, %eax
    orl $1, %eax
    movl %eax, %cr0
    ljmpl $0x18, $ap_protected
    .balign 8
ap_gdtr:
    .word boot_gdt_end - boot_gdt - 1
    .long boot_gdt
ap_start_end:
.code64
