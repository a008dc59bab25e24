/* Single pipelines: `hetopt.exact.one_pipeline` says what tables are. Times and
prices are below `BIG`, which is far enough from the largest number: no sum overflows. */

#include "core.h"

#include <stdlib.h>
#include <string.h>

/* --- shortest paths over the layers ------------------------------------------------------ */

typedef struct {
    int64_t *shared_us, *apart_us; /* least of a cell [last, first, kind] */
    const int64_t *kind, *state;   /* of a pair */
    const int64_t *shared, *apart; /* hop of a pair into a state */
    int64_t side, kinds, pairs, states;
} paths_t;

/* Whether any kind has an option in a cell. */
static int has_any(const int64_t *one, const int64_t *other, int64_t kinds)
{
    for (int64_t k = 0; k < kinds; k++)
        if (one[k] < BIG || other[k] < BIG)
            return 1;
    return 0;
}

/* Lower `least` by what `onto` costs behind pair p, in each state. */
INLINE void lower(int64_t *least, const int64_t *hops, int64_t onto, int64_t states)
{
    for (int64_t s = 0; s < states; s++)
        least[s] = lesser(least[s], onto + hops[s]);
}

WIDE static void sweep(const paths_t *of, int64_t *value, int64_t *one, int64_t *two)
{
    for (int64_t last = 1; last < of->side; last++) {
        int64_t *here = value + last * of->states;
        fill(one, of->pairs, BIG);
        fill(two, of->pairs, BIG);
        for (int64_t first = 0; first < last; first++) {
            int64_t cell = (last * of->side + first) * of->kinds;
            const int64_t *shared = of->shared_us + cell, *apart = of->apart_us + cell;
            const int64_t *before = value + first * of->states;
            if (!has_any(shared, apart, of->kinds))
                continue;
            for (int64_t p = 0; p < of->pairs; p++) {
                int64_t began = before[of->state[p]];
                one[p] = lesser(one[p], shared[of->kind[p]] + began);
                two[p] = lesser(two[p], apart[of->kind[p]] + began);
            }
        }
        for (int64_t p = 0; p < of->pairs; p++) {
            if (one[p] < BIG)
                lower(here, of->shared + p * of->states, one[p], of->states);
            if (two[p] < BIG)
                lower(here, of->apart + p * of->states, two[p], of->states);
        }
    }
}

/* The least behind each pair whose stage ends at `last`. */
INLINE int64_t behind(const int64_t *hops, const int64_t *after, int64_t states)
{
    int64_t least = BIG;
    for (int64_t s = 0; s < states; s++)
        least = lesser(least, hops[s] + after[s]);
    return least;
}

WIDE static void go_through(const paths_t *of, const int64_t *value, int64_t *after,
                            int64_t *through, int64_t *one, int64_t *two)
{
    int64_t states = of->states;
    fill(after, of->side * states, BIG);
    after[(of->side - 1) * states] = 0;
    for (int64_t last = of->side - 1; last > 0; last--) {
        for (int64_t p = 0; p < of->pairs; p++) {
            one[p] = behind(of->shared + p * states, after + last * states, states);
            two[p] = behind(of->apart + p * states, after + last * states, states);
        }
        for (int64_t first = 0; first < last; first++) {
            int64_t cell = (last * of->side + first) * of->kinds;
            const int64_t *shared = of->shared_us + cell, *apart = of->apart_us + cell;
            const int64_t *before = value + first * states;
            int64_t *onward = after + first * states;
            for (int64_t p = 0; p < of->pairs; p++) {
                int64_t k = of->kind[p], s = of->state[p];
                int64_t rest = before[s] + lesser(one[p], two[p]);
                through[cell + k] = lesser(through[cell + k], rest);
                int64_t step = lesser(shared[k] + one[p], apart[k] + two[p]);
                onward[s] = lesser(onward[s], step);
            }
        }
    }
}

KERNEL(paths, "o n n n r n n # p p ps ps =llk =llk =ls =llk")
{
    paths_t of = {array(given, 12), array(given, 13), array(given, 8),  array(given, 9),
                  array(given, 10), array(given, 11), given->size['l'], given->size['k'],
                  given->size['p'], given->size['s']};
    int64_t *value = array(given, 14), cells = of.side * of.side * of.kinds;
    int right = within(given, 0, 0, given->size['n'] - 1) &&
                within(given, 1, 0, cells - 1) &&
                within(given, 3, 0, given->size['r'] - 1) &&
                within(given, 8, 0, of.kinds - 1) &&
                within(given, 9, 0, of.states - 1) && of.side > 0;
    if (!right)
        return OUTSIDE;
    size_t count = (size_t)(of.side * of.states + 2 * of.pairs + 1);
    int64_t *after = malloc(count * sizeof *after);
    if (!after)
        return NO_MEMORY;
    int64_t *room = after + of.side * of.states;
    const int64_t *options = array(given, 0), *cell = array(given, 1);
    const int64_t *us = array(given, 2), *pattern = array(given, 3);
    const int64_t *paid = array(given, 4);
    const int64_t *shared = array(given, 5), *apart = array(given, 6);
    int64_t slowest = given->numbers[7];
    for (int64_t i = 0; i < given->size['o']; i++) {
        int64_t o = options[i], at = cell[o], priced = us[o] + paid[pattern[o]];
        if (shared[o] <= slowest)
            of.shared_us[at] = lesser(of.shared_us[at], priced);
        if (apart[o] <= slowest)
            of.apart_us[at] = lesser(of.apart_us[at], priced);
    }
    fill(value, of.states, 0);
    sweep(&of, value, room, room + of.pairs);
    go_through(&of, value, after, array(given, 15), room, room + of.pairs);
    free(after);
    return DONE;
}

