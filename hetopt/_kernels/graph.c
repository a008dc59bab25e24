#include "graph.h"

int read_graph(given_t *given, graph_t *graph)
{
    const int64_t *size = given->size;
    *graph = (graph_t){
        array(given, 0), array(given, 1), array(given, 2), array(given, 3),
        array(given, 4), array(given, 5), array(given, 6), array(given, 7),
        array(given, 8), array(given, 10), array(given, 11), array(given, 12),
        array(given, 13), given->numbers[9], size['a'], size['L'], size['c'], size['K'], size['r'], size['F'], 0,
    };
    int64_t layers = graph->layers, arcs = graph->arcs, classes = graph->classes;
    int right = size['l'] == layers + 1 && size['d'] == classes + 1 && layers > 0;
    right = right && within(given, 4, 0, layers) && within(given, 5, 0, layers) &&
            within(given, 7, 0, HALF) && within(given, 6, 0, graph->side - 1) &&
            within(given, 0, 0, arcs);
    for (int64_t c = 0; right && c < classes; c++) {
        int64_t most = graph->node_gpus[c];
        for (int64_t k = 0; k <= most; k++)
            graph->chains = greater(graph->chains, state_of(graph, c, k) + k + 1);
        for (int64_t arc = graph->begin[c]; arc < graph->begin[c + 1]; arc++)
            right = right && graph->gpus[arc] > 0 && graph->gpus[arc] <= most;
    }
    for (int64_t first = 0; right && first < layers; first++)
        for (int64_t last = first + 1; last <= layers; last++) {
            int64_t run = graph->run[first * (layers + 1) + last];
            right = right && run >= 0 && run < graph->runs;
        }
    return right;
}
