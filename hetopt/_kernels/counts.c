/* Pipelines by the GPUs that they use: `hetopt.exact.pipelines.kernels` says what
labels and sides are. Whole numbers, sum by sum: as in
labels.c none overflows, and beyond that sums wrap. */

#include "graph.h"

#include <stdlib.h>
#include <string.h>

/* What the GPUs of each class are as one number, and stages in several nodes. */
typedef struct {
    const int64_t *gpus, *use, *strides, *vectors, *vector_us, *vector_cost;
    int64_t count, classes, many, exits;
} states_t;

#define STATES_WORDS "c sc c vc xzv wv"
#define LEAST_WORDS "l l tl l l tl"

typedef struct {
    const int64_t *node_us, *across_us, *chain_us, *node_cost, *across_cost, *chain_cost;
} least_t;

typedef struct {
    int64_t us, cost;
} pair_t;

/* Read states; whether entries are within their tables. */
static int read_states(given_t *given, int at, states_t *states)
{
    *states = (states_t){
        array(given, at), array(given, at + 1), array(given, at + 2),
        array(given, at + 3), array(given, at + 4), array(given, at + 5),
        given->size['s'], given->size['c'], given->size['v'], given->size['x'],
    };
    /* The states are all mixtures of GPUs, in the order of their numbers. */
    int64_t total = 1;
    int right = within(given, at, 0, INT32_MAX);
    for (int64_t c = states->classes - 1; right && c >= 0; c--) {
        right = states->strides[c] == total && total <= states->count;
        total *= states->gpus[c] + 1;
    }
    right = right && total == states->count;
    for (int64_t state = 0; right && state < states->count; state++) {
        const int64_t *use = states->use + state * states->classes;
        for (int64_t c = 0; c < states->classes; c++)
            right = right && use[c] >= 0 && use[c] <= states->gpus[c];
        right = right && product(use, states->strides, states->classes) == state;
    }
    return right;
}

static least_t read_least(given_t *given, int at)
{
    return (least_t){
        array(given, at), array(given, at + 1), array(given, at + 2),
        array(given, at + 3), array(given, at + 4), array(given, at + 5),
    };
}

/* --- what a pipeline does in one node ------------------------------------------------ */

typedef struct {
    int64_t c, k, least, top;
} node_t;

/* Tables of a segment: [GPUs, layer], and for each hop where it ends. */
typedef struct {
    int64_t *inside_us, *inside_cost, *us, *cost;
    int64_t hops, side; /* numbers of GPUs of a table */
} steps_t;

INLINE void lower(int64_t *at, int64_t value)
{
    if (value < *at)
        *at = value;
}