/* --- what is before a cut, by the GPUs left ------------------------------------------------ */

typedef struct {
    const int64_t *last, *first, *kind, *us, *use;
    const char *fits_shared, *fits_apart;
    const int64_t *starts, *state, *shared, *apart;
    const char *wanted;
    const int64_t *rows; /* GPUs by class, of the first number of each row */
    int64_t options, classes, pairs, states, row_count, row;
} laid_t;

/* Lower `ends` by `before`, moved by what a stage uses, and its time. */
INLINE void lay(const laid_t *of, const int64_t *use, int64_t moved, int64_t us,
                const int64_t *before, int64_t *ends)
{
    int64_t skip = use[of->classes - 1];
    for (int64_t r = 0; r < of->row_count; r++) {
        if (!fits_all(use, of->rows + r * of->classes, of->classes - 1))
            continue;
        int64_t *to = ends + r * of->row + skip;
        const int64_t *from = before + r * of->row + skip - moved;
        for (int64_t i = 0; i < of->row - skip; i++)
            to[i] = lesser(to[i], from[i] + us);
    }
}

/* One cut: the options [from, until) end there. */
WIDE static void lay_all(const laid_t *of, int64_t from, int64_t until,
                         const int64_t *strides, int64_t *left, int64_t *ends, char *begun)
{
    int64_t box = of->row_count * of->row, last = of->last[from];
    memset(begun, 0, (size_t)(2 * of->pairs));
    for (int64_t o = from; o < until; o++) {
        const int64_t *use = of->use + o * of->classes;
        int64_t moved = product(use, strides, of->classes);
        for (int64_t p = of->starts[of->kind[o]]; p < of->starts[of->kind[o] + 1]; p++) {
            const int64_t *before = left + (of->first[o] * of->states + of->state[p]) * box;
            for (int64_t way = 0; way < 2; way++) {
                int64_t key = 2 * p + way;
                if (!(way ? of->fits_apart[o] : of->fits_shared[o]))
                    continue;
                if (!begun[key])
                    fill(ends + key * box, box, BIG);
                begun[key] = 1;
                lay(of, use, moved, of->us[o], before, ends + key * box);
            }
        }
    }
    for (int64_t s = 0; s < of->states; s++) {
        int64_t *here = left + (last * of->states + s) * box;
        if (!of->wanted[last * of->states + s])
            continue;
        for (int64_t key = 0; key < 2 * of->pairs; key++) {
            int64_t at = key / 2 * of->states + s;
            int64_t hop = key % 2 ? of->apart[at] : of->shared[at];
            if (!begun[key] || hop >= BIG)
                continue;
            const int64_t *end = ends + key * box;
            for (int64_t i = 0; i < box; i++)
                here[i] = lesser(here[i], end[i] + hop);
        }
    }
}

KERNEL(completed_by_count, "o o o o oc ?o ?o k p ps ps ?ls rc c =lsv")
{
    laid_t of;
    of.last = array(given, 0), of.first = array(given, 1), of.kind = array(given, 2);
    of.us = array(given, 3), of.use = array(given, 4);
    of.fits_shared = given->views[5].buf, of.fits_apart = given->views[6].buf;
    of.starts = array(given, 7), of.state = array(given, 8);
    of.shared = array(given, 9), of.apart = array(given, 10);
    of.wanted = given->views[11].buf, of.rows = array(given, 12);
    of.options = given->size['o'], of.classes = given->size['c'];
    of.pairs = given->size['p'], of.states = given->size['s'];
    of.row_count = given->size['r'];
    int64_t box = given->size['v'], side = given->size['l'];
    int right = of.classes > 0 && of.row_count > 0 && box % of.row_count == 0 &&
                within(given, 0, 1, side - 1) && within(given, 1, 0, side - 1) &&
                within(given, 2, 0, given->size['k'] - 2) &&
                within(given, 7, 0, of.pairs) && within(given, 8, 0, of.states - 1) &&
                within(given, 3, 0, BIG) && within(given, 4, 0, box) &&
                within(given, 13, 1, box);
    of.row = right ? box / of.row_count : 1;
    const int64_t *strides = array(given, 13);
    for (int64_t o = 0; right && o < of.options; o++) {
        right = of.first[o] < of.last[o] && (!o || of.last[o - 1] <= of.last[o]) &&
                of.use[o * of.classes + of.classes - 1] <= of.row;
    }
    /* A move stays within the rows where strides are those of the rows. */
    for (int64_t r = 0; right && r < of.row_count; r++) {
        const int64_t *row = of.rows + r * of.classes;
        right = product(row, strides, of.classes) == r * of.row &&
                row[of.classes - 1] == 0;
    }
    if (!right || strides[of.classes - 1] != 1)
        return OUTSIDE;
    int64_t *ends = malloc((size_t)(2 * of.pairs * (box + 1) + 1) * 8);
    if (!ends)
        return NO_MEMORY;
    for (int64_t from = 0, until; from < of.options; from = until) {
        for (until = from; until < of.options && of.last[until] == of.last[from];)
            until++;
        lay_all(&of, from, until, strides, array(given, 14), ends,
                (char *)(ends + 2 * of.pairs * box));
    }
    free(ends);
    return DONE;
}
