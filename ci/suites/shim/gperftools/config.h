#include "config_for_unittests.h"
