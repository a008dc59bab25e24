"""Queues of jobs: idle GPUs, the event-driven simulator, traces, workloads, metrics.

A policy (`policies`) decides; the simulator keeps time and books leases; the judge
(`hetopt.problems.job_scheduling`) checks the schedule that comes out.
"""