static void segments(const graph_t *graph, const least_t *suffix, const steps_t *steps,
                     int64_t high, int64_t scale, pair_t room, node_t at, int64_t first)
{
    int64_t layers = graph->layers, width = layers + 1;
    int64_t state = state_of(graph, at.c, at.k);
    int64_t paid = scale * graph->gpu[at.c], time = graph->time;
    int64_t *inside_us = steps->inside_us, *inside_cost = steps->inside_cost;
    fill(inside_us, (at.k + 1) * width, BIG);
    fill(inside_cost, (at.k + 1) * width, BIG);
    inside_us[first] = inside_cost[first] = 0;
    for (int64_t x = first; x < layers; x++)
        for (int64_t used = 0; used < at.top; used++) {
            int64_t began_us = inside_us[used * width + x];
            int64_t began_cost = inside_cost[used * width + x];
            int64_t rest_us = BIG, rest_cost = BIG;
            if (began_us >= HALF)
                continue;
            for (int64_t left = greater(1, at.least - used); left <= at.k - used;
                 left++) {
                int64_t on = (state + left) * width + x;
                rest_us = lesser(rest_us, suffix->chain_us[on]);
                rest_cost =
                    lesser(rest_cost, suffix->chain_cost[on] + paid * (used + left));
            }
            if (began_us + rest_us > room.us || began_cost + rest_cost > room.cost)
                continue;
            for (int64_t arc = graph->begin[at.c]; arc < graph->begin[at.c + 1]; arc++) {
                int64_t now = used + graph->gpus[arc];
                if (now > at.top)
                    break;
                int64_t end =
                    lesser(fits_of(graph, arc, x), light_of(graph, arc, at.k, x));
                int64_t row = row_of(graph, arc, x);
                const int64_t *inner = graph->inner + row, *outer = graph->outer + row;
                const int64_t *price = price_of(graph, arc, at.k, x);
                int64_t into = now * width, over = into + steps->side * width;
                int ends = now >= at.least;
                if (end == layers) {
                    if (ends && inner[layers] <= high) {
                        lower(steps->us + into + layers, began_us + inner[layers]);
                        lower(steps->cost + into + layers, began_cost +
                                                               time * inner[layers] +
                                                               scale * price[layers]);
                    }
                    end--;
                }
                int shared = steps->hops > 1 && ends && now < graph->node_gpus[at.c];
                for (int64_t last = x + 1; last <= end; last++) {
                    if (inner[last] > high && outer[last] > high)
                        break;
                    if (inner[last] <= high) {
                        int64_t t = began_us + inner[last];
                        int64_t r = began_cost + time * inner[last] + scale * price[last];
                        if (now < at.top) {
                            lower(inside_us + into + last, t);
                            lower(inside_cost + into + last, r);
                        }
                        if (shared) {
                            lower(steps->us + over + last, t);
                            lower(steps->cost + over + last, r);
                        }
                    }
                    if (outer[last] <= high && ends) {
                        lower(steps->us + into + last, began_us + outer[last]);
                        lower(steps->cost + into + last,
                              began_cost + time * outer[last] + scale * price[last]);
                    }
                }
            }
        }
}

/* --- labels --------------------------------------------------------------------------- */

typedef struct {
    const graph_t *graph;
    const states_t *states;
    const least_t *least;
    const int64_t *most_us;
    int64_t most_cost, high, scale, several, sides;
    int64_t *us, *cost; /* labels: [side, next layer, state] */
    int64_t *best_us, *best_cost, *live, *use;
    char *reached;
    steps_t steps;
} search_t;

/* List the labels that are worth going on with, and return their number. */
static int64_t kept(const search_t *of, const int64_t *us, const int64_t *cost,
                    pair_t rest)
{
    const states_t *states = of->states;
    int64_t *best_us = of->best_us, *best_cost = of->best_cost, number = 0;
    if (rest.us >= HALF || rest.cost >= HALF)
        return 0;
    for (int64_t state = 0; state < states->count; state++) {
        int64_t t = us[state], r = cost[state], found_us = BIG, found_cost = BIG;
        int worse = 0;
        for (int64_t c = 0; c < states->classes; c++) {
            if (!states->use[state * states->classes + c])
                continue;
            int64_t less = state - states->strides[c];
            worse |= best_us[less] <= t && best_cost[less] <= r && t < HALF;
            if (best_us[less] < found_us) {
                found_us = best_us[less];
                found_cost = best_cost[less];
            }
        }
        int stays = t < HALF && !worse;
        best_us[state] = stays ? t : found_us;
        best_cost[state] = stays ? r : found_cost;
        if (stays && t + rest.us <= of->most_us[state] &&
            r + rest.cost <= of->most_cost)
            of->live[number++] = state;
    }
    return number;
}

