"""Reproduction of the Restless-UCB paper (Wang, Huang, Lui 2020): experiments, theory, regret lower bound."""
