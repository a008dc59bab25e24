/* Kernels of proofs as methods: pipelines by the GPUs that they use. */

#ifndef HETOPT_COUNTS_H
#define HETOPT_COUNTS_H

#include "core.h"

PyObject *core_labels(PyObject *self, PyObject *args);
PyObject *core_vector_us(PyObject *self, PyObject *args);
PyObject *core_most_taken(PyObject *self, PyObject *args);

#endif
