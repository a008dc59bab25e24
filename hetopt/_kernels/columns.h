/* Kernels of proofs as methods: the listing of columns. */

#ifndef HETOPT_COLUMNS_H
#define HETOPT_COLUMNS_H

#include "core.h"

PyObject *core_extended(PyObject *self, PyObject *args);
PyObject *core_completed(PyObject *self, PyObject *args);
PyObject *core_longest(PyObject *self, PyObject *args);

#endif
