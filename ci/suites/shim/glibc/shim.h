/* Before each file of glibc's malloc/ and support/ that is compiled outside glibc's tree:
 * what its internal headers would have defined. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#define attribute_hidden
#define libc_hidden_proto(name)
#define libc_hidden_def(name)
#define libc_hidden_weak(name)
#define weak_alias(name, alias) \
    extern __typeof(name) alias __attribute__((weak, alias(#name)));
#define IS_IN(module) 0
#define __set_errno(value) (errno = (value))
/* The same as in glibc's Makefile for the tests of malloc. */
#define TEST_NO_MALLOPT 1
/* No test gets more time than its own TIMEOUT: the runner has a limit. */
#define TIMEOUTFACTOR 1
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#define _STACK_GROWS_DOWN 1
