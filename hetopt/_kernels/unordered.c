/* Paths through equal layers: `hetopt.exact.pipelines.unordered` says what segments and
tables are. Whole numbers, sum by sum: as in
labels.c none overflows, and beyond that sums wrap. */

#include "core.h"

#include <stdlib.h>
#include <string.h>

/* Lower `into` by what lies `before`, with one more step. */
INLINE void lower_by(int64_t *restrict into, const int64_t *restrict before, int64_t more,
                     int64_t count)
{
    for (int64_t x = 0; x < count; x++)
        into[x] = lesser(into[x], before[x] + more);
}

/* Lower `into` by steps `more`, which one cost lies before. */
INLINE void lower_from(int64_t *restrict into, int64_t before,
                       const int64_t *restrict more, int64_t count)
{
    for (int64_t y = 0; y < count; y++)
        into[y] = lesser(into[y], before + more[y]);
}

static int64_t largest(const int64_t *numbers, int64_t count)
{
    int64_t most = 0;
    for (int64_t i = 0; i < count; i++)
        most = greater(most, numbers[i]);
    return most;
}

/* Whether segments name classes, and stages GPUs of theirs: arguments in this order. */
static int are_segments(given_t *given, int kind, int gpus, int begin, int used)
{
    int64_t classes = given->size['d'] - 1, most = given->size['m'] - 1;
    const int64_t *ends = array(given, begin);
    int right = within(given, kind, 0, classes - 1) && within(given, gpus, 0, most) &&
                within(given, begin, 0, given->size['a']) &&
                within(given, used, 1, INT32_MAX);
    for (int64_t c = 0; right && c < classes; c++)
        right = ends[c] <= ends[c + 1];
    return right;
}

/* --- segments ----------------------------------------------------------------------- */

static void set_alike(int64_t segments, const int64_t *kind, const int64_t *gpus,
                      const int64_t *begin, const int64_t *used, const int64_t *light,
                      int64_t side, int64_t *found)
{
    int64_t after = segments - 1;
    fill(found, segments, 0);
    for (int64_t segment = segments - 2; segment >= 0; segment--) {
        int64_t k = gpus[segment], c = kind[segment];
        int same = c == kind[after] && k < gpus[after];
        for (int64_t arc = begin[c]; arc < begin[c + 1]; arc++)
            if (used[arc] <= k && light[arc * side + k] != light[arc * side + gpus[after]])
                same = 0;
        found[segment] = same;
        if (!same)
            after = segment;
    }
}

typedef struct {
    const int64_t *highs, *kind, *gpus, *begin, *used, *inner, *exits, *light;
    int64_t intervals, segments, arcs, layers, ways, side;
} nodes_t;

WIDE static void segment_times(const nodes_t *of, const int64_t *alike, int64_t most,
                               int64_t *least, int64_t *found)
{
    int64_t layers = of->layers, end_of = layers + 1, ways = of->ways;
    int64_t width = ways * end_of;
    for (int64_t g = 0; g < of->intervals; g++) {
        int64_t high = of->highs[g];
        for (int64_t segment = of->segments - 1; segment >= 0; segment--) {
            int64_t k = of->gpus[segment], c = of->kind[segment];
            int64_t *into = found + (g * of->segments + segment) * width;
            if (!alike[segment])
                fill(least, (most + 1) * width, BIG);
            for (int64_t left = 1; left <= k && !alike[segment]; left++)
                for (int64_t arc = of->begin[c]; arc < of->begin[c + 1]; arc++) {
                    int64_t own = of->used[arc], *now = least + left * width;
                    if (own > left)
                        break;
                    int64_t longest = lesser(of->light[arc * of->side + k], layers);
                    for (int64_t y = 1; y <= longest; y++) {
                        if (own == left) {
                            for (int64_t end = 0; end < ways; end++) {
                                int64_t us =
                                    of->exits[(end * of->arcs + arc) * end_of + y];
                                if (us <= high)
                                    now[end * end_of + y] =
                                        lesser(now[end * end_of + y], us);
                            }
                            continue;
                        }
                        int64_t us = of->inner[arc * end_of + y];
                        if (us > high)
                            break;
                        const int64_t *rest = least + (left - own) * width;
                        for (int64_t end = 0; end < ways; end++)
                            lower_by(now + end * end_of + y + 1, rest + end * end_of + 1,
                                     us, layers - y);
                    }
                }
            memcpy(into, least + k * width, (size_t)width * 8);
        }
    }
}

