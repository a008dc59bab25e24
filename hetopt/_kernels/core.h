/* What a kernel is given: numbers and arrays whose shapes agree, checked once. */

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

#define BIG ((int64_t)1 << 60)  /* "there is none", as who calls has it */
#define HALF ((int64_t)1 << 58) /* costs at or above it stand for the same */
#define MOST ((int64_t)1 << 55) /* what one step costs at the most */
#define NEVER ((int64_t)1 << 49)

/* Loops over lanes are made for wide registers, too, where the loader can choose. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && __GNUC__ >= 12
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define WIDE
#endif
#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

#ifdef _MSC_VER
#define restrict __restrict
#endif

#define MOST_GIVEN 40

typedef struct {
    Py_buffer views[MOST_GIVEN];
    int64_t numbers[MOST_GIVEN];
    int64_t size[128]; /* by letter */
    int count;
} given_t;

/* What a kernel does with what it is given, without Python's lock: its outcome. */
enum { DONE, NONE, OUTSIDE, TOO_LARGE, NO_MEMORY };
typedef int (*kernel_t)(given_t *given);

/* Run a kernel on arguments that are as its words say; whether there is a result. It has
   a word for each argument: `#` is a number, other words are arrays, a letter for each
   side: sides of one letter are equal. `=` before them is an array that is written to,
   `?` one of truths, `~` one of 8-bit numbers; all others are of 64-bit numbers. */
PyObject *run_kernel(const char *words, kernel_t kernel, PyObject *args);

#define KERNEL(name, words)                                                               \
    static int run_##name(given_t *given);                                                \
    PyObject *core_##name(PyObject *self, PyObject *args)                                 \
    {                                                                                     \
        (void)self;                                                                       \
        return run_kernel(words, run_##name, args);                                       \
    }                                                                                     \
    static int run_##name(given_t *given)

/* All kernels: who calls them says what they take. */
#define KERNELS(each)                                                                     \
    each(best_counts) each(shared) each(best_cuts) each(least) each(fronts) each(segment_us) each(segment_price) each(least_unordered)   \
        each(repeated) each(labels) each(vector_us) each(most_taken) each(extended)       \
            each(completed) each(longest) each(paths) each(completed_by_count)

#define DECLARED(name) PyObject *core_##name(PyObject *self, PyObject *args);
KERNELS(DECLARED)

/* Room for so many parts of so many numbers, in one block; NULL where there is none. */
int64_t *divided(int count, const int64_t *sizes, int64_t ***parts);

/* The entries of an array. */
static inline int64_t *array(given_t *given, int which)
{
    return given->views[which].buf;
}

/* Whether all entries of an array are from `low` to `high`. */
int within(const given_t *given, int which, int64_t low, int64_t high);

INLINE int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }

/* The sum of products of so many numbers. */
INLINE int64_t product(const int64_t *one, const int64_t *other, int64_t count)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += one[i] * other[i];
    return sum;
}

/* Whether none of so many numbers is above the other one. */
INLINE int fits_all(const int64_t *some, const int64_t *all, int64_t count)
{
    int able = 1;
    for (int64_t i = 0; i < count; i++)
        able &= some[i] <= all[i];
    return able;
}

/* Set so many numbers to one value. */
INLINE void fill(int64_t *numbers, int64_t count, int64_t value)
{
    for (int64_t i = 0; i < count; i++)
        numbers[i] = value;
}

#endif
