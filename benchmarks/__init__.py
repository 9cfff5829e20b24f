"""The ruler: the same work done by this library and by its peers, in one run, each end a process of its own.

Run it with ``python -m benchmarks``. Workloads are in workloads.py, contenders in peers/, processes in pairs.py and
child.py, the order of a run in runner.py, words and tables in report.py. No figure is ever judged here.
"""
