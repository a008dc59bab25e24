/* Kernels of proofs as methods: paths through equal layers. */

#ifndef HETOPT_UNORDERED_H
#define HETOPT_UNORDERED_H

#include "core.h"

PyObject *core_segment_us(PyObject *self, PyObject *args);
PyObject *core_segment_price(PyObject *self, PyObject *args);
PyObject *core_least_unordered(PyObject *self, PyObject *args);
PyObject *core_repeated(PyObject *self, PyObject *args);

#endif
