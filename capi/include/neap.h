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

/* Gives free memory back to the operating system now instead of after the
 * decay time, except about `keep` bytes. Returns 1 if any went back, else 0. */
int malloc_trim(size_t keep) NEAP_NOEXCEPT;

#ifdef __cplusplus
}
#endif
#undef NEAP_NOEXCEPT

#endif /* NEAP_H */
