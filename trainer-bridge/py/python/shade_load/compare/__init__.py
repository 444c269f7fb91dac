"""`python -m shade_load.compare`: what each sampler gains on a user's data and machine, by the user's own script.

`__main__` is the command. `cells` reads what is compared, `runs` trains one run, and `inside` is what a
Loader does in a run. `points` reads what a run left, `tables` compares the runs, `paired` has the
statistics, and `told` the text. docs/compare.md is for users.
"""
