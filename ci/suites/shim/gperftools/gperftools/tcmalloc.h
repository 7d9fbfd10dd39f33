#include "../tcmalloc.h"
