// Before func/malloc/malloc.cc: it asks each block for the alignment of snmalloc's size classes.
#include <snmalloc/snmalloc_core.h>
#define natural_alignment(size) size_t(1)
