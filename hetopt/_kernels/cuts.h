/* Layers that differ to stages: plain loops over whole numbers. */

#ifndef HETOPT_CUTS_H
#define HETOPT_CUTS_H

#include <stdint.h>

/* What a stage takes: us beside its layers, sums of layer times before each layer, and
   where a run from each layer on ends at the latest. */
typedef struct {
    int64_t fixed;
    const int64_t *sums, *reach;
} stage_t;

/* Numbers that `best_cuts` works on, for so many stages and layers. */
#define CUTS_ROOM(stages, layers) (((stages) + 4) * ((layers) + 1) + 2 * (stages))

/* Where each stage ends, into `ends`; 0 where none fits. Stages have from `fewest` to
   `most` layers. `work` has room for `CUTS_ROOM` numbers. */
int best_cuts(const stage_t *rows, int64_t stages, int64_t layers, int64_t n,
              int64_t fewest, int64_t most, int64_t *ends, int64_t *work);

#endif
