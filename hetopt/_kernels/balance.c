/* Floats are added up one by one; nothing here may be contracted to fused operations
   (setup.py switches that off), so that all machines find the same. */

#include "core.h"

#include <stdlib.h>

/* A stage that waits for layers of equal size: us of a layer, us beside its layers,
   and the most layers that it may take. */
typedef struct {
    int64_t each, fixed, cap;
} row_t;

/* A pipeline's size, its times for one micro-batch in us, and what filling and draining
   take in lockstep, or beyond its slowest stage. */
typedef struct {
    int64_t size, total, slowest, stages, up, down;
    const int64_t *taus;
    double fill;
} timing_t;

typedef struct {
    int64_t key, number;
} entry_t;

static int before(entry_t one, entry_t two)
{
    return one.key < two.key || (one.key == two.key && one.number < two.number);
}

static void sift(entry_t *heap, int64_t count, int64_t at)
{
    entry_t moved = heap[at];
    for (;;) {
        int64_t below = 2 * at + 1;
        if (below >= count)
            break;
        if (below + 1 < count && before(heap[below + 1], heap[below]))
            below++;
        if (!before(heap[below], moved))
            break;
        heap[at] = heap[below];
        at = below;
    }
    heap[at] = moved;
}

static void heapify(entry_t *heap, int64_t count)
{
    for (int64_t at = count / 2 - 1; at >= 0; at--)
        sift(heap, count, at);
}

/* --- layers ------------------------------------------------------------------------ */

static int64_t least_bottleneck(const row_t *rows, int64_t stages, int64_t layers,
                                int64_t *counts, entry_t *heap)
{
    double fixed = 0, speed = 0;
    for (int64_t k = 0; k < stages; k++) {
        fixed += (double)rows[k].fixed / (double)rows[k].each;
        speed += 1.0 / (double)rows[k].each;
    }
    /* Rounding down from the fluid level never exceeds the optimum where it fits. */
    double level = ((double)layers + fixed) / speed;
    int64_t sum = 0;
    int fits = 1;
    for (int64_t k = 0; k < stages; k++) {
        const row_t *row = rows + k;
        double share = (level - (double)row->fixed) / (double)row->each;
        int64_t count = share >= (double)row->cap ? row->cap : (int64_t)share;
        counts[k] = count = greater(1, count);
        sum += count;
        if (count > 1 && (double)(row->fixed + row->each * count) > level)
            fits = 0;
    }
    if (!fits || sum > layers) {
        for (int64_t k = 0; k < stages; k++)
            counts[k] = 1;
        sum = stages;
    }
    int64_t size = 0;
    for (int64_t k = 0; k < stages; k++)
        if (counts[k] < rows[k].cap) {
            heap[size].key = rows[k].fixed + rows[k].each * (counts[k] + 1);
            heap[size++].number = k;
        }
    heapify(heap, size);
    for (int64_t left = layers - sum; left > 0; left--) {
        int64_t k = heap[0].number;
        counts[k]++;
        heap[0].key =
            counts[k] == rows[k].cap ? INT64_MAX : heap[0].key + rows[k].each;
        sift(heap, size, 0);
    }
    int64_t slowest = 0;
    for (int64_t k = 0; k < stages; k++)
        slowest = greater(slowest, rows[k].fixed + rows[k].each * counts[k]);
    return slowest;
}

/* The least sum of stage times below a bottleneck: cheapest stages filled first. */
static int64_t filled(const row_t *rows, int64_t stages, int64_t layers,
                      int64_t slowest, const int64_t *cheapest, int64_t *counts)
{
    int64_t left = layers - stages, total = 0;
    for (int64_t k = 0; k < stages; k++) {
        counts[k] = 1;
        total += rows[k].fixed + rows[k].each;
    }
    for (int64_t i = 0; i < stages && left > 0; i++) {
        const row_t *row = rows + cheapest[i];
        int64_t cap = row->cap;
        if (slowest >= 0)
            cap = lesser(cap, (slowest - row->fixed) / row->each);
        int64_t more = lesser(left, cap - 1);
        counts[cheapest[i]] += more;
        total += row->each * more;
        left -= more;
    }
    return total;
}