/* Lower labels by a step that goes on from the live ones. */
static void go_on(const search_t *of, const int64_t *use, int64_t live,
                  const int64_t *from_us, const int64_t *from_cost, pair_t step,
                  pair_t rest, int64_t label)
{
    const states_t *states = of->states;
    int64_t classes = states->classes, raised = product(use, states->strides, classes);
    int64_t *into_us = of->us + label * states->count;
    int64_t *into_cost = of->cost + label * states->count;
    int found = 0;
    for (int64_t i = 0; i < live; i++) {
        int64_t state = of->live[i];
        int64_t us = from_us[state] + step.us, cost = from_cost[state] + step.cost;
        if (cost + rest.cost > of->most_cost)
            continue;
        const int64_t *used = states->use + state * classes;
        int able = 1;
        for (int64_t c = 0; c < classes; c++)
            able &= used[c] + use[c] <= states->gpus[c];
        if (!able || us + rest.us > of->most_us[state + raised])
            continue;
        lower(into_us + state + raised, us);
        lower(into_cost + state + raised, cost);
        found = 1;
    }
    of->reached[label] |= found;
}

static pair_t rest_of(const search_t *of, int across, int64_t first)
{
    if (across)
        return (pair_t){of->least->across_us[first], of->least->across_cost[first]};
    return (pair_t){of->least->node_us[first], of->least->node_cost[first]};
}

static int64_t label_of(const search_t *of, int64_t side, int64_t layer)
{
    return side * (of->graph->layers + 1) + layer;
}

/* Go on within a node of one class. */
static void on_in_node(const search_t *of, int64_t side, int64_t first, int64_t live,
                       pair_t room, int64_t c)
{
    const graph_t *graph = of->graph;
    const steps_t *steps = &of->steps;
    int64_t layers = graph->layers, classes = graph->classes, width = layers + 1;
    int64_t most = graph->node_gpus[c], top = side ? most - 1 : most;
    int64_t label = label_of(of, side, first);
    const int64_t *from_us = of->us + label * of->states->count;
    const int64_t *from_cost = of->cost + label * of->states->count;
    fill(steps->us, steps->hops * steps->side * width, BIG);
    fill(steps->cost, steps->hops * steps->side * width, BIG);
    int alike = 1;
    for (int64_t k = 1; k < most; k++)
        alike &= state_of(graph, c, k) == state_of(graph, c, most);
    for (int64_t k = alike ? most : 1; k <= (alike ? most : top); k++) {
        node_t at = {c, k, alike ? 1 : k, lesser(k, top)};
        segments(graph, of->least, steps, of->high, of->scale, room, at, first);
    }
    for (int64_t hop = 0; hop < steps->hops; hop++)
        for (int64_t k = 0; k <= top; k++) {
            fill(of->use, classes, 0);
            of->use[c] = k;
            int64_t away = k * width, row = away + hop * steps->side * width;
            for (int64_t last = first + 1; last <= layers; last++) {
                int64_t t = steps->us[row + last], r = steps->cost[row + last];
                if (t >= HALF ||
                    (hop && t >= steps->us[away + last] && r >= steps->cost[away + last]))
                    continue;
                r += of->scale * graph->gpu[c] * k;
                for (int64_t across = hop; across < steps->hops; across++) {
                    pair_t rest = rest_of(of, across != 0, last);
                    if (t + rest.us > room.us || r + rest.cost > room.cost)
                        continue;
                    int64_t to = hop ? 2 + classes + c : across;
                    go_on(of, of->use, live, from_us, from_cost, (pair_t){t, r}, rest,
                          label_of(of, to, last));
                }
            }
        }
}

/* Go on by a stage in several nodes. */
static void on_in_several(const search_t *of, int64_t side, int64_t first, int64_t live,
                          pair_t room)
{
    const graph_t *graph = of->graph;
    const states_t *states = of->states;
    int64_t layers = graph->layers, classes = graph->classes;
    int64_t label = label_of(of, side, first), exit = graph->runs * states->many;
    const int64_t *from_us = of->us + label * states->count;
    const int64_t *from_cost = of->cost + label * states->count;
    for (int64_t last = first + 1; last <= layers; last++) {
        int64_t run = graph->run[first * (layers + 1) + last];
        for (int64_t v = 0; v < states->many; v++) {
            const int64_t *use = states->vectors + v * classes;
            if (side > 1 && !use[side - 2 - classes])
                continue;
            int64_t row = run * states->many + v;
            for (int64_t hop = 0; hop < states->exits; hop++) {
                int64_t t = states->vector_us[row + hop * exit];
                if (t > of->high || (hop && t >= states->vector_us[row]) ||
                    (hop && !use[hop - 1]))
                    continue;
                int64_t r = graph->time * t + of->scale * states->vector_cost[row];
                for (int64_t across = 0; across < 2; across++) {
                    pair_t rest = rest_of(of, across != 0, last);
                    if (t + rest.us > room.us || r + rest.cost > room.cost)
                        continue;
                    int64_t to = hop ? 1 + hop + across * classes : across;
                    go_on(of, use, live, from_us, from_cost, (pair_t){t, r}, rest,
                          label_of(of, to, last));
                }
            }
        }
    }
}

