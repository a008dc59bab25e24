"""A live queue of training jobs: nobody names GPUs, a policy places them.

An engine (Slurm, Ray, or this machine) runs the jobs, and its own records are the truth
of what runs. What it cannot know lies in a folder: job files, plans and why, in SQLite.
So no process has to stay: each pass reads what is there, follows what runs, places what
waits, and ends.

    jobs        what a user submits
    store       the file beside the engine, and the lock of who places
    engines     one module an engine
    machines    what there is and what of it is idle, as an instance of each job
    deciding    a policy on the live state
    launching   a plan on the GPUs that were chosen, exported and submitted
    following   what became of it
    scheduler   one pass over all of these, and the door for commands and programs
"""