static void best_counts(const row_t *rows, int64_t stages, int64_t layers, int64_t n,
                        int64_t *counts, int64_t *work)
{
    int64_t *cheapest = work, *trial = work + stages;
    entry_t *heap = (entry_t *)(trial + stages);
    int64_t slowest = least_bottleneck(rows, stages, layers, trial, heap);
    for (int64_t k = 0; k < stages; k++) { /* a stable sort of few different keys */
        int64_t at = k;
        for (; at > 0 && rows[cheapest[at - 1]].each > rows[k].each; at--)
            cheapest[at] = cheapest[at - 1];
        cheapest[at] = k;
    }
    /* A slower bottleneck pays only while it can still shorten the sum: at best all
       caps but memory are gone. */
    int64_t floor = filled(rows, stages, layers, -1, cheapest, trial);
    int64_t value = filled(rows, stages, layers, slowest, cheapest, counts);
    value += (n - 1) * slowest;
    for (;;) {
        int64_t next = -1;
        for (int64_t k = 0; k < stages; k++) {
            int64_t count = (slowest - rows[k].fixed) / rows[k].each;
            if (count >= rows[k].cap)
                continue;
            int64_t reached = rows[k].fixed + (count + 1) * rows[k].each;
            if (next < 0 || reached < next)
                next = reached;
        }
        slowest = next;
        if (slowest < 0 || floor + (n - 1) * slowest >= value)
            return;
        int64_t total = filled(rows, stages, layers, slowest, cheapest, trial);
        if (total + (n - 1) * slowest < value) {
            value = total + (n - 1) * slowest;
            for (int64_t k = 0; k < stages; k++)
                counts[k] = trial[k];
        }
    }
}

KERNEL(best_counts, "r # # =s")
{
    const row_t *rows = given->views[0].buf;
    int64_t layers = given->numbers[1], n = given->numbers[2], stages = given->size['s'];
    int64_t largest = n > 0 ? LARGEST_FOR(n) : 0, caps = 0;
    int right = given->size['r'] == 3 * stages && 0 < stages && stages <= layers &&
                layers < LARGEST;
    for (int64_t k = 0; right && k < stages; k++) {
        right = 0 < rows[k].each && rows[k].each < largest / layers &&
                0 <= rows[k].fixed && rows[k].fixed < largest && 0 < rows[k].cap &&
                rows[k].cap <= layers;
        caps += rows[k].cap;
    }
    if (!right || caps < layers)
        return TOO_LARGE;
    int64_t *work = malloc((size_t)stages * (2 * 8 + sizeof(entry_t)));
    if (!work)
        return NO_MEMORY;
    best_counts(rows, stages, layers, n, array(given, 3), work);
    free(work);
    return DONE;
}

/* --- micro-batches ------------------------------------------------------------------ */

static void set_lockstep(timing_t *timing)
{
    int64_t so_far = 0;
    timing->up = timing->down = 0;
    for (int64_t j = 0; j + 1 < timing->stages; j++) {
        so_far = j ? greater(so_far, timing->taus[j]) : timing->taus[j];
        timing->up += so_far;
    }
    for (int64_t j = timing->stages - 1; j > 0; j--) {
        so_far = j == timing->stages - 1 ? timing->taus[j]
                                         : greater(so_far, timing->taus[j]);
        timing->down += so_far;
    }
}

static int64_t pipeline_us(int lockstep, int64_t n, const timing_t *timing)
{
    int64_t stages = timing->stages;
    if (!lockstep)
        return timing->total + (n - 1) * timing->slowest;
    if (n >= stages)
        return timing->up + (n - stages + 1) * timing->slowest + timing->down;
    int64_t sum = 0;
    for (int64_t slot = 0; slot < stages + n - 1; slot++) {
        int64_t slowest = 0;
        int64_t end = lesser(slot + 1, stages);
        for (int64_t j = greater(0, slot - n + 1); j < end; j++)
            slowest = greater(slowest, timing->taus[j]);
        sum += slowest;
    }
    return sum;
}

