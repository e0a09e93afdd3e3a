"""Problems as data: arms, rewards, changes, tasks, records, Markov chains, and the formulas on them."""
