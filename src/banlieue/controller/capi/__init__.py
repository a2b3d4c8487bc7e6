"""Machines that Cluster API makes: placed and stamped here, made and served by their Provider."""
