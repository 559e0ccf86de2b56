"""The course's grader: a file of a student's modules, planned in a confined process and judged in this one.

| file | what it has |
| --- | --- |
| `lab_tasks` | the labs: which slots a submission fills, what it is compared with |
| `drawn_cases` | networks, batches and budgets, drawn from a seed |
| `submission` | the confined process: it executes the student's file and plans |
| `confined` | the limits of that process, and what starts and ends it |
| `handed_over` | a program as plain values: the only thing that comes out of it |
| `criteria` | the judge, who believes nothing else: proof, bits, bytes, seconds, bound |
| `waits_lab` | the lab whose submission is a script: it is read, and never executed |
| `kernel_lab`, `kernel_threads` | the lab whose submission is a kernel, and the threads that are counted |
| `every_lab` | any of them, by its name |
| `contest` | many submissions, ranked |
"""
