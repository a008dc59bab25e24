/* Kernels of proofs as methods: paths over stages, one by one. */

#ifndef HETOPT_LABELS_H
#define HETOPT_LABELS_H

#include "core.h"

PyObject *core_least(PyObject *self, PyObject *args);
PyObject *core_fronts(PyObject *self, PyObject *args);

#endif
