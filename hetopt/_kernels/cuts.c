/* `hetopt.search.balancing` says how layers are cut. */

#include "core.h"

#include <stdlib.h>

#define NOWHERE INT64_MAX

/* What a stage takes: us beside its layers, sums of layer times before each layer, and
   where a run from each layer on ends at the latest. */
typedef struct {
    int64_t fixed;
    const int64_t *sums, *reach;
} stage_t;

/* The least sum of stage times of which none exceeds a limit, and where stages end;
   `NOWHERE` where none fits. `begun` has where the last run begins, stage by stage. */
static int64_t filled(const stage_t *rows, int64_t stages, int64_t layers,
                      int64_t fewest, int64_t most, int64_t limit, int64_t *ends,
                      int64_t *work)
{
    int64_t *before = work, *sum = before + layers + 1, *value = sum + layers + 1;
    int64_t *queue = value + layers + 1, *begun = queue + layers + 1;
    for (int64_t i = 1; i <= layers; i++)
        before[i] = NOWHERE;
    before[0] = 0;
    for (int64_t k = 0; k < stages; k++) {
        const stage_t *row = rows + k;
        int64_t head = 0, tail = 0, entering = 0, first = 0;
        int64_t *from = begun + k * (layers + 1);
        int64_t behind = (stages - 1 - k) * fewest;
        for (int64_t i = 0; i <= layers; i++)
            sum[i] = NOWHERE;
        int64_t last = k + 1 < stages ? (k + 1) * fewest : layers;
        for (; last <= layers - behind; last++) {
            for (; entering <= last - fewest; entering++) {
                if (before[entering] == NOWHERE)
                    continue;
                value[entering] = before[entering] - row->sums[entering];
                while (tail > head && value[queue[tail - 1]] > value[entering])
                    tail--;
                queue[tail++] = entering;
            }
            while (first <= last - fewest &&
                   (row->reach[first] < last || last - first > most ||
                    row->sums[last] - row->sums[first] + row->fixed > limit))
                first++;
            while (head < tail && queue[head] < first)
                head++;
            if (head < tail) {
                from[last] = queue[head];
                sum[last] = value[queue[head]] + row->sums[last] + row->fixed;
            }
        }
        int64_t *now = before;
        before = sum;
        sum = now;
    }
    if (before[layers] == NOWHERE)
        return NOWHERE;
    for (int64_t k = stages - 1, end = layers; k >= 0; k--) {
        ends[k] = end;
        end = begun[k * (layers + 1) + end];
    }
    return before[layers];
}

static int64_t slowest_of(const stage_t *rows, int64_t stages, const int64_t *ends)
{
    int64_t slowest = 0;
    for (int64_t k = 0, first = 0; k < stages; first = ends[k++]) {
        int64_t us = rows[k].sums[ends[k]] - rows[k].sums[first] + rows[k].fixed;
        slowest = greater(slowest, us);
    }
    return slowest;
}

/* Where each stage ends; whether any cut fits. */
static int cut(const stage_t *rows, int64_t stages, int64_t layers, int64_t n,
               int64_t fewest, int64_t most, int64_t *ends, int64_t *work)
{
    int64_t *tried = work;
    work += stages;
    int64_t total = filled(rows, stages, layers, fewest, most, NOWHERE, ends, work);
    if (total == NOWHERE)
        return 0;
    int64_t sum = total, slowest = slowest_of(rows, stages, ends);
    int64_t best = total + (n - 1) * slowest;
    /* None is below `low` at the most: the mean at first, then what was refuted. */
    int64_t low = (sum + stages - 1) / stages - 1, high = slowest, limit = slowest - 1;
    while (sum + (n - 1) * (low + 1) < best && limit > low) {
        int64_t middle = high - low > 1 ? low + (high - low) / 2 : limit;
        total = filled(rows, stages, layers, fewest, most, middle, tried, work);
        if (total == NOWHERE) {
            low = middle;
            continue;
        }
        slowest = slowest_of(rows, stages, tried);
        if (total + (n - 1) * slowest < best) {
            best = total + (n - 1) * slowest;
            for (int64_t k = 0; k < stages; k++)
                ends[k] = tried[k];
        }
        if (high - low > 1) {
            high = slowest;
        } else {
            limit = slowest - 1;
        }
        int64_t highest = n > 1 ? (best - sum - 1) / (n - 1) : low;
        limit = lesser(highest, limit);
    }
    return 1;
}

KERNEL(best_cuts, "r # # # # =s")
{
    int64_t layers = given->numbers[1], n = given->numbers[2], fewest = given->numbers[3];
    int64_t stages = given->size['s'], largest = n > 0 ? LARGEST_FOR(n) : 0;
    const int64_t *row = array(given, 0);
    int right = 0 < layers && layers < MOST_BATCH && 0 < fewest && fewest < MOST_BATCH &&
                0 < stages && stages < MOST_BATCH &&
                given->size['r'] == stages * (2 * layers + 3);
    if (!right)
        return TOO_LARGE;
    int64_t room = (stages + 4) * (layers + 1) + stages;
    int64_t *work = malloc((size_t)room * 8 + (size_t)stages * sizeof(stage_t));
    if (!work)
        return NO_MEMORY;
    stage_t *rows = (stage_t *)(work + room);
    for (int64_t k = 0; right && k < stages; k++, row += 2 * layers + 3) {
        const int64_t *sums = row + 1, *reach = sums + layers + 1;
        rows[k] = (stage_t){*row, sums, reach};
        right = 0 <= *row && *row < largest && !sums[0] && sums[layers] < largest;
        for (int64_t i = 0; right && i < layers; i++)
            right = sums[i] <= sums[i + 1] && reach[i] <= reach[i + 1];
    }
    int found = right && cut(rows, stages, layers, n, fewest, given->numbers[4],
                             array(given, 5), work);
    free(work);
    return !right ? TOO_LARGE : found ? DONE : NONE;
}