static void search(const search_t *of)
{
    const graph_t *graph = of->graph;
    int64_t layers = graph->layers, classes = graph->classes;
    int64_t count = of->states->count, labels = of->sides * (layers + 1);
    fill(of->us, labels * count, BIG);
    fill(of->cost, labels * count, BIG);
    memset(of->reached, 0, (size_t)labels);
    for (int64_t side = 0; side < lesser(2, of->sides); side++) {
        int64_t label = label_of(of, side, 0);
        of->us[label * count] = of->cost[label * count] = 0;
        memset(of->reached + label, 1, 1);
    }
    for (int64_t first = 0; first < layers; first++)
        for (int64_t side = 0; side < of->sides; side++) {
            int64_t label = label_of(of, side, first);
            if (!of->reached[label])
                continue;
            int in_node = side == 0 || (side >= 2 && side < 2 + classes);
            const int64_t *us = of->us + label * count;
            const int64_t *cost = of->cost + label * count;
            int64_t live = kept(of, us, cost, rest_of(of, !in_node, first));
            if (!live)
                continue;
            pair_t room = {-BIG, -BIG};
            for (int64_t i = 0; i < live; i++) {
                int64_t state = of->live[i];
                room.us = greater(room.us, of->most_us[state] - us[state]);
                room.cost = greater(room.cost, of->most_cost - cost[state]);
            }
            if (!in_node) {
                on_in_several(of, side, first, live, room);
                continue;
            }
            for (int64_t c = 0; c < classes; c++)
                if (!side || side == 2 + c)
                    on_in_node(of, side, first, live, room, c);
        }
}

static int searched(search_t *of)
{
    const graph_t *graph = of->graph;
    int64_t count = of->states->count, classes = graph->classes, widest = 0;
    int64_t labels = of->sides * (graph->layers + 1);
    for (int64_t c = 0; c < classes; c++)
        widest = greater(widest, graph->node_gpus[c]);
    of->steps.hops = of->several ? 2 : 1;
    of->steps.side = widest + 1;
    int64_t table = (widest + 1) * (graph->layers + 1);
    int64_t sizes[] = {labels * count, count, count, count, classes, table, table,
                       of->steps.hops * table, of->steps.hops * table, labels / 8 + 1};
    int64_t *reached, **parts[] = {&of->cost, &of->best_us, &of->best_cost, &of->live,
                                   &of->use, &of->steps.inside_us,
                                   &of->steps.inside_cost, &of->steps.us,
                                   &of->steps.cost, &reached};
    int64_t *work = divided(10, sizes, parts);
    if (!work)
        return NO_MEMORY;
    of->reached = (char *)reached;
    search(of);
    free(work);
    return DONE;
}

