// Functions of the C library under their oldest versions, for programs that are linked to run with older C libraries too
// (docs/decisions/0044-wheel.md). The linker binds a name to its newest version; each definition here takes the name and jumps
// to the old one. libpthread, libdl and librt became parts of libc in 2.34: until then the old versions are theirs.
#if defined(__x86_64__)
#define BASE GLIBC_2.2.5
#define TIMER GLIBC_2.3.3  // also of pthread_condattr_setclock
#define SETNAME GLIBC_2.12
.macro to_old_version name
    jmp *old.\name@GOTPCREL(%rip)
.endm
#elif defined(__aarch64__)
#define BASE GLIBC_2.17
#define TIMER GLIBC_2.17
#define SETNAME GLIBC_2.17
.macro to_old_version name
    adrp x16, :got:old.\name
    ldr x16, [x16, #:got_lo12:old.\name]
    br x16
.endm
#else
#error "versions.S: write it for this processor"
#endif

.macro old_version name, version
    .symver old.\name, \name@\version
    .section .text.portable.\name, "ax", %progbits
    .globl \name
    .hidden \name
    .type \name, %function
\name:
    to_old_version \name
    .size \name, . - \name
.endm

old_version dladdr, BASE
old_version dlclose, BASE
old_version dlerror, BASE
old_version dlopen, BASE
old_version dlsym, BASE
old_version pthread_condattr_setclock, TIMER
old_version pthread_create, BASE
old_version pthread_detach, BASE
old_version pthread_getspecific, BASE
old_version pthread_join, BASE
old_version pthread_key_create, BASE
old_version __pthread_key_create, BASE
old_version pthread_key_delete, BASE
old_version pthread_mutex_trylock, BASE
old_version pthread_once, BASE
old_version pthread_rwlock_destroy, BASE
old_version pthread_rwlock_init, BASE
old_version pthread_rwlock_rdlock, BASE
old_version pthread_rwlock_unlock, BASE
old_version pthread_rwlock_wrlock, BASE
old_version pthread_setname_np, SETNAME
old_version pthread_setspecific, BASE
old_version pthread_sigmask, BASE
old_version timer_create, TIMER
old_version timer_settime, TIMER
// Newer versions of these differ in dangling links (2.27), and in not reporting errors by matherr (2.29).
old_version glob, BASE
old_version log, BASE
old_version pow, BASE

// The program's own; functions.c has what was the old start files' work.
.symver old.__libc_start_main, __libc_start_main@BASE
.section .text.portable.start, "ax", %progbits
.globl acc_old_libc_start_main
.hidden acc_old_libc_start_main
.type acc_old_libc_start_main, %function
acc_old_libc_start_main:
    to_old_version __libc_start_main
.size acc_old_libc_start_main, . - acc_old_libc_start_main

.section .note.GNU-stack, "", %progbits
