"""The ruler: the same work done by this library and by its peers, in one run, each end a process of its own.

Run it with ``python -m benchmarks``. Workloads are in workloads.py, contenders in peers/, processes in pairs.py and
child.py, the order of a run in runner.py, what is aimed at in bars.py, what came of it in figures.py. That is shown on
the terminal by report.py, in the documentation by page.py and picture.py. No figure ever fails a test.
"""
