#include <malloc/dynarray.h>
