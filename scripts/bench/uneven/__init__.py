"""Real trainings on uneven clusters, by several methods of synchronizing, side by side.

- `cases`: what is trained, how unevenly, and the most that anything could gain; pure values.
- `methods`: the names of the methods, and the sync model of each.
- `tasks`: the networks and their data.
- `worker`: one rank of a job, which trains a case by all its methods.
- `schedules`: which samples each step of a rank has, and how long it is to take.
- `clock`: when a training reached what.
- `trainings`: runs the jobs in a lab, and keeps what was measured.
- `comparison`: what reports tell of trainings, and gains of methods over others.
"""
