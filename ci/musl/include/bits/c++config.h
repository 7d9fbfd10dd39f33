/* Before the header of Debian's g++, which is configured for glibc: what musl has instead. */
#define __GLIBC_PREREQ(major, minor) 0
#define __locale_t locale_t
#define __uselocale uselocale
#include_next <bits/c++config.h>
/* musl has no pthread_cond_clockwait nor its relatives. */
#undef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT
#undef _GLIBCXX_USE_PTHREAD_MUTEX_CLOCKLOCK
#undef _GLIBCXX_USE_PTHREAD_RWLOCK_CLOCKLOCK
