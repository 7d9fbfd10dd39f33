// Replaces the header that gperftools' configure writes.
#define HAVE_FCNTL_H 1
#define HAVE_MALLOC_H 1
#define HAVE_MMAP 1
#define HAVE_PTHREAD 1
#define HAVE_STDINT_H 1
#define HAVE_STRUCT_MALLINFO 1
#define HAVE_SYS_RESOURCE_H 1
#define HAVE_UNISTD_H 1
#define PERFTOOLS_DLL_DECL
