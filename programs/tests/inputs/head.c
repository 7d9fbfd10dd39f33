#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

