/* The compiled core as a module: kernels, and checks of what they are given. */

#include "core.h"

#include <stdlib.h>
#include <string.h>

static int open_array(PyObject *from, const char *word, size_t length, Py_buffer *view,
                      int64_t *size)
{
    int written = *word == '=';
    word += written, length -= written;
    char kind = *word == '?' || *word == '~' ? *word : 'q';
    word += kind != 'q', length -= kind != 'q';
    int flags = PyBUF_FORMAT | PyBUF_C_CONTIGUOUS | (written ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(from, view, flags) < 0)
        return -1;
    const char *format = view->format ? view->format : "B";
    int right = format[0] && !format[1];
    if (kind == 'q')
        right = right && (*format == 'q' || *format == 'l') && view->itemsize == 8;
    else
        right = right && *format == (kind == '?' ? '?' : 'b');
    if (!right)
        PyErr_Format(PyExc_TypeError, "found an array of '%s', expected '%c'", format,
                     kind == '~' ? 'b' : kind);
    if (right && view->ndim != (int)length) {
        PyErr_Format(PyExc_ValueError, "found %d sides, expected %d", view->ndim,
                     (int)length);
        right = 0;
    }
    for (int i = 0; right && i < view->ndim; i++) {
        int64_t *known = size + (word[i] & 127);
        if (*known < 0)
            *known = view->shape[i];
        if (*known != view->shape[i]) {
            PyErr_Format(PyExc_ValueError, "found a side '%c' of %zd, expected %zd",
                         word[i], view->shape[i], (Py_ssize_t)*known);
            right = 0;
        }
    }
    if (!right)
        PyBuffer_Release(view);
    return right ? 0 : -1;
}

/* Let the arrays go. */
static void close_given(given_t *given)
{
    for (int i = 0; i < given->count; i++)
        if (given->views[i].obj)
            PyBuffer_Release(given->views + i);
}

/* Read arguments as a text says, or return -1 with an error. */
static int open_given(PyObject *args, const char *words, given_t *given)
{
    Py_ssize_t count = PyTuple_Size(args), at = 0;
    given->count = 0;
    memset(given->size, -1, sizeof given->size);
    while (*words) {
        size_t length = strcspn(words, " ");
        if (at >= count || at >= MOST_GIVEN)
            break;
        PyObject *one = PyTuple_GetItem(args, at);
        given->views[at].obj = NULL;
        if (*words == '#') {
            given->numbers[at] = PyLong_AsLongLong(one);
            if (given->numbers[at] == -1 && PyErr_Occurred())
                goto failed;
        } else if (open_array(one, words, length, given->views + at, given->size) < 0) {
            goto failed;
        }
        given->count = (int)++at;
        words += length;
        words += *words == ' ';
    }
    if (at == count && !*words)
        return 0;
    PyErr_SetString(PyExc_TypeError, "found another number of arguments");
failed:
    close_given(given);
    return -1;
}

WIDE static int64_t beyond(const int64_t *numbers, int64_t count, int64_t low, int64_t high)
{
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++)
        found |= (numbers[i] < low) | (numbers[i] > high);
    return found;
}

int within(const given_t *given, int which, int64_t low, int64_t high)
{
    const Py_buffer *view = given->views + which;
    return !beyond(view->buf, view->len / 8, low, high);
}

int64_t *divided(int count, const int64_t *sizes, int64_t ***parts)
{
    int64_t total = 1;
    for (int i = 0; i < count; i++)
        total += sizes[i];
    int64_t *work = malloc((size_t)total * 8);
    for (int64_t i = 0, at = 0; work && i < count; at += sizes[i], i++)
        *parts[i] = work + at;
    return work;
}

PyObject *run_kernel(const char *words, kernel_t kernel, PyObject *args)
{
    given_t given;
    int outcome;
    if (open_given(args, words, &given) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    outcome = kernel(&given);
    Py_END_ALLOW_THREADS
    close_given(&given);
    if (outcome == NO_MEMORY)
        return PyErr_NoMemory();
    if (outcome == DONE || outcome == NONE)
        return PyBool_FromLong(outcome == DONE);
    if (outcome == TOO_LARGE)
        PyErr_SetString(PyExc_OverflowError, "numbers are too large, or do not fit together");
    else
        PyErr_SetString(PyExc_ValueError, "an entry of a table is outside of another one");
    return NULL;
}

#define METHOD(name) {#name, core_##name, METH_VARARGS, NULL},
static PyMethodDef methods[] = {KERNELS(METHOD){NULL, NULL, 0, NULL}};

static PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_core", .m_doc = "What runs hottest, in C.",
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__core(void) { return PyModuleDef_Init(&module); }
