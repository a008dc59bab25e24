/* The type of walks over plans (walk.c). */

#ifndef HETOPT_WALK_H
#define HETOPT_WALK_H

#include "core.h"

extern PyType_Spec walk_spec;

#endif
