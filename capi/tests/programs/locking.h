/* What this process may lock. */
#ifndef LOCKING_H
#define LOCKING_H

#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Raises the soft limit to the hard one, and returns whether `bytes` bytes can then be locked.
   Touches none of them, but they may be read: Linux 5.10 answers ENOMEM for pages that may not. If
   the bytes cannot be locked, errno says why. */
static inline int may_lock(size_t bytes) {
    enum { ON_FAULT = 1 };
    struct rlimit limit;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 0;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 0;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *room = mmap(NULL, bytes, PROT_READ, flags, -1, 0);
    if (room == MAP_FAILED) return 0;
    int answer = (int)syscall(SYS_mlock2, room, bytes, ON_FAULT), error = errno;
    munmap(room, bytes);
    errno = error;
    return answer == 0;
}

#endif
