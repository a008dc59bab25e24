"""torchtitan: its launch, plans of running jobs."""