KERNEL(labels, GRAPH_WORDS " " STATES_WORDS " " LEAST_WORDS " # # s # =Sls")
{
    graph_t graph;
    states_t states;
    if (!read_graph(given, &graph) || !read_states(given, 14, &states))
        return OUTSIDE;
    least_t least = read_least(given, 20);
    const int64_t *size = given->size;
    search_t of = {
        .graph = &graph, .states = &states, .least = &least,
        .high = given->numbers[26], .scale = given->numbers[27],
        .most_us = array(given, 28), .most_cost = given->numbers[29],
        .several = states.many > 0, .us = array(given, 30),
    };
    of.sides = of.several ? 2 + 2 * graph.classes : 1;
    int right = size['S'] == of.sides && graph.chains <= size['t'];
    if (of.several)
        right = right && size['z'] == graph.runs && size['w'] == graph.runs &&
                size['x'] <= 1 + graph.classes && within(given, 17, 0, INT32_MAX);
    return right ? searched(&of) : OUTSIDE;
}

/* --- stages in several nodes by GPUs ---------------------------------------------------- */

typedef struct {
    int64_t us, item;
} timed_t;

static int by_time(const void *one, const void *other)
{
    const timed_t *a = one, *b = other;
    if (a->us != b->us)
        return a->us < b->us ? -1 : 1;
    return (a->item > b->item) - (a->item < b->item);
}

typedef struct {
    const int64_t *us, *items, *nodes;
    const states_t *states;
    int64_t size, runs, count, degrees, widest;
    const char *wanted;
    int64_t *found;
    int64_t *able, *own, *taken, *left, *best;
    timed_t *order;
} vectors_t;

/* The least times of one run, for replicas of a degree or more. */
static void share(const vectors_t *of, int64_t degree, int64_t number, int64_t *found)
{
    const states_t *states = of->states;
    int64_t classes = states->classes, most = of->degrees - 1, side = of->widest + 1;
    int64_t *best = of->best, waiting = number;
    fill(of->own, classes * of->degrees, 0);
    fill(of->taken, classes * side, 0);
    fill(best, states->count, NEVER);
    memcpy(of->left, of->able, (size_t)number * 8);
    for (int64_t i = 0; i < of->count && waiting; i++) {
        int64_t took = of->order[i].us;
        const int64_t *item = of->items + 3 * of->order[i].item;
        if (took >= NEVER)
            break;
        int64_t c = item[0], t = item[1], samples = item[2];
        int64_t *own = of->own + c * of->degrees, *taken = of->taken + c * side;
        if (t < degree || samples <= own[t])
            continue;
        own[t] = samples;
        for (int64_t g = t; g <= states->gpus[c]; g++) {
            int64_t more = greater(taken[g - 1], taken[g]);
            for (int64_t d = degree; d <= lesser(most, g); d++)
                if (own[d])
                    more = greater(more, taken[g - d] + own[d]);
            taken[g] = more;
        }
        int64_t still = 0;
        for (int64_t j = 0; j < waiting; j++) {
            int64_t state = of->left[j], whole = 0;
            for (int64_t each = 0; each < classes; each++)
                whole += of->taken[each * side + states->use[state * classes + each]];
            if (whole >= of->size)
                best[state] = took;
            else
                of->left[still++] = state;
        }
        waiting = still;
    }
    for (int64_t state = 0; state < states->count; state++) {
        int better = best[state] < NEVER;
        for (int64_t c = 0; c < classes; c++)
            if (states->use[state * classes + c] > 1)
                better = better && best[state - states->strides[c]] > best[state];
        if (better)
            found[state] = best[state];
    }
}

static void share_all(const vectors_t *of)
{
    const states_t *states = of->states;
    int64_t number = 0; /* of states that have two nodes */
    for (int64_t state = 0; state < states->count; state++) {
        int64_t some = 0;
        for (int64_t c = 0; c < states->classes; c++)
            some += states->use[state * states->classes + c] ? of->nodes[c] : 0;
        if (some > 1)
            of->able[number++] = state;
    }
    for (int64_t run = 0; run < of->runs; run++) {
        int any = 0;
        for (int64_t degree = 0; degree < of->degrees; degree++)
            any |= of->wanted[degree * of->runs + run];
        if (!any)
            continue;
        for (int64_t i = 0; i < of->count; i++)
            of->order[i] = (timed_t){of->us[run * of->count + i], i};
        qsort(of->order, (size_t)of->count, sizeof(timed_t), by_time);
        for (int64_t degree = 1; degree < of->degrees; degree++) {
            int64_t row = degree * of->runs + run;
            if (of->wanted[row])
                share(of, degree, number, of->found + row * states->count);
        }
    }
}

