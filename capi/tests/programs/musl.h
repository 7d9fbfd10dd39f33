/* What the library defines and glibc declares, and musl does not. Weak, so that programs link
   without the library. */
#include <stddef.h>
#include <stdio.h>
struct mallinfo { int arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost; };
struct mallinfo2 { size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost; };
#ifdef __cplusplus
extern "C" {
#define MAY_NOT_THROW noexcept
#else
#define MAY_NOT_THROW
#endif
struct mallinfo mallinfo(void);
struct mallinfo2 mallinfo2(void);
int malloc_info(int, FILE *), malloc_trim(size_t) MAY_NOT_THROW, mallopt(int, int);
void malloc_stats(void), *pvalloc(size_t);
#ifdef __cplusplus
}
#endif
#pragma weak mallinfo
#pragma weak mallinfo2
#pragma weak malloc_info
#pragma weak malloc_stats
#pragma weak malloc_trim
#pragma weak mallopt
#pragma weak pvalloc
#pragma weak cfree
#pragma weak free_sized
#pragma weak free_aligned_sized
#pragma weak __libc_calloc
#pragma weak __libc_free
#pragma weak __libc_malloc
#pragma weak __libc_memalign
#pragma weak __libc_pvalloc
#pragma weak __libc_realloc
#pragma weak __libc_valloc
#pragma weak __posix_memalign
#pragma weak neap_stack_alloc
#pragma weak neap_stack_free
#pragma weak neap_stack_report_overflows
#pragma weak neap_stack_set_owner
#pragma weak neap_stack_trim
#pragma weak neap_version
#define M_MXFAST 1
#define M_NLBLKS 2
#define M_GRAIN 3
#define M_KEEP 4
#define M_TRIM_THRESHOLD -1
#define M_TOP_PAD -2
#define M_MMAP_THRESHOLD -3
#define M_MMAP_MAX -4
#define M_CHECK_ACTION -5
#define M_PERTURB -6
#define M_ARENA_TEST -7
#define M_ARENA_MAX -8
#define RTLD_DEEPBIND 8
