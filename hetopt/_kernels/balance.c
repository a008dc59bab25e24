/* Floats are added up one by one; nothing here may be contracted to fused operations
   (setup.py switches that off), so that all machines find the same. */

#include "balance.h"

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

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

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
        counts[k] = count = most(1, count);
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
        slowest = most(slowest, rows[k].fixed + rows[k].each * counts[k]);
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
            cap = least(cap, (slowest - row->fixed) / row->each);
        int64_t more = least(left, cap - 1);
        counts[cheapest[i]] += more;
        total += row->each * more;
        left -= more;
    }
    return total;
}

void best_counts(const row_t *rows, int64_t stages, int64_t layers, int64_t n,
                 int64_t *counts, int64_t *work, entry_t *heap)
{
    int64_t *cheapest = work, *trial = work + stages;
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

/* --- micro-batches ------------------------------------------------------------------ */

void set_lockstep(timing_t *timing)
{
    int64_t so_far = 0;
    timing->up = timing->down = 0;
    for (int64_t j = 0; j + 1 < timing->stages; j++) {
        so_far = j ? most(so_far, timing->taus[j]) : timing->taus[j];
        timing->up += so_far;
    }
    for (int64_t j = timing->stages - 1; j > 0; j--) {
        so_far = j == timing->stages - 1 ? timing->taus[j]
                                         : most(so_far, timing->taus[j]);
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
        int64_t end = least(slot + 1, stages);
        for (int64_t j = most(0, slot - n + 1); j < end; j++)
            slowest = most(slowest, timing->taus[j]);
        sum += slowest;
    }
    return sum;
}

int shared(int64_t batch, int lockstep, const timing_t *timings,
           const int64_t *sizes, int64_t pipes, int64_t *counts, entry_t *heap,
           double *fills)
{
    int64_t least_batch = 0;
    double rates = 0, filled_in_all = 0;
    for (int64_t i = 0; i < pipes; i++)
        least_batch += sizes[i];
    if (least_batch > batch)
        return 0;
    for (int64_t i = 0; i < pipes; i++) {
        const timing_t *timing = timings + i;
        double rate = (double)sizes[i] / (double)most(1, timing->slowest);
        fills[i] = (double)(pipeline_us(lockstep, timing->stages, timing) -
                            timing->stages * timing->slowest);
        rates += rate;
        filled_in_all += rate * fills[i];
    }
    double level = ((double)batch + filled_in_all) / rates; /* when all end at once */
    int64_t left = batch;
    for (int64_t i = 0; i < pipes; i++) {
        double us = (double)most(1, timings[i].slowest);
        counts[i] = most(1, (int64_t)((level - fills[i]) / us));
        if (lockstep) /* short runs take longer than the line */
            while (counts[i] > 1 &&
                   (double)pipeline_us(1, counts[i], timings + i) > level)
                counts[i]--;
        left -= counts[i] * sizes[i];
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
        if (sizes[i] > left) {
            heap[0] = heap[--size];
            sift(heap, size, 0);
            continue;
        }
        counts[i]++;
        left -= sizes[i];
        heap[0].key = lockstep ? pipeline_us(1, counts[i] + 1, timings + i)
                               : heap[0].key + timings[i].slowest;
        sift(heap, size, 0);
    }
    return !left;
}