KERNEL(segment_us, "g s s d a al eal am =gsel")
{
    nodes_t of = {
        array(given, 0), array(given, 1), array(given, 2), array(given, 3),
        array(given, 4), array(given, 5), array(given, 6), array(given, 7),
        given->size['g'], given->size['s'], given->size['a'], given->size['l'] - 1,
        given->size['e'], given->size['m'],
    };
    int64_t most = largest(of.gpus, of.segments), width = of.ways * (of.layers + 1);
    if (!are_segments(given, 1, 2, 3, 4))
        return OUTSIDE;
    int64_t *work = malloc((size_t)(of.segments + (most + 1) * width + 1) * 8);
    if (!work)
        return NO_MEMORY;
    set_alike(of.segments, of.kind, of.gpus, of.begin, of.used, of.light, of.side, work);
    segment_times(&of, work, most, work + of.segments, array(given, 8));
    free(work);
    return DONE;
}

WIDE static void segment_prices(const nodes_t *of, const int64_t *price, int64_t most,
                                int64_t *found)
{
    int64_t layers = of->layers, end_of = layers + 1;
    fill(found, of->segments * (most + 1) * end_of, BIG);
    for (int64_t segment = 0; segment < of->segments; segment++) {
        int64_t k = of->gpus[segment], c = of->kind[segment];
        int64_t *least = found + segment * (most + 1) * end_of;
        least[0] = 0;
        for (int64_t left = 1; left <= k; left++)
            for (int64_t arc = of->begin[c]; arc < of->begin[c + 1]; arc++) {
                int64_t own = of->used[arc];
                if (own > left)
                    break;
                const int64_t *rest = least + (left - own) * end_of;
                int64_t longest = lesser(of->light[arc * of->side + k], layers);
                for (int64_t y = 1; y <= longest; y++) {
                    int64_t paid = price[(arc * of->side + k) * end_of + y];
                    int64_t *into = least + left * end_of + y;
                    for (int64_t x = 0; x <= layers - y; x++) {
                        int64_t more = rest[x] < HALF ? rest[x] + paid : INT64_MAX;
                        into[x] = lesser(into[x], more);
                    }
                }
            }
    }
}

KERNEL(segment_price, "s s d a aml am =stl")
{
    nodes_t of = {
        NULL, array(given, 0), array(given, 1), array(given, 2), array(given, 3),
        NULL, NULL, array(given, 5), 0, given->size['s'], given->size['a'],
        given->size['l'] - 1, 0, given->size['m'],
    };
    int64_t most = largest(of.gpus, of.segments);
    if (!are_segments(given, 0, 1, 2, 3) || given->size['t'] != most + 1)
        return OUTSIDE;
    segment_prices(&of, array(given, 4), most, array(given, 6));
    return DONE;
}

/* --- paths without an order --------------------------------------------------------- */

typedef struct {
    int64_t time;
    const int64_t *scales, *us, *rows, *price, *kind, *visits, *start;
    int64_t intervals, segments, ways, layers, classes, steps;
} visits_t;

WIDE static void visit(const visits_t *of, int64_t g, int64_t *one, int64_t *table)
{
    int64_t end_of = of->layers + 1, ways = of->ways, width = ways * end_of;
    int64_t time = of->time, scale = of->scales[g];
    fill(one, of->classes * width, BIG);
    for (int64_t segment = 0; segment < of->segments; segment++) {
        int64_t c = of->kind[segment];
        if (!of->visits[c])
            continue;
        const int64_t *us = of->us + (of->rows[g] * of->segments + segment) * width;
        const int64_t *restrict price = of->price + segment * end_of;
        for (int64_t end = 0; end < ways; end++, us += end_of) {
            int64_t *restrict into = one + c * width + end * end_of;
            for (int64_t y = 0; y < end_of; y++) {
                int64_t took = us[y] < HALF ? us[y] : 0;
                int64_t cost = lesser(time * took + scale * price[y], MOST);
                into[y] = lesser(into[y], us[y] < HALF ? cost : BIG);
            }
        }
    }
    memcpy(table, of->start + g * width, (size_t)width * 8);
    for (int64_t c = 0; c < of->classes; c++)
        for (int64_t i = 0; i < of->visits[c]; i++, table += width) {
            int64_t *into = table + width;
            memcpy(into, table, (size_t)width * 8);
            for (int64_t y = 1; y <= of->layers; y++)
                for (int64_t ended = 0; ended < ways; ended++) {
                    int64_t more = one[c * width + ended * end_of + y];
                    if (more >= HALF)
                        continue;
                    for (int64_t end = 0; end < (ended ? 1 : ways); end++)
                        lower_by(into + (end + ended) * end_of + y, table + end * end_of,
                                 more, end_of - y);
                }
        }
}

