/* What a kernel is given: numbers and arrays whose shapes agree, checked once. */

#ifndef HETOPT_GIVEN_H
#define HETOPT_GIVEN_H

#include "core.h"

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

/* Read arguments as a text says, or return -1 with an error. It has a word for each:
   `#` is a number, other words are arrays, a letter for each side: sides of one letter
   are equal. `=` before them is an array that is written to, `?` one of truths, `~` one
   of 8-bit numbers; all others are of 64-bit numbers. */
int open_given(PyObject *args, const char *words, given_t *given);

/* Let the arrays go. */
void close_given(given_t *given);

/* The entries of an array. */
static inline int64_t *array(given_t *given, int which)
{
    return given->views[which].buf;
}

/* Whether all entries of an array are from `low` to `high`. */
int within(const given_t *given, int which, int64_t low, int64_t high);

/* Set the error of entries that lie outside of tables. */
void *outside(void);

INLINE int64_t lesser(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t greater(int64_t a, int64_t b) { return a > b ? a : b; }

/* Set so many numbers to one value. */
INLINE void fill(int64_t *numbers, int64_t count, int64_t value)
{
    for (int64_t i = 0; i < count; i++)
        numbers[i] = value;
}

#endif
