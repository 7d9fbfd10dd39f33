// Replaces gperftools' header: maps its names to the standard functions.
#pragma once
#include <cstdlib>
#include <malloc.h>
#include <new>
#define tc_memalign memalign
#define tc_free free
#define tc_malloc malloc
#define tc_calloc calloc
#define tc_realloc realloc
#define tc_new ::operator new
#define tc_newarray ::operator new[]
#define tc_delete ::operator delete
#define tc_deletearray ::operator delete[]
#define tc_posix_memalign posix_memalign
