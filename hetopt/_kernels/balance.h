/* Layers to stages and micro-batches to pipelines: plain loops over whole numbers. */

#ifndef HETOPT_BALANCE_H
#define HETOPT_BALANCE_H

#include <stdint.h>

/* A stage that waits for layers of equal size: us of a layer, us beside its layers,
   and the most layers that it may take. */
typedef struct {
    int64_t each, fixed, cap;
} row_t;

/* A pipeline's times for one micro-batch, in us; `up` and `down` are what filling and
   draining take in lockstep. */
typedef struct {
    int64_t total, slowest, up, down;
    const int64_t *taus;
    int64_t stages;
} timing_t;

typedef struct {
    int64_t key;
    int64_t number;
} entry_t;

/* Set what filling and draining take from the times of stages. */
void set_lockstep(timing_t *timing);

/* Layers of each stage into `counts`; the caps must allow `layers` and one each.
   `work` has room for 2 `stages` numbers, `heap` for `stages` entries. */
void best_counts(const row_t *rows, int64_t stages, int64_t layers, int64_t n,
                 int64_t *counts, int64_t *work, entry_t *heap);

/* Micro-batches of each pipeline into `counts`, so that the slowest ends soonest;
   returns 0 where the batch cannot be shared. `heap` has room for `pipes` entries,
   `fills` for as many numbers. */
int shared(int64_t batch, int lockstep, const timing_t *timings,
           const int64_t *sizes, int64_t pipes, int64_t *counts, entry_t *heap,
           double *fills);

#endif
