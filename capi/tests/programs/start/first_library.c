/* Linked with -z initfirst, as libpthread before glibc 2.34: the loader initialises it instead of
   the library under test. */
#include <stddef.h>

void *blocks_before_all(void) { return NULL; }
