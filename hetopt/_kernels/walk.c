/* A walk over plans: moves, states and their scores, all in flat arrays.

It makes the same draws, moves and scores as `hetopt.search.walking.Walk`, `moves` and
`state` in Python, in the same order: what changes there changes here. What a stage, a
transfer or a synchronisation takes is asked of an oracle in Python once, and kept by
fingerprints of 128 bits. Synchronisation over plain links is computed here in floats,
and asked for where these leave a microsecond open. So every number is the evaluator's. */

#include "walk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "balance.h"

#define NONE (-1)
#define OPEN 1e-11 /* relative error that floats of synchronisation may have */
#define MOST_KEPT ((size_t)1 << 21) /* entries of a memo before it is emptied */
#define MOST_CUTS 100000 /* cuts of layers that are kept before they are forgotten */

enum { FLIGHT_ONE, FLIGHT_1F1B, FLIGHT_GPIPE };
enum { SYNC_ASKED, SYNC_RING, SYNC_SLOWEST }; /* by formula over plain links, or not */
enum { KEY_PREFIX, KEY_HEAD, KEY_HOP, KEY_CAP, KEY_FITS, KEY_TIED, KEY_UPDATE,
       KEY_USABLE, KEY_CUTS, KEY_ALONE };

typedef struct {
    int32_t node, t, first, last, rule;
} slot_t;

typedef struct {
    int32_t node, t;
} place_t;

typedef struct {
    int64_t users; /* states and moves that hold it */
    int64_t size;
    int64_t stages;
    timing_t timing;
    int64_t *taus, *behind;
    int64_t tied;                  /* us, or NONE where it was not asked for */
    int64_t updated, update_us;    /* for so many replicas */
    slot_t slots[];
} line_t;

/* --- what is kept ------------------------------------------------------------------- */

typedef struct {
    uint64_t one, two;
    int64_t value;
} kept_t;

typedef struct {
    kept_t *entries;
    size_t size, used;
} memo_t;

