/* Arcs and what they cost, as `hetopt.exact.pipelines.kernels` has them. */

#ifndef HETOPT_GRAPH_H
#define HETOPT_GRAPH_H

#include "core.h"

/* Arrays of a graph, then of costs, as words of `open_given`: the first 14 arguments.
   d is classes + 1, l is layers + 1. */
#define GRAPH_WORDS "d a aLl aLl aL aKL c cK ll # c aKLl rF rF"

typedef struct {
    const int64_t *begin, *gpus, *inner, *outer, *fits, *light, *node_gpus, *state, *run;
    const int64_t *gpu, *arc, *front_us, *front_cost;
    int64_t time, arcs, layers, classes, side, runs, fronts;
    int64_t chains; /* states of chains in a node */
} graph_t;

/* Read a graph and its costs; whether entries are within their tables. */
int read_graph(given_t *given, graph_t *graph);

/* Rows by last layer: times, and what arcs cost where k GPUs are used. */
INLINE int64_t row_of(const graph_t *graph, int64_t arc, int64_t first)
{
    return (arc * graph->layers + first) * (graph->layers + 1);
}

INLINE const int64_t *price_of(const graph_t *graph, int64_t arc, int64_t k, int64_t first)
{
    int64_t row = (arc * graph->side + k) * graph->layers + first;
    return graph->arc + row * (graph->layers + 1);
}

INLINE int64_t fits_of(const graph_t *graph, int64_t arc, int64_t first)
{
    return graph->fits[arc * graph->layers + first];
}

INLINE int64_t light_of(const graph_t *graph, int64_t arc, int64_t k, int64_t first)
{
    return graph->light[(arc * graph->side + k) * graph->layers + first];
}

INLINE int64_t state_of(const graph_t *graph, int64_t c, int64_t k)
{
    return graph->state[c * graph->side + k];
}

#endif
