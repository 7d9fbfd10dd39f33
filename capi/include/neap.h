/* neap.h: what Neap offers beyond the names of <stdlib.h> and <malloc.h>.
 *
 * Nothing here is needed to use Neap: preload libneap.so or link it (-lneap,
 * before the C library) and malloc, free and operator new are Neap's. This
 * header declares the functions that older C libraries do not declare, and
 * the library's version.
 *
 * Rules that hold for all of Neap's entry points
 *  - A block is aligned to 16 bytes or to what was asked for, up to 1 GiB.
 *  - A function that fails for want of memory returns NULL and sets errno to
 *    ENOMEM (posix_memalign returns it instead). Success and free keep errno.
 *  - A block may be freed from any thread.
 *  - A misuse that is seen ends the process by abort() with one line on
 *    standard error that begins with "neap: ".
 */
#ifndef NEAP_H
#define NEAP_H

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

/* C23: frees `block`, which malloc, calloc or realloc gave for `size` bytes. Any other size
 * that another size class serves is a misuse. NULL does nothing. */
void free_sized(void *block, size_t size) NEAP_NOEXCEPT;

/* C23: frees `block`, which aligned_alloc(align, size) gave. NULL does nothing. */
void free_aligned_sized(void *block, size_t align, size_t size) NEAP_NOEXCEPT;

/* Bytes of `block` that may be read and written, at least what was asked for.
 * All of them are the caller's. NULL has 0. */
size_t malloc_usable_size(void *block) NEAP_NOEXCEPT;

/* Gives all free memory back to the operating system now instead of after the
 * decay time. `keep` has no meaning here. Returns 1 if any went back, else 0. */
int malloc_trim(size_t keep) NEAP_NOEXCEPT;

/* Stacks for coroutines
 *
 * A stack is memory of the same heap: what coroutines leave, malloc uses, and the other way round. Its pages are
 * committed as they are touched. Its lowest page is a guard: running over the low end is SIGSEGV, not silent damage.
 * Stacks grow down from `top`. Every function may be called from any thread. None touches errno. */
typedef struct {
    void *top;    /* one past the highest byte; the start of an OS page */
    void *limit;  /* the lowest byte that may be used; the guard is just below */
    size_t bytes; /* top - limit */
} neap_stack_t;

/* Fills `*out` with a stack that takes `bytes` bytes of address space, guard included: 8 KiB to 8 MiB, rounded up to 8, 16 or
 * 32 KiB or a multiple of 64 KiB. What the stack holds is undefined. Returns 0; EINVAL for another size; ENOMEM when
 * out of memory, or out of mappings (vm.max_map_count) where guards need some: before Linux 6.13, and in locked memory. */
int neap_stack_alloc(size_t bytes, neap_stack_t *out) NEAP_NOEXCEPT;

/* Gives a stack back that nobody runs on any more. Looks at `stack->top` only, and leaves `*stack` as it is. NULL, and a NULL
 * top, do nothing. A top where no stack in use ends is a misuse. */
void neap_stack_free(neap_stack_t *stack) NEAP_NOEXCEPT;

/* Gives back the whole pages below `sp`, the stack pointer of the coroutine on this stack, which is parked (on x86-64 the
 * 128 bytes under it stay, too). They read as zero from then on. Returns how many bytes that was. */
size_t neap_stack_trim(const neap_stack_t *stack, const void *sp) NEAP_NOEXCEPT;

/* Names the stack's owner in the report of an overflow. The string is not copied: it stays until the stack is given back. NULL
 * takes the name away. */
void neap_stack_set_owner(neap_stack_t *stack, const char *name) NEAP_NOEXCEPT;

/* From now on, an access to the guard of a stack writes one line on standard error, with the stack's size and its owner,
 * before the process dies of SIGSEGV. A handler of SIGSEGV that the program had before is called for all other
 * faults. The calling thread gets an alternate stack (sigaltstack) if it has none: call this in every thread that
 * runs coroutines. Returns 1, or 0 if there is no memory or the kernel refuses. */
int neap_stack_report_overflows(void) NEAP_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#undef NEAP_NOEXCEPT

#endif /* NEAP_H */