static uint64_t mixed(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static void fingerprint(const int64_t *parts, int count, uint64_t *one, uint64_t *two)
{
    uint64_t a = 0x243F6A8885A308D3u, b = 0x13198A2E03707344u;
    for (int i = 0; i < count; i++) {
        a = mixed((a ^ (uint64_t)parts[i]) + 0x9E3779B97F4A7C15u);
        b = mixed((b + (uint64_t)parts[i]) * 0xD1342543DE82EF95u + 1);
    }
    *one = a | 1; /* 0 stands for an empty entry */
    *two = b;
}

static int64_t *find(memo_t *memo, uint64_t one, uint64_t two)
{
    if (!memo->size)
        return NULL;
    for (size_t at = one & (memo->size - 1);; at = (at + 1) & (memo->size - 1)) {
        kept_t *entry = memo->entries + at;
        if (!entry->one)
            return NULL;
        if (entry->one == one && entry->two == two)
            return &entry->value;
    }
}

static int keep(memo_t *memo, uint64_t one, uint64_t two, int64_t value)
{
    if (2 * (memo->used + 1) > memo->size) {
        size_t size = memo->size ? 2 * memo->size : 1024;
        int fresh = size > MOST_KEPT;
        if (fresh)
            size = memo->size;
        kept_t *grown = calloc(size, sizeof *grown);
        if (!grown) {
            PyErr_NoMemory();
            return -1;
        }
        for (size_t i = 0; !fresh && i < memo->size; i++) {
            kept_t *entry = memo->entries + i;
            if (!entry->one)
                continue;
            size_t at = entry->one & (size - 1);
            while (grown[at].one)
                at = (at + 1) & (size - 1);
            grown[at] = *entry;
        }
        free(memo->entries);
        memo->entries = grown;
        memo->size = size;
        if (fresh)
            memo->used = 0;
    }
    size_t at = one & (memo->size - 1);
    while (memo->entries[at].one)
        at = (at + 1) & (memo->size - 1);
    memo->entries[at] = (kept_t){one, two, value};
    memo->used++;
    return 0;
}

/* --- a walk ------------------------------------------------------------------------- */

typedef struct {
    line_t **lines;
    int64_t *counts;
    int64_t size; /* pipelines */
    int64_t objective;
    double score;
} state_t;

typedef struct {
    PyObject_HEAD
    PyObject *oracle;
    /* the problem */
    int64_t layers, batch, nodes, gpus, degrees, width;
    int lockstep, both, flight, even, zero, divided, overlap, each_round, ties, updates;
    int sync, paired;
    int64_t passes, bytes, overhead, end_class;
    int64_t pipeline_top, pipeline_low, sync_top, sync_low;
    double pipeline_factor, sync_factor, smooth, spread;
    int32_t *count, *kind, *spot, *link; /* by node */
    int64_t links;                       /* classes of links inside nodes */
    int64_t stride; /* twice the replicas of a layer on a node: some go as others come */
    double *inside, *across;             /* latency and inverse rate */
    int64_t *sizes, number_of_sizes;
    int32_t *layer_class;
    int64_t *class_parameters; /* NONE where they are asked for */
    /* what was asked */
    memo_t memo, synced;
    int64_t **prefixes, number_of_prefixes;
    int32_t **cuts;
    int64_t number_of_cuts;
    /* draws */
    uint64_t draws;
    /* the plan at hand, and the best */
    state_t now, next, best;
    int32_t *free_gpus;
    int16_t *held;    /* [layer, node] replicas */
    int32_t *many;    /* [layer, link, replicas on a node] nodes */
    int32_t *degree;  /* [layer, degree] replicas */
    uint64_t *one, *two;           /* [layer] sums of marks */
    uint64_t *node_mark, *degree_mark; /* two each */
    int64_t *layer_us, *layer_next, *behind;
    int64_t *touched, touch; /* when layers were changed last */
    /* room to work in */
    place_t *chain, *chain_two;
    int32_t *cut, *picked, *ends;
    int64_t *spots; /* (pipeline, stage) pairs */
    row_t *rows;
    int64_t *work;
    entry_t *heap;
    double *fills;
    const timing_t **timings;
    int64_t *line_sizes;
    int32_t *removed;
    line_t **added;
    int64_t number_removed, number_added;
} walk_t;

static void drop(line_t *line)
{
    if (line && !--line->users)
        free(line);
}

/* --- draws -------------------------------------------------------------------------- */

static uint64_t bits(walk_t *w)
{
    w->draws += 0x9E3779B97F4A7C15u;
    return mixed(w->draws);
}

static int64_t below(walk_t *w, int64_t end)
{
    return (int64_t)(((bits(w) >> 32) * (uint64_t)end) >> 32);
}

static double share(walk_t *w) { return (double)(bits(w) >> 11) * 0x1p-53; }

static int weighed(walk_t *w, const int *upto, int count)
{
    int64_t drawn = below(w, upto[count - 1]);
    int at = 0;
    while (upto[at] <= drawn)
        at++;
    return at;
}

static void two_below(walk_t *w, int64_t end, int64_t *one, int64_t *two)
{
    *one = below(w, end);
    *two = below(w, end - 1);
    *two += *two >= *one;
}

/* --- the oracle --------------------------------------------------------------------- */

static PyObject *called(walk_t *w, const char *name, const int64_t *given, int count)
{
    PyObject *method = PyObject_GetAttrString(w->oracle, name);
    PyObject *words = method ? PyTuple_New(count) : NULL;
    for (int i = 0; words && i < count; i++) {
        PyObject *number = PyLong_FromLongLong(given[i]);
        if (!number || PyTuple_SetItem(words, i, number) < 0)
            Py_CLEAR(words);
    }
    PyObject *found = words ? PyObject_CallObject(method, words) : NULL;
    Py_XDECREF(words);
    Py_XDECREF(method);
    return found;
}

static int number_of(PyObject *found, int64_t *value)
{
    if (!found)
        return -1;
    *value = PyLong_AsLongLong(found);
    Py_DECREF(found);
    if (*value == -1 && PyErr_Occurred())
        return -1;
    if (*value < 0 || *value >= LARGEST) {
        PyErr_SetString(PyExc_OverflowError, "a time is beyond what the core holds");
        return -1;
    }
    return 0;
}

/* What the oracle says of `given`, which `parts` name; -1 where it raises. */
static int asked(walk_t *w, const int64_t *parts, int named, const char *name,
                 const int64_t *given, int count, int64_t *value)
{
    uint64_t one, two;
    fingerprint(parts, named, &one, &two);
    int64_t *known = find(&w->memo, one, two);
    if (known) {
        *value = *known;
        return 0;
    }
    if (number_of(called(w, name, given, count), value) < 0)
        return -1;
    return keep(&w->memo, one, two, *value);
}

/* Sums of times of layers before each, then of backward times. */
static const int64_t *prefix(walk_t *w, int node, int t, int64_t b, int rule)
{
    int64_t parts[] = {KEY_PREFIX, w->kind[node], t, b, rule};
    uint64_t one, two;
    fingerprint(parts, 5, &one, &two);
    int64_t *known = find(&w->memo, one, two);
    if (known)
        return w->prefixes[*known];
    int64_t given[] = {node, t, b, rule}, wanted = 2 * (w->layers + 1);
    PyObject *found = called(w, "prefix", given, 4);
    Py_buffer view;
    if (!found || open_numbers(found, wanted, &view) < 0) {
        Py_XDECREF(found);
        return NULL;
    }
    int64_t *copy = malloc((size_t)wanted * 8), number = w->number_of_prefixes;
    int64_t **all = realloc(w->prefixes, (size_t)(number + 1) * sizeof *all);
    int right = copy && all;
    if (all)
        w->prefixes = all;
    if (right)
        memcpy(copy, view.buf, (size_t)wanted * 8);
    else
        PyErr_NoMemory();
    PyBuffer_Release(&view);
    Py_DECREF(found);
    for (int64_t i = 0; right && i < wanted; i++)
        if (copy[i] < 0 || copy[i] >= LARGEST) {
            PyErr_SetString(PyExc_OverflowError, "a time is beyond what the core holds");
            right = 0;
        }
    if (!right || keep(&w->memo, one, two, number) < 0) {
        free(copy);
        return NULL;
    }
    w->prefixes[w->number_of_prefixes++] = copy;
    return copy;
}

static int head_of(walk_t *w, int node, int t, int64_t b, int64_t *us)
{
    int64_t parts[] = {KEY_HEAD, w->kind[node], t, b}, given[] = {node, t, b};
    return asked(w, parts, 4, "head", given, 3, us);
}

static int hop_of(walk_t *w, int a, int c, int t, int64_t b, int by, int64_t *us)
{
    int64_t parts[] = {KEY_HOP, w->spot[a], w->spot[c], a == c, t, b, by};
    int64_t given[] = {a, c, t, b, by};
    return asked(w, parts, 7, "hop", given, 5, us);
}

static int64_t flight_of(const walk_t *w, int64_t n, int64_t stages, int64_t j)
{
    if (w->flight == FLIGHT_ONE)
        return 1;
    if (w->flight == FLIGHT_GPIPE)
        return n;
    return n < stages - j ? n : stages - j;
}

static int cap_of(walk_t *w, int64_t b, int64_t n, int64_t stages, int64_t j, int node,
                  int t, int64_t replicas, int64_t *cap)
{
    int64_t parts[] = {KEY_CAP, w->kind[node], t, b, flight_of(w, n, stages, j), j == 0,
                       j == stages - 1, replicas};
    int64_t given[] = {b, n, stages, j, node, t, replicas};
    return asked(w, parts, 8, "cap", given, 7, cap);
}

/* Whether a stage may have so many GPUs of a node: 1, 0, or -1 for an error. */
static int usable(walk_t *w, int node, int t, int64_t b)
{
    if (t > w->count[node])
        return 0;
    int64_t parts[] = {KEY_USABLE, w->kind[node], t, b}, given[] = {node, t, b}, found;
    if (asked(w, parts, 4, "usable", given, 3, &found) < 0)
        return -1;
    return found != 0;
}

/* --- pipelines ---------------------------------------------------------------------- */

/* A pipeline with its times; `slots` are copied. NULL for an error. */
static line_t *new_line(walk_t *w, int64_t size, const slot_t *slots, int64_t stages)
{
    size_t own = sizeof(line_t) + (size_t)stages * sizeof(slot_t);
    own = (own + 7) / 8 * 8;
    line_t *line = malloc(own + (size_t)stages * 16);
    if (!line) {
        PyErr_NoMemory();
        return NULL;
    }
    line->users = 1;
    line->size = size;
    line->stages = stages;
    line->tied = line->updated = NONE;
    line->taus = (int64_t *)((char *)line + own);
    line->behind = line->taus + stages;
    memcpy(line->slots, slots, (size_t)stages * sizeof(slot_t));
    int64_t whole = 0, behind = 0, sent = 0, slowest = 0;
    for (int64_t j = 0; j < stages; j++) {
        const slot_t *slot = slots + j;
        const int64_t *sums = prefix(w, slot->node, slot->t, size, slot->rule);
        if (!sums)
            goto failed;
        const int64_t *back = sums + w->layers + 1;
        int64_t tau = sums[slot->last] - sums[slot->first], head, hop = 0;
        line->behind[j] = behind;
        behind += back[slot->last] - back[slot->first];
        if (j == stages - 1) {
            if (head_of(w, slot->node, slot->t, size, &head) < 0)
                goto failed;
            tau += head;
        } else if (hop_of(w, slot->node, slots[j + 1].node, slots[j + 1].t, size,
                          slot->t, &hop) < 0)
            goto failed;
        whole += tau + hop;
        line->taus[j] = tau + hop + (w->both ? sent : 0);
        sent = hop;
        slowest = line->taus[j] > slowest ? line->taus[j] : slowest;
    }
    line->timing = (timing_t){whole, slowest, 0, 0, line->taus, stages};
    set_lockstep(&line->timing);
    if (whole >= LARGEST || line->timing.up >= LARGEST) {
        PyErr_SetString(PyExc_OverflowError, "a time is beyond what the core holds");
        goto failed;
    }
    return line;
failed:
    free(line);
    return NULL;
}

static int known(walk_t *w, const place_t *chain, int64_t stages, int64_t b)
{
    for (int64_t j = 0; j < stages; j++) {
        int found = usable(w, chain[j].node, chain[j].t, b);
        if (found <= 0)
            return found;
    }
    return 1;
}

static line_t *line_of(walk_t *w, int64_t b, const place_t *chain, int64_t stages,
                       const int32_t *ends)
{
    slot_t *slots = malloc((size_t)stages * sizeof *slots);
    if (!slots) {
        PyErr_NoMemory();
        return NULL;
    }
    int32_t first = 0;
    for (int64_t j = 0; j < stages; j++) {
        slots[j] = (slot_t){chain[j].node, chain[j].t, first, ends[j], 0};
        first = ends[j];
    }
    line_t *line = new_line(w, b, slots, stages);
    free(slots);
    return line;
}

/* Where stages end, of layers that differ: the oracle's, kept. 1, 0 for none, or -1. */
static int uneven_cuts(walk_t *w, int64_t b, int64_t n, const place_t *chain,
                       int64_t stages, int64_t most, int64_t replicas,
                       const int32_t **ends)
{
    int64_t *parts = malloc((size_t)(2 * stages + 5) * 8);
    if (!parts) {
        PyErr_NoMemory();
        return -1;
    }
    parts[0] = KEY_CUTS;
    parts[1] = b;
    parts[2] = n;
    parts[3] = most;
    parts[4] = replicas;
    for (int64_t j = 0; j < stages; j++) {
        parts[5 + 2 * j] = chain[j].node;
        parts[6 + 2 * j] = chain[j].t;
    }
    int count = (int)(2 * stages + 5), result = -1;
    uint64_t one, two;
    fingerprint(parts, count, &one, &two);
    int64_t *kept = find(&w->synced, one, two);
    if (kept) {
        free(parts);
        *ends = *kept == NONE ? NULL : w->cuts[*kept];
        return *kept != NONE;
    }
    PyObject *found = called(w, "cuts", parts + 1, count - 1);
    free(parts);
    if (!found)
        return -1;
    if (found == Py_None) {
        Py_DECREF(found);
        return keep(&w->synced, one, two, NONE) < 0 ? -1 : 0;
    }
    Py_buffer view;
    if (open_numbers(found, stages, &view) == 0) {
        int32_t *copy = malloc((size_t)stages * 4);
        if (copy) {
            for (int64_t j = 0; j < stages; j++)
                copy[j] = (int32_t)((const int64_t *)view.buf)[j];
            if (keep(&w->synced, one, two, w->number_of_cuts) == 0) {
                w->cuts[w->number_of_cuts++] = copy;
                *ends = copy;
                result = 1;
            } else
                free(copy);
        } else
            PyErr_NoMemory();
        PyBuffer_Release(&view);
    }
    Py_DECREF(found);
    return result;
}

/* The first bits of a number, so that cuts can be kept and used again. */
static int64_t rounded(int64_t n)
{
    int length = 0;
    while (n >> length)
        length++;
    int shift = length > 3 ? length - 3 : 0;
    return n >> shift << shift;
}

/* Layers cut as well as they can be; NULL where none fits, or for an error. */
static line_t *balanced(walk_t *w, int64_t b, int64_t n, const place_t *chain,
                        int64_t stages, int64_t most)
{
    if (stages > w->layers || known(w, chain, stages, b) <= 0)
        return NULL;
    n = rounded(n);
    int64_t replicas = w->zero ? w->now.size : 1, caps = 0;
    if (!w->even) {
        const int32_t *ends = NULL;
        if (uneven_cuts(w, b, n, chain, stages, most, replicas, &ends) <= 0)
            return NULL;
        return line_of(w, b, chain, stages, ends);
    }
    for (int64_t j = 0; j < stages; j++) {
        row_t *row = w->rows + j;
        int node = chain[j].node, t = chain[j].t;
        const int64_t *sums = prefix(w, node, t, b, 0);
        if (!sums || cap_of(w, b, n, stages, j, node, t, replicas, &row->cap) < 0)
            return NULL;
        row->each = sums[1] > 1 ? sums[1] : 1;
        int failed = j == stages - 1
                         ? head_of(w, node, t, b, &row->fixed)
                         : hop_of(w, node, chain[j + 1].node, chain[j + 1].t, b, t,
                                  &row->fixed);
        if (failed < 0)
            return NULL;
        if (most != NONE && row->cap > most)
            row->cap = most;
        if (row->cap < 1)
            return NULL;
        caps += row->cap;
    }
    if (caps < w->layers)
        return NULL;
    int64_t *counts = w->work + 2 * stages;
    best_counts(w->rows, stages, w->layers, n, counts, w->work, w->heap);
    int32_t *ends = w->ends, last = 0;
    for (int64_t j = 0; j < stages; j++)
        ends[j] = last += (int32_t)counts[j];
    return line_of(w, b, chain, stages, ends);
}

/* Whether each stage fits into memory: 1, 0, or -1 for an error. */
static int fits(walk_t *w, const line_t *line, int64_t n, int64_t pipelines)
{
    int64_t replicas = w->divided ? pipelines : 1, stages = line->stages, b = line->size;
    for (int64_t j = 0; j < stages; j++) {
        const slot_t *slot = line->slots + j;
        int64_t found;
        if (w->even && !slot->rule) {
            if (cap_of(w, b, n, stages, j, slot->node, slot->t, replicas, &found) < 0)
                return -1;
            if (slot->last - slot->first > found)
                return 0;
            continue;
        }
        int64_t parts[] = {KEY_FITS, w->kind[slot->node], slot->t, b,
                           flight_of(w, n, stages, j), j == 0, j == stages - 1,
                           slot->first, slot->last, slot->rule, replicas};
        int64_t given[] = {b, n, stages, j, slot->node, slot->t, slot->first, slot->last,
                           slot->rule, replicas};
        if (asked(w, parts, 11, "fits", given, 10, &found) < 0)
            return -1;
        if (!found)
            return 0;
    }
    return 1;
}

/* --- synchronisation ---------------------------------------------------------------- */

static void place(walk_t *w, int64_t layer, int node, int t, int sign)
{
    int16_t *held = w->held + layer * w->nodes + node;
    int32_t *many = w->many + (layer * w->links + w->link[node]) * w->stride;
    many[*held]--;
    *held = (int16_t)(*held + sign);
    many[*held]++;
    w->degree[layer * (w->degrees + 1) + t] += sign;
    uint64_t one = w->node_mark[2 * node] + w->degree_mark[2 * t];
    uint64_t two = w->node_mark[2 * node + 1] + w->degree_mark[2 * t + 1];
    w->one[layer] += sign > 0 ? one : 0 - one;
    w->two[layer] += sign > 0 ? two : 0 - two;
    w->touched[layer] = w->touch;
}

/* Layers of one pipeline go and those of another come; either may be NULL. */
static void replace(walk_t *w, const line_t *gone, const line_t *come)
{
    const slot_t *out = gone ? gone->slots : NULL, *in = come ? come->slots : NULL;
    for (int64_t layer = 0; layer < w->layers; layer++) {
        while (out && out->last <= layer)
            out++;
        while (in && in->last <= layer)
            in++;
        if (out && in && out->node == in->node && out->t == in->t)
            continue;
        if (out)
            place(w, layer, out->node, out->t, -1);
        if (in)
            place(w, layer, in->node, in->t, 1);
    }
}

static void make_move(walk_t *w, int undo)
{
    w->touch++;
    int64_t count = w->number_removed > w->number_added ? w->number_removed
                                                        : w->number_added;
    for (int64_t k = 0; k < count; k++) {
        line_t *gone =
            k < w->number_removed ? w->now.lines[w->removed[k]] : NULL;
        line_t *come = k < w->number_added ? w->added[k] : NULL;
        replace(w, undo ? come : gone, undo ? gone : come);
    }
}

/* A time in us in floats, by the formula of plain links. */
static double plain_us(const walk_t *w, int64_t layer, int64_t parameters,
                       int64_t replicas)
{
    const int32_t *many = w->many + layer * w->links * w->stride;
    const int32_t *degree = w->degree + layer * (w->degrees + 1);
    int64_t t = 1;
    while (t < w->degrees && !degree[t])
        t++;
    double worst = 0, count = (double)replicas;
    double each = (double)w->bytes * (double)parameters / (double)t;
    if (w->paired) {
        const int16_t *held = w->held + layer * w->nodes;
        int64_t holders = 0;
        int32_t *holder = w->picked;
        for (int64_t a = 0; a < w->nodes; a++)
            if (held[a])
                holder[holders++] = (int32_t)a;
        for (int64_t i = 0; i < holders; i++) {
            int32_t a = holder[i];
            const double *own = w->inside + 2 * w->link[a];
            const double *row = w->across + 2 * w->nodes * a;
            double latency = (held[a] - 1) * own[0], inverse = (held[a] - 1) * own[1];
            double slowest = held[a] > 1 ? own[1] : 0;
            for (int64_t k = 0; k < holders; k++) {
                int32_t c = holder[k];
                if (c == a)
                    continue;
                latency += held[c] * row[2 * c];
                inverse += held[c] * row[2 * c + 1];
                slowest = row[2 * c + 1] > slowest ? row[2 * c + 1] : slowest;
            }
            double own_us = w->sync == SYNC_RING ? latency + each / count * inverse
                                                 : each * (count - 1) / count * slowest;
            worst = own_us > worst ? own_us : worst;
        }
        return (double)w->passes * worst * 1e6;
    }
    int64_t nodes = 0;
    for (int64_t link = 0; link < w->links; link++) {
        const int32_t *row = many + link * w->stride;
        const double *own = w->inside + 2 * link;
        int64_t low = 0, high = 0;
        for (int64_t c = 1; c <= w->degrees; c++)
            if (row[c]) {
                low = low ? low : c;
                high = c;
                nodes += row[c];
            }
        if (!low)
            continue;
        if (w->sync == SYNC_SLOWEST) {
            if (high > 1 && own[1] > worst)
                worst = own[1];
            continue;
        }
        for (int side = 0; side < 2; side++) { /* between them it is linear */
            double here = (double)(side ? high : low), others = count - here;
            double own_us = (here - 1) * own[0] + others * w->across[0] +
                            each / count *
                                ((here - 1) * own[1] + others * w->across[1]);
            worst = own_us > worst ? own_us : worst;
        }
    }
    if (w->sync == SYNC_SLOWEST) {
        if (nodes > 1 && w->across[1] > worst)
            worst = w->across[1];
        worst *= each * (count - 1) / count;
    }
    return (double)w->passes * worst * 1e6;
}

static int ask_sync(walk_t *w, int64_t layer, int64_t which, int64_t *us)
{
    int64_t digits = w->nodes + w->degrees;
    unsigned char *raw = calloc((size_t)(digits * w->width), 1);
    if (!raw) {
        PyErr_NoMemory();
        return -1;
    }
    for (int64_t i = 0; i < digits; i++) {
        int64_t digit = i < w->nodes
                            ? w->held[layer * w->nodes + i]
                            : w->degree[layer * (w->degrees + 1) + i - w->nodes + 1];
        for (int64_t k = 0; k < w->width; k++)
            raw[i * w->width + k] = (unsigned char)(digit >> 8 * k);
    }
    PyObject *found = PyObject_CallMethod(w->oracle, "sync", "Ly#", (long long)which,
                                          (const char *)raw,
                                          (Py_ssize_t)(digits * w->width));
    free(raw);
    return number_of(found, us);
}

/* Time of a layer of a class, of so many replicas. */
static int sync_of(walk_t *w, int64_t layer, int64_t which, int64_t replicas,
                   int64_t *us)
{
    uint64_t one = mixed(w->one[layer] + (uint64_t)which * 0x9E3779B97F4A7C15u) | 1;
    uint64_t two = w->two[layer] ^ mixed((uint64_t)which + 1);
    int64_t *kept = find(&w->synced, one, two);
    if (kept) {
        *us = *kept;
        return 0;
    }
    int64_t parameters = w->class_parameters[which];
    if (w->sync == SYNC_ASKED || parameters == NONE) {
        if (ask_sync(w, layer, which, us) < 0)
            return -1;
    } else if (replicas < 2) {
        *us = 0;
    } else {
        double about = plain_us(w, layer, parameters, replicas);
        double low = ceil(about * (1 - OPEN)), high = ceil(about * (1 + OPEN));
        if (high >= (double)LARGEST) {
            PyErr_SetString(PyExc_OverflowError, "a time is beyond what the core holds");
            return -1;
        }
        if (low == high)
            *us = (int64_t)high;
        else if (ask_sync(w, layer, which, us) < 0)
            return -1;
    }
    return keep(&w->synced, one, two, *us);
}

/* --- scores ------------------------------------------------------------------------- */

/* The number times top / low, rounded up. */
static int64_t times(int64_t number, int64_t top, int64_t low)
{
    int64_t rest = top * (number % low);
    return top * (number / low) + (rest + low - 1) / low;
}

static int tied_of(walk_t *w, line_t *line)
{
    if (line->tied != NONE)
        return 0;
    const slot_t *one = line->slots, *two = line->slots + line->stages - 1;
    int64_t parts[] = {KEY_TIED, one->node, one->t, two->node, two->t};
    return asked(w, parts, 5, "tied", parts + 1, 4, &line->tied);
}

static int update_of(walk_t *w, line_t *line, int64_t replicas)
{
    if (line->updated == replicas)
        return 0;
    int64_t slowest = 0, us;
    for (int64_t j = 0; j < line->stages; j++) {
        const slot_t *slot = line->slots + j;
        int64_t first = j == 0, last = j == line->stages - 1;
        int64_t parts[] = {KEY_UPDATE, w->kind[slot->node], slot->t, slot->first,
                           slot->last, first, last, replicas};
        int64_t given[] = {slot->node, slot->t, slot->first, slot->last, first, last,
                           replicas};
        if (asked(w, parts, 8, "update", given, 7, &us) < 0)
            return -1;
        slowest = us > slowest ? us : slowest;
    }
    line->updated = replicas;
    line->update_us = slowest;
    return 0;
}

/* The time of all micro-batches of a plan on one GPU, which waits for no other. */
static int alone_of(walk_t *w, const line_t *line, int64_t n, int64_t *us)
{
    const slot_t *slot = line->slots;
    int64_t parts[] = {KEY_ALONE, w->kind[slot->node], line->size, slot->rule};
    int64_t given[] = {slot->node, line->size, slot->rule};
    if (asked(w, parts, 4, "alone", given, 3, us) < 0)
        return -1;
    *us *= n;
    return 0;
}

/* The objective and the score of `next`, whose layers are placed; -1 for an error. */
static int score(walk_t *w)
{
    state_t *next = &w->next;
    int64_t count = next->size;
    for (int64_t l = 0; l < w->layers; l++) {
        w->layer_next[l] = w->layer_us[l];
        if (w->touched[l] == w->touch &&
            sync_of(w, l, w->layer_class[l], count, w->layer_next + l) < 0)
            return -1;
        w->behind[l + 1] = w->behind[l] + w->layer_next[l];
    }
    int64_t embedding = 0, head = 0;
    if (w->end_class != NONE)
        if (sync_of(w, 0, w->end_class, count, &embedding) < 0 ||
            sync_of(w, w->layers - 1, w->end_class, count, &head) < 0)
            return -1;
    int64_t passes = 0, slowest = 0, spread = 0, end = 0, most = 0, wide = 0;
    double work = (double)w->batch, rates = 0;
    for (int64_t i = 0; i < count; i++) {
        line_t *line = next->lines[i];
        const timing_t *timing = &line->timing;
        int64_t us = pipeline_us(w->lockstep, next->counts[i], timing), own = 0;
        if (count == 1 && line->stages == 1 && line->slots[0].t == 1 &&
            alone_of(w, line, next->counts[i], &us) < 0)
            return -1;
        passes = us > passes ? us : passes;
        for (int64_t j = 0; j < line->stages; j++) {
            const slot_t *slot = line->slots + j;
            int64_t sync = w->behind[slot->last] - w->behind[slot->first];
            own = sync > own ? sync : own;
            sync += (j == 0 ? embedding : 0) + (j == line->stages - 1 ? head : 0);
            sync -= w->overlap ? line->behind[j] : 0;
            slowest = sync > slowest ? sync : slowest;
        }
        spread += own;
        double rate = (double)line->size /
                      (double)(timing->slowest > 1 ? timing->slowest : 1);
        rates += rate;
        work += rate * (double)(timing->total - timing->slowest);
        if (w->ties && line->stages > 1) {
            if (tied_of(w, line) < 0)
                return -1;
            end = line->tied > end ? line->tied : end;
        }
        most = next->counts[i] > most ? next->counts[i] : most;
        wide |= line->stages > 1;
    }
    if (w->updates) {
        int64_t update = 0;
        for (int64_t i = 0; i < count; i++) {
            if (update_of(w, next->lines[i], count) < 0)
                return -1;
            int64_t own = next->lines[i]->update_us;
            update = own > update ? own : update;
        }
        end += update;
    }
    if (slowest >= LARGEST) {
        PyErr_SetString(PyExc_OverflowError, "a time is beyond what the core holds");
        return -1;
    }
    if (w->each_round && !wide)
        slowest *= most;
    next->objective = times(passes, w->pipeline_top, w->pipeline_low) +
                      times(slowest, w->sync_top, w->sync_low) + end + w->overhead;
    double fluid = work / rates - (double)passes;
    double mean = (double)spread / (double)count;
    double smoothed = (double)next->objective + w->smooth * fluid * w->pipeline_factor;
    next->score = smoothed + w->spread * mean * w->sync_factor;
    return 0;
}

/* --- moves: each returns 1, 0 where it is not possible, or -1 for an error ----------- */

static int possible(const line_t *line)
{
    if (line)
        return 1;
    return PyErr_Occurred() ? -1 : 0;
}

static int64_t chain_of(const line_t *line, place_t *chain)
{
    for (int64_t j = 0; j < line->stages; j++)
        chain[j] = (place_t){line->slots[j].node, line->slots[j].t};
    return line->stages;
}

/* Now and then a limit on layers of a stage: shorter stages synchronise less. */
static int64_t most_of(walk_t *w, const line_t *line)
{
    static const int steps[] = {-1, 0, 0, 1};
    if (share(w) < 0.6)
        return NONE;
    int64_t longest = 0;
    for (int64_t j = 0; j < line->stages; j++) {
        int64_t own = line->slots[j].last - line->slots[j].first;
        longest = own > longest ? own : longest;
    }
    longest += steps[below(w, 4)];
    return longest > 1 ? longest : 1;
}

/* A recipe: `chain` has (stage of the pipeline, degree), `cut` where stages end unless
   layers are balanced anew. */
typedef struct {
    int64_t stages;
    int cut;
} recipe_t;

static void same_stages(walk_t *w, const line_t *line, recipe_t *recipe)
{
    for (int64_t j = 0; j < line->stages; j++) {
        w->chain[j] = (place_t){(int32_t)j, line->slots[j].t};
        w->cut[j] = line->slots[j].last;
    }
    recipe->stages = line->stages;
    recipe->cut = 0;
}

static int shift_cut(walk_t *w, const line_t *line, recipe_t *recipe)
{
    static const int steps[] = {-2, -1, -1, 1, 1, 2};
    if (line->stages < 2)
        return 0;
    int64_t k = below(w, line->stages - 1);
    same_stages(w, line, recipe);
    w->cut[k] += steps[below(w, 6)];
    recipe->cut = 1;
    return (k ? w->cut[k - 1] : 0) < w->cut[k] && w->cut[k] < w->cut[k + 1];
}

static int hand_layer(walk_t *w, const line_t *line, recipe_t *recipe)
{
    if (line->stages < 2)
        return 0;
    int64_t one, two;
    two_below(w, line->stages, &one, &two);
    same_stages(w, line, recipe);
    int64_t from = one < two ? one : two, to = one < two ? two : one;
    for (int64_t k = from; k < to; k++)
        w->cut[k] += one > two ? 1 : -1;
    recipe->cut = 1;
    return (one ? w->cut[one - 1] : 0) < w->cut[one];
}

static int reorder(walk_t *w, const line_t *line, recipe_t *recipe)
{
    if (line->stages < 2)
        return 0;
    int64_t one, two;
    same_stages(w, line, recipe);
    two_below(w, line->stages, &one, &two);
    place_t moved = w->chain[one];
    if (share(w) < 0.5) {
        w->chain[one] = w->chain[two];
    } else {
        int64_t step = one < two ? 1 : -1;
        for (int64_t k = one; k != two; k += step)
            w->chain[k] = w->chain[k + step];
    }
    w->chain[two] = moved;
    return 1;
}

static int join_stages(walk_t *w, const line_t *line, recipe_t *recipe)
{
    int64_t pairs = 0;
    for (int64_t j = 0; j + 1 < line->stages; j++)
        pairs += line->slots[j].node == line->slots[j + 1].node;
    if (!pairs)
        return 0;
    int64_t drawn = below(w, pairs), at = 0;
    for (;; at++)
        if (line->slots[at].node == line->slots[at + 1].node && !drawn--)
            break;
    same_stages(w, line, recipe);
    w->chain[at].t += w->chain[at + 1].t;
    w->cut[at] = w->cut[at + 1];
    for (int64_t j = at + 1; j + 1 < line->stages; j++) {
        w->chain[j] = w->chain[j + 1];
        w->cut[j] = w->cut[j + 1];
    }
    recipe->stages--;
    recipe->cut = share(w) < 0.5;
    return 1;
}

static int split_stage(walk_t *w, const line_t *line, recipe_t *recipe)
{
    int64_t wide = 0;
    for (int64_t j = 0; j < line->stages; j++)
        wide += line->slots[j].t > 1;
    if (!wide)
        return 0;
    int64_t drawn = below(w, wide), at = 0;
    for (;; at++)
        if (line->slots[at].t > 1 && !drawn--)
            break;
    int32_t t = line->slots[at].t;
    int32_t part = share(w) < 0.7 ? t / 2 : (int32_t)(1 + below(w, t - 1));
    same_stages(w, line, recipe);
    for (int64_t j = line->stages; j > at + 1; j--)
        w->chain[j] = w->chain[j - 1];
    w->chain[at].t = part;
    w->chain[at + 1] = (place_t){(int32_t)at, t - part};
    recipe->stages++;
    return 1;
}

static int even_out_degrees(walk_t *w, const line_t *line, recipe_t *recipe)
{
    int64_t runs = 0, first = 0, last, gpus = 0, divisors = 0;
    for (int64_t j = 0; j < line->stages; j++)
        runs += j == 0 || line->slots[j].node != line->slots[j - 1].node;
    int64_t drawn = below(w, runs);
    for (;; first++)
        if ((first == 0 || line->slots[first].node != line->slots[first - 1].node) &&
            !drawn--)
            break;
    last = first;
    while (last < line->stages && line->slots[last].node == line->slots[first].node)
        gpus += line->slots[last++].t;
    for (int64_t d = 1; d <= gpus; d++)
        divisors += gpus % d == 0;
    drawn = below(w, divisors);
    int64_t t = 1;
    for (;; t++)
        if (gpus % t == 0 && !drawn--)
            break;
    int64_t count = gpus / t, rest = line->stages - last;
    same_stages(w, line, recipe);
    memmove(w->chain + first + count, w->chain + last, (size_t)rest * sizeof(place_t));
    for (int64_t k = 0; k < count; k++)
        w->chain[first + k] = (place_t){(int32_t)first, (int32_t)t};
    recipe->stages = first + count + rest;
    return 1;
}

static int alike(const walk_t *w, const line_t *one, const line_t *two, int same_nodes)
{
    if (one == two)
        return 1;
    if (one->stages != two->stages || one->size != two->size)
        return 0;
    for (int64_t j = 0; j < one->stages; j++) {
        const slot_t *a = one->slots + j, *b = two->slots + j;
        if (a->t != b->t || a->first != b->first || a->last != b->last ||
            a->rule != b->rule || w->kind[a->node] != w->kind[b->node])
            return 0;
        if (same_nodes && a->node != b->node)
            return 0;
    }
    return 1;
}

static int within(walk_t *w)
{
    typedef int (*make_t)(walk_t *, const line_t *, recipe_t *);
    static const make_t makes[] = {shift_cut,   hand_layer,  reorder,
                                   join_stages, split_stage, even_out_degrees};
    static const int upto[] = {30, 42, 48, 54, 60, 66};
    const state_t *now = &w->now;
    int64_t i = below(w, now->size);
    const line_t *line = now->lines[i];
    recipe_t recipe;
    if (!makes[weighed(w, upto, 6)](w, line, &recipe))
        return 0;
    double extent = share(w);
    int64_t count = 0;
    if (extent < 0.4) {
        w->removed[count++] = (int32_t)i;
    } else {
        for (int64_t k = 0; k < now->size; k++)
            if (alike(w, line, now->lines[k], extent < 0.6))
                w->removed[count++] = (int32_t)k;
    }
    w->number_removed = count;
    int64_t most = most_of(w, line), n = recipe.stages;
    for (int64_t k = 0; k < count; k++) {
        const line_t *old = now->lines[w->removed[k]];
        int64_t number = now->counts[w->removed[k]];
        line_t *made = NULL;
        for (int64_t j = 0; j < n; j++) {
            const slot_t *slot = old->slots + w->chain[j].node;
            w->chain_two[j] = (place_t){slot->node, w->chain[j].t};
        }
        if (!recipe.cut)
            made = balanced(w, old->size, number, w->chain_two, n, most);
        else if (known(w, w->chain_two, n, old->size) > 0)
            made = line_of(w, old->size, w->chain_two, n, w->cut);
        int found = possible(made);
        if (found <= 0)
            return found;
        w->added[w->number_added++] = made;
    }
    return 1;
}

static void any_stage(walk_t *w, int64_t *i, int64_t *j)
{
    *i = below(w, w->now.size);
    *j = below(w, w->now.lines[*i]->stages);
}

/* A pipeline with a new chain, balanced; an empty chain drops it. */
static int rebuilt(walk_t *w, int64_t i, const place_t *chain, int64_t stages)
{
    w->removed[w->number_removed++] = (int32_t)i;
    if (!stages)
        return 1;
    const line_t *old = w->now.lines[i];
    int64_t most = most_of(w, old);
    line_t *made = balanced(w, old->size, w->now.counts[i], chain, stages, most);
    if (made)
        w->added[w->number_added++] = made;
    return possible(made);
}

static int both_rebuilt(walk_t *w, int64_t i, int64_t stages, int64_t k, int64_t more)
{
    int found = rebuilt(w, i, w->chain, stages);
    return found <= 0 ? found : rebuilt(w, k, w->chain_two, more);
}

static void insert(place_t *chain, int64_t *stages, int64_t at, place_t one)
{
    memmove(chain + at + 1, chain + at, (size_t)(*stages - at) * sizeof *chain);
    chain[at] = one;
    ++*stages;
}

static void take(place_t *chain, int64_t *stages, int64_t at)
{
    memmove(chain + at, chain + at + 1, (size_t)(*stages - at - 1) * sizeof *chain);
    --*stages;
}

/* Draw stages j and m of pipelines i and k, and lay out both; 0 where these are one. */
static int two_stages(walk_t *w, int64_t *i, int64_t *j, int64_t *k, int64_t *m,
                      int64_t *stages, int64_t *more)
{
    any_stage(w, i, j);
    any_stage(w, k, m);
    if (*i == *k)
        return 0;
    *stages = chain_of(w->now.lines[*i], w->chain);
    *more = chain_of(w->now.lines[*k], w->chain_two);
    return 1;
}

static int swap_stages(walk_t *w)
{
    int64_t i, j, k, m, stages, more;
    if (!two_stages(w, &i, &j, &k, &m, &stages, &more))
        return 0;
    place_t one = w->chain[j], two = w->chain_two[m];
    if (one.node == two.node && one.t == two.t)
        return 0;
    w->chain[j] = two;
    w->chain_two[m] = one;
    return both_rebuilt(w, i, stages, k, more);
}

/* Where a stage on a node goes: next to others there, mostly. */
static int64_t beside(walk_t *w, const place_t *chain, int64_t stages, int node,
                      int64_t otherwise)
{
    int64_t there = 0;
    for (int64_t k = 0; k < stages; k++)
        there += chain[k].node == node;
    if (there && share(w) < 0.8) {
        int64_t drawn = below(w, there), at = 0;
        for (;; at++)
            if (chain[at].node == node && !drawn--)
                return at;
    }
    return otherwise + below(w, 2);
}

static int give_stage(walk_t *w)
{
    int64_t i, j, k, m, stages, more;
    if (!two_stages(w, &i, &j, &k, &m, &stages, &more))
        return 0;
    place_t moved = w->chain[j];
    int64_t at = beside(w, w->chain_two, more, moved.node, m);
    insert(w->chain_two, &more, at, moved);
    take(w->chain, &stages, j);
    return both_rebuilt(w, i, stages, k, more);
}

static int give_gpus(walk_t *w)
{
    int64_t i, j, others = 0;
    any_stage(w, &i, &j);
    int32_t node = w->now.lines[i]->slots[j].node, t = w->now.lines[i]->slots[j].t;
    for (int64_t k = 0; k < w->now.size; k++)
        for (int64_t m = 0; m < w->now.lines[k]->stages; m++)
            if (w->now.lines[k]->slots[m].node == node && (k != i || m != j)) {
                w->spots[2 * others] = k;
                w->spots[2 * others++ + 1] = m;
            }
    if (!others)
        return 0;
    int64_t drawn = below(w, others);
    int64_t k = w->spots[2 * drawn], m = w->spots[2 * drawn + 1];
    int32_t parts[] = {1, 1, t / 2 > 1 ? t / 2 : 1, t};
    int32_t part = parts[below(w, 4)];
    int64_t stages = chain_of(w->now.lines[i], w->chain);
    int64_t more = chain_of(w->now.lines[k], w->chain_two);
    place_t *taker = k == i ? w->chain : w->chain_two;
    taker[m].t += part;
    if (part < t)
        w->chain[j].t = t - part;
    else
        take(w->chain, &stages, j);
    if (k == i)
        return rebuilt(w, i, w->chain, stages);
    return both_rebuilt(w, i, stages, k, more);
}

static int take_free(walk_t *w)
{
    int64_t idle = 0, i, j;
    for (int64_t a = 0; a < w->nodes; a++)
        idle += w->free_gpus[a] > 0;
    if (!idle)
        return 0;
    int64_t drawn = below(w, idle);
    int32_t node = 0;
    for (;; node++)
        if (w->free_gpus[node] > 0 && !drawn--)
            break;
    int32_t t = (int32_t)(1 + below(w, w->free_gpus[node]));
    any_stage(w, &i, &j);
    int64_t stages = chain_of(w->now.lines[i], w->chain);
    double drawn_share = share(w);
    if (drawn_share < 0.3) {
        int64_t b = w->sizes[below(w, w->number_of_sizes)];
        place_t alone = {node, t};
        line_t *made = balanced(w, b, w->now.counts[i], &alone, 1, NONE);
        if (made)
            w->added[w->number_added++] = made;
        return possible(made);
    }
    if (drawn_share < 0.6 && w->chain[j].node == node) {
        w->chain[j].t += t;
    } else {
        int64_t at = beside(w, w->chain, stages, node, j);
        insert(w->chain, &stages, at, (place_t){node, t});
    }
    return rebuilt(w, i, w->chain, stages);
}

static int split_pipeline(walk_t *w)
{
    int64_t i = below(w, w->now.size), half[2] = {0, 0};
    const line_t *line = w->now.lines[i];
    int64_t n = w->now.counts[i], stages = line->stages;
    if (stages < 2)
        return 0;
    int64_t k = share(w) < 0.5 ? 1 + below(w, stages - 1) : 0;
    place_t *halves[] = {w->chain, w->chain_two};
    for (int64_t j = 0; j < stages; j++) {
        int second = k ? j >= k : (int)(j % 2);
        halves[second][half[second]++] =
            (place_t){line->slots[j].node, line->slots[j].t};
    }
    w->removed[w->number_removed++] = (int32_t)i;
    for (int second = 0; second < 2; second++) {
        line_t *made = balanced(w, line->size, (n + 1) / 2, halves[second],
                                half[second], NONE);
        int found = possible(made);
        if (found <= 0)
            return found;
        w->added[w->number_added++] = made;
    }
    return 1;
}

static int join_pipelines(walk_t *w)
{
    if (w->now.size < 2)
        return 0;
    int64_t i, k;
    two_below(w, w->now.size, &i, &k);
    int64_t n = w->now.counts[i] + w->now.counts[k], b = w->now.lines[i]->size;
    int64_t stages = chain_of(w->now.lines[i], w->chain);
    stages += chain_of(w->now.lines[k], w->chain + stages);
    place_t *chain = w->chain;
    if (share(w) >= 0.5) { /* stages on one node stay together */
        int64_t made = 0;
        chain = w->chain_two;
        for (int64_t j = 0; j < stages; j++) {
            int32_t node = w->chain[j].node;
            if (node == NONE)
                continue;
            for (int64_t m = j; m < stages; m++)
                if (w->chain[m].node == node) {
                    chain[made++] = w->chain[m];
                    w->chain[m].node = NONE;
                }
        }
    }
    w->removed[w->number_removed++] = (int32_t)i;
    w->removed[w->number_removed++] = (int32_t)k;
    line_t *made = balanced(w, b, n, chain, stages, NONE);
    if (made)
        w->added[w->number_added++] = made;
    return possible(made);
}

static int drop_stage(walk_t *w)
{
    int64_t i, j;
    any_stage(w, &i, &j);
    int64_t stages = chain_of(w->now.lines[i], w->chain);
    take(w->chain, &stages, j);
    return rebuilt(w, i, w->chain, stages);
}

static int rebalance(walk_t *w)
{
    int64_t i = below(w, w->now.size);
    const line_t *line = w->now.lines[i];
    int64_t b = w->sizes[below(w, w->number_of_sizes)];
    int64_t n = w->now.counts[i] * line->size / b;
    int64_t stages = chain_of(line, w->chain), most = most_of(w, line);
    w->removed[w->number_removed++] = (int32_t)i;
    line_t *made = balanced(w, b, n > 1 ? n : 1, w->chain, stages, most);
    if (made)
        w->added[w->number_added++] = made;
    return possible(made);
}

static int draw(walk_t *w)
{
    typedef int (*move_t)(walk_t *);
    static const move_t moves[] = {swap_stages,    give_stage,     give_gpus,
                                   take_free,      split_pipeline, join_pipelines,
                                   drop_stage,     rebalance};
    static const int upto[] = {8, 14, 20, 24, 27, 30, 33, 35};
    if (share(w) < 0.6)
        return within(w);
    return moves[weighed(w, upto, 8)](w);
}

/* --- steps -------------------------------------------------------------------------- */

static void give_back(walk_t *w, const line_t *line, int sign)
{
    for (int64_t j = 0; j < line->stages; j++)
        w->free_gpus[line->slots[j].node] += sign * line->slots[j].t;
}

/* Free GPUs after the move that is drawn; 0 where there are too few. */
static int take_gpus(walk_t *w, int sign)
{
    int enough = 1;
    for (int64_t k = 0; k < w->number_removed; k++)
        give_back(w, w->now.lines[w->removed[k]], sign);
    for (int64_t k = 0; k < w->number_added; k++)
        give_back(w, w->added[k], -sign);
    for (int64_t k = 0; k < w->number_added; k++)
        for (int64_t j = 0; j < w->added[k]->stages; j++)
            enough &= w->free_gpus[w->added[k]->slots[j].node] >= 0;
    return enough;
}

static int is_removed(const walk_t *w, int64_t i)
{
    for (int64_t k = 0; k < w->number_removed; k++)
        if (w->removed[k] == i)
            return 1;
    return 0;
}

static int share_batch(walk_t *w, state_t *state)
{
    for (int64_t i = 0; i < state->size; i++) {
        w->timings[i] = &state->lines[i]->timing;
        w->line_sizes[i] = state->lines[i]->size;
    }
    return shared(w->batch, w->lockstep, w->timings, w->line_sizes, state->size,
                  state->counts, w->heap, w->fills);
}

/* Whether memory suffices for `next`: kept pipelines, of which `before` had so many
   micro-batches, hold no more than they did where as many are in flight. */
static int all_fit(walk_t *w, const int64_t *before, int64_t kept)
{
    const state_t *next = &w->next;
    int same = !w->divided || next->size == w->now.size;
    for (int64_t i = 0; i < next->size; i++) {
        const line_t *line = next->lines[i];
        if (i < kept && same &&
            (w->flight == FLIGHT_ONE || next->counts[i] <= before[i] ||
             (w->flight == FLIGHT_1F1B && before[i] >= line->stages)))
            continue;
        int found = fits(w, line, next->counts[i], next->size);
        if (found <= 0)
            return found;
    }
    return 1;
}

/* Score the move that is drawn: 1, 0 where it is not possible, or -1 for an error.
   Where it is 1, GPUs and layers are placed. */
static int try_move(walk_t *w)
{
    state_t *now = &w->now, *next = &w->next;
    if (!take_gpus(w, 1)) {
        take_gpus(w, -1);
        return 0;
    }
    int64_t kept = 0, *before = w->work;
    for (int64_t i = 0; i < now->size; i++)
        if (!is_removed(w, i)) {
            next->lines[kept] = now->lines[i];
            before[kept++] = now->counts[i];
        }
    next->size = kept + w->number_added;
    for (int64_t k = 0; k < w->number_added; k++)
        next->lines[kept + k] = w->added[k];
    int found = next->size > 0 && share_batch(w, next);
    if (found)
        found = all_fit(w, before, kept);
    if (found > 0) {
        make_move(w, 0);
        if (score(w) < 0) {
            make_move(w, 1);
            found = -1;
        }
    }
    if (found <= 0)
        take_gpus(w, -1);
    return found;
}

static void copy_state(state_t *to, const state_t *from)
{
    for (int64_t i = 0; i < from->size; i++)
        from->lines[i]->users++;
    for (int64_t i = 0; i < to->size; i++)
        drop(to->lines[i]);
    memcpy(to->lines, from->lines, (size_t)from->size * sizeof *to->lines);
    memcpy(to->counts, from->counts, (size_t)from->size * 8);
    to->size = from->size;
    to->objective = from->objective;
    to->score = from->score;
}

static void accept(walk_t *w)
{
    for (int64_t k = 0; k < w->number_removed; k++)
        drop(w->now.lines[w->removed[k]]);
    state_t now = w->next;
    w->next = w->now;
    w->now = now;
    w->next.size = w->number_added = 0; /* they are the state's now */
    int64_t *us = w->layer_us;
    w->layer_us = w->layer_next;
    w->layer_next = us;
    if (w->now.objective < w->best.objective)
        copy_state(&w->best, &w->now);
}

/* Forget cuts that are kept, and with them what has their numbers. */
static void forget_cuts(walk_t *w)
{
    while (w->number_of_cuts)
        free(w->cuts[--w->number_of_cuts]);
    if (w->synced.size)
        memset(w->synced.entries, 0, w->synced.size * sizeof *w->synced.entries);
    w->synced.used = 0;
}

/* Look at a candidate: 0, or -1 for an error. */
static int step(walk_t *w, double temperature)
{
    if (w->number_of_cuts >= MOST_CUTS)
        forget_cuts(w);
    w->number_removed = w->number_added = 0;
    int found = draw(w);
    if (found > 0)
        found = try_move(w);
    if (found > 0) {
        double worse = w->next.score - w->now.score;
        if (worse <= 0 || (temperature > 0 && share(w) < exp(-worse / temperature))) {
            accept(w);
        } else {
            make_move(w, 1);
            take_gpus(w, -1);
        }
    }
    for (int64_t k = 0; k < w->number_added; k++)
        drop(w->added[k]);
    w->number_added = 0;
    return found < 0 ? -1 : 0;
}

/* --- the type ----------------------------------------------------------------------- */

static void *room(int *failed, int64_t count, size_t each)
{
    void *found = calloc((size_t)(count > 0 ? count : 1), each);
    if (!found)
        *failed = 1;
    return found;
}

static int read_buffer(PyObject *given, int64_t count, char format, void *into)
{
    Py_buffer view;
    if (PyObject_GetBuffer(given, &view, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    const char *own = view.format ? view.format : "B";
    int right = (own[0] == format || (format == 'q' && own[0] == 'l')) && !own[1] &&
                view.itemsize == 8 && view.len == count * 8;
    if (right)
        memcpy(into, view.buf, (size_t)view.len);
    else
        PyErr_SetString(PyExc_ValueError, "the tables of a walk do not fit together");
    PyBuffer_Release(&view);
    return right ? 0 : -1;
}

enum { HEADER = 28, FACTORS = 4, PER_NODE = 4 };

static int read_problem(walk_t *w, const int64_t *given)
{
    int64_t *wide[] = {&w->layers, &w->batch, &w->nodes, &w->gpus, &w->degrees,
                       &w->width, &w->links, &w->number_of_sizes, &w->passes, &w->bytes,
                       &w->overhead, &w->end_class, &w->pipeline_top, &w->pipeline_low,
                       &w->sync_top, &w->sync_low};
    int *narrow[] = {&w->lockstep, &w->both, &w->flight, &w->even, &w->zero, &w->divided,
                     &w->overlap, &w->each_round, &w->ties, &w->updates, &w->sync,
                     &w->paired};
    for (int i = 0; i < 16; i++) {
        *wide[i] = given[i];
        if (given[i] < (i == 11 ? NONE : 0) || given[i] >= LARGEST)
            return -1;
    }
    for (int i = 0; i < 12; i++)
        *narrow[i] = (int)given[16 + i];
    return w->layers > 0 && w->batch > 0 && w->nodes > 0 && w->degrees > 0 &&
                   w->degrees < 1 << 15 && w->gpus >= w->nodes && w->gpus < 1 << 24 &&
                   w->layers < 1 << 24 && w->links > 0 && w->number_of_sizes > 0 &&
                   w->width > 0 && w->width <= 8 && w->pipeline_low > 0 &&
                   w->batch < MOST_BATCH && w->sync_low > 0 &&
                   w->pipeline_low < 1 << 20 && w->sync_low < 1 << 20 &&
                   w->pipeline_top <= 4 * w->pipeline_low &&
                   w->sync_top <= 4 * w->sync_low
               ? 0
               : -1;
}

static int make_room(walk_t *w)
{
    int failed = 0;
    int64_t layers = w->layers, wide = 2 * w->gpus + w->layers + 8, nodes = w->nodes;
    state_t *states[] = {&w->now, &w->next, &w->best};
    for (int i = 0; i < 3; i++) {
        states[i]->lines = room(&failed, wide, sizeof(line_t *));
        states[i]->counts = room(&failed, wide, 8);
    }
    w->free_gpus = room(&failed, nodes, 4);
    w->held = room(&failed, layers * nodes, 2);
    w->stride = 2 * w->degrees + 1;
    w->many = room(&failed, layers * w->links * w->stride, 4);
    w->degree = room(&failed, layers * (w->degrees + 1), 4);
    w->one = room(&failed, layers, 8);
    w->two = room(&failed, layers, 8);
    w->node_mark = room(&failed, 2 * nodes, 8);
    w->degree_mark = room(&failed, 2 * (w->degrees + 1), 8);
    w->layer_us = room(&failed, layers, 8);
    w->layer_next = room(&failed, layers, 8);
    w->behind = room(&failed, layers + 1, 8);
    w->touched = room(&failed, layers, 8);
    w->chain = room(&failed, wide, sizeof(place_t));
    w->chain_two = room(&failed, wide, sizeof(place_t));
    w->cut = room(&failed, wide, 4);
    w->picked = room(&failed, wide, 4);
    w->ends = room(&failed, wide, 4);
    w->spots = room(&failed, 2 * wide, 8);
    w->rows = room(&failed, wide, sizeof(row_t));
    w->work = room(&failed, 3 * wide, 8);
    w->heap = room(&failed, wide, sizeof(entry_t));
    w->fills = room(&failed, wide, 8);
    w->timings = room(&failed, wide, sizeof(timing_t *));
    w->line_sizes = room(&failed, wide, 8);
    w->removed = room(&failed, wide, 4);
    w->added = room(&failed, wide, sizeof(line_t *));
    w->cuts = room(&failed, MOST_CUTS + w->gpus, sizeof(int32_t *));
    if (failed) {
        PyErr_NoMemory();
        return -1;
    }
    uint64_t mark = 0;
    for (int64_t i = 0; i < 2 * nodes; i++)
        w->node_mark[i] = mixed(mark += 0x9E3779B97F4A7C15u);
    for (int64_t i = 0; i < 2 * (w->degrees + 1); i++)
        w->degree_mark[i] = mixed(mark += 0x9E3779B97F4A7C15u);
    return 0;
}

static int read_tables(walk_t *w, PyObject *nodes, PyObject *sizes, PyObject *classes,
                       PyObject *parameters, PyObject *inside, PyObject *across)
{
    int failed = 0;
    int64_t apart = w->paired ? w->nodes * w->nodes : 1, gpus = 0;
    int64_t *table = room(&failed, PER_NODE * w->nodes + w->layers, 8);
    Py_ssize_t given = PyObject_Size(parameters);
    w->count = room(&failed, w->nodes, 4);
    w->kind = room(&failed, w->nodes, 4);
    w->spot = room(&failed, w->nodes, 4);
    w->link = room(&failed, w->nodes, 4);
    w->sizes = room(&failed, w->number_of_sizes, 8);
    w->layer_class = room(&failed, w->layers, 4);
    w->class_parameters = room(&failed, given, 8);
    w->inside = room(&failed, 2 * w->links, 8);
    w->across = room(&failed, 2 * apart, 8);
    int right = -1;
    if (failed)
        PyErr_NoMemory();
    else if (given >= 0 && read_buffer(nodes, PER_NODE * w->nodes, 'q', table) == 0 &&
             read_buffer(classes, w->layers, 'q', table + PER_NODE * w->nodes) == 0 &&
             read_buffer(sizes, w->number_of_sizes, 'q', w->sizes) == 0 &&
             read_buffer(parameters, given, 'q', w->class_parameters) == 0 &&
             read_buffer(inside, 2 * w->links, 'd', w->inside) == 0 &&
             read_buffer(across, 2 * apart, 'd', w->across) == 0) {
        right = w->end_class < given ? 0 : -1;
        for (int64_t a = 0; right == 0 && a < w->nodes; a++) {
            const int64_t *row = table + PER_NODE * a;
            w->free_gpus[a] = w->count[a] = (int32_t)row[0];
            w->kind[a] = (int32_t)row[1];
            w->spot[a] = (int32_t)row[2];
            w->link[a] = (int32_t)row[3];
            gpus += row[0];
            if (row[0] < 1 || row[0] > w->degrees || row[3] < 0 || row[3] >= w->links)
                right = -1;
            /* All nodes begin with no replica. */
            for (int64_t l = 0; right == 0 && l < w->layers; l++)
                w->many[(l * w->links + row[3]) * w->stride]++;
        }
        right = gpus == w->gpus ? right : -1;
        for (int64_t l = 0; right == 0 && l < w->layers; l++) {
            int64_t which = table[PER_NODE * w->nodes + l];
            w->layer_class[l] = (int32_t)which;
            if (which < 0 || which >= given)
                right = -1;
        }
        for (int64_t i = 0; right == 0 && i < w->number_of_sizes; i++)
            if (w->sizes[i] < 1 || w->sizes[i] >= LARGEST)
                right = -1;
        if (right < 0)
            PyErr_SetString(PyExc_ValueError,
                            "the tables of a walk do not fit together");
    }
    free(table);
    return right;
}

/* The first plan: (size, micro-batches, stages) of each pipeline, then its slots. */
static int read_plan(walk_t *w, PyObject *given)
{
    Py_buffer view;
    if (open_numbers(given, -1, &view) < 0)
        return -1;
    const int64_t *from = view.buf;
    int64_t left = view.len / 8, right = left > 0;
    slot_t *slots = malloc((size_t)w->layers * sizeof *slots);
    if (!slots) {
        PyErr_NoMemory();
        PyBuffer_Release(&view);
        return -1;
    }
    w->touch++;
    while (right && left > 0) {
        int64_t stages = left > 2 ? from[2] : 0;
        right = stages > 0 && stages <= w->layers && left >= 3 + 5 * stages &&
                w->next.size < w->gpus && from[0] > 0 && from[1] > 0 &&
                from[1] <= w->batch / from[0];
        int64_t first = 0;
        for (int64_t j = 0; right && j < stages; j++) {
            const int64_t *row = from + 3 + 5 * j;
            slots[j] = (slot_t){(int32_t)row[0], (int32_t)row[1], (int32_t)row[2],
                                (int32_t)row[3], (int32_t)row[4]};
            right = row[0] >= 0 && row[0] < w->nodes && row[1] > 0 &&
                    row[1] <= w->free_gpus[row[0]] && row[2] == first &&
                    row[3] > first && row[3] <= w->layers && row[4] >= 0 &&
                    row[4] < 1 << 16;
            first = row[3];
            if (right)
                w->free_gpus[row[0]] -= (int32_t)row[1];
        }
        if (!right || first != w->layers) {
            right = 0;
            break;
        }
        line_t *line = new_line(w, from[0], slots, stages);
        if (!line)
            break;
        w->next.lines[w->next.size] = line;
        w->next.counts[w->next.size++] = from[1];
        replace(w, NULL, line);
        from += 3 + 5 * stages;
        left -= 3 + 5 * stages;
    }
    free(slots);
    PyBuffer_Release(&view);
    if (!right && !PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "found no plan of this cluster");
    if (PyErr_Occurred() || score(w) < 0)
        return -1;
    w->number_removed = w->number_added = 0;
    w->best.objective = INT64_MAX;
    accept(w);
    return 0;
}

static PyObject *walk_new(PyTypeObject *type, PyObject *args, PyObject *words)
{
    (void)words;
    PyObject *oracle, *header, *factors, *nodes, *sizes, *classes, *parameters, *inside,
        *across, *plan;
    unsigned long long seed;
    int64_t given[HEADER];
    double floats[FACTORS];
    if (!PyArg_ParseTuple(args, "OKOOOOOOOOO", &oracle, &seed, &header, &factors, &nodes,
                          &sizes, &classes, &parameters, &inside, &across, &plan))
        return NULL;
    if (read_buffer(header, HEADER, 'q', given) < 0 ||
        read_buffer(factors, FACTORS, 'd', floats) < 0)
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    walk_t *w = (walk_t *)allocate(type, 0);
    if (!w)
        return NULL;
    w->oracle = Py_NewRef(oracle);
    w->draws = seed;
    w->pipeline_factor = floats[0];
    w->sync_factor = floats[1];
    w->smooth = floats[2];
    w->spread = floats[3];
    if (read_problem(w, given) < 0) {
        PyErr_SetString(PyExc_OverflowError, "the core carries no such numbers");
    } else if (make_room(w) == 0 &&
               read_tables(w, nodes, sizes, classes, parameters, inside, across) == 0 &&
               read_plan(w, plan) == 0) {
        return (PyObject *)w;
    }
    Py_DECREF(w);
    return NULL;
}

static int walk_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((walk_t *)self)->oracle);
    return 0;
}

static int walk_clear(PyObject *self)
{
    Py_CLEAR(((walk_t *)self)->oracle);
    return 0;
}

static void walk_dealloc(PyObject *self)
{
    walk_t *w = (walk_t *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    walk_clear(self);
    state_t *states[] = {&w->now, &w->next, &w->best};
    for (int i = 0; i < 3; i++) {
        for (int64_t k = 0; k < states[i]->size; k++)
            if (i != 1 || !w->now.size) /* `next` holds none of its own but at first */
                drop(states[i]->lines[k]);
        free(states[i]->lines);
        free(states[i]->counts);
    }
    for (int64_t i = 0; i < w->number_of_prefixes; i++)
        free(w->prefixes[i]);
    for (int64_t i = 0; i < w->number_of_cuts; i++)
        free(w->cuts[i]);
    void *all[] = {w->prefixes, w->cuts, w->memo.entries, w->synced.entries, w->count,
                   w->kind, w->spot, w->link, w->inside, w->across, w->sizes,
                   w->layer_class, w->class_parameters, w->free_gpus, w->held, w->many,
                   w->degree, w->one, w->two, w->node_mark, w->degree_mark, w->layer_us,
                   w->layer_next, w->behind, w->touched, w->chain, w->chain_two, w->cut,
                   w->picked, w->ends, w->spots, w->rows, w->work, w->heap, w->fills,
                   (void *)w->timings, w->line_sizes, w->removed, w->added};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *walk_run(PyObject *self, PyObject *args)
{
    walk_t *w = (walk_t *)self;
    long long most, target, number = 0;
    double temperature;
    if (!PyArg_ParseTuple(args, "LdL", &most, &temperature, &target))
        return NULL;
    for (; number < most && w->best.objective > target; number++)
        if (step(w, temperature) < 0)
            return NULL;
    return PyLong_FromLongLong(number);
}

/* Go on from the best plan: its layers and GPUs are placed in place of those at hand. */
static PyObject *walk_begin(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    walk_t *w = (walk_t *)self;
    w->touch++;
    for (int64_t i = 0; i < w->now.size; i++) {
        replace(w, w->now.lines[i], NULL);
        give_back(w, w->now.lines[i], 1);
    }
    for (int64_t i = 0; i < w->best.size; i++) {
        replace(w, NULL, w->best.lines[i]);
        give_back(w, w->best.lines[i], -1);
    }
    copy_state(&w->now, &w->best);
    for (int64_t l = 0; l < w->layers; l++)
        if (sync_of(w, l, w->layer_class[l], w->now.size, w->layer_us + l) < 0)
            return NULL;
    return Py_NewRef(Py_None);
}

static PyObject *plan_of(const state_t *state)
{
    int64_t count = 0, at = 0;
    for (int64_t i = 0; i < state->size; i++)
        count += 3 + 5 * state->lines[i]->stages;
    int64_t *flat = malloc((size_t)count * 8);
    if (!flat)
        return PyErr_NoMemory();
    for (int64_t i = 0; i < state->size; i++) {
        const line_t *line = state->lines[i];
        flat[at++] = line->size;
        flat[at++] = state->counts[i];
        flat[at++] = line->stages;
        for (int64_t j = 0; j < line->stages; j++) {
            const slot_t *slot = line->slots + j;
            int64_t row[] = {slot->node, slot->t, slot->first, slot->last, slot->rule};
            memcpy(flat + at, row, sizeof row);
            at += 5;
        }
    }
    PyObject *found = as_list(flat, count);
    free(flat);
    return found;
}

static PyObject *walk_best(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    return plan_of(&((walk_t *)self)->best);
}

static PyObject *walk_now(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    walk_t *w = (walk_t *)self;
    PyObject *plan = plan_of(&w->now);
    if (!plan)
        return NULL;
    return Py_BuildValue("NLdK", plan, (long long)w->now.objective, w->now.score,
                         (unsigned long long)w->draws);
}

static PyObject *walk_objective(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    return PyLong_FromLongLong(((walk_t *)self)->best.objective);
}

static PyMethodDef walk_methods[] = {
    {"run", walk_run, METH_VARARGS,
     "run(most, temperature, target): look at candidates; returns how many."},
    {"begin", walk_begin, METH_NOARGS, "Go on from the best plan."},
    {"best", walk_best, METH_NOARGS, "The best plan, flat as it was given."},
    {"objective", walk_objective, METH_NOARGS, "The objective of the best plan."},
    {"now", walk_now, METH_NOARGS,
     "The plan at hand, its objective and score, and the state of the draws."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot walk_slots[] = {
    {Py_tp_doc, "A walk over plans: random moves, some of which are taken."},
    {Py_tp_new, walk_new},
    {Py_tp_dealloc, walk_dealloc},
    {Py_tp_traverse, walk_traverse},
    {Py_tp_clear, walk_clear},
    {Py_tp_methods, walk_methods},
    {0, NULL},
};

PyType_Spec walk_spec = {
    "hetopt._kernels._core.Walk", sizeof(walk_t), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, walk_slots,
};
