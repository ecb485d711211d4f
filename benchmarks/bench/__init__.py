"""`make bench`: what Yanmo does beside others that do the same, in turn on one machine.

declared.py      what a benchmark is, and which there are
of_*.py          one benchmark each
environments.py  the packages of the others, in environments of their own
rounds.py        runs one benchmark, in its environment
intervals.py     medians, ratios and their intervals
__main__.py      the command
"""
