/* Kernels of single pipelines as methods: paths, completion. */

#ifndef HETOPT_SINGLE_H
#define HETOPT_SINGLE_H

#include "core.h"

PyObject *core_paths(PyObject *self, PyObject *args);
PyObject *core_completed_by_count(PyObject *self, PyObject *args);

#endif
