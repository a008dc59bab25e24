/* What the wrappers share: numbers out of Python's objects, checked. */

#ifndef HETOPT_CORE_H
#define HETOPT_CORE_H

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>
#include <stdint.h>

/* Times in us and numbers of micro-batches stay below these, so that their products
   have room, and four times as much. */
#define LARGEST ((int64_t)1 << 40)
#define LARGEST_FOR(batch) ((batch) < MOST_BATCH ? LARGEST : ((int64_t)1 << 60) / (batch))
#define MOST_BATCH ((int64_t)1 << 20)
#define MOST_STAGES ((int64_t)1 << 20)

/* Open a buffer of contiguous 64-bit whole numbers, `count` of them where that is not
   negative; -1 and an error otherwise. */
int open_numbers(PyObject *from, Py_ssize_t count, Py_buffer *view);

/* A list of numbers. */
PyObject *as_list(const int64_t *numbers, int64_t count);

#endif
