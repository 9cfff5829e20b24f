"""Tests of session types: the language, machines, values, monitors, endpoints and generated modules."""
