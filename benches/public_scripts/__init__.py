"""Public training scripts at fixed commits, each with the few lines that make it train from a packed dataset.

    python -m benches.public_scripts --sources FOLDER

Nothing of the scripts is here: `ports/` has our lines. You bring the repositories.
"""
