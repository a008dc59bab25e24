/* Shortest paths over stages: `hetopt.exact.pipelines.kernels` says what states and
potentials are. Whole numbers, sum by sum.

No sum overflows: each step costs `MOST` or less, a potential is below `HALF` or `BIG`,
and what a path may earn is bounded by whoever proposes prices. Beyond that sums wrap
(setup.py asks for it), so nothing here is undefined. */

#include "graph.h"

#include <stdlib.h>
#include <string.h>

#define LANES 32 /* intervals at once, as in Python */

typedef struct {
    const int64_t *highs;
    int64_t *scales, *potential, *now, *stops, *front, *cost;
    int64_t states, top;
} lanes_t;

static int64_t stop_of(const int64_t *us, int64_t first, int64_t end, int64_t high,
                       int64_t hint)
{
    int64_t stop = lesser(greater(hint, first), end);
    while (stop > first && us[stop] > high)
        stop--;
    while (stop < end && us[stop + 1] <= high)
        stop++;
    return stop;
}

INLINE void price_lanes(int64_t *restrict cost, const lanes_t *lanes, int64_t us,
                        int64_t paid, int64_t price, int64_t count)
{
    const int64_t *restrict scales = lanes->scales, *restrict highs = lanes->highs;
    for (int64_t j = 0; j < count; j++) {
        int64_t own = lesser(paid + scales[j] * price, MOST);
        cost[j] = us <= highs[j] ? own : BIG;
    }
}

INLINE void lower_lanes(int64_t *restrict now, const int64_t *restrict cost,
                        const int64_t *restrict rest, int64_t count)
{
    for (int64_t j = 0; j < count; j++)
        now[j] = lesser(now[j], cost[j] + rest[j]);
}

/* Lower by a stage, and by what follows it. */
INLINE void lower_by(const lanes_t *lanes, int64_t *restrict now,
                     const int64_t *restrict rest, int64_t us, int64_t paid,
                     int64_t price, int64_t count)
{
    const int64_t *restrict scales = lanes->scales, *restrict highs = lanes->highs;
    for (int64_t j = 0; j < count; j++) {
        int64_t own = lesser(paid + scales[j] * price, MOST);
        now[j] = lesser(now[j], (us <= highs[j] ? own : BIG) + rest[j]);
    }
}

INLINE void in_nodes(const graph_t *graph, const lanes_t *lanes, int64_t first,
                     int64_t count)
{
    int64_t layers = graph->layers, time = graph->time, top = lanes->top;
    int64_t width = lanes->states * count;
    const int64_t *rest = lanes->potential;
    int64_t *now = lanes->now;
    for (int64_t c = 0; c < graph->classes; c++) {
        int64_t most = graph->node_gpus[c];
        for (int64_t arc = graph->begin[c]; arc < graph->begin[c + 1]; arc++) {
            int64_t row = row_of(graph, arc, first);
            const int64_t *inner = graph->inner + row, *outer = graph->outer + row;
            int64_t used = graph->gpus[arc], fits = fits_of(graph, arc, first);
            int final = fits == layers && inner[layers] <= top;
            int64_t end = lesser(fits, layers - 1);
            int64_t *stops = lanes->stops + 2 * arc;
            int64_t near = stops[0] = stop_of(inner, first, end, top, stops[0]);
            int64_t off = stops[1] = stop_of(outer, first, end, top, stops[1]);
            int64_t reach = greater(near, off);
            for (int64_t k = used; k <= most; k++) {
                int64_t base = state_of(graph, c, k);
                /* Where k makes no difference, the most GPUs stand for all. */
                if (k < most && base == state_of(graph, c, most))
                    continue;
                int64_t state = base + 2, light = light_of(graph, arc, k, first);
                const int64_t *price = price_of(graph, arc, k, first);
                int64_t *here = now + (state + used) * count;
                int64_t stop = lesser(reach, light);
                for (int64_t last = first + 1; last <= stop; last++) {
                    const int64_t *behind = rest + last * width;
                    if (outer[last] <= top)
                        lower_by(lanes, here, behind, outer[last], time * outer[last],
                                 price[last], count);
                    if (graph->fronts > 0 && inner[last] <= top)
                        lower_by(lanes, here, behind + count, inner[last],
                                 time * inner[last], price[last], count);
                    if (last > near || used == k)
                        continue;
                    int64_t us = inner[last];
                    price_lanes(lanes->cost, lanes, us, time * us, price[last], count);
                    for (int64_t left = 1; left <= k - used; left++)
                        lower_lanes(now + (state + used + left) * count, lanes->cost,
                                    behind + (state + left) * count, count);
                }
                if (final && light == layers) { /* nothing is handed on */
                    int64_t us = inner[layers];
                    lower_by(lanes, here, rest + layers * width, us, time * us,
                             price[layers], count);
                }
            }
        }
    }
}

INLINE void in_several(const graph_t *graph, const lanes_t *lanes, int64_t first,
                       int64_t count)
{
    int64_t layers = graph->layers, width = lanes->states * count;
    int64_t *here = lanes->now + count;
    for (int64_t last = first + 1; last <= layers; last++) {
        int64_t run = graph->run[first * (layers + 1) + last];
        const int64_t *front = lanes->front + run * count;
        const int64_t *rest = lanes->potential + last * width;
        lower_lanes(here, front, rest, count);
        lower_lanes(here, front, rest + count, count);
    }
}

