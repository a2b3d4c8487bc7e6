"""Clusters of Cluster API: failure domains of several Providers, and what templates would give."""
