"""Trainings to begin with."""
