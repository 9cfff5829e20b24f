"""Hostile peers: the catalogue of docs/robustness, case by case, each named by its row."""