KERNEL(least_unordered, "# g xsel g sl s c gel =knel =g")
{
    visits_t of = {
        given->numbers[0], array(given, 1), array(given, 2), array(given, 3),
        array(given, 4), array(given, 5), array(given, 6), array(given, 7),
        given->size['g'], given->size['s'], given->size['e'], given->size['l'] - 1,
        given->size['c'], given->size['n'],
    };
    int64_t *kept = array(given, 8), *found = array(given, 9), steps = 0;
    int64_t width = of.ways * (of.layers + 1), each = given->size['k'] == of.intervals;
    int right = within(given, 3, 0, given->size['x'] - 1) &&
                within(given, 5, 0, of.classes - 1) && within(given, 6, 0, of.steps) &&
                of.ways > 1 && of.layers >= 0;
    for (int64_t c = 0; right && c < of.classes; c++)
        steps += of.visits[c];
    if (!right || steps >= of.steps || (!given->size['k'] && of.intervals))
        return OUTSIDE;
    int64_t *one = malloc((size_t)(of.classes * width + 1) * 8);
    if (!one)
        return NO_MEMORY;
    for (int64_t g = 0; g < of.intervals; g++) {
        int64_t *table = kept + (each ? g : 0) * of.steps * width;
        visit(&of, g, one, table);
        found[g] = table[steps * width + of.layers + 1 + of.layers];
    }
    free(one);
    return DONE;
}

/* --- stages in several nodes alone -------------------------------------------------- */

typedef struct {
    int64_t time;
    const int64_t *scales, *highs, *front_us, *front_cost;
    int64_t ways, layers, fronts;
} repeats_t;

WIDE static void repeat(const repeats_t *of, int64_t g, int64_t *one, int64_t *found)
{
    int64_t layers = of->layers, end_of = layers + 1, ways = of->ways;
    int64_t width = ways * end_of;
    fill(found, width, BIG);
    fill(one, width, BIG);
    for (int64_t end = 0; end < ways; end++)
        for (int64_t y = 1; y <= layers; y++) {
            int64_t row = (end * end_of + y) * of->fronts, *best = one + end * end_of + y;
            for (int64_t i = row; i < row + of->fronts; i++) {
                if (of->front_us[i] > of->highs[g])
                    break;
                int64_t cost = of->time * of->front_us[i];
                cost += of->scales[g] * of->front_cost[i];
                *best = lesser(*best, lesser(cost, MOST));
            }
            found[end * end_of + y] = *best;
        }
    for (int64_t x = 1; x < layers; x++)
        for (int64_t end = 0; end < ways; end++) {
            int64_t before = found[end * end_of + x];
            if (before >= HALF)
                continue;
            for (int64_t ended = 0; ended < (end ? 1 : ways); ended++)
                lower_from(found + (end + ended) * end_of + x + 1, before,
                           one + ended * end_of + 1, layers - x);
        }
}

KERNEL(repeated, "# g g elF elF =gel")
{
    repeats_t of = {
        given->numbers[0], array(given, 1), array(given, 2), array(given, 3),
        array(given, 4), given->size['e'], given->size['l'] - 1, given->size['F'],
    };
    int64_t width = of.ways * (of.layers + 1), *found = array(given, 5);
    int64_t *one = malloc((size_t)(width + 1) * 8);
    if (!one)
        return NO_MEMORY;
    for (int64_t g = 0; g < given->size['g']; g++)
        repeat(&of, g, one, found + g * width);
    free(one);
    return DONE;
}
