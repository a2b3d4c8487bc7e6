"""Measurements of the running product; nothing is asserted, everything goes into a JSON file."""
