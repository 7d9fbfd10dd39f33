/* What the library defines and glibc 2.31 does not declare: weak, so that programs link without the
   library. And numbers of newer calls. */
#include <stddef.h>
struct mallinfo2 { size_t arena, ordblks, smblks, hblks, hblkhd, usmblks, fsmblks, uordblks, fordblks, keepcost; };
struct mallinfo2 mallinfo2(void);
int _Fork(void);
#pragma weak mallinfo2
#pragma weak _Fork
#define SYS_close_range 436
#define SYS_openat2 437