KERNEL(vector_us, "ri i3 c " STATES_WORDS " # ?dr =drs")
{
    states_t states;
    if (!read_states(given, 3, &states))
        return OUTSIDE;
    vectors_t of = {
        array(given, 0), array(given, 1), array(given, 2), &states, given->numbers[9],
        given->size['r'], given->size['i'], given->size['d'], 0, given->views[10].buf,
        array(given, 11), 0, 0, 0, 0, 0, 0,
    };
    int right = given->size['3'] == 3 && of.degrees > 0;
    for (int64_t i = 0; right && i < of.count; i++) {
        const int64_t *item = of.items + 3 * i;
        right = item[0] >= 0 && item[0] < states.classes && item[1] > 0 &&
                item[1] < of.degrees && item[2] < MOST_BATCH;
    }
    if (!right)
        return OUTSIDE;
    for (int64_t c = 0; c < states.classes; c++)
        of.widest = greater(of.widest, states.gpus[c]);
    int64_t *order, **parts[] = {&of.able, &of.own, &of.taken, &of.left, &of.best, &order};
    int64_t sizes[] = {states.count, states.classes * of.degrees,
                       states.classes * (of.widest + 1), states.count, states.count,
                       2 * of.count};
    int64_t *work = divided(6, sizes, parts);
    if (!work)
        return NO_MEMORY;
    of.order = (timed_t *)order;
    share_all(&of);
    free(work);
    return DONE;
}

/* --- packings --------------------------------------------------------------------------- */

/* States worth taking, without those of more GPUs that take no more; their number. */
static int64_t items_of(const int64_t *one, const states_t *states, int64_t *best,
                        int64_t *items)
{
    int64_t number = 0;
    for (int64_t state = 0; state < states->count; state++) {
        best[state] = 0;
        for (int64_t c = 0; c < states->classes; c++)
            if (states->use[state * states->classes + c])
                best[state] = greater(best[state], best[state - states->strides[c]]);
        if (one[state] > best[state]) {
            items[number++] = state;
            best[state] = one[state];
        }
    }
    return number;
}

static void add_one(const int64_t *one, const states_t *states, const int64_t *items,
                    int64_t number, const int64_t *before, int64_t *after)
{
    int64_t classes = states->classes;
    for (int64_t state = 0; state < states->count; state++) {
        const int64_t *all = states->use + state * classes;
        int64_t found = -1;
        for (int64_t j = 0; j < number && items[j] <= state; j++) {
            int64_t item = items[j], rest = before[state - item];
            if (rest < 0 || rest + one[item] <= found)
                continue;
            if (fits_all(states->use + item * classes, all, classes))
                found = rest + one[item];
        }
        after[state] = found;
    }
}

KERNEL(most_taken, "s " STATES_WORDS " # # =ns =s")
{
    states_t states;
    int64_t fewest = given->numbers[7], most = given->numbers[8];
    if (!read_states(given, 1, &states) || most < 0 || given->size['n'] != most + 1)
        return OUTSIDE;
    int64_t count = states.count, *work = malloc((size_t)(2 * count + 1) * 8);
    if (!work)
        return NO_MEMORY;
    const int64_t *one = array(given, 0);
    int64_t *exactly = array(given, 9), *others = array(given, 10);
    int64_t number = items_of(one, &states, work, work + count);
    fill(exactly, count, 0);
    fill(others, count, -1);
    for (int64_t parts = 0; parts < most; parts++, exactly += count) {
        for (int64_t state = 0; parts >= fewest - 1 && state < count; state++)
            others[state] = greater(others[state], exactly[state]);
        add_one(one, &states, work + count, number, exactly, exactly + count);
    }
    free(work);
    return DONE;
}
