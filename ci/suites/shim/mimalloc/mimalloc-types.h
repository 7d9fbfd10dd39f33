/* mimalloc's sizes that the tests read. */
#define MI_DEBUG 0
#define MI_INTPTR_SIZE 8
#define MI_MAX_ALIGN_SIZE 16
#define MI_SMALL_SIZE_MAX (128 * sizeof(void *))
#define MI_ALIGNMENT_MAX (16 * 1024 * 1024UL)
