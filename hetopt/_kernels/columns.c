/* Listing of columns: `completion` and `listing` of `hetopt.exact.enumeration` say
what tables there are. Sums of times, each below `BIG`: none overflows. */

#include "core.h"

#include <stdlib.h>

#define NOTHING ((int64_t)1 << 52) /* NEVER, as these modules have it */

/* --- stages in front of a suffix -------------------------------------------------------- */

KERNEL(extended, "k sfl s ~sxl r rl rl =krx =krx")
{
    int64_t stages = given->size['k'], first = given->size['f'];
    int64_t starts = given->size['x'], side = given->size['l'], ranges = given->size['r'];
    if (!within(given, 0, 0, given->size['s'] - 1) || starts > first)
        return OUTSIDE;
    const int64_t *some = array(given, 0), *us = array(given, 1);
    const int64_t *hops = array(given, 2), *rank = array(given, 4);
    const int64_t *sums = array(given, 5), *maxima = array(given, 6);
    const signed char *fits = given->views[3].buf;
    int64_t *total = array(given, 7), *top = array(given, 8);
    for (int64_t k = 0; k < stages; k++)
        for (int64_t r = 0; r < ranges; r++)
            for (int64_t start = 0; start < starts; start++) {
                const int64_t *times = us + (some[k] * first + start) * side;
                const signed char *able = fits + (some[k] * starts + start) * side;
                int64_t least = NOTHING, slowest = NOTHING;
                for (int64_t end = start + 1; end < side; end++) {
                    int64_t sum = sums[r * side + end];
                    if (sum >= NOTHING || able[end] < rank[r])
                        continue;
                    int64_t time = times[end] + hops[some[k]];
                    least = lesser(least, time + sum);
                    slowest = lesser(slowest, greater(time, maxima[r * side + end]));
                }
                int64_t at = (k * ranges + r) * starts + start;
                total[at] = least;
                top[at] = slowest;
            }
    return DONE;
}

/* --- completion ------------------------------------------------------------------------ */

typedef struct {
    const int64_t *us, *hops, *used, *need, *pool, *use;
    int64_t moves, side, ways, pools, count, high;
} moves_t;

static void complete(const moves_t *of, int64_t *least, int64_t *whole)
{
    int64_t layers = of->side - 1, row = of->ways * of->side;
    fill(whole, of->count, BIG);
    for (int64_t v = 0; v < of->count; v++) {
        int64_t *here = least + v * row;
        for (int64_t q = 0; q < of->ways; q++) {
            fill(here + q * of->side, of->side, BIG);
            here[q * of->side] = 0;
        }
        for (int64_t s = 0; s < of->moves; s++) {
            const int64_t *hops = of->hops + s * of->ways;
            if (!fits_all(of->used + s * of->pools, of->use + v * of->pools, of->pools))
                continue;
            const int64_t *before =
                least + (v - of->need[s]) * row + of->pool[s] * of->side;
            for (int64_t first = 0; first < layers; first++) {
                int64_t began = before[first], at = (s * of->side + first) * of->side;
                if (began >= BIG)
                    continue;
                if (of->us[at + layers] <= of->high)
                    whole[v] = lesser(whole[v], began + of->us[at + layers]);
                for (int64_t last = first + 1; last < layers; last++)
                    for (int64_t q = 0; q < of->ways; q++) {
                        int64_t t = of->us[at + last] + hops[q];
                        if (t <= of->high)
                            here[q * of->side + last] =
                                lesser(here[q * of->side + last], began + t);
                    }
            }
        }
    }
}

KERNEL(completed, "sll sq sp s s vp p # =vql =v")
{
    moves_t of = {
        array(given, 0), array(given, 1), array(given, 2), array(given, 3),
        array(given, 4), array(given, 5), given->size['s'], given->size['l'],
        given->size['q'], given->size['p'], given->size['v'], given->numbers[7],
    };
    const int64_t *strides = array(given, 6);
    int right = within(given, 3, 1, of.count) && within(given, 4, 0, of.ways - 1) &&
                of.side > 0;
    for (int64_t s = 0; right && s < of.moves; s++)
        right = product(of.used + s * of.pools, strides, of.pools) == of.need[s];
    for (int64_t v = 0; right && v < of.count; v++)
        right = product(of.use + v * of.pools, strides, of.pools) == v;
    if (!right)
        return OUTSIDE;
    complete(&of, array(given, 8), array(given, 9));
    return DONE;
}

KERNEL(longest, "iv ivql vp # =jql")
{
    const int64_t *left = array(given, 0), *sums = array(given, 1);
    const int64_t *use = array(given, 2);
    int64_t count = given->size['v'], pools = given->size['p'], state = given->numbers[3];
    int64_t row = given->size['q'] * given->size['l'], *found = array(given, 4);
    if (state < 0 || state >= count || given->size['j'] < given->size['i'])
        return OUTSIDE;
    const int64_t *most = use + (count - 1) * pools, *own = use + state * pools;
    for (int64_t v = 0; v < count - state; v++) {
        int able = 1;
        for (int64_t p = 0; p < pools; p++)
            able &= use[v * pools + p] + own[p] <= most[p];
        for (int64_t i = 0; able && i < given->size['i']; i++) {
            int64_t most_us = left[i * count + state + v];
            const int64_t *restrict sum = sums + (i * count + v) * row;
            int64_t *restrict into = found + i * row;
            for (int64_t x = 0; most_us >= 0 && x < row; x++)
                into[x] = greater(into[x], most_us - sum[x]);
        }
    }
    return DONE;
}
