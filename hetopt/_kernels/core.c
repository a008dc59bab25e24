/* The compiled core as a module: thin wrappers that check what they are given. */

#include "core.h"

#include <stdlib.h>

#include "balance.h"
#include "cuts.h"
#include "given.h"

int open_numbers(PyObject *from, Py_ssize_t count, Py_buffer *view)
{
    if (PyObject_GetBuffer(from, view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    const char *format = view->format ? view->format : "B";
    int right = format[0] && !format[1] && view->itemsize == 8 &&
                (format[0] == 'q' || format[0] == 'l');
    if (!right) {
        PyErr_SetString(PyExc_TypeError, "expected contiguous 64-bit whole numbers");
    } else if (count >= 0 && view->len != count * 8) {
        PyErr_Format(PyExc_ValueError, "found %zd numbers, expected %zd", view->len / 8,
                     count);
        right = 0;
    }
    if (!right) {
        PyBuffer_Release(view);
        return -1;
    }
    return 0;
}

PyObject *as_list(const int64_t *numbers, int64_t count)
{
    PyObject *list = PyList_New(count);
    for (int64_t i = 0; list && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(numbers[i]);
        if (!number || PyList_SetItem(list, i, number) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

static PyObject *core_best_counts(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *from, *found = NULL;
    long long layers, n;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "OLL", &from, &layers, &n))
        return NULL;
    if (open_numbers(from, -1, &view) < 0)
        return NULL;
    int64_t stages = view.len / 24, caps = 0;
    const row_t *rows = view.buf;
    int right = stages > 0 && view.len == stages * 24 && n > 0;
    int64_t largest = right ? LARGEST_FOR(n) : 0;
    right = right && stages <= layers && layers < LARGEST;
    for (int64_t k = 0; right && k < stages; k++) {
        right = 0 < rows[k].each && rows[k].each < largest / layers &&
                0 <= rows[k].fixed && rows[k].fixed < largest && 0 < rows[k].cap &&
                rows[k].cap <= layers;
        caps += rows[k].cap;
    }
    if (!right || caps < layers) {
        PyErr_SetString(PyExc_OverflowError, "the stages do not hold the layers");
    } else {
        int64_t *work = malloc((size_t)stages * (3 * 8 + sizeof(entry_t)));
        if (!work) {
            PyErr_NoMemory();
        } else {
            entry_t *heap = (entry_t *)(work + 3 * stages);
            best_counts(rows, stages, layers, n, work, work + stages, heap);
            found = as_list(work, stages);
            free(work);
        }
    }
    PyBuffer_Release(&view);
    return found;
}

static PyObject *shared_of(int64_t batch, int lockstep, Py_buffer *rows,
                           Py_buffer *taus, Py_ssize_t pipes)
{
    const int64_t *given = rows->buf, *times = taus->buf;
    int64_t end = 0;
    size_t each = sizeof(timing_t) + 2 * 8 + sizeof(entry_t) + 8;
    char *work = malloc((size_t)pipes * each + 1);
    if (!work)
        return PyErr_NoMemory();
    timing_t *timings = (timing_t *)work;
    int64_t *counts = (int64_t *)(timings + pipes), *sizes = counts + pipes;
    entry_t *heap = (entry_t *)(sizes + pipes);
    double *fills = (double *)(heap + pipes);
    PyObject *found = NULL;
    int right = batch > 0;
    int64_t largest = right ? LARGEST_FOR(batch) : 0;
    for (Py_ssize_t i = 0; right && i < pipes; i++) {
        timing_t *timing = timings + i;
        sizes[i] = given[4 * i];
        timing->total = given[4 * i + 1];
        timing->slowest = given[4 * i + 2];
        timing->stages = given[4 * i + 3];
        timing->taus = times + end;
        right = 0 < sizes[i] && sizes[i] < LARGEST && 0 <= timing->total &&
                timing->total < largest && 0 <= timing->slowest &&
                timing->slowest < largest && 0 < timing->stages &&
                timing->stages < LARGEST;
        if (!right || !lockstep)
            continue;
        right = timing->stages <= taus->len / 8 - end;
        if (right) {
            set_lockstep(timing);
            end += timing->stages;
        }
    }
    if (!right)
        PyErr_SetString(PyExc_OverflowError, "these are no times of pipelines");
    else if (!shared(batch, lockstep, timings, sizes, pipes, counts, heap, fills))
        found = Py_NewRef(Py_None);
    else
        found = as_list(counts, pipes);
    free(work);
    return found;
}

static PyObject *core_shared(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *from, *times, *found = NULL;
    long long batch;
    int lockstep;
    Py_buffer rows, taus;
    if (!PyArg_ParseTuple(args, "LpOO", &batch, &lockstep, &from, &times))
        return NULL;
    if (open_numbers(from, -1, &rows) < 0)
        return NULL;
    if (open_numbers(times, -1, &taus) == 0) {
        if (rows.len % 32)
            PyErr_SetString(PyExc_ValueError, "expected 4 numbers of each pipeline");
        else
            found = shared_of(batch, lockstep, &rows, &taus, rows.len / 32);
        PyBuffer_Release(&taus);
    }
    PyBuffer_Release(&rows);
    return found;
}

static PyObject *cuts_of(const int64_t *given, int64_t stages, int64_t layers,
                         int64_t n, int64_t fewest, int64_t most)
{
    int64_t room = CUTS_ROOM(stages, layers) + stages;
    int64_t *work = malloc((size_t)room * 8 + (size_t)stages * sizeof(stage_t));
    if (!work)
        return PyErr_NoMemory();
    stage_t *rows = (stage_t *)(work + room);
    int right = 1;
    int64_t largest = LARGEST_FOR(n);
    for (int64_t k = 0; right && k < stages; k++) {
        stage_t *row = rows + k;
        row->fixed = *given;
        row->sums = given + 1;
        row->reach = row->sums + layers + 1;
        given = row->reach + layers + 1;
        right = 0 <= row->fixed && row->fixed < largest && row->sums[0] == 0;
        right = right && row->sums[layers] < largest;
        for (int64_t i = 0; right && i < layers; i++)
            right = row->sums[i] <= row->sums[i + 1] &&
                    row->reach[i] <= row->reach[i + 1];
    }
    PyObject *found = NULL;
    if (!right)
        PyErr_SetString(PyExc_OverflowError, "these are no times of stages");
    else if (!best_cuts(rows, stages, layers, n, fewest, most, work, work + stages))
        found = Py_NewRef(Py_None);
    else
        found = as_list(work, stages);
    free(work);
    return found;
}

static PyObject *core_best_cuts(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *from, *found = NULL;
    long long layers, n, fewest, most;
    Py_buffer view;
    if (!PyArg_ParseTuple(args, "OLLLL", &from, &layers, &n, &fewest, &most))
        return NULL;
    if (open_numbers(from, -1, &view) < 0)
        return NULL;
    int64_t numbers = view.len / 8;
    int right = 0 < layers && layers < MOST_BATCH && 0 < n;
    right = right && 0 < fewest && fewest < MOST_BATCH && 0 < numbers;
    if (!right || numbers % (2 * layers + 3) || numbers / (2 * layers + 3) >= MOST_STAGES)
        PyErr_SetString(PyExc_OverflowError, "these are no stages");
    else
        found = cuts_of(view.buf, numbers / (2 * layers + 3), layers, n, fewest, most);
    PyBuffer_Release(&view);
    return found;
}

#define DEFINED(name)                                                                     \
    static PyObject *core_##name(PyObject *self, PyObject *args)                          \
    {                                                                                     \
        (void)self;                                                                       \
        return run_kernel(&name##_kernel, args);                                          \
    }
#define METHOD(name) {#name, core_##name, METH_VARARGS, NULL},
KERNELS(DEFINED)

static PyMethodDef methods[] = {
    {"best_counts", core_best_counts, METH_VARARGS,
     "best_counts(rows, layers, n): layers of each stage.\n\n"
     "Rows are (us of a layer, us beside layers, most layers) of each stage, flat."},
    {"shared", core_shared, METH_VARARGS,
     "shared(batch, lockstep, rows, taus): micro-batches of each pipeline, or None.\n\n"
     "Rows are (size, total us, slowest us, stages) of each pipeline, flat; `taus` the\n"
     "times of all stages, which lockstep alone reads."},
    {"best_cuts", core_best_cuts, METH_VARARGS,
     "best_cuts(rows, layers, n, fewest, most): where each stage ends, or None.\n\n"
     "Rows are (us beside layers, sums of layer times, ends of runs from each layer on)\n"
     "of each stage, flat: 2 layers + 3 numbers."},
    KERNELS(METHOD)
    {NULL, NULL, 0, NULL},
};

static PyModuleDef_Slot slots[] = {{0, NULL}};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_core", "What runs hottest, in C.", 0, methods, slots,
    NULL,                  NULL,    NULL,
};

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&module); }
