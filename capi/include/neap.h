/* neap.h: Neap's functions beyond those of <stdlib.h> and <malloc.h>.
 *
 * Nothing here is needed to use Neap: preload libneap.so or link it (-lneap,
 * before the C library) and malloc, free and operator new are Neap's. This
 * header declares the functions that older C libraries do not declare, and
 * the library's version.
 *
 * Rules for all of Neap's entry points
 *  - A block is aligned to 16 bytes, or to the requested alignment, up to
 *    1 GiB.
 *  - A function that cannot get memory returns NULL and sets errno to ENOMEM
 *    (posix_memalign returns it instead). Success and free keep errno.
 *  - A block may be freed by any thread.
 *  - A misuse that Neap detects ends the process by abort(), with one line on
 *    standard error that begins with "neap: ".
 */
#ifndef NEAP_H
#define NEAP_H

#include <malloc.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#define NEAP_NOEXCEPT noexcept(true)
#else
#define NEAP_NOEXCEPT
#endif

/* The version of the library in use, such as "0.1.0": static, never NULL. To
 * find out whether a process runs under Neap, look the name up at run time:
 * dlsym(RTLD_DEFAULT, "neap_version") is NULL if it does not. */
const char *neap_version(void) NEAP_NOEXCEPT;

/* C23: frees `block`, which malloc, calloc or realloc returned for `size` bytes. A size that
 * another size class serves is a misuse. If `block` is NULL, nothing happens. */
void free_sized(void *block, size_t size) NEAP_NOEXCEPT;

/* C23: frees `block`, which aligned_alloc(align, size) returned. If `block` is NULL, nothing
 * happens. */
void free_aligned_sized(void *block, size_t align, size_t size) NEAP_NOEXCEPT;

/* <malloc.h> declares `size_t malloc_usable_size(void *block)`: the number of bytes of `block` that
 * may be read and written, at least as many as were requested. All of them belong to the caller. 0
 * for NULL. This header leaves the declaration to the C library, because they differ in C++:
 * glibc's says that the function does not throw, and musl's does not. */

/* Gives all free memory back to the operating system now instead of after the
 * decay time. `keep` is ignored. Returns 1 if any memory went back, otherwise 0. */
int malloc_trim(size_t keep) NEAP_NOEXCEPT;

/* Starts the purge thread, unless it runs already. The thread gives free memory back while the
 * program sleeps, and answers `neap stat`. A program that is linked dynamically, or preloaded, gets
 * the thread without this call when its heap has grown. A static program gets it by this call or by
 * NEAP_PURGE_THREAD=always. Call this at the start of main, and again in a child of fork. Do not
 * call it in a handler of a signal or of fork, or in a constructor.
 * Returns 0 once the thread is at its work, or -1 with errno: EPERM if NEAP_PURGE_THREAD=never or a
 * sandbox forbids the thread, EAGAIN if the kernel refuses it, or if another thread forks or makes
 * the status page meanwhile. */
int neap_start_purge_thread(void) NEAP_NOEXCEPT;

/* Stacks for coroutines
 *
 * A stack is memory of the same heap: malloc reuses the pages of ended coroutines, and new stacks
 * reuse the pages of freed blocks. Pages are committed as they are touched. Below each stack is a
 * guard, so an overflow raises a signal instead of silently damaging memory. The signal is SIGSEGV,
 * or SIGBUS where Neap makes the guard by write protection (before Linux 6.13, and in locked
 * memory). A guard has at least 36 KiB of address space, and 68 KiB below a stack of 64 KiB or
 * more. No function of glibc or musl has a fixed frame without stack probes of more than 33 KiB,
 * but some take up to 64 KiB by alloca. A function without stack probes that takes more than the
 * guard at once can step over it (docs/stacks.md has the details).
 * Stacks grow down from `top`. Every function may be called by any thread. None changes errno. */
typedef struct {
    void *top;    /* one past the highest byte; the start of an OS page */
    void *limit;  /* the lowest byte that may be used; the guard is just below */
    size_t bytes; /* top - limit */
} neap_stack_t;

/* Fills `*out` with a stack of `bytes` bytes, of which the lowest OS page belongs to the guard: 8
 * KiB to 8 MiB, rounded up to 8, 16 or 32 KiB or a multiple of 64 KiB. The rest of the guard is
 * below, and takes address space only. The contents are undefined. Returns 0;
 * EINVAL for another size; ENOMEM when out of memory, or out of mappings (vm.max_map_count) where
 * guards need some: before Linux 6.13 and in locked memory, if Neap cannot use userfaultfd. */
int neap_stack_alloc(size_t bytes, neap_stack_t *out) NEAP_NOEXCEPT;

/* Gives back a stack on which no coroutine runs any more. Reads only `stack->top`, and leaves
 * `*stack` as it is. If `stack` or its top is NULL, nothing happens. If no stack in use ends at the
 * top, the call is a misuse. */
void neap_stack_free(neap_stack_t *stack) NEAP_NOEXCEPT;

/* Gives back the whole pages below `sp`, the stack pointer of the parked coroutine on this stack
 * (on x86-64 the 128 bytes below `sp` stay as well). They read as zero from then on. Returns the
 * number of bytes. If `sp` is not within the stack, the call is a misuse. */
size_t neap_stack_trim(const neap_stack_t *stack, const void *sp) NEAP_NOEXCEPT;

/* Names the stack's owner in the report of an overflow. The string is not copied, so it must stay
 * valid until the stack is given back. NULL removes the name. */
void neap_stack_set_owner(neap_stack_t *stack, const char *name) NEAP_NOEXCEPT;

/* Makes an access to a stack's guard write one line on standard error, with the stack's size and
 * its owner, before the process dies of the signal. For all other faults, Neap calls the handler
 * that the program installed before for that signal. Install that handler with SA_ONSTACK: without
 * it, an overflowed stack has no room for the report. The calling thread gets an alternate stack
 * (sigaltstack) if it has none, so call this in every thread that runs coroutines. Returns 1, or 0
 * if there is no memory or the kernel refuses. */
int neap_stack_report_overflows(void) NEAP_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#undef NEAP_NOEXCEPT

#endif /* NEAP_H */
