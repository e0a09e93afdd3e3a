"""Finite processes of what is known of arms, alone and jointly."""
