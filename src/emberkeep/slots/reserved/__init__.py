"""Reserved standbys of jobs: which task manager keeps which. What it does with them is in ``slots.standbys``."""
