"""Front door: the sub-commands of `manage.py jobs`, a module for each group of them. They ask rooms below.

A sub-command gives an `Answer`, in words and as data, and never prints by itself. A new one is a `Sub` in the SUBS of
its group's module, and `management/commands/jobs.py` lists the groups.
"""
