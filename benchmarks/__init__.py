"""Benchmarks: run the same work with afflux and its peers in one run, with each end in a process.

Run with ``python -m benchmarks``. workloads.py defines the workloads, peers/ the contenders, pairs.py and child.py the
processes, runner.py the order of a run, bars.py the targets, figures.py the results. report.py prints them, page.py and
picture.py write them to the documentation. No figure ever fails a test.
"""