/* Micro-batches of each pipeline, so that the slowest ends soonest; whether there are. */
static int share(int64_t batch, int lockstep, timing_t *timings, int64_t pipes,
                 int64_t *counts, entry_t *heap)
{
    int64_t least_batch = 0;
    double rates = 0, filled_in_all = 0;
    for (int64_t i = 0; i < pipes; i++)
        least_batch += timings[i].size;
    if (least_batch > batch)
        return 0;
    for (int64_t i = 0; i < pipes; i++) {
        timing_t *timing = timings + i;
        double rate = (double)timing->size / (double)greater(1, timing->slowest);
        timing->fill = (double)(pipeline_us(lockstep, timing->stages, timing) -
                                timing->stages * timing->slowest);
        rates += rate;
        filled_in_all += rate * timing->fill;
    }
    double level = ((double)batch + filled_in_all) / rates; /* when all end at once */
    int64_t left = batch;
    for (int64_t i = 0; i < pipes; i++) {
        double us = (double)greater(1, timings[i].slowest);
        counts[i] = greater(1, (int64_t)((level - timings[i].fill) / us));
        if (lockstep) /* short runs take longer than the line */
            while (counts[i] > 1 &&
                   (double)pipeline_us(1, counts[i], timings + i) > level)
                counts[i]--;
        left -= counts[i] * timings[i].size;
    }
    if (left < 0) {
        left = batch - least_batch;
        for (int64_t i = 0; i < pipes; i++)
            counts[i] = 1;
    }
    if (!left)
        return 1;
    /* Give what is left, one micro-batch at a time, to whoever ends soonest. */
    int64_t size = pipes;
    for (int64_t i = 0; i < pipes; i++) {
        heap[i].key = pipeline_us(lockstep, counts[i] + 1, timings + i);
        heap[i].number = i;
    }
    heapify(heap, size);
    while (left && size) {
        int64_t i = heap[0].number;
        if (timings[i].size > left) {
            heap[0] = heap[--size];
            sift(heap, size, 0);
            continue;
        }
        counts[i]++;
        left -= timings[i].size;
        heap[0].key = lockstep ? pipeline_us(1, counts[i] + 1, timings + i)
                               : heap[0].key + timings[i].slowest;
        sift(heap, size, 0);
    }
    return !left;
}

KERNEL(shared, "# # r t =p")
{
    int64_t batch = given->numbers[0], pipes = given->size['p'], end = 0;
    int64_t largest = batch > 0 ? LARGEST_FOR(batch) : 0;
    int lockstep = given->numbers[1] != 0, right = given->size['r'] == 4 * pipes;
    timing_t *timings = malloc((size_t)pipes * (sizeof(timing_t) + sizeof(entry_t)) + 1);
    if (!timings)
        return NO_MEMORY;
    const int64_t *row = array(given, 2);
    for (int64_t i = 0; right && i < pipes; i++, row += 4) {
        timings[i] = (timing_t){row[0], row[1], row[2], row[3], 0, 0,
                                array(given, 3) + end, 0};
        right = 0 < row[0] && row[0] < LARGEST && 0 <= row[1] && row[1] < largest &&
                0 <= row[2] && row[2] < largest && 0 < row[3] && row[3] < LARGEST;
        if (!right || !lockstep)
            continue;
        end += row[3];
        right = end <= given->size['t'];
        if (right)
            set_lockstep(timings + i);
    }
    int found = right && share(batch, lockstep, timings, pipes, array(given, 4),
                               (entry_t *)(timings + pipes));
    free(timings);
    return !right ? TOO_LARGE : found ? DONE : NONE;
}
