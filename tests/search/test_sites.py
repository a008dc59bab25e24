"""Plans that mind slow links: valid, and with gradients that stay inside a site."""

import pytest

import hetopt
from hetopt.problems import training_plan as judge
from hetopt.search import sites
from hetopt.search.fast_cost import FastCost

_TWO_SITES = [f"generated:islands/16/{seed}" for seed in range(3)]


@pytest.mark.parametrize("name", _TWO_SITES)
def test_plans_of_sites_are_valid_and_no_layer_is_in_two_sites(name: str) -> None:
    instance = hetopt.load(name)
    cost = FastCost(instance)
    site_of = {
        cost.names[node]: number
        for number, site in enumerate(sites.sites(cost))
        for node in site
    }
    plans = sites.starts(instance)
    assert plans
    objectives = []
    for plan in plans:
        found = judge.evaluate(instance, plan)
        assert not found.violations
        objectives.append(found.objective)
        homes: dict[int, set[int]] = {}
        for pipeline in plan.pipelines:
            for stage in pipeline.stages:
                here = {site_of[r.gpus[0].split(":")[0]] for r in stage.replicas}
                for layer in range(*stage.layers):
                    homes.setdefault(layer, set()).update(here)
        assert all(len(home) == 1 for home in homes.values())
    assert objectives == sorted(objectives)


def test_sites_are_all_nodes_once_and_quick_links_join_no_two() -> None:
    cost = FastCost(hetopt.load("generated:islands/64/1"))
    found = sites.sites(cost)
    assert sorted(node for site in found for node in site) == cost.timed_nodes
    slowest = {
        min(cost.table.link(cost.names[i], cost.names[j])[1] for i in one for j in two)
        for number, one in enumerate(found)
        for two in found[:number]
    }
    assert len(found) == 4
    assert len(slowest) == 1  # the one link that is between all sites


def test_where_links_are_alike_there_is_one_site_and_no_plan_of_several() -> None:
    instance = hetopt.load("generated:equal/16/0")
    assert len(sites.sites(FastCost(instance))) == 1
    assert sites.starts(instance) == []
