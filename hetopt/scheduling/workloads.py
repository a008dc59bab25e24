"""Seeded queues of language models, in the manner of Frenzy's NewWorkload.

The paper says "GPT-2 and BERT models with different sizes and various batch sizes" in
queues of 30 and 60 and no more; sizes, batches, lengths and arrivals are ours.
"""

from random import Random

from ..problems.job_scheduling import Assumptions, Data, Job
from ..schema import Cluster
from . import catalogue

# Each model with the batches that are drawn; the weights favour the smaller models.
CHOICES: tuple[tuple[str, tuple[int, ...], int], ...] = (
    ("bert-base", (16, 32, 64), 4),
    ("bert-large", (8, 16, 32), 4),
    ("gpt2", (8, 16, 32), 4),
    ("gpt2-medium", (4, 8, 16), 3),
    ("gpt2-large", (4, 8), 2),
    ("gpt2-xl", (4, 8), 2),
    ("gpt2-7b", (2, 4), 1),
)
# GPU-hours of work on the reference: one of the strongest type that fits.
GPU_HOURS = (0.25, 4.0)


def queue(
    jobs: int, seed: int, cluster: Cluster, name: str, *, every_s: float = 120.0
) -> Data:
    """`jobs` jobs that arrive as a Poisson process, one `every_s` on average.

    Work is log-uniform in GPU_HOURS on the fastest single configuration by GPU; users
    ask for 1, 2, 4 or 8 GPUs, without knowing what fits. Jobs that the cluster cannot
    fit are not drawn.
    """
    random = Random(f"frenzy {seed}")
    models = {model: catalogue.job_model(model) for model, _, _ in CHOICES}
    shell = Data(
        name=name,
        cluster=cluster,
        models=models,
        jobs=tuple(
            Job(name=f"{m}/{b}", model=m, batch=b, samples=1, submit_s=0)
            for m, batches, _ in CHOICES
            for b in batches
        ),
    )
    possible = [job for job in shell.jobs if shell.refusal(job) is None]
    weights = {model: weight for model, _, weight in CHOICES}
    now, made = 0.0, []
    for number in range(jobs):
        like = random.choices(possible, [weights[job.model] for job in possible])[0]
        low, high = GPU_HOURS
        hours = low * (high / low) ** random.random()
        made.append(
            Job(
                name=f"job{number:02d}",
                model=like.model,
                batch=like.batch,
                samples=samples_for(shell, like, hours),
                submit_s=round(now, 1),
                gpus=min(random.choice((1, 2, 4, 8)), cluster.gpu_count),
            )
        )
        now += random.expovariate(1) * every_s
    used = {job.model for job in made}
    return Data(
        name=name,
        source=(
            f"GPT-2 and BERT jobs in the manner of Frenzy's NewWorkload, seed {seed}"
        ),
        cluster=cluster,
        models={name: model for name, model in models.items() if name in used},
        jobs=tuple(made),
        assumptions=Assumptions(),
    )


def samples_for(data: Data, job: Job, gpu_hours: float) -> int:
    """Samples that `gpu_hours` train where a GPU trains most; at least one step."""
    options = data.rates.options(data.trained(job))
    each_us = min(option.step_us * option.gpus for option in options)
    return max(1, round(gpu_hours * 3.6e9 / each_us)) * job.batch
