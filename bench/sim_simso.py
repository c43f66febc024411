"""Jobs a second of SimSo: 16 periodic tasks, 1 ms each 10 ms, on 4 processors."""

import contextlib
import os
import time

from simso.configuration import Configuration
from simso.core import Model

SECONDS = 10

configuration = Configuration()
configuration.duration = SECONDS * 1000 * configuration.cycles_per_ms
for number in range(16):
    configuration.add_task(
        name=f"task {number}",
        identifier=number + 1,
        period=10,
        activation_date=number / 16 * 10,
        wcet=1,
        deadline=10,
    )
for number in range(4):
    configuration.add_processor(name=f"processor {number}", identifier=number + 1)
configuration.scheduler_info.clas = "simso.schedulers.EDF"
configuration.check_all()
model = Model(configuration)
# Its EDF prints every decision, which is not what is timed.
with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
    started = time.perf_counter()
    model.run_model()
    took = time.perf_counter() - started
jobs = sum(len(task.jobs) for task in model.results.tasks.values())
print(f"simso_jobs {jobs}")
print(f"simso_jobs_per_s {jobs / took:.0f}")
