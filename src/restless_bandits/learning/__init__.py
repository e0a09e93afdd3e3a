"""Learning from observations: counts, estimation, change detection, learners."""