INLINE void set_fronts(const graph_t *graph, const lanes_t *lanes, int64_t count)
{
    fill(lanes->front, graph->runs * count, BIG);
    for (int64_t row = 0; row < graph->runs; row++)
        for (int64_t i = 0; i < graph->fronts; i++) {
            int64_t us = graph->front_us[row * graph->fronts + i];
            int64_t price = graph->front_cost[row * graph->fronts + i];
            int64_t *front = lanes->front + row * count;
            for (int64_t j = 0; j < count; j++)
                if (us <= lanes->highs[j]) {
                    int64_t own = graph->time * us + lanes->scales[j] * price;
                    front[j] = lesser(front[j], lesser(own, MOST));
                }
        }
}

INLINE void suffixes_of(const graph_t *graph, const lanes_t *lanes, int64_t count)
{
    int64_t layers = graph->layers, width = lanes->states * count, *now = lanes->now;
    fill(lanes->potential, (layers + 1) * width, BIG);
    fill(lanes->potential + layers * width, count, 0);
    fill(lanes->stops, 2 * graph->arcs, 0);
    set_fronts(graph, lanes, count);
    for (int64_t first = layers - 1; first >= 0; first--) {
        fill(now, width, BIG);
        in_nodes(graph, lanes, first, count);
        if (graph->fronts > 0)
            in_several(graph, lanes, first, count);
        for (int64_t c = 0; c < graph->classes; c++)
            for (int64_t k = 1; k <= graph->node_gpus[c]; k++) {
                const int64_t *at = now + (state_of(graph, c, k) + k + 2) * count;
                for (int64_t j = 0; j < count; j++) {
                    int64_t own = lanes->scales[j] * graph->gpu[c] * k;
                    own = (at[j] < HALF ? at[j] : BIG) + lesser(own, MOST);
                    now[j] = lesser(now[j], own);
                }
            }
        int64_t *found = lanes->potential + first * width;
        for (int64_t x = 0; x < width; x++)
            found[x] = now[x] < HALF ? now[x] : BIG;
    }
}

WIDE static void suffixes(const graph_t *graph, const lanes_t *lanes, int64_t count)
{
    if (count == LANES)
        suffixes_of(graph, lanes, LANES);
    else
        suffixes_of(graph, lanes, count);
}

static int least_of(const graph_t *graph, const int64_t *lows, const int64_t *highs,
                    int64_t intervals, int64_t scale, int64_t states, int64_t *kept,
                    int64_t *found)
{
    int64_t count = lesser(LANES, intervals);
    int64_t end = graph->layers + 1, width = states * count;
    lanes_t lanes = {.states = states};
    int64_t sizes[] = {count, end * width, width, 2 * graph->arcs, graph->runs * count,
                       count};
    int64_t **parts[] = {&lanes.scales, &lanes.potential, &lanes.now, &lanes.stops,
                         &lanes.front, &lanes.cost};
    int64_t *work = divided(6, sizes, parts);
    if (!work)
        return NO_MEMORY;
    for (int64_t next = 0; next < intervals; next += LANES) {
        int64_t begin = lesser(next, intervals - count);
        lanes.highs = highs + begin;
        lanes.top = highs[begin];
        for (int64_t j = 0; j < count; j++) {
            lanes.scales[j] = scale * lows[begin + j];
            lanes.top = greater(lanes.top, lanes.highs[j]);
        }
        suffixes(graph, &lanes, count);
        for (int64_t j = 0; j < count; j++) {
            found[begin + j] = lesser(lanes.potential[j], lanes.potential[count + j]);
            if (!kept)
                continue;
            int64_t *own = kept + (begin + j) * states * end;
            for (int64_t state = 0; state < states; state++)
                for (int64_t at = 0; at < end; at++)
                    *own++ = lanes.potential[at * width + state * count + j];
        }
    }
    free(work);
    return DONE;
}

KERNEL(least, GRAPH_WORDS " g g # =kSl =g")
{
    graph_t graph;
    int64_t intervals = given->size['g'], states = given->size['S'];
    if (!read_graph(given, &graph) || graph.chains + 2 > states)
        return OUTSIDE;
    int64_t *kept = given->size['k'] == intervals ? array(given, 17) : NULL;
    return least_of(&graph, array(given, 14), array(given, 15), intervals,
                    given->numbers[16], states, kept, array(given, 18));
}

/* --- stages in several nodes -------------------------------------------------------- */

KERNEL(fronts, "ri ri i ri ?ri # =ri =ri")
{
    int64_t runs = given->size['r'], count = given->size['i'];
    int64_t size = given->numbers[5];
    const int64_t *order = array(given, 0), *us = array(given, 1);
    const int64_t *samples = array(given, 2), *cost = array(given, 3);
    const char *able = given->views[4].buf;
    int64_t *front_us = array(given, 6), *front_cost = array(given, 7);
    if (size < 0 || size >= MOST_BATCH || !within(given, 0, 0, count - 1) ||
        !within(given, 2, 1, MOST_BATCH))
        return OUTSIDE;
    int64_t *least = malloc((size_t)(size + 1) * 8);
    if (!least)
        return NO_MEMORY;
    fill(front_us, runs * count, BIG);
    fill(front_cost, runs * count, BIG);
    for (int64_t run = 0; run < runs; run++) {
        int64_t number = run * count;
        fill(least, size + 1, BIG);
        least[0] = 0;
        for (int64_t i = 0; i < count; i++) {
            int64_t item = order[run * count + i], took = us[run * count + item];
            if (took >= NEVER)
                break;
            if (!able[run * count + item])
                continue;
            int64_t before = least[size], own = samples[item];
            for (int64_t s = own; s <= size; s++)
                if (least[s - own] < HALF)
                    least[s] =
                        lesser(least[s], least[s - own] + cost[run * count + item]);
            if (least[size] < before) {
                front_us[number] = took;
                front_cost[number++] = least[size];
            }
        }
    }
    free(least);
    return DONE;
}
